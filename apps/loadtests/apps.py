from django.apps import AppConfig


class LoadTestsConfig(AppConfig):
    """See the package docstring."""

    name = "apps.loadtests"
    verbose_name = "Load tests"

    def ready(self) -> None:
        """Register the live topics and the gate of quality; have telemetry end loads that nobody keeps."""
        from apps.loadtests import quality_gate, topics
        from apps.serving import gates
        from apps.telemetry import chores

        topics.register()
        gates.register("quality", quality_gate.refusal)
        chores.register("background loads that nobody keeps", 3.0, _end_background_loads)


def _end_background_loads() -> None:
    # Imported where it is needed: only one process does it.
    from apps.loadtests import background

    background.end_expired()
