"""Fixtures of these tests."""

from __future__ import annotations

from tests.support.celery import celery_broker, start_worker
from tests.support.standin import demo, serving_node, standin, ticker
from tests.support.triton import demo_gguf, real_triton, triton_installation

__all__ = [
    "celery_broker",
    "demo",
    "demo_gguf",
    "real_triton",
    "serving_node",
    "standin",
    "start_worker",
    "ticker",
    "triton_installation",
]
