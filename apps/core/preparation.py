"""What must be done once before the processes of an installation start, and again after each update."""

from __future__ import annotations

import hashlib
from pathlib import Path

import django
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.executor import MigrationExecutor

STAMP = ".sources.sha256"


def pending_migrations() -> int:
    """How many migrations the database lacks."""
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def migrate() -> int:
    """Bring the database to the newest schema; returns how many migrations that took."""
    pending = pending_migrations()
    if pending:
        call_command("migrate", interactive=False, verbosity=0)
    return pending


def static_sources() -> str:
    """SHA-256 over name, size and time of every static source, and over what turns them into served files."""
    digest = hashlib.sha256(f"{django.__version__} {settings.STORAGES['staticfiles']}".encode())
    for finder in get_finders():
        for name, storage in finder.list(["CVS", ".*", "*~"]):
            found = Path(storage.path(name)).stat()
            digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def collect_static() -> bool:
    """Collect the static files unless their sources are those of the last time; False when they were."""
    root = Path(settings.STATIC_ROOT)
    stamp = root / STAMP
    sources = static_sources()
    if stamp.is_file() and stamp.read_text(encoding="ascii", errors="replace") == sources:
        return False
    stamp.unlink(missing_ok=True)
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    root.mkdir(parents=True, exist_ok=True)
    stamp.write_text(sources, encoding="ascii")
    return True
