"""A fleet of 500 nodes with 8 GPUs and 2,000 servers, as rows and heartbeats: sweeps, placement, pages.

    .venv/bin/python -m benchmarks.fleet_scale

Makes a home of its own in a temporary folder, a Redis server, and a PostgreSQL server where one is installed; fills
each database, beats for every node, and measures the judging of the nodes, the tick of the node that leads, a
placement, and the whole answers of the pages in the process (view, template, middleware; no network). Prints one JSON
object; exit code 1 where one of them took more than its aim. No process of a node runs.
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

NODES, GPUS, SERVERS, ROUNDS = 500, 8, 2000, 15
SWEEP_AIM_MS, PAGE_AIM_MS = 1000.0, 200.0
PAGES = {
    "overview": "/",
    "fleet map": "/fleet/",
    "node": "/fleet/sim-0007/",
    "deployments": "/deployments/",
    "deployment": "/deployments/model-0003/",
}


def measure(nodes: int, servers: int) -> dict[str, Any]:
    """Milliseconds and queries of everything in the database that the environment names."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    from tests import fleet_rows

    made = fleet_rows.fleet(nodes, servers, GPUS)
    _beat(made.nodes)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return {"sweeps": _sweeps(made), "pages": _pages()}


def _beat(nodes: list[Any]) -> None:
    from apps.fleet import beats

    for node in nodes:
        beats.write("beat", node.node_id)
        beats.write("echo", node.node_id)


def _sweeps(made: Any) -> dict[str, Any]:
    from django.db import transaction

    from apps.fleet import sweep as fleet_sweep
    from apps.serving import placing
    from apps.serving import reconcile as rows_side
    from apps.serving import sweep as serving_sweep

    first = made.nodes[0]
    last = made.deployments[-1]

    def beats_and_judging() -> None:
        _beat(made.nodes)
        fleet_sweep.sweep()

    def placement() -> None:
        # Taken back, so that each round places the same server.
        with transaction.atomic():
            last.refresh_from_db()
            placing.place(placing.new_round(), last, last.active_revision_id, 7, 0)
            transaction.set_rollback(True)

    def leading_tick() -> None:
        with transaction.atomic():
            rows_side.reconcile_deployments(first)
            transaction.set_rollback(True)

    def following_tick() -> None:
        rows_side.instances_of(first)
        rows_side.reconcile_deployments(first, leads=False)

    return {
        "all beats and judging": _measured(beats_and_judging),
        "judging": _measured(fleet_sweep.judge_nodes),
        "serving sweep": _measured(serving_sweep.sweep),
        "placement": _measured(placement),
        "tick of the leader": _measured(leading_tick),
        "tick of another node": _measured(following_tick),
    }


def _pages() -> dict[str, Any]:
    from apps.accounts.roles import ADMINISTRATOR
    from tests import people

    client = people.client_of(people.person(ADMINISTRATOR))

    def ask(address: str) -> None:
        answer = client.get(address)
        if answer.status_code != 200:
            raise SystemExit(f"{address} answered {answer.status_code}")

    return {name: _measured(lambda at=address: ask(at)) for name, address in PAGES.items()}  # type: ignore[misc]


def _measured(work: Callable[[], object]) -> dict[str, Any]:
    from django.db import connection

    queries: list[str] = []

    def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        queries.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        work()
    took = []
    for _round in range(ROUNDS):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return {
        "median_ms": round(statistics.median(took), 1),
        "worst_ms": round(max(took), 1),
        "queries": len(queries),
    }


@contextmanager
def _places() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {"sqlite": f"sqlite:///{folder}/fleet.sqlite3"}
        if postgres.find_programs() is not None:
            urls["postgresql"] = stack.enter_context(postgres.server(folder / "postgresql.log"))
        yield urls


def _in_process(url: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """In a process of its own, because Django's settings are read once."""
    from tests.support.redis import RedisServer

    with tempfile.TemporaryDirectory() as home:
        server = RedisServer()
        server.start()
        try:
            return _child(url, home, server, arguments)
        finally:
            server.remove()


def _child(url: str, home: str, server: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("INFLIGHT_", "DJANGO_"))}
    environ = kept | {
        "INFLIGHT_HOME": home,
        "DATABASE_URL": url,
        "INFLIGHT_SETTINGS": "test",
        "INFLIGHT_NODE_ID": "sim-0000",
        "INFLIGHT_REDIS_URL": f"unix://{server.socket}",
        "INFLIGHT_TEST_REDIS": "1",
        "INFLIGHT_SECRET_KEY": "not-a-secret-for-benchmarks-only",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    }
    command = [sys.executable, "-m", "benchmarks.fleet_scale", "--here"]
    command += ["--nodes", str(arguments.nodes), "--servers", str(arguments.servers)]
    done = subprocess.run(command, check=True, cwd=CHECKOUT, env=environ, stdout=subprocess.PIPE, timeout=900)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _good(found: dict[str, Any]) -> bool:
    sweeps = all(each["worst_ms"] <= SWEEP_AIM_MS for each in found["sweeps"].values())
    return sweeps and all(each["median_ms"] <= PAGE_AIM_MS for each in found["pages"].values())


def main() -> int:
    """Measure every database there is and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help="measure the database of this environment")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--servers", type=int, default=SERVERS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments.nodes, arguments.servers)))
        return 0
    with _places() as urls:
        found = {name: _in_process(url, arguments) for name, url in urls.items()}
    aims = {"sweeps_worst_ms": SWEEP_AIM_MS, "pages_median_ms": PAGE_AIM_MS}
    print(
        json.dumps({"nodes": arguments.nodes, "servers": arguments.servers, "aims": aims, **found}, indent=1)
    )
    return 0 if all(_good(each) for each in found.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
