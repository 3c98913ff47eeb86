from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """See the package docstring."""

    name = "apps.gateway"
    verbose_name = "Gateway"

    def ready(self) -> None:
        """Raise the table's version where something in it changes; have old records removed."""
        from apps.gateway import signals
        from apps.gateway.usage import store
        from apps.telemetry import chores

        signals.connect()
        chores.register("gateway records", 30.0, store.sweep)
