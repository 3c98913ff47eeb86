from django.apps import AppConfig


class ControlConfig(AppConfig):
    """See the package docstring."""

    name = "apps.control"
    verbose_name = "Control"
