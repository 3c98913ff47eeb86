from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """See the package docstring."""

    name = "apps.gateway"
    verbose_name = "Gateway"
