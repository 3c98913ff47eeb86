"""What telemetry costs: scraping, writing live samples and stored steps, and answering a chart.

    .venv/bin/python -m benchmarks.scraper

Starts a Redis of its own and a process that stands for many servers (each answers the metrics of the embedded model,
with counters that grow); the measured process is scraper, writer and storer as `manage.py run_telemetry` runs them,
over a SQLite file of its own. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.telemetry import pace

LABELS = 'model="demo",version="1"'
TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def exposition(number: int) -> bytes:
    """What a server says after `number` requests: five histograms, counters, gauges and Triton's own families."""
    lines = []
    for name, bounds in (
        ("inflight_ttft_seconds", TIMES),
        ("inflight_itl_seconds", TIMES),
        ("inflight_e2e_seconds", TIMES),
        ("inflight_queue_seconds", TIMES),
        ("inflight_batch_size", SIZES),
    ):
        lines += [f"# HELP {name} Some text of a usual length", f"# TYPE {name} histogram"]
        counts = [min(number, number * place // 8) for place in range(len(bounds))]
        lines += [
            f'{name}_bucket{{{LABELS},le="{bound}"}} {count}'
            for bound, count in zip(bounds, counts, strict=True)
        ]
        lines += [f'{name}_bucket{{{LABELS},le="+Inf"}} {number}']
        lines += [f"{name}_sum{{{LABELS}}} {number * 0.3}", f"{name}_count{{{LABELS}}} {number}"]
    for reason in ("stop", "length", "cancelled", "error", "rejected"):
        lines.append(f'inflight_requests_finished_total{{{LABELS},reason="{reason}"}} {number}')
    for name in ("prompt_tokens_total", "prompt_tokens_cached_total", "generated_tokens_total"):
        lines.append(f"inflight_{name}{{{LABELS}}} {number * 40}")
    for name in ("requests_running", "requests_waiting", "slots", "slots_busy", "kv_tokens_used"):
        lines.append(f"inflight_{name}{{{LABELS}}} {number % 16}")
    lines.append(f"inflight_kv_tokens_capacity{{{LABELS}}} 65536")
    for name in ("request_success", "count", "exec_count", "request_duration_us", "queue_duration_us"):
        lines += [f"# TYPE nv_inference_{name} counter", f"nv_inference_{name}{{{LABELS}}} {number * 7}"]
    lines += [f"nv_cpu_utilization 0.{number % 10}", "nv_cpu_memory_total_bytes 1e11"]
    return ("\n".join(lines) + "\n").encode()


class Servers(asyncio.Protocol):
    """Many servers behind one port: GET /<number> grows by one request each time; /slow answers after 30 s."""

    asked: dict[bytes, int] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request that the data holds."""
        for request in data.split(b"\r\n\r\n"):
            if not request.startswith(b"GET "):
                continue
            path = request.split(b" ", 2)[1]
            self.asked[path] = self.asked.get(path, 0) + 3
            if path == b"/slow":
                asyncio.get_running_loop().call_later(30.0, self._answer, b"")
            else:
                self._answer(exposition(self.asked[path]))

    def _answer(self, body: bytes) -> None:
        if not self._transport.is_closing():
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
            self._transport.write(head.encode() + body)


async def serve(port: int) -> None:
    """Stand for the servers until ended."""
    server = await asyncio.get_running_loop().create_server(Servers, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of one phase; seconds."""

    targets: int
    period: float
    seconds: float
    cpu: float
    expected: int
    scrapes: int
    failed: int
    lag_p99: float
    rows: int
    flush_worst: float


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def surroundings() -> Iterator[int]:
    """A home with a migrated database, a Redis, and the servers' process; gives the servers' port."""
    home = Path(tempfile.mkdtemp(prefix="inflight-scraper-"))
    redis_port, port = free_port(), free_port()
    os.environ |= {
        "INFLIGHT_HOME": str(home),
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "INFLIGHT_REDIS_URL": f"redis://127.0.0.1:{redis_port}",
        "INFLIGHT_LOG_LEVEL": "ERROR",
    }
    redis = shutil.which("redis-server") or sys.exit("There is no redis-server on this machine.")
    argv = [redis, "--port", str(redis_port), "--bind", "127.0.0.1", "--save", "", "--dir", str(home)]
    started = [
        subprocess.Popen(argv, stdout=subprocess.DEVNULL),
        subprocess.Popen([sys.executable, "-m", "benchmarks.scraper", "--serve", str(port)]),
    ]
    try:
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield port
    finally:
        for process in started:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


async def phase(port: int, count: int, seconds: float, period: float) -> Result:
    """Scrape so many servers, one of them slow and one dead, and write all of it."""
    from apps.realtime.tasks import end
    from apps.telemetry.scraper import Scraper
    from apps.telemetry.storage import keeper
    from apps.telemetry.storage.models import Rollup
    from apps.telemetry.storage.rollups import Rollups, Storer
    from apps.telemetry.target import Target
    from apps.telemetry.writer import Writer

    found = [Target(n, f"i{n}", n // 10, f"http://127.0.0.1:{port}/{n}") for n in range(1, count + 1)]
    found += [
        Target(count + 1, "slow", 1_000_001, f"http://127.0.0.1:{port}/slow"),
        Target(count + 2, "dead", 1_000_002, f"http://127.0.0.1:{free_port()}/"),
    ]

    async def find() -> list[Target]:
        return found

    flushes: list[float] = []
    write = keeper.write

    def timed(*args: Any) -> int:
        began = time.perf_counter()
        rows = write(*args)
        flushes.append(time.perf_counter() - began)
        return rows

    keeper.write = timed  # type: ignore[assignment]
    before = await asyncio.to_thread(Rollup.objects.count)
    scraper, rollups = Scraper(find, refresh=3600.0), Rollups()
    scraper.length = lambda: period  # type: ignore[method-assign]
    work = [
        asyncio.create_task(e) for e in (scraper.run(), Writer(scraper, rollups).run(), Storer(rollups).run())
    ]
    lags: list[float] = []
    try:
        await asyncio.sleep(period * 1.5)  # every server has been asked once
        good = [scraper.scrapes[n] for n in range(1, count + 1)]
        began, cpu = time.perf_counter(), time.process_time()
        asked, failed = sum(s.scrapes for s in good), sum(s.failed for s in good)
        while (left := seconds - (time.perf_counter() - began)) > 0:
            due = time.perf_counter() + min(0.1, left)
            await asyncio.sleep(min(0.1, left))
            lags.append(time.perf_counter() - due)
        passed = time.perf_counter() - began
        used = time.process_time() - cpu
        asked = sum(s.scrapes for s in good) - asked
        failed = sum(s.failed for s in good) - failed
    finally:
        await end(work)
        keeper.write = write
    rows = await asyncio.to_thread(Rollup.objects.count) - before
    lag = statistics.quantiles(lags, n=100)[98]
    expected = round(count * passed / period)
    return Result(count, period, passed, used, expected, asked, failed, lag, rows, max(flushes, default=0.0))


def charts() -> list[tuple[str, float, float]]:
    """Median and worst milliseconds of questions that a page asks, over a full table of one deployment and more."""
    from apps.telemetry import history
    from apps.telemetry.domain.rollup import Bucket, pack
    from apps.telemetry.history import Scope
    from apps.telemetry.storage import policy
    from apps.telemetry.storage.models import Rollup, ScopeKind

    sample = Rollup.objects.filter(scope=ScopeKind.DEPLOYMENT, scope_id=0, step=10).last()
    data = bytes(sample.data) if sample is not None else pack(Bucket())
    now = int(time.time())
    for step in policy.STEPS:
        begin = (now - policy.retention(step)) // step * step
        ats = range(begin, now - 600, step)
        for scope_id in (900_001, 900_002, 900_003):
            rows = [
                Rollup(scope=ScopeKind.DEPLOYMENT, scope_id=scope_id, step=step, at=at, data=data)
                for at in ats
            ]
            Rollup.objects.bulk_create(rows, batch_size=500)
    scope = Scope("deployment", 900_002)
    eight = ["requests_running", "requests_per_second", "ttft_p50_ms", "ttft_p99_ms", "itl_p99_ms", "kv_use"]
    found = []
    for name, seconds in (
        ("1 hour", 3600),
        ("3 hours", 10_800),
        ("1 day", 86_400),
        ("7 days", 604_800),
        ("1 year", 31e6),
    ):
        for kind, ask in (
            ("all keys, 300 points", lambda s=seconds: history.series(scope, now - s, now, 300)),
            ("6 keys, 300 points", lambda s=seconds: history.series(scope, now - s, now, 300, eight)),
            ("TTFT, 120 columns", lambda s=seconds: history.distribution(scope, "ttft", now - s, now)),
            ("totals", lambda s=seconds: history.window(scope, now - s, now)),
        ):
            times = []
            for _repeat in range(7):
                began = time.perf_counter()
                ask()
                times.append((time.perf_counter() - began) * 1000)
            found.append((f"{name}, {kind}", statistics.median(times), max(times)))
    return found


def main() -> None:
    """See the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--serve", type=int, help="stand for the servers at this port (started by the benchmark)"
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="measured time of each phase")
    parser.add_argument("--servers", type=int, nargs="*", default=[50, 1000], help="phases: how many servers")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return
    with surroundings() as port:
        print(
            "| servers | every | scrapes (due) | failed | one core | loop late p99 | rows | longest write |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for count in options.servers:
            period = pace.period(count)
            r = asyncio.run(phase(port, count, options.seconds, period))
            print(
                f"| {r.targets} | {r.period:g} s | {r.scrapes} ({r.expected}) | {r.failed} "
                f"| {100 * r.cpu / r.seconds:.1f}% | {1000 * r.lag_p99:.0f} ms | {r.rows} "
                f"| {1000 * r.flush_worst:.0f} ms |",
                flush=True,
            )
        print("\n| question | median | worst of 7 |\n|---|---|---|")
        for name, median, worst in charts():
            print(f"| {name} | {median:.1f} ms | {worst:.1f} ms |")


if __name__ == "__main__":
    main()
