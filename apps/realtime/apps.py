from django.apps import AppConfig


class RealtimeConfig(AppConfig):
    """See the package docstring."""

    name = "apps.realtime"
    verbose_name = "Live updates"

    def ready(self) -> None:
        """Publish every change of a row with a status, and watch who may still look."""
        from apps.realtime import access, publisher

        publisher.connect()
        access.connect()
