from django.apps import AppConfig


class ChatConfig(AppConfig):
    """See the package docstring."""

    name = "apps.chat"
    verbose_name = "Playground"
