"""Texts that rows keep encrypted: tokens for hubs and upstreams.

The key is a file of its own, `<INFLIGHT_HOME>/secrets.key`, mode 600, made at the first use; a copy of the database
alone therefore tells nothing. Several hosts share secrets only where they share that file.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.utils.translation import gettext as _

from apps.core.exceptions import InfrastructureError

KEY_FILE = "secrets.key"


class SecretUnreadable(InfrastructureError):
    """A kept secret cannot be read: its key file is gone, open to others or another one; or the text is damaged."""


def key_path() -> Path:
    """Where the key lies."""
    return Path(settings.INFLIGHT_HOME) / KEY_FILE


def encrypt(text: str) -> str:
    """The text, encrypted, as ASCII for a text column. Makes the key where there is none yet."""
    return Fernet(_key(make=True)).encrypt(text.encode("utf-8")).decode("ascii")


def decrypt(stored: str) -> str:
    """The text that `encrypt` was given. Raises SecretUnreadable, saying what to do; never tells the text."""
    try:
        return Fernet(_key(make=False)).decrypt(stored.encode("ascii", "replace")).decode("utf-8")
    except (InvalidToken, UnicodeDecodeError) as error:
        raise SecretUnreadable(
            "secret_other_key",
            _("A kept secret cannot be decrypted with the key of this installation."),
            remedy=_(
                "Put the key file %(path)s of the installation that kept it here, or enter the secret again."
            )
            % {"path": key_path()},
        ) from error


def _key(make: bool) -> bytes:
    path = key_path()
    try:
        return _checked(path)
    except FileNotFoundError:
        if not make:
            raise SecretUnreadable(
                "secret_key_missing",
                _("The key file of kept secrets is missing: %(path)s.") % {"path": path},
                remedy=_("Put the file back from a backup, or enter the secret again."),
            ) from None
    _make(path)
    return _checked(path)


def _checked(path: Path) -> bytes:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        text = file.read(200).strip()
    if mode & 0o077:
        raise SecretUnreadable(
            "secret_key_open",
            _("The key file of kept secrets may be read by others: %(path)s.") % {"path": path},
            remedy=_("Run chmod 600 on it; if others used this machine meanwhile, enter the secrets anew."),
        )
    try:
        Fernet(text)
    except ValueError as error:
        raise SecretUnreadable(
            "secret_key_damaged",
            _("The key file of kept secrets is no key: %(path)s.") % {"path": path},
            remedy=_("Put the file back from a backup, or move it away and enter the secrets again."),
        ) from error
    return text


def _make(path: Path) -> None:
    """Write a new key whole, and only where no other process was first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(Fernet.generate_key())
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
