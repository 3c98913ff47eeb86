"""Typed readers of the environment, and of `<home>/run/environment` that a running installation leaves.

The real environment wins over the file, so that one command can be pointed elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

ROOT = Path(__file__).resolve().parents[2]


def home() -> Path:
    """Folder that holds all that Inflight writes: INFLIGHT_HOME, or `var` in the checkout."""
    return Path(os.environ.get("INFLIGHT_HOME") or ROOT / "var").resolve()


def parse_environment(text: str, where: str) -> dict[str, str]:
    """Parse KEY=value lines; blank lines and lines beginning with `#` are passed over.

    Raises ImproperlyConfigured naming the line for anything else.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, separator, value = line.partition("=")
        if not separator or not key.strip().isidentifier():
            raise ImproperlyConfigured(f"{where}, line {number}: expected KEY=value, got {line!r}.")
        found[key.strip()] = value.strip()
    return found


def load_environment_file() -> None:
    """Fill what the process environment lacks from `<home>/run/environment`, if that file exists."""
    path = home() / "run" / "environment"
    if path.is_file():
        for key, value in parse_environment(path.read_text(encoding="utf-8"), str(path)).items():
            os.environ.setdefault(key, value)


def text(name: str, default: str = "") -> str:
    """Value of an environment variable, or the default where it is unset or empty."""
    return os.environ.get(name) or default


def flag(name: str, default: bool = False) -> bool:
    """Boolean variable: 1/true/yes/on or 0/false/no/off; anything else is an error naming it."""
    raw = os.environ.get(name)
    if not raw:
        return default
    if raw.lower() in {"1", "true", "yes", "on"}:
        return True
    if raw.lower() in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name}: expected true or false, got {raw!r}.")


def integer(name: str, default: int) -> int:
    """Integer variable; anything else is an error naming it."""
    raw = os.environ.get(name)
    if not raw:
        return default
    try:
        return int(raw)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: expected a whole number, got {raw!r}.") from error


def words(name: str, default: list[str]) -> list[str]:
    """Comma-separated list variable."""
    raw = os.environ.get(name)
    return [part.strip() for part in raw.split(",") if part.strip()] if raw else default


def secret_key() -> str:
    """Django's secret key: INFLIGHT_SECRET_KEY, else a random one kept in `<home>/secret-key`, mode 600."""
    import secrets

    given = os.environ.get("INFLIGHT_SECRET_KEY")
    if given:
        return given
    path = home() / "secret-key"
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(50))
    return path.read_text(encoding="ascii").strip()
