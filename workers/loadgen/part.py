"""One process that sends: `python -m workers.loadgen.part PLAN.json NUMBER COUNT`, commanded over standard input.

Commands, one JSON object a line: {"go": step, "value": clients or rate, "zero": perf_counter of the run's beginning},
{"stop": step, "grace": seconds}, {"quit": true}. It tells, on standard output: {"ready": true}, a tick every second,
{"stopped": step} and {"done": figures of itself}.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from apps.loadtests.domain import arrivals, datasets, records
from apps.loadtests.domain.records import OK, UNFINISHED, Record
from apps.loadtests.domain.workload import Workload
from workers.builders.llamacpp_steps.events import StepFailed
from workers.loadgen.answers import Answer, Meter
from workers.loadgen.asker import Asker, open_asker
from workers.loadgen.plan import KEY, RECORDS, Plan, read
from workers.loadgen.watchers import Lag, Late

LONGEST_SECONDS = 24 * 3600.0
# Lines that wait for a write; each is a few hundred bytes.
LINES_AT_ONCE = 200
LEVEL = 1
# Requests under way in one process; beyond it they wait, are late, and the run says so.
MOST_RUNNING = 4096


class Part:
    """The sender: clients or arrivals, records, ticks."""

    def __init__(self, plan: Plan, number: int, count: int) -> None:
        self._plan, self._number, self._count = plan, number, count
        self._scenario = plan.scenario
        rows = datasets.load(Path(plan.dataset)) if plan.dataset else []
        self._rows = rows
        self._workload = Workload(plan.scenario.prompts, plan.seed, rows)
        self._file = gzip.open(plan.folder / RECORDS.format(number), "wb", compresslevel=LEVEL)  # noqa: SIM115
        self._lines: list[bytes] = []
        self._asker: Asker | None = None
        self._zero = 0.0
        self._step = 0
        self._sent = 0
        self._running: set[asyncio.Task[None]] = set()
        self._source: asyncio.Task[None] | None = None
        self.meter = Meter()
        self._clear()
        self.late, self.lag = Late(), Lag()

    # ------------------------------------------------------------------ steps

    async def open(self) -> None:
        """Connect to the target. Raises StepFailed."""
        self._asker = await open_asker(
            self._scenario, self._plan.addresses, self._plan.frame, os.environ.get(KEY, "")
        )
        # A collection of everything takes longer than a start may be late.
        gc.collect()
        gc.freeze()

    def begin(self, step: int, value: float, zero: float) -> None:
        """Begin a step of the load."""
        self._step, self._zero = step, zero
        if self._scenario.load.mode == "closed":
            mine = _share(int(value), self._number, self._count)
            for _ in range(mine):
                self._start(self._client())
        else:
            self._source = asyncio.create_task(self._arrivals(step, value))

    async def end(self, grace: float) -> None:
        """End the step: nothing new is sent; what runs may take `grace` seconds, then it is cancelled."""
        if self._source is not None:
            self._source.cancel()
            await asyncio.gather(self._source, return_exceptions=True)
            self._source = None
        if self._scenario.load.mode == "closed":
            grace = 0.0
        if self._running and grace > 0:
            await asyncio.wait(self._running, timeout=grace)
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._write()

    async def close(self) -> None:
        """Close connections and the file of records."""
        self._write()
        self._file.close()
        if self._asker is not None:
            await self._asker.close()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _client(self) -> None:
        """A client of the closed loop: conversation after conversation, each number used once."""
        free = time.perf_counter()
        while True:
            free = await self._converse(self._next(), free)

    def _next(self) -> int:
        number = self._number + self._sent * self._count
        self._sent += 1
        return number

    async def _arrivals(self, step: int, rate: float) -> None:
        """The open loop: conversations at their moments, whether earlier ones are answered or not."""
        begin = time.perf_counter()
        for moment in self._moments(step, rate):
            due = begin + moment
            # Also where it is late: commands and answers have their turn, and the lateness is what the run tells.
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            # uvloop counts in whole milliseconds and may wake one too early.
            while (left := due - time.perf_counter()) > 0:  # noqa: ASYNC110 - a moment, not an event
                await asyncio.sleep(left)
            while len(self._running) >= MOST_RUNNING:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            self._start(self._converse(self._next(), due))

    def _moments(self, step: int, rate: float) -> Iterator[float]:
        """Every process works out all moments and takes each `count`-th."""
        load = self._scenario.load
        if load.mode == "trace":
            times = sorted(row.at for row in self._rows if row.at is not None)
            moments: Iterator[float] = ((at - times[0]) / load.speed for at in times)
        else:
            moments = arrivals.moments(load, rate, LONGEST_SECONDS, self._plan.seed + step)
        return (moment for index, moment in enumerate(moments) if index % self._count == self._number)

    # ------------------------------------------------------------------ requests

    async def _converse(self, conversation: int, due: float) -> float:
        """The turns of a conversation; returns when the client is free again. A follow-up is due at the answer's
        end."""
        turns = self._scenario.prompts.turns
        history: list[tuple[str, str]] = []
        for turn in range(turns):
            ask = self._workload.ask(conversation * turns + turn)
            answer = await self._one(ask.index, ask.turn, ask.text, history, ask.tokens, due)
            due = answer.ended or time.perf_counter()
            if answer.result != OK:
                # A server that refuses at once must not be asked ten thousand times a second.
                await asyncio.sleep(0.1)
                return time.perf_counter()
            history.append((ask.text, "".join(answer.text)))
        return due

    async def _one(
        self, index: int, turn: int, text: str, history: list[tuple[str, str]], tokens: int, due: float
    ) -> Answer:
        answer = Answer(self.meter)
        step = self._step
        self.started += 1
        assert self._asker is not None  # noqa: S101 - opened before anything begins
        try:
            await self._asker.ask(text, history, tokens, answer)
        except asyncio.CancelledError:
            if answer.result == OK:
                answer.result = UNFINISHED
            answer.ended = time.perf_counter()
            if answer.sent:
                self._keep(answer, index, turn, step, tokens, due)
            raise
        self.late.add(answer.sent - due)
        self._keep(answer, index, turn, step, tokens, due)
        return answer

    def _keep(self, answer: Answer, index: int, turn: int, step: int, asked: int, due: float) -> None:
        zero = self._zero
        record = Record(
            due=due - zero,
            sent=answer.sent - zero,
            arrivals=tuple(at - zero for at in answer.arrivals),
            counts=None if answer.counts is None else tuple(answer.counts),
            ended=answer.ended - zero,
            tokens=answer.total if answer.result == OK else (sum(answer.counts) if answer.counts else None),
            prompt_tokens=answer.prompt_tokens,
            asked=asked,
            result=answer.result,
            code=answer.code,
            step=step,
            index=index,
            turn=turn,
        )
        self._lines.append(orjson.dumps(records.as_line(record)))
        self._count_answer(record)
        if len(self._lines) >= LINES_AT_ONCE:
            self._write()

    def _write(self) -> None:
        if self._lines:
            self._file.write(b"\n".join(self._lines) + b"\n")
            self._lines = []

    # ------------------------------------------------------------------ ticks

    def _clear(self) -> None:
        self.started = self.completed = self.errors = self.messages = 0
        self.meter.tokens = 0
        self.latency = 0.0
        self.ttft: list[float] = []

    def _count_answer(self, record: Record) -> None:
        self.messages += len(record.arrivals)
        if record.result != OK:
            self.errors += record.result != UNFINISHED
            return
        self.completed += 1
        if record.arrivals:
            self.latency += record.arrivals[-1] - record.due
            if len(self.ttft) < 200:
                self.ttft.append(round(record.arrivals[0] - record.due, 6))

    async def tick(self) -> None:
        """Tell every second what it brought."""
        while True:
            await asyncio.sleep(1.0)
            tell(
                {
                    "tick": self._step,
                    "started": self.started,
                    "completed": self.completed,
                    "errors": self.errors,
                    "tokens": self.meter.tokens,
                    "messages": self.messages,
                    "latency": self.latency,
                    "ttft": self.ttft,
                    "running": len(self._running),
                }
            )
            self._clear()


def _share(total: int, number: int, count: int) -> int:
    """How many of `total` clients this process has."""
    return total // count + (number < total % count)


def tell(value: dict[str, Any]) -> None:
    """One line to the coordinator."""
    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()


async def _commands() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


async def serve(plan: Plan, number: int, count: int) -> None:
    """Do what the coordinator says until it says quit, or is gone."""
    part = Part(plan, number, count)
    commands = await _commands()
    await part.open()
    cpu = time.process_time()
    began = time.perf_counter()
    ticks = asyncio.create_task(part.tick())
    lag = asyncio.create_task(part.lag.watch())
    tell({"ready": True})
    try:
        while line := await commands.readline():
            told: dict[str, Any] = json.loads(line)
            if "go" in told:
                part.begin(int(told["go"]), float(told["value"]), float(told["zero"]))
            elif "stop" in told:
                await part.end(float(told["grace"]))
                tell({"stopped": told["stop"]})
            else:
                break
    finally:
        ticks.cancel()
        lag.cancel()
        await part.end(0.0)
        await part.close()
    used = (time.process_time() - cpu) / max(1e-9, time.perf_counter() - began)
    tell({"done": {"cpu": used, "late": part.late.figures(), "lag": part.lag.figures()}})


def main() -> int:
    """Command line of one part."""
    plan = read(Path(sys.argv[1]))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run = asyncio.run
    if plan.scenario.via != "grpc":
        # gRPC brings its own loop integration, made for asyncio's.
        import uvloop

        run = uvloop.run
    try:
        run(serve(plan, int(sys.argv[2]), int(sys.argv[3])))
    except StepFailed as error:
        tell({"failed": [error.reason, str(error), error.remedy]})
        return 1
    except datasets.DatasetProblem as error:
        tell({"failed": ["dataset_unusable", str(error), "Name another dataset, or repair this one."]})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
