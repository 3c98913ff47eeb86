"""Fixtures of these tests."""

from __future__ import annotations

from tests.support.standin import demo, serving_node, standin, ticker

__all__ = ["demo", "serving_node", "standin", "ticker"]
