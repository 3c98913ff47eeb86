"""SQLite on one machine, PostgreSQL by DATABASE_URL for several."""

from __future__ import annotations

from typing import Any

import dj_database_url

from controlplane.settings import env

# A deferred transaction that has read cannot wait to become a writer: the busy timeout does not apply to it,
# so every atomic block takes the write lock first (docs/architecture.md, Database).
SQLITE_OPTIONS: dict[str, Any] = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
}


def sqlite(path: str) -> dict[str, Any]:
    """Database entry for one SQLite file."""
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": dict(SQLITE_OPTIONS)}


def configured() -> dict[str, Any]:
    """Database entry from DATABASE_URL, or the SQLite file of this home."""
    url = env.text("DATABASE_URL")
    if not url:
        return sqlite(str(env.home() / "db.sqlite3"))
    parsed: dict[str, Any] = dict(dj_database_url.parse(url, conn_max_age=60, conn_health_checks=True))
    if parsed["ENGINE"].endswith("sqlite3"):
        parsed["OPTIONS"] = dict(SQLITE_OPTIONS)
    return parsed


DATABASES: dict[str, dict[str, Any]] = {"default": configured()}
