from django.apps import AppConfig


class StreamingConfig(AppConfig):
    """See the package docstring."""

    name = "apps.streaming"
    verbose_name = "Streaming"

    def ready(self) -> None:
        """Keep what serves up to date."""
        from apps.streaming import served

        served.connect()
