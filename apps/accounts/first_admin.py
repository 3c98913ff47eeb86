"""The administrator that a new installation begins with."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from django.contrib.auth.models import User
from django.db import IntegrityError

USERNAME = "admin"
# 16 random bytes: about 22 letters and digits.
PASSWORD_BYTES = 16


def ensure_first_admin(password_file: Path) -> str | None:
    """Create the superuser `admin` with a random password kept in `password_file` (mode 600).

    Returns the password, or None where such a user exists already: nothing of it is changed then, and the file is
    left as it is. The file is written before the user, so a run that breaks off in between is simply done again.
    """
    if User.objects.filter(username=USERNAME).exists():
        return None
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    _write_private(password_file, password + "\n")
    try:
        User.objects.create_superuser(USERNAME, password=password)
    except IntegrityError:
        # Somebody else created it first; the password in the file would be a wrong one.
        password_file.unlink(missing_ok=True)
        return None
    return password


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)
