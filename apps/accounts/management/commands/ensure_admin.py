"""`manage.py ensure_admin`: the first administrator of a new installation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from apps.accounts.first_admin import USERNAME, ensure_first_admin


class Command(BaseCommand):
    """Creates the user `admin` with a random password once; prints it only then."""

    help = "Create the user admin with a random password, kept in <home>/admin-password; does nothing if it exists."

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(settings.INFLIGHT_HOME) / "admin-password"
        password = ensure_first_admin(path)
        if password is not None:
            self.stdout.write(
                _(
                    "Account %(user)s created, password %(password)s (kept in %(path)s, readable by you alone)."
                )
                % {"user": USERNAME, "password": password, "path": path}
            )
        elif options["verbosity"] > 1:
            self.stdout.write(_("Account %(user)s exists already.") % {"user": USERNAME})
