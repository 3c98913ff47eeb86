"""A node and its slot."""

from __future__ import annotations

import pytest

from apps.fleet.devices import DeviceFacts, HostFacts
from apps.fleet.models import Gpu, Node
from apps.fleet.services import register_node


def host(*devices: DeviceFacts, hostname: str = "host") -> HostFacts:
    """Facts of a host; without devices it has a CPU slot."""
    slots = devices or (DeviceFacts(0, Gpu.Device.CPU, "A CPU", 8_000_000_000),)
    return HostFacts(hostname, 2, 8_000_000_000, {"python": "3"}, slots)


def gpu_facts(index: int) -> DeviceFacts:
    """Facts of one GPU."""
    return DeviceFacts(index, Gpu.Device.GPU, "A GPU", 80 * 2**30, f"GPU-{index}", "9.0")


@pytest.fixture
def node(db: None) -> Node:
    """A ready node with one CPU slot."""
    return register_node("test", "n-one", facts=host())


@pytest.fixture
def slot(node: Node) -> Gpu:
    """The node's CPU slot."""
    return node.gpus.get()
