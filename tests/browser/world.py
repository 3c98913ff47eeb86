"""Rows for every page of the browser tests: one of each kind, with names as long as names may be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.core import clock
from apps.engines.models import Build
from apps.fleet.models import GpuLease
from apps.registry.models import Checkpoint
from apps.serving.models import Deployment, Instance
from tests import gateway_rows, objects
from tests.loadtests import rows as load_rows
from tests.pages import alert_rows

LONG = "a-public-name-that-is-exactly-sixty-characters-long-and-then-"[:60]


@dataclass(slots=True)
class World:
    """What there is."""

    checkpoint: Checkpoint
    running: Build
    failed: Build
    done: Build
    deployment: Deployment
    instance: Instance


def _stages(done: int, state: str) -> list[dict[str, Any]]:
    now = clock.now()
    titles = ["Read the checkpoint", "Quantise the weights", "Write the engine", "Load it and generate"]
    return [
        {
            "name": f"stage{number}",
            "title": title,
            "state": "done" if number < done else state if number == done else "waiting",
            "started_at": (now - timedelta(seconds=60 - number)).isoformat() if number <= done else None,
            "finished_at": (now - timedelta(seconds=50 - number)).isoformat() if number < done else None,
            "argv": [
                "python",
                "-m",
                "workers.builders.llamacpp",
                "--spec",
                f"/var/lib/inflight/builds/{LONG}.json",
            ],
        }
        for number, title in enumerate(titles)
    ]


def _log(number: int) -> str:
    path = Path(settings.INFLIGHT_HOME) / "builds" / f"{number}-1" / "log.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"info blk.{n}.ffn_down.weight Q4_1 -> Q4_0, 576 x 1536, {n * 7919} bytes" for n in range(400)]
    lines[120] = "error: cannot write tensor: No space left on device"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    course = [
        {"at": 3 * n, "stage": f"stage{n // 8}", "memory_bytes": 10**8 * (1 + n % 9), "disk_bytes": 10**7 * n}
        for n in range(24)
    ]
    path.with_name("resources.jsonl").write_text("\n".join(map(json.dumps, course)), encoding="utf-8")
    return str(path)


def make_world() -> World:
    """A ready deployment with a server, builds in three states, a refused checkpoint, a node with leases."""
    checkpoint = objects.checkpoint()
    Checkpoint.objects.create(
        name=LONG,
        source={"path": "/srv/models/x.gguf"},
        path="/srv/models/x.gguf",
        state="refused",
        reason="gguf_truncated",
        sentence="The file ends after 1 048 576 bytes, but its header announces 98 362 432.",
        remedy="Copy it again.",
    )
    node = objects.node()
    objects.broken_repository()
    alert_rows.one_of_each()
    gateway_rows.everything(name=LONG)
    slot = node.gpus.get()
    profile = objects.build_profile(LONG)
    engine = objects.engine(profile)
    now = clock.now()
    common = {"node": node, "gpu": slot, "started_at": now - timedelta(seconds=60), "attempt": 1}
    done = objects.build(
        profile, "succeeded", 1, engine=engine, finished_at=now, stages=_stages(4, "done"), **common
    )
    failed = objects.build(
        objects.build_profile("q8", quantization="Q8_0"), "failed", 2, finished_at=now, stages=_stages(2, "failed"),
        reason="disk_full", sentence="The disk is full: 271 MB were needed, 34 MB were free.",
        remedy="Delete engines that are no longer needed.", log_path=_log(2),
        diagnosis={"diagnosis": {"id": "disk_full", "title": "The disk is full", "remedies": ["Free space."],
                                 "evidence": [{"line": 121, "text": "No space left on device"}]}},
        **common,
    )  # fmt: skip
    running = objects.build(
        objects.build_profile("q4", quantization="Q4_0"), "running", 3, stages=_stages(2, "running"), progress=0.4,
        eta_seconds=38.0, rate_bytes_per_second=23.4e6, log_path=_log(3), **common,
    )  # fmt: skip
    deployment = objects.deployment("demo", build_profile=profile, batching=objects.batching())
    revision = objects.revision(deployment, 2)
    objects.revision(deployment, 1, "superseded")
    Deployment.objects.filter(pk=deployment.pk).update(
        state="ready", desired="running", active_revision=revision, state_since=now - timedelta(hours=3)
    )
    deployment.refresh_from_db()
    instance = objects.instance(
        revision, "k3v9q2m8tx", node=node, gpu=slot, pid=4242, server_version="2.51.0", log_path=_log(9),
        http_port=9, grpc_port=9, metrics_port=9, serving_since=now,
    )  # fmt: skip
    GpuLease.objects.create(
        gpu=slot, purpose="serve", holder_kind="instance", holder_id=instance.pk, share=40
    )
    GpuLease.objects.create(gpu=slot, purpose="build", holder_kind="build", holder_id=running.pk, share=25)
    degraded = objects.deployment(LONG, build_profile=profile)
    Deployment.objects.filter(pk=degraded.pk).update(
        state="degraded", desired="running", sentence="1 of 2 servers serves.", remedy="Look at its log."
    )
    load_rows.everything(deployment)
    return World(checkpoint, running, failed, done, deployment, instance)
