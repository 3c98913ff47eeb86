"""What these tests ask of instance rows."""

from __future__ import annotations

from apps.serving import states
from apps.serving.models import Instance
from workers.runtimes.base import Identity


def identity_of(row: Instance) -> Identity:
    assert row.pid is not None
    assert row.process_created is not None
    return Identity(row.pid, row.process_created, row.uid)


def only_instance() -> Instance:
    return Instance.objects.exclude(state=states.GONE).get()
