from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """See the package docstring."""

    name = "apps.telemetry"
    verbose_name = "Telemetry"

    def ready(self) -> None:
        """Register the live topics metrics:<deployment id> and metrics."""
        from apps.accounts.roles import Action
        from apps.realtime import topics
        from apps.telemetry import selectors

        topics.register_samples("metrics", permission=Action.VIEW, history=selectors.missed, unkeyed=True)
