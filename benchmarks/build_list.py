"""Server time of the list of builds at 10,000 builds, on SQLite and on PostgreSQL.

    .venv/bin/python -m benchmarks.build_list

Makes a home of its own in a temporary folder and a PostgreSQL server where one is installed, fills each with
builds of three recipes and measures the whole answer of the page in the process (view, template, middleware; no
network). Prints one JSON object; exit code 1 where a page took more than the aim at the median or asked more queries
than allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from deploy.local import postgres
from deploy.local.home import CHECKOUT

ROWS, ROUNDS = 10_000, 30
AIM_MS, MOST_QUERIES = 150.0, 12
PAGES = {
    "all": "",
    "last page": "?page=200",
    "failed": "?state=failed",
    "recipe and person": "?recipe=engine&who=operator&period=90d",
    "two words": "?q=disk+tiny",
    "nothing fits": "?q=nothing-is-called-this",
}


def measure() -> dict[str, Any]:
    """Milliseconds and queries of each page in the database that the environment names."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    from apps.accounts.roles import OPERATOR
    from tests import people
    from tests.pages.test_build_list import many_builds

    client = people.client_of(people.person(OPERATOR))
    many_builds(ROWS)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    found = {}
    for name, query in PAGES.items():
        queries: list[str] = []
        with connection.execute_wrapper(_counter(queries)):
            answer = client.get(f"/builds/{query}")
        if answer.status_code != 200:
            raise SystemExit(f"/builds/{query} answered {answer.status_code}")
        took = [_milliseconds(client, query) for _round in range(ROUNDS)]
        found[name] = {
            "median_ms": round(statistics.median(took), 1),
            "p95_ms": round(sorted(took)[int(0.95 * len(took))], 1),
            "queries": len(queries),
        }
    return found


def _counter(queries: list[str]) -> Callable[..., Any]:
    def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        queries.append(sql)
        return execute(sql, params, many, context)

    return count


def _milliseconds(client: Any, query: str) -> float:
    began = time.perf_counter()
    client.get(f"/builds/{query}")
    return (time.perf_counter() - began) * 1000


@contextmanager
def _databases() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {"sqlite": f"sqlite:///{folder}/builds.sqlite3"}
        if postgres.find_programs() is not None:
            urls["postgresql"] = stack.enter_context(postgres.server(folder / "postgresql.log"))
        yield urls


def _in_process(url: str) -> dict[str, Any]:
    """In a process of its own, because Django's settings are read once."""
    with tempfile.TemporaryDirectory() as home:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("INFLIGHT_", "DJANGO_"))}
        environ = kept | {
            "INFLIGHT_HOME": home,
            "DATABASE_URL": url,
            "INFLIGHT_SETTINGS": "test",
            "INFLIGHT_SECRET_KEY": "not-a-secret-for-benchmarks-only",
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        }
        command = [sys.executable, "-m", "benchmarks.build_list", "--here"]
        done = subprocess.run(
            command, check=True, cwd=CHECKOUT, env=environ, stdout=subprocess.PIPE, timeout=240
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def main() -> int:
    """Measure every database there is and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help="measure the database of this environment")
    if parser.parse_args().here:
        print(json.dumps(measure()))
        return 0
    with _databases() as urls:
        found = {name: _in_process(url) for name, url in urls.items()}
    pages = [page for pages in found.values() for page in pages.values()]
    good = all(page["median_ms"] <= AIM_MS and page["queries"] <= MOST_QUERIES for page in pages)
    print(json.dumps({"rows": ROWS, "aim_ms": AIM_MS, "good": good, "databases": found}, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
