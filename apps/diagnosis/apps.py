from django.apps import AppConfig


class DiagnosisConfig(AppConfig):
    """See the package docstring."""

    name = "apps.diagnosis"
    verbose_name = "Diagnosis"
