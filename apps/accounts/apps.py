from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AccountsConfig(AppConfig):
    """See the package docstring."""

    name = "apps.accounts"
    verbose_name = "People"

    def ready(self) -> None:
        """Make the groups of the roles after each migration; answer the live topics' role checks."""
        from apps.accounts.groups import ensure_role_groups
        from apps.accounts.roles import may
        from apps.realtime import topics

        topics.use_permission_check(may)
        post_migrate.connect(ensure_role_groups, sender=self, dispatch_uid="accounts.role_groups")
