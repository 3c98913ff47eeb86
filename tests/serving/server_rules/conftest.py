"""Fixtures of these tests."""

from __future__ import annotations

from tests.support.triton import triton_installation

__all__ = ["triton_installation"]
