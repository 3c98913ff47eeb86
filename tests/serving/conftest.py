"""Fixtures of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.repository_check.world import Repository
from tests.support.standin import demo, serving_node, standin, ticker

__all__ = ["demo", "repository", "serving_node", "standin", "ticker"]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Preprocessing, engine, postprocessing, ensemble and BLS that fit each other."""
    return Repository(tmp_path)
