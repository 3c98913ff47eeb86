from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """See the package docstring."""

    name = "apps.telemetry"
    verbose_name = "Telemetry"
