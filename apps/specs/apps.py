from django.apps import AppConfig


class SpecsConfig(AppConfig):
    """See the package docstring."""

    name = "apps.specs"
    verbose_name = "Specifications"
