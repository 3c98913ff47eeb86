import contextlib

from django.apps import AppConfig


class RegistryConfig(AppConfig):
    """See the package docstring."""

    name = "apps.registry"
    verbose_name = "Checkpoints"

    def ready(self) -> None:
        """Register the live topic; make the folder in which uploads arrive."""
        from apps.registry import selectors, topics

        topics.register()
        # A command that only reads may run where nothing can be written.
        with contextlib.suppress(OSError):
            selectors.uploads_folder().mkdir(parents=True, exist_ok=True)
