from django.apps import AppConfig


class ChatConfig(AppConfig):
    """See the package docstring."""

    name = "apps.chat"
    verbose_name = "Playground"

    def ready(self) -> None:
        """Have the telemetry process end turns whose web process died."""
        from apps.chat import turn_runner
        from apps.telemetry import chores

        chores.register("turns of processes that died", 5.0, turn_runner.settle_dead_turns)
