from django.apps import AppConfig


class FleetConfig(AppConfig):
    """See the package docstring."""

    name = "apps.fleet"
    verbose_name = "Fleet"

    def ready(self) -> None:
        """Logs of other hosts are read through their doors."""
        from apps.fleet import door_logs
        from apps.realtime import log_sources

        log_sources.register(door_logs.SCHEME, door_logs.read)
