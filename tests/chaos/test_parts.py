"""The parts of the fault commands themselves: roads that are cut, clocks that are moved, lines of the table."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.clock import Clock
from tests.chaos.faults import FAULTS
from tests.chaos.link import Link
from tests.chaos.outcome import CannotBeShown, Fault, Line, Outcome


def _fault(**more: object) -> Fault:
    return Fault("it", lambda installation: Outcome(None, 1.0), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "missed"),
    [
        (Line(_fault(), Outcome(9.0, 20.0), 32), []),
        (Line(_fault(), Outcome(None, 1.0), 32, 1, why="cut"), ["1 streams were lost: cut"]),
        (Line(_fault(loses=True), Outcome(None, 1.0), 32, 16), []),
        (Line(_fault(), Outcome(None, 1.0), 32, duplicates=2), ["2 servers or answers were doubled"]),
        (Line(_fault(noticed_within=2.0), Outcome(2.5, 9.0), 32), ["noticed after 2.5 s, 2 asked"]),
        (Line(_fault(noticed_within=2.0), Outcome(None, 9.0), 32), ["noticed after - s, 2 asked"]),
        (Line(_fault(), Outcome(0.1, 12.0, 10.1), 32), ["servers adopted after 10.1 s, 10 asked"]),
        (Line(_fault(), None, 32, why="no end"), ["it did not become well again: no end"]),
        (Line(_fault(), None, why="no compiler", skipped=True), []),
    ],
)
def test_what_is_asked_of_a_line(line: Line, missed: list[str]) -> None:
    assert line.missed() == missed
    assert line.text().count("|") == 7


def test_every_fault_has_a_name_of_its_own_and_some_are_short() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {fault.loses for fault in FAULTS if fault.short} == {True, False}


async def test_nothing_passes_a_road_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_unix_server(echo, path)
    link = Link(lambda: str(path))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"one")
        assert await asyncio.wait_for(reader.readexactly(3), 10) == b"one"
        link.cut()
        writer.write(b"two")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        link.heal()
        assert await asyncio.wait_for(reader.readexactly(3), 10) == b"two"
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    finally:
        await asyncio.to_thread(link.close)
        server.close()


def test_a_wall_clock_is_moved_and_the_monotonic_one_is_not(tmp_path: Path) -> None:
    try:
        clock = Clock(tmp_path)
    except CannotBeShown:
        # Said in the table of `make chaos`; there is nothing to test without a compiler.
        return
    code = (
        "import datetime, sys, time\n"
        "for line in sys.stdin:\n"
        "    print(time.time(), datetime.datetime.now().timestamp(), time.monotonic(), flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clock.environment(),
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        for moved in (0, 10_800, -10_800):
            clock.move(moved)
            child.stdin.write("\n")
            child.stdin.flush()
            wall, now, monotonic = (float(word) for word in child.stdout.readline().split())
            assert wall - time.time() == pytest.approx(moved, abs=60)
            assert now - time.time() == pytest.approx(moved, abs=60)
            assert monotonic == pytest.approx(time.monotonic(), abs=60)
    finally:
        child.stdin.close()
        child.wait(10)
        child.stdout.close()
