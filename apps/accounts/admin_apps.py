"""The configuration of `django.contrib.admin`; in a file of its own, because Django takes one default per file."""

from __future__ import annotations

from django.conf import settings
from django.contrib.admin.apps import AdminConfig


class InflightAdminConfig(AdminConfig):
    """Django's admin with our site: entry by role, sign-in on our page, a Content-Security-Policy of its own."""

    default_site = "apps.accounts.admin_site.InflightAdminSite"

    def ready(self) -> None:
        """Import what every app shows there, in processes that have pages."""
        if settings.INFLIGHT_PAGES:
            super().ready()
