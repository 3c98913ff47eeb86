"""The ASGI application with a scripted engine: INFLIGHT_TEST_ENGINE is {"words", "times", "pause"} as JSON."""

from __future__ import annotations

import json
import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

from apps.chat import sources  # noqa: E402
from controlplane.asgi import application  # noqa: E402
from tests.chat.fakes import Script  # noqa: E402

_told = json.loads(os.environ["INFLIGHT_TEST_ENGINE"])


def _prepare(turn: object) -> sources.Answering:
    return Script(words=tuple(_told["words"]) * _told["times"], pause=_told["pause"]).answering()


sources.prepare = _prepare

__all__ = ["application"]
