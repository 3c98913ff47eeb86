"""Usage of requests whose gateway process was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import orjson
import pytest
from django.db import DatabaseError

from apps.gateway.models import RequestLog
from apps.gateway.running import BEGUN_PREFIX, RunningRequest
from apps.gateway.usage import orphans
from apps.gateway.usage.recorder import Recorder

pytestmark = pytest.mark.django_db(transaction=True)


class Redis:
    """As much of Redis as is used here."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def scan_iter(self, match: str, count: int) -> list[str]:
        return [key for key in self.kept if key.startswith(match.rstrip("*"))]

    def getdel(self, key: str) -> Any:
        return self.kept.pop(key, None)

    def set(self, key: str, value: Any, ex: int) -> None:
        self.kept[key] = value


@pytest.fixture
def redis(monkeypatch: pytest.MonkeyPatch) -> Redis:
    made = Redis()
    monkeypatch.setattr(orphans, "sync_client", lambda: made)
    return made


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that is over."""
    over = subprocess.Popen([sys.executable, "-c", ""])
    over.wait(20)
    return over.pid


def began(request_id: str, tokens: int, counted: bool = True) -> dict[str, Any]:
    found = RunningRequest(
        request_id, 1, "app", "demo", "chat", 1, True, 1_000_000.0, "p", "generating", "one"
    )
    found.tokens, found.counted = tokens, counted
    return asdict(found)


def leave(redis: Redis, pid: int, *rows: dict[str, Any]) -> str:
    key = f"{BEGUN_PREFIX}{pid}-abc"
    redis.kept[key] = orjson.dumps(rows).decode()
    return key


def test_what_a_dead_process_sent_is_told_once(redis: Redis, dead: int) -> None:
    leave(redis, dead, began("a", 7), began("b", 9, counted=False))
    found = orphans.adopt("me")
    assert [(one.request_id, one.completion_tokens, one.outcome, one.reason) for one in found] == [
        ("a", 7, "interrupted", "gateway_killed"),
        ("b", None, "interrupted", "gateway_killed"),
    ]
    assert orphans.adopt("me") == []


def test_what_was_recorded_before_the_end_is_not_told_again(redis: Redis, dead: int) -> None:
    leave(redis, dead, began("a", 7))
    recorder = Recorder()
    for record in orphans.adopt("me"):
        recorder.put(record)
    assert recorder.flush()
    assert RequestLog.objects.get().reason == "gateway_killed"
    leave(redis, dead, began("a", 7), began("c", 1))
    assert [one.request_id for one in orphans.adopt("me")] == ["c"]


def test_who_lives_keeps_its_own(redis: Redis, dead: int) -> None:
    mine = leave(redis, os.getpid(), began("a", 7))
    other = leave(redis, os.getppid(), began("b", 7))
    own = mine.removeprefix(BEGUN_PREFIX)
    assert orphans.adopt(own) == []
    assert set(redis.kept) == {mine, other}
    # An earlier process had this number, as in a container that was started anew.
    assert [one.request_id for one in orphans.adopt(f"{os.getpid()}-xyz")] == ["a"]


def test_what_cannot_be_read_is_left_out(redis: Redis, dead: int) -> None:
    for number, text in enumerate(("", "nonsense", "{}", "[1]", '[{"request_id": "a"}]')):
        redis.kept[f"{BEGUN_PREFIX}{dead}-{number}"] = text
    assert orphans.adopt("me") == []


def test_a_database_that_is_away_loses_nothing(
    redis: Redis, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = leave(redis, dead, began("a", 7))

    def away(rows: Any) -> Any:
        raise DatabaseError("away")

    with monkeypatch.context() as patched:
        patched.setattr(orphans, "_unrecorded", away)
        assert orphans.adopt("me") == []
    assert key in redis.kept
    assert len(orphans.adopt("me")) == 1
