from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """See the package docstring."""

    name = "apps.dashboard"
    verbose_name = "Pages"
