"""Fixtures that every test shares."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.support.database import django_db_setup
from tests.support.redis import redis_server, redis_session

__all__ = ["django_db_setup", "redis_server", "redis_session"]

# What importing all tests makes stays until the end: looking through it again and again finds nothing to free.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on garbage is collected, but for what there is by now."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _remove_home() -> Iterator[None]:
    """Remove this run's home at the end; tests/settings.py made it."""
    yield
    shutil.rmtree(settings.INFLIGHT_HOME, ignore_errors=True)
