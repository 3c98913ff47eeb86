"""Fixtures that every test shares. The home is a folder of its own per worker, set before Django starts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# xdist workers import this file each in a process of its own.
_HOME = Path(tempfile.mkdtemp(prefix="inflight-test-"))
os.environ["INFLIGHT_SETTINGS"] = "test"
os.environ["INFLIGHT_HOME"] = str(_HOME)
os.environ.setdefault("INFLIGHT_SECRET_KEY", "not-a-secret-for-tests-only")
os.environ.setdefault("INFLIGHT_NODE_ID", "n-test")
