from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """See the package docstring."""

    name = "apps.dashboard"
    verbose_name = "Pages"

    def ready(self) -> None:
        """Register the live topic of the lists."""
        from apps.dashboard import topics

        topics.register()
