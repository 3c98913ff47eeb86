from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """See the package docstring."""

    name = "apps.telemetry"
    verbose_name = "Telemetry"

    def ready(self) -> None:
        """Register the live topics, and what the telemetry process does for alerts."""
        from apps.accounts.roles import Action
        from apps.realtime import topics
        from apps.telemetry import chores, selectors
        from apps.telemetry.alerts import evaluation, notifying
        from apps.telemetry.alerts import topics as alert_topics

        topics.register_samples("metrics", permission=Action.VIEW, history=selectors.missed, unkeyed=True)
        alert_topics.register()
        chores.register("alerts", evaluation.PERIOD, evaluation.tick)
        chores.register("alert notifications", 2.0, notifying.plan_and_send)
        chores.register("old alerts", 3600.0, notifying.prune)
