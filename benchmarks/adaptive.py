"""Does adaptive batching help? The product's controller over simulated servers, under recorded requests.

    .venv/bin/python -m benchmarks.adaptive
    .venv/bin/python -m benchmarks.adaptive --rate 2.2 --json FILE

Moments and lengths are those of a recorded load run (benchmarks/recorded_arrivals.json; --record keeps another
one), played one time after the other, sometimes faster and sometimes slower, so that calm, usual and rush follow
each other. The engine is the queueing simulation fitted to the README's figures; the controller
(apps.control.domain.adaptive) sees what the gateway would see, every five seconds. Static settings are beside it:
the profile's own, and the best of a grid, which is what somebody could have chosen who knew all that came.
Nothing here touches a real server.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from apps.control.domain.adaptive import Aim, Bounds, Memory, Move, Pace, Seen, Setting, decide
from apps.loadtests.domain.queue_model import EMBEDDED, Ask, Policy, Simulation, Slo, figures
from benchmarks.batching import machine

RECORDED = Path(__file__).with_name("recorded_arrivals.json")
# How fast the recorded arrivals are played, one time after the other: calm, usual and rush.
SPEEDS = (0.5, 1.0, 1.6, 1.2, 0.6, 2.0, 0.8, 0.4)
LOOK_SECONDS, WINDOW_SECONDS = 5.0, 15.0
SLO = Slo(ttft_ms=2000.0, tpot_ms=75.0)
AIM = Aim(ttft_ms=SLO.ttft_ms, itl_ms=SLO.tpot_ms)
BEGIN = Policy("inflight", 16, 0.0, 256)
BOUNDS = Bounds(admitted=(2, 32), queue=(1, 256), delay=(0, 200_000))
GRID = [(slots, queue) for slots in (4, 8, 12, 16, 24, 32) for queue in (2, 4, 8, 16, 256)]
PROMPT = 45


@dataclass(frozen=True, slots=True)
class Told:
    """One way of running under the arrivals."""

    name: str
    goodput: float
    good: float
    ttft: float
    tpot: float
    refused: float
    moves: int


def arrivals(rate: float) -> list[Ask]:
    """Recorded moments and lengths, played so that `rate` requests a second come on average."""
    recorded = sorted(json.loads(RECORDED.read_text(encoding="utf-8")))
    length = recorded[-1][0] - recorded[0][0]
    found: list[Ask] = []
    offset = 0.0
    for speed in SPEEDS:
        found += [
            Ask(offset + (at - recorded[0][0]) / speed, prompt, tokens) for at, prompt, tokens in recorded
        ]
        offset += length / speed
    stretch = len(found) / rate / offset
    return [Ask(ask.at * stretch, ask.prompt, ask.output) for ask in found]


def record(home: Path, number: int) -> str:
    """Keep when the requests of a load run were due, and how long they were; says how many."""
    from benchmarks.home import enter

    enter(home)
    from apps.loadtests import selectors

    rows = [
        [round(row.due, 3), row.prompt_tokens or PROMPT, row.tokens]
        for row in selectors.record_lines(selectors.run(number))
        if row.tokens
    ]
    RECORDED.write_text("[\n" + ",\n".join(json.dumps(row) for row in sorted(rows)) + "\n]\n")
    return f"{len(rows)} requests of run #{number} are kept in {RECORDED.name}."


class Adaptive:
    """The controller beside a simulation, as the sweep runs it beside a gateway."""

    def __init__(self, simulation: Simulation, levers: Setting) -> None:
        self.simulation, self.setting = simulation, levers
        self.memory, self.moves = Memory(), list[tuple[float, Move]]()

    def look(self, now: float) -> None:
        """One look, then the next in five seconds."""
        seen = self.seen(now)
        self.setting, self.memory, moves = decide(
            self.setting, BOUNDS, AIM, Pace(2, WINDOW_SECONDS), seen, self.memory, now
        )
        self.moves += [(now, move) for move in moves]
        policy = self.simulation.policy
        self.simulation.policy = replace(
            policy,
            slots=self.setting.admitted or policy.slots,
            queue=self.setting.queue if self.setting.queue is not None else policy.queue,
            delay=(self.setting.delay or 0) / 1e6 if self.setting.delay is not None else policy.delay,
        )
        self.simulation.at(now + LOOK_SECONDS, self.look)

    def seen(self, now: float) -> Seen:
        """What the window showed: requests that came, and those that ended."""
        since = now - WINDOW_SECONDS
        asks = self.simulation.asks
        came = [ask for ask in asks if ask.at >= since]
        ended = [ask for ask in asks if ask.done is not None and ask.done >= since]
        refused = sum(ask.refused for ask in came)
        ttft = [(ask.first - ask.at) * 1000 for ask in ended if ask.first is not None]
        gaps = [
            ((ask.done or 0.0) - (ask.first or 0.0)) / (ask.output - 1) * 1000
            for ask in ended
            if ask.output > 1 and ask.first is not None
        ]
        span = min(WINDOW_SECONDS, max(now, 1e-9))
        return Seen(
            requests=len(ended),
            arrivals_per_second=len(came) / span,
            answers_per_second=len(ended) / span,
            waiting=float(sum(len(server.waiting) for server in self.simulation.servers)),
            running=float(sum(len(server.running) for server in self.simulation.servers)),
            ttft_ms=float(np.percentile(ttft, 90)) if ttft else None,
            itl_ms=float(np.percentile(gaps, 90)) if gaps else None,
            refused_share=refused / len(came) if came else None,
        )


def play(
    name: str, policy: Policy, asks: Sequence[Ask], adaptive: Setting | None = None
) -> tuple[Told, Adaptive | None]:
    """One way of running; with `adaptive` the levers that the controller moves."""
    simulation = Simulation(EMBEDDED, policy)
    simulation.add([Ask(ask.at, ask.prompt, ask.output) for ask in asks])
    controller = None
    if adaptive is not None:
        controller = Adaptive(simulation, adaptive)
        simulation.at(LOOK_SECONDS, controller.look)
    end = asks[-1].at + 120.0
    told = figures(simulation.run(end), 0.0, None, SLO)
    seconds = asks[-1].at
    good = (told["good_share"] or 0.0) * (told["requests"] or 0.0)
    return (
        Told(
            name,
            good / seconds,
            told["good_share"] or 0.0,
            told["ttft_p99_ms"] or 0.0,
            told["tpot_p99_ms"] or 0.0,
            (told["rejected"] or 0.0) / (told["requests"] or 1.0),
            len(controller.moves) if controller else 0,
        ),
        controller,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0 where the controller beats what it began from and reaches 80% of the best setting."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adaptive", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--rate", type=float, nargs="*", default=[1.6, 2.2, 3.0], help="requests/s on average"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", type=int, metavar="RUN", help="keep the arrivals of a home's load run")
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("INFLIGHT_HOME", "var")))
    options = parser.parse_args(arguments)
    if options.record is not None:
        print(record(options.home, options.record))
        return 0
    good, kept = True, {}
    for rate in options.rate:
        asks = arrivals(rate)
        fixed, _none = play("static, as it began (16, 256)", BEGIN, asks)
        grid = [
            play(
                f"static, best of {len(GRID)} ({slots}, {queue})",
                replace(BEGIN, slots=slots, queue=queue),
                asks,
            )[0]
            for slots, queue in GRID
        ]
        best = max(grid, key=lambda one: one.goodput)
        adapted, controller = play("adaptive", BEGIN, asks, Setting(admitted=16, queue=256))
        together = replace(BEGIN, strategy="dynamic", delay=0.02)
        waits, _none = play("dynamic, delay 20 ms (16, 256)", together, asks)
        moved, _control = play(
            "dynamic, adaptive", together, asks, Setting(admitted=16, queue=256, delay=20_000)
        )
        print("\n".join(_table(rate, asks, [fixed, best, adapted, waits, moved])))
        if controller is not None:
            print("\n".join(_moves(controller)))
            kept[str(rate)] = [
                (at, move.lever, move.before, move.after, move.sentence) for at, move in controller.moves
            ]
        good = good and adapted.goodput >= fixed.goodput * 0.99 and adapted.goodput >= 0.8 * best.goodput
    print(f"Machine: {machine()}; a simulation, nothing was served.")
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1))
    return 0 if good else 1


def _table(rate: float, asks: Sequence[Ask], told: Sequence[Told]) -> list[str]:
    lines = [
        f"{len(asks)} recorded requests over {asks[-1].at:.0f} s, {rate:g} a second on average; promised: TTFT "
        f"{SLO.ttft_ms:.0f} ms, TPOT {SLO.tpot_ms:.0f} ms. In brackets: admitted, queue.",
        "",
        "| | good requests/s | good of all | TTFT p99 (ms) | TPOT p99 (ms) | refused | moves |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.name} | {one.goodput:.2f} | {one.good:.0%} | {one.ttft:.0f} | {one.tpot:.0f} | {one.refused:.0%} | "
        f"{one.moves or '-'} |"
        for one in told
    ]
    return [*lines, ""]


def _moves(controller: Adaptive) -> list[str]:
    shown = controller.moves[:8]
    lines = [
        f"- {at:.0f} s: {move.lever} {move.before} to {move.after}. {move.sentence}" for at, move in shown
    ]
    if len(controller.moves) > len(shown):
        lines.append(f"- and {len(controller.moves) - len(shown)} more.")
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main())
