"""Two processes that count into the same hours of a PostgreSQL at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dj_database_url
import psycopg
import pytest

from deploy.local import postgres
from deploy.local.home import CHECKOUT

pytestmark = pytest.mark.integration
KEYS, ROUNDS, PROCESSES = 5, 20, 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres.server(tmp_path_factory.mktemp("pg") / "log") as url:
        yield url


def test_nothing_is_lost_and_nobody_waits_for_ever(server: str, tmp_path: Path) -> None:
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith(("INFLIGHT_", "DJANGO_"))
    }
    environ |= {"INFLIGHT_HOME": str(tmp_path), "DATABASE_URL": server}
    migrate = [sys.executable, "manage.py", "migrate", "gateway", "--verbosity=0"]
    subprocess.run(migrate, check=True, cwd=CHECKOUT, env=environ, timeout=90)
    counting = [sys.executable, "-m", "tests.gateway.usage.count_somewhere", str(KEYS), str(ROUNDS)]
    running = [subprocess.Popen(counting, cwd=CHECKOUT, env=environ) for _process in range(PROCESSES)]
    try:
        assert [process.wait(timeout=90) for process in running] == [0] * PROCESSES
    finally:
        for process in running:
            process.kill()
    entry = dj_database_url.parse(server)
    with psycopg.connect(host=entry["HOST"], user=entry["USER"], dbname=entry["NAME"]) as connection:
        rows = connection.execute(
            "SELECT key_id, sum(requests), sum(prompt_tokens), sum(ttft_100) FROM gateway_usagehour GROUP BY key_id"
        ).fetchall()
        each = ROUNDS * PROCESSES
        assert sorted(rows) == [(key + 1, each, each * 2, each) for key in range(KEYS)]
        listed = connection.execute("SELECT count(*) FROM gateway_requestlog").fetchone()
        assert listed == (each * KEYS,)
