from django.apps import AppConfig


class EnginesConfig(AppConfig):
    """See the package docstring."""

    name = "apps.engines"
    verbose_name = "Engines"
