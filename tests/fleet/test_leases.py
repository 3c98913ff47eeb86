"""Leases: by share on a CPU slot, whole on a GPU, fenced by attempt, and never more than there is."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from apps.core import clock
from apps.core.exceptions import InvalidInput
from apps.fleet.leases import (
    release_expired,
    release_lease,
    release_leases_of,
    renew_lease,
    take_lease,
    take_leases,
)
from apps.fleet.models import Gpu, GpuLease, Node
from apps.fleet.policy import CPU_SHARES
from apps.fleet.selectors import free_share
from apps.fleet.services import register_node
from tests.fleet.conftest import gpu_facts, host
from tests.support.celery import CHECKOUT, database_url

BUILD, SERVE = GpuLease.Purpose.BUILD, GpuLease.Purpose.SERVE


def holder(pk: int, kind: str = "build") -> Any:
    row = Node(pk=pk)
    row.kind = kind  # type: ignore[misc]
    return row


def expire(lease: GpuLease) -> None:
    GpuLease.objects.filter(pk=lease.pk).update(expires_at=clock.now() - timedelta(seconds=1))


def test_one_machine_builds_and_serves_three_at_once(slot: Gpu) -> None:
    assert take_lease(slot, BUILD, holder(1), seconds=40)
    for pk in (1, 2, 3):
        assert take_lease(slot, SERVE, holder(pk, "instance"))
    assert free_share(slot) == 0
    assert take_lease(slot, SERVE, holder(4, "instance")) is None
    assert sum(CPU_SHARES[purpose] for purpose in (BUILD, SERVE)) <= 100


def test_a_gpu_is_leased_whole(db: None) -> None:
    gpu = register_node("test", "n-gpu", facts=host(gpu_facts(0))).gpus.get()
    lease = take_lease(gpu, SERVE, holder(1, "instance"))
    assert lease is not None
    assert lease.share == 100
    assert take_lease(gpu, BUILD, holder(2), seconds=40) is None
    assert release_lease(lease)
    assert not release_lease(lease)
    assert take_lease(gpu, BUILD, holder(2), seconds=40)


def test_the_same_attempt_gets_its_lease_again_and_an_older_one_gets_none(slot: Gpu) -> None:
    first = take_lease(slot, BUILD, holder(1), attempt=1, seconds=40)
    again = take_lease(slot, BUILD, holder(1), attempt=1, seconds=99)
    assert first is not None
    assert again is not None
    assert again.pk == first.pk
    assert again.expires_at > first.expires_at
    newer = take_lease(slot, BUILD, holder(1), attempt=2, seconds=40)
    assert newer is not None
    assert newer.pk != first.pk
    assert take_lease(slot, BUILD, holder(1), attempt=1, seconds=40) is None
    assert not renew_lease(holder(1), 1, 40)
    assert renew_lease(holder(1), 2, 40)
    assert free_share(slot) == 75


def test_a_lease_that_ran_out_counts_no_more_and_cannot_be_renewed(slot: Gpu) -> None:
    lease = take_lease(slot, BUILD, holder(1), seconds=40, share=100)
    assert lease is not None
    expire(lease)
    assert free_share(slot) == 100
    assert not renew_lease(holder(1), 1, 40)
    assert take_lease(slot, SERVE, holder(9, "instance"), share=100)
    assert release_expired() == 1
    assert release_expired() == 0


def test_an_own_lease_that_ran_out_is_taken_anew(slot: Gpu) -> None:
    lease = take_lease(slot, BUILD, holder(1), seconds=40)
    assert lease is not None
    expire(lease)
    again = take_lease(slot, BUILD, holder(1), seconds=40)
    assert again is not None
    assert again.pk != lease.pk


def test_holders_of_one_number_and_two_kinds_are_two(slot: Gpu) -> None:
    assert take_lease(slot, BUILD, holder(1), seconds=40)
    assert take_lease(slot, SERVE, holder(1, "instance"))
    assert release_leases_of(holder(1, "instance"), attempt=2) == 0
    assert release_leases_of(holder(1, "instance")) == 1
    assert free_share(slot) == 75


@pytest.mark.parametrize("share", [0, -1, 101])
def test_a_share_that_does_not_exist(slot: Gpu, share: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        take_lease(slot, BUILD, holder(1), share=share)
    assert caught.value.field == "share"


def test_several_slots_are_taken_together_or_not_at_all(db: None) -> None:
    node = register_node("test", "n-gpus", facts=host(gpu_facts(0), gpu_facts(1), gpu_facts(2)))
    first, second, third = node.gpus.all()
    found = take_leases([third, first], SERVE, holder(1, "instance"), [50, None])
    assert found is not None
    assert [(lease.gpu_id, lease.share) for lease in found] == [(third.pk, 50), (first.pk, 100)]
    assert take_leases([second, first], SERVE, holder(2, "instance")) is None
    assert free_share(second) == 100, "what could be had was given back"


TAKERS = """
import sys
import django
django.setup()
from apps.fleet.models import Gpu, Node
from apps.fleet.leases import take_leases
from apps.fleet.selectors import nodes
gpus = [Gpu.objects.get(pk=int(pk)) for pk in sys.argv[1].split(",")]
first = int(sys.argv[2])
sys.stdin.readline()
taken = 0
for number in range(25):
    row = Node(pk=first + number)
    row.kind = "instance"
    list(nodes())
    taken += take_leases(gpus, "serve", row, [4] * len(gpus)) is not None
print(taken)
"""


@pytest.mark.django_db(transaction=True)
def test_four_processes_never_lease_more_than_there_is(tmp_path: Path) -> None:
    """Read, then write, in four processes at once: on SQLite only IMMEDIATE transactions get through this.

    Each takes two slots, half of them in the other order: on PostgreSQL that must not dead-lock.
    """
    node = register_node("test", "n-one", facts=host(gpu_facts(0), gpu_facts(1)))
    slots = [str(slot.pk) for slot in node.gpus.all()]
    environ = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "INFLIGHT_SETTINGS": "dev",
        "INFLIGHT_HOME": str(settings.INFLIGHT_HOME),
        "DATABASE_URL": database_url(),
    }
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", TAKERS, ",".join(slots[:: 1 - 2 * (number % 2)]), str(1000 * number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            cwd=CHECKOUT,
            text=True,
        )
        for number in range(1, 5)
    ]
    outputs = [taker.communicate("go\n", timeout=60)[0] for taker in takers]
    assert [taker.returncode for taker in takers] == [0, 0, 0, 0], "no transaction failed"
    assert sum(int(output) for output in outputs) == 25
    assert [free_share(slot) for slot in node.gpus.all()] == [0, 0]
    assert GpuLease.objects.filter(released_at__isnull=True).count() == 50
