"""A checkpoint, a profile and a node that takes builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.engines import dispatch
from apps.engines.models import Build, BuildProfile
from apps.fleet.models import Gpu, Node
from apps.fleet.services import register_node
from tests import objects
from tests.fleet.conftest import host


@pytest.fixture
def profile(db: None) -> BuildProfile:
    """F16 of the small checkpoint."""
    return objects.build_profile()


@pytest.fixture
def node(db: None) -> Node:
    """This host's node with one CPU slot, ready."""
    return register_node("test", django_settings.INFLIGHT_NODE_ID, facts=host())


@pytest.fixture
def slot(node: Node) -> Gpu:
    """Its slot."""
    return node.gpus.get()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """(number, queue) of builds whose message was sent; no broker is asked."""
    found: list[tuple[int, str]] = []

    def publish(build: Build, gpu: Gpu) -> None:
        found.append((build.number, f"node.{gpu.node.node_id}.gpu{gpu.index}"))

    monkeypatch.setattr(dispatch, "_publish", publish)
    return found


@pytest.fixture
def queued(profile: BuildProfile, slot: Gpu) -> Callable[..., Build]:
    """Make a queued build on the slot: queued(number, quantization="Q8_0")."""

    def make(number: int = 1, quantization: str = "F16", **columns: Any) -> Build:
        if quantization != profile.quantization:
            other = objects.build_profile(f"p{number}", quantization=quantization)
            return objects.build(other, number=number, node=slot.node, gpu=slot, **columns)
        return objects.build(profile, number=number, node=slot.node, gpu=slot, **columns)

    return make
