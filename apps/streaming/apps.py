from django.apps import AppConfig


class StreamingConfig(AppConfig):
    """See the package docstring."""

    name = "apps.streaming"
    verbose_name = "Streaming"
