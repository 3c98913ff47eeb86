from django.apps import AppConfig


class FleetConfig(AppConfig):
    """See the package docstring."""

    name = "apps.fleet"
    verbose_name = "Fleet"
