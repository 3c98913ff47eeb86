"""What every test of the path needs."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _loopback(settings: Any) -> None:
    """Upstreams of these tests are on this host."""
    settings.INFLIGHT_UPSTREAM_ALLOW = ["127.0.0.1"]
