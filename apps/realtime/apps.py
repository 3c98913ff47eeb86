from django.apps import AppConfig


class RealtimeConfig(AppConfig):
    """See the package docstring."""

    name = "apps.realtime"
    verbose_name = "Live updates"
