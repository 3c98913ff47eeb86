from typing import Any

from django.apps import AppConfig


class EnginesConfig(AppConfig):
    """See the package docstring."""

    name = "apps.engines"
    verbose_name = "Engines"

    def ready(self) -> None:
        """Register the live topics; listen to checkpoints that are deleted."""
        from apps.engines import topics
        from apps.engines.artefacts import forget_history
        from apps.registry.signals import checkpoint_deleting

        def receive(sender: object, checkpoint: Any, **kwargs: object) -> None:
            forget_history(checkpoint)

        topics.register()
        checkpoint_deleting.connect(receive, weak=False, dispatch_uid="engines.forget_history")
