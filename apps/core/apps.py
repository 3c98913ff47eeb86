from django.apps import AppConfig


class CoreConfig(AppConfig):
    """See the package docstring."""

    name = "apps.core"
    verbose_name = "Audit"
