"""Fixtures that every test shares."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.support.redis import redis_server, redis_session

__all__ = ["redis_server", "redis_session"]


@pytest.fixture(scope="session", autouse=True)
def _remove_home() -> Iterator[None]:
    """Remove this run's home at the end; tests/settings.py made it."""
    yield
    shutil.rmtree(settings.INFLIGHT_HOME, ignore_errors=True)
