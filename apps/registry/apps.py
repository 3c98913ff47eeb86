from django.apps import AppConfig


class RegistryConfig(AppConfig):
    """See the package docstring."""

    name = "apps.registry"
    verbose_name = "Checkpoints"

    def ready(self) -> None:
        """Register the live topic."""
        from apps.registry import topics

        topics.register()
