from typing import Any

from django.apps import AppConfig


class ServingConfig(AppConfig):
    """See the package docstring."""

    name = "apps.serving"
    verbose_name = "Serving"

    def ready(self) -> None:
        """Register the live topics; go on with deployments as soon as a build that they wait for ends."""
        from apps.core.transitions import state_changed
        from apps.engines.models import Build
        from apps.serving import sweep, topics

        topics.register()

        def receive(sender: object, instance: Any, **kwargs: object) -> None:
            sweep.build_ended(instance)

        state_changed.connect(receive, sender=Build, weak=False, dispatch_uid="serving.build_ended")
