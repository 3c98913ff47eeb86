from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """See the package docstring."""

    name = "apps.gateway"
    verbose_name = "Gateway"

    def ready(self) -> None:
        """Raise the table's version where something in it changes."""
        from apps.gateway import signals

        signals.connect()
