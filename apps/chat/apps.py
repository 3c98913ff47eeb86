from django.apps import AppConfig


class ChatConfig(AppConfig):
    """See the package docstring."""

    name = "apps.chat"
    verbose_name = "Playground"

    def ready(self) -> None:
        """Have the telemetry process end turns whose web process died."""
        from apps.telemetry import chores

        chores.register("turns of processes that died", 5.0, _settle_dead_turns)


def _settle_dead_turns() -> None:
    # Imported where it is needed: most processes never stream an answer.
    from apps.chat import turn_runner

    turn_runner.settle_dead_turns()
