"""Shows that the readers of GPUs and metrics hold on a real GPU: facts by NVML and nvidia-smi, a KIND_GPU instance of
Triton started with Inflight's own command line, and its figures through our scraper, idle and under load.

    python -m benchmarks.gpu_host --triton DIR --out DIR

Needs no control plane and no Django: numpy and torch for the model, aiohttp, orjson, psutil and nvidia-ml-py for us.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pynvml

from apps.fleet.domain import gpu_query
from apps.fleet.processes import identify
from apps.telemetry import devices
from apps.telemetry.domain import derive
from apps.telemetry.scraper import Scraper
from apps.telemetry.target import Target
from workers.runtimes import arguments, ports, processes, spawn
from workers.runtimes.base import Identity, Launch, Ports

QUERIES: dict[str, Sequence[str]] = {
    "query.xml": ("-q", "-x"),
    "query.csv": (
        "--query-gpu=index,uuid,name,pci.bus_id,compute_cap,memory.total,memory.used,memory.free,utilization.gpu,"
        "temperature.gpu,temperature.memory,power.draw,power.limit,clocks.sm,clocks.max.sm,clocks.mem,"
        "ecc.mode.current,ecc.errors.uncorrected.volatile.total,mig.mode.current,persistence_mode,driver_version",
        "--format=csv",
    ),
    "query-nounits.csv": (
        "--query-gpu=index,name,memory.total,power.draw,utilization.gpu",
        "--format=csv,nounits",
    ),
    "list.txt": ("-L",),
    "table.txt": (),
}
SHOWN = (
    "gpu_use",
    "gpu_memory_used_bytes",
    "gpu_memory_total_bytes",
    "gpu_power_watts",
    "gpu_power_limit_watts",
    "gpu_energy_joules",
    "gpu_temperature_celsius",
    "gpu_memory_temperature_celsius",
    "gpu_sm_clock_hertz",
    "gpu_throttle_power",
    "gpu_throttle_thermal",
    "gpu_ecc_uncorrected",
    "gpu_xid_errors",
    "gpu_pcie_sent_bytes_per_second",
    "requests_per_second",
    "triton_batch_size_mean",
    "queue_mean_ms",
    "request_mean_ms",
    "cpu_use",
    "rss_bytes",
)


def say(text: str) -> None:
    """One line of the report."""
    print(text, flush=True)


def show_facts(out: Path) -> None:
    """What NVML and each format of nvidia-smi tell, read by the same code as on a node."""
    report = gpu_query.from_nvml(pynvml)
    (out / "nvml.json").write_text(json.dumps(report.as_dict(), indent=2))
    say(f"NVML: driver {report.driver_version}, CUDA {report.cuda_version}, status {report.status}")
    for gpu in report.gpus:
        say(json.dumps({name: value for name, value in gpu.as_dict().items() if value not in (None, [])}))
    for name, options in QUERIES.items():
        done = subprocess.run(
            ["nvidia-smi", *options], capture_output=True, text=True, timeout=30, check=False
        )
        (out / name).write_text(done.stdout)
        found = gpu_query.read(gpu_query.Run(done.stdout, done.stderr, done.returncode))
        gpus = [
            (gpu.product, gpu.uuid, gpu.memory_total_bytes, gpu.power_watts, gpu.ecc_enabled, gpu.mig_enabled)
            for gpu in found.gpus
        ]
        say(f"nvidia-smi {' '.join(options)[:40]}: exit {done.returncode}, {found.status}, {gpus}")


def start(triton: Path, work: Path) -> tuple[Identity, Ports, str]:
    """A tritonserver with Inflight's command line over a copy of the model."""
    repository = work / "repository"
    shutil.copytree(Path(__file__).parent / "gpu_model", repository / "burn")
    installation = arguments.Installation(
        binary=str(triton / "bin/tritonserver"),
        backends=str(triton / "backends"),
        libraries=f"{triton / 'libs'}:{sysconfig.get_config_var('LIBDIR')}",
        python=sys.executable,
    )
    uid, secret, chosen = f"gpu{os.getpid()}", secrets.token_hex(16), ports.allocate()
    argv = arguments.compose_argv(installation, uid, repository, chosen, secret)
    env = arguments.compose_environment(installation, uid, work, work, "0", os.environ)
    (work / "secret").write_text(secret)
    launch = Launch(argv, arguments.redacted(argv, secret), env, str(work), work / "triton.log", chosen)
    say(" ".join(launch.shown_argv))
    identities: list[Identity] = []

    def record(identity: Identity) -> bool:
        identities.append(identity)
        return True

    spawn.spawn(uid, launch, record)
    return identities[0], chosen, secret


async def until_ready(session: aiohttp.ClientSession, chosen: Ports, secret: str, seconds: float) -> None:
    """Wait for the server, load the model. Raises RuntimeError."""
    base = f"http://127.0.0.1:{chosen.http}/v2"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            async with session.get(f"{base}/health/live") as answer:
                if answer.status == 200:
                    break
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.2)
    async with session.post(
        f"{base}/repository/models/burn/load", json={}, headers={arguments.HEADER: secret}
    ) as answer:
        if answer.status != 200:
            raise RuntimeError(f"the model was not loaded: {await answer.text()}")


async def load(session: aiohttp.ClientSession, chosen: Ports, clients: int, seconds: float) -> int:
    """Closed loop of so many clients; the number of answers."""
    until = time.monotonic() + seconds
    body = {"inputs": [{"name": "ROUNDS", "shape": [1, 1], "datatype": "INT32", "data": [[60]]}]}
    answers = 0

    async def client() -> None:
        nonlocal answers
        while time.monotonic() < until:
            async with session.post(
                f"http://127.0.0.1:{chosen.http}/v2/models/burn/infer", json=body
            ) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"the model did not answer: {await answer.text()}")
                answers += 1

    await asyncio.gather(*(client() for _number in range(clients)))
    return answers


async def watch(scraper: Scraper, gpus: devices.Gpus, uuid: str, samples: list[Any]) -> None:
    """One sample a second, as the telemetry process makes them."""
    while True:
        await asyncio.sleep(1.0)
        reading = await asyncio.to_thread(gpus.read, {uuid})
        for scrape in scraper.scrapes.values():
            latest = scrape.latest
            if latest is not None and scrape.take():
                device = devices.merged([latest.process], list(reading.values()))
                samples.append(derive.sample(latest.at, latest.interval, device))


def table(title: str, samples: list[Any]) -> None:
    """Means of a phase, and Triton's own view of the GPU beside NVML's."""
    say(f"\n{title}: {len(samples)} samples")
    for name in SHOWN:
        known = [sample[name] for sample in samples if sample[name] is not None]
        if known:
            say(f"  {name:36} mean {sum(known) / len(known):>18,.3f}  last {known[-1]:>18,.3f}")
        else:
            say(f"  {name:36} null")


async def measure(triton: Path, out: Path) -> None:
    """The whole run."""
    work = out / "work"
    work.mkdir(parents=True)
    identity, chosen, secret = await asyncio.to_thread(start, triton, work)
    uuid = str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))
    url = f"http://127.0.0.1:{chosen.metrics}/metrics"
    target = Target(
        1,
        "gpu",
        1,
        url,
        pid=identity.pid,
        created=(found.created if (found := identify(identity.pid)) else None),
        gpu_uuid=uuid,
        statistics_url=f"http://127.0.0.1:{chosen.http}/v2/models/stats",
        secret_path=str(work / "secret"),
    )

    async def find() -> list[Target]:
        return [target]

    samples: list[Any] = []
    scraper, gpus = Scraper(find), devices.Gpus()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        try:
            await until_ready(session, chosen, secret, 120.0)
            tasks = [
                asyncio.create_task(scraper.run()),
                asyncio.create_task(watch(scraper, gpus, uuid, samples)),
            ]
            await asyncio.sleep(12.0)
            table("idle", samples[2:])
            samples.clear()
            answers = await load(session, chosen, 16, 25.0)
            say(f"\nload of 16 clients: {answers} answers in 25 s")
            table("under load", samples[3:-1])
            (out / "samples.json").write_text(json.dumps(samples, indent=1))
            async with session.get(url) as answer:
                (out / "triton.prom").write_text(await answer.text())
            async with session.get(target.statistics_url, headers={arguments.HEADER: secret}) as answer:
                (out / "statistics.json").write_text(await answer.text())
            for task in tasks:
                task.cancel()
        finally:
            processes.kill_group(identity)
            shutil.copy(work / "triton.log", out / "triton.log")
            shutil.rmtree(work, ignore_errors=True)


def main() -> None:
    """See the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triton", type=Path, required=True, help="a folder with bin/, backends/ and libs/")
    parser.add_argument("--out", type=Path, required=True, help="where the tools' answers are kept")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    show_facts(options.out)
    pynvml.nvmlInit()
    asyncio.run(measure(options.triton.resolve(), options.out.resolve()))


if __name__ == "__main__":
    main()
