from django.apps import AppConfig


class LoadTestsConfig(AppConfig):
    """See the package docstring."""

    name = "apps.loadtests"
    verbose_name = "Load tests"

    def ready(self) -> None:
        """Register the live topics."""
        from apps.loadtests import topics

        topics.register()
