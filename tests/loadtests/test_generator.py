"""The generator: bytes of answers become arrivals, and a whole run against a double over HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apps.loadtests.domain import records
from apps.loadtests.domain.scenario import parse
from apps.loadtests.domain.workload import Frame
from benchmarks.loadgen import double
from benchmarks.loadgen_double import MODEL
from workers.loadgen.answers import Answer, OpenAIEvents, TritonEvents
from workers.loadgen.asker import prompt_of
from workers.loadgen.http_client import Connection
from workers.loadgen.plan import SUMMARY, TICKS, Address, Plan, read, records_of

CHECKOUT = Path(__file__).resolve().parents[2]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class FakeTransport:
    """What a connection writes to."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        return None


def _chunks(*events: bytes) -> bytes:
    return b"".join(f"{len(event):x}\r\n".encode() + event + b"\r\n" for event in events) + b"0\r\n\r\n"


async def _answer(dialect: Any, pieces: list[bytes], lost: bool = False) -> Answer:
    connection = Connection(dialect)
    connection.connection_made(FakeTransport())  # type: ignore[arg-type]
    answer = Answer()
    asked = asyncio.create_task(connection.ask(b"x", answer))
    await asyncio.sleep(0)
    for piece in pieces:
        connection.data_received(piece)
    if lost:
        connection.connection_lost(None)
    await asyncio.wait_for(asked, 1)
    return answer


TRITON = _chunks(
    b'data: {"text_output":"","token_count":0}\n\n',
    b'data: {"text_output":"a","token_count":1}\n\n',
    b'data: {"text_output":"bcd","token_count":3}\n\n',
    b'data: {"text_output":"","token_count":0,"completion_tokens":4,"prompt_tokens":9}\n\n',
)


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
async def test_events_are_read_however_they_are_cut(size: int) -> None:
    whole = HEAD + TRITON
    found = await _answer(TritonEvents(True), [whole[at : at + size] for at in range(0, len(whole), size)])
    assert (found.result, found.counts, found.total, found.prompt_tokens) == ("ok", [1, 3], 4, 9)
    assert "".join(found.text) == "abcd"


async def test_the_gateway_counts_in_its_usage() -> None:
    body = _chunks(
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"Paris"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"."}}]}\n\ndata: {"choices":[],"usage":'
        b'{"completion_tokens":5,"prompt_tokens":7}}\n\n',
        b"data: [DONE]\n\n",
    )
    found = await _answer(OpenAIEvents(False), [HEAD + body])
    assert (found.result, len(found.arrivals), found.counts, found.total) == ("ok", 2, None, 5)


@pytest.mark.parametrize(
    ("raw", "lost", "result", "code"),
    [
        (
            b'HTTP/1.1 429 Too Many\r\nContent-Length: 30\r\n\r\n{"error":{"code":"rate_limited',
            True,
            "rejected",
            "http_429",
        ),
        (b"HTTP/1.1 500 No\r\nContent-Length: 15\r\n\r\n" + b'{"error":"bad"}', False, "error", ""),
        (
            HEAD + _chunks(b'data: {"error":"Exceeds maximum queue size"}\n\n'),
            False,
            "rejected",
            "overloaded",
        ),
        (HEAD + _chunks(b"data: {broken\n\n"), False, "error", "unreadable"),
        (HEAD + b"5\r\ndata", True, "error", "connection_lost"),
        (HEAD + b"xyz\r\n", False, "error", "unreadable"),
    ],
)
async def test_what_is_no_answer_has_a_code(raw: bytes, lost: bool, result: str, code: str) -> None:
    dialect = OpenAIEvents(False) if b"429" in raw else TritonEvents(False)
    found = await _answer(dialect, [raw], lost)
    assert found.result == result
    assert found.code == code or not code


def test_a_conversation_is_framed_as_the_template_does() -> None:
    frame = Frame("<s>U:", " A:", " U:")
    assert prompt_of(frame, "two", [("one", "first")]) == "<s>U:one A:first U:two A:"


def test_a_run_against_a_double(tmp_path: Path) -> None:
    """Two processes, an open loop of two steps: records, ticks, summary."""
    scenario = parse(
        {
            "target": MODEL,
            "load": {"mode": "open", "rate": [40.0, 60.0]},
            "prompts": {"output": {"mean": 4.0}, "turns": 2},
            "timing": {
                "warm_up_seconds": 0.2, "seconds": 0.5, "most_seconds": 1.5, "requests": 5, "until_steady": False,
                "grace_seconds": 2.0,
            },
            "processes": 2,
        }
    )  # fmt: skip
    with double("http") as port:
        plan = Plan(tmp_path, scenario, 7, (Address("127.0.0.1", port, MODEL),), processes=2)
        path = plan.write()
        assert read(path) == plan
        argv = [sys.executable, "-m", "workers.loadgen", str(path)]
        done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / SUMMARY).read_text())
    assert [step["value"] for step in summary["steps"]] == [40.0, 60.0]
    figures = summary["steps"][0]["figures"]
    assert figures["errors"] == figures["rejected"] == 0
    assert figures["output_tokens_mean"] == 4
    assert summary["counts_from"] == "messages"
    assert summary["generator"]["processes"] == 2
    rows = list(records.read(records_of(tmp_path, 2)))
    assert len({row.index for row in rows}) == len(rows)
    assert {row.turn for row in rows} == {0, 1}
    assert all(row.sent >= row.due - 1e-4 for row in rows)
    assert (tmp_path / TICKS).read_text().strip()


def test_a_target_that_is_not_there_is_said(tmp_path: Path) -> None:
    plan = Plan(tmp_path, parse({"target": "x"}), 1, (Address("127.0.0.1", 1, "x"),))
    argv = [sys.executable, "-m", "workers.loadgen", str(plan.write())]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "target_unreachable" in done.stdout
