from django.apps import AppConfig


class RegistryConfig(AppConfig):
    """See the package docstring."""

    name = "apps.registry"
    verbose_name = "Checkpoints"
