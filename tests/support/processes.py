"""Other processes of Inflight in tests: with the test's own database and Redis."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.db import connection

from tests.support.redis import RedisServer

ROOT = Path(__file__).parents[2]


def database_url() -> str:
    """URL of the test database, as DATABASE_URL takes it."""
    settings = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{settings['NAME']}"
    user = quote(str(settings["USER"]), safe="")
    password = quote(str(settings["PASSWORD"]), safe="")
    host = quote(str(settings["HOST"] or ""), safe="")
    return f"postgres://{user}:{password}@{host}:{settings['PORT'] or ''}/{settings['NAME']}"


def environment(server: RedisServer, **more: str) -> dict[str, str]:
    """Environment of a process that shares the test's database, home and Redis."""
    return {
        **os.environ,
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "INFLIGHT_SETTINGS": "test",
        "INFLIGHT_TEST_REDIS": "1",
        "INFLIGHT_REDIS_URL": f"unix://{server.socket}",
        **more,
    }


def python(server: RedisServer, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A Python process of that environment with pipes for input and output; the caller ends it."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(server),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
