from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """See the package docstring."""

    name = "apps.accounts"
    verbose_name = "People"
