from django.apps import AppConfig


class WorkersConfig(AppConfig):
    """Installed for its management commands, which need code that apps may not import."""

    name = "workers"
    verbose_name = "Workers"
