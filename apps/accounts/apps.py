from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AccountsConfig(AppConfig):
    """See the package docstring."""

    name = "apps.accounts"
    verbose_name = "People"

    def ready(self) -> None:
        """Make the groups of the roles after each migration."""
        from apps.accounts.groups import ensure_role_groups

        post_migrate.connect(ensure_role_groups, sender=self, dispatch_uid="accounts.role_groups")
