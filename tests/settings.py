"""Settings of a test run: a home of its own per process, set before anything of Inflight is imported."""

from __future__ import annotations

import os
import tempfile

os.environ["INFLIGHT_SETTINGS"] = "test"
os.environ["INFLIGHT_HOME"] = tempfile.mkdtemp(prefix="inflight-test-")
os.environ.setdefault("INFLIGHT_SECRET_KEY", "not-a-secret-for-tests-only")
os.environ.setdefault("INFLIGHT_NODE_ID", "n-test")

from controlplane.settings import *  # noqa: F403
