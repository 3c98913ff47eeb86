from django.apps import AppConfig


class ServingConfig(AppConfig):
    """See the package docstring."""

    name = "apps.serving"
    verbose_name = "Serving"
