"""The demo checkpoint and the serving environment, for the plan against the real engine."""

from __future__ import annotations

from tests.support.llama import demo_file, serving_python

__all__ = ["demo_file", "serving_python"]
