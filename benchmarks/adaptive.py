"""Does adaptive batching help? The product's controller over simulated servers, under recorded requests.

    .venv/bin/python -m benchmarks.adaptive
    .venv/bin/python -m benchmarks.adaptive --part seen --rate 2.2 --json FILE

Moments and lengths are those of a recorded load run (benchmarks/recorded_arrivals.json; --record keeps another
one), played one time after the other, sometimes faster and sometimes slower, so that calm, usual and rush
follow each other; the controller (apps.control.domain.adaptive) was made with them and with two shapes of
chance. Held out are a quarter of an hour each of other arrivals, lengths and rates, and an engine whose steps
hardly grow with the batch; they were written down before it was run on any of them. The engine is the queueing
simulation fitted to the README's figures; the controller sees what the gateway would see, every five seconds,
with its default pace. Static settings are beside it: the profile's own, and the best of a grid, which is what
somebody could have chosen who knew all that came. Nothing here touches a real server.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from apps.control.domain.adaptive import Aim, Bounds, Memory, Move, Pace, Seen, Setting, decide
from apps.loadtests.domain.queue_model import EMBEDDED, Ask, Engine, Policy, Simulation, Slo, figures
from benchmarks.batching import machine

RECORDED = Path(__file__).with_name("recorded_arrivals.json")
# How fast the recorded arrivals are played, one time after the other: calm, usual and rush.
SPEEDS = (0.5, 1.0, 1.6, 1.2, 0.6, 2.0, 0.8, 0.4)
# The defaults of adaptive admission (apps.gateway.adaptive.AdaptiveFields).
LOOK_SECONDS, WINDOW_SECONDS, HOLD = 5.0, 20.0, 2
LEAST_SHARE = 0.95
Floats = npt.NDArray[np.float64]
SLO = Slo(ttft_ms=2000.0, tpot_ms=75.0)
AIM = Aim(ttft_ms=SLO.ttft_ms, itl_ms=SLO.tpot_ms)
BEGIN = Policy("inflight", 16, 0.0, 256)
BOUNDS = Bounds(admitted=(2, 32), queue=(1, 256), delay=(0, 200_000))
GRID = [(slots, queue) for slots in (4, 8, 12, 16, 24, 32) for queue in (2, 4, 8, 16, 256)]
PROMPT = 45
# What the controller was made with besides the recorded arrivals, and what is held out.
SEEN_SHAPES = ("steps", "ramp")
SHAPES = ("poisson", "wave", "rushes", "rush first", "long answers")
SECONDS = 900.0
ENGINES = {"embedded": EMBEDDED, "flat": Engine(step_base=0.030, step_each=0.0012, prompt_each=0.0003)}


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


@dataclass(frozen=True, slots=True)
class Case:
    """Arrivals: what they look like, how many a second on average, and the engine that answers them."""

    shape: str
    rate: float
    seed: int = 0
    engine: str = "embedded"

    @property
    def title(self) -> str:
        """In words."""
        seed = f", seed {self.seed}" if self.seed else ""
        return f"{self.shape}, {self.rate:g} requests/s{seed}, {self.engine} engine"


MADE_WITH = [Case(shape, rate, 1) for shape in SEEN_SHAPES for rate in (2.2, 3.0)]
HELD_OUT = [
    *(Case(shape, rate, seed) for shape in SHAPES for rate in (2.2, 3.0) for seed in (11, 12)),
    *(Case(shape, rate, 11, "flat") for shape in ("poisson", "rushes") for rate in (6.0, 9.0)),
]


def arrivals(case: Case) -> list[Ask]:
    """The requests of a case, in the order of their moments."""
    if case.shape == "recorded":
        return _recorded(case.rate)
    return synthetic(case.shape, case.rate, SECONDS, case.seed)


def _recorded(rate: float) -> list[Ask]:
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


def synthetic(shape: str, rate: float, seconds: float, seed: int) -> list[Ask]:
    """Poisson arrivals whose rate goes as a shape says, `rate` on average, with answers of mixed lengths."""
    drawn = np.random.default_rng([seed, *shape.encode()])
    times = np.arange(0.0, seconds, 0.5)
    levels = _levels(shape, times, seconds, drawn)
    levels *= rate / levels.mean()
    counts = drawn.poisson(levels * 0.5)
    moments = np.sort(np.repeat(times, counts) + 0.5 * drawn.random(int(counts.sum())))
    if shape == "long answers":
        lengths = drawn.integers(8, 241, moments.size)
    else:
        lengths = np.clip(drawn.lognormal(3.6, 0.7, moments.size), 4, 256).astype(int)
    return [Ask(float(at), PROMPT, int(tokens)) for at, tokens in zip(moments, lengths, strict=True)]


def _levels(shape: str, times: Floats, seconds: float, drawn: np.random.Generator) -> Floats:
    """How busy each moment is, beside the others."""
    if shape == "steps":
        return np.asarray(np.array([0.5, 2.0, 1.0, 3.0, 1.2, 0.4])[(times / seconds * 6).astype(int)])
    if shape == "ramp":
        return np.asarray(0.3 + 2.0 * np.minimum(times, seconds - times) / seconds)
    if shape == "wave":
        return np.asarray(1.0 + 0.8 * np.sin(2 * np.pi * times / 120.0))
    if shape == "rush first":
        return np.where(times < seconds / 3, 2.5, 0.6)
    if shape == "rushes":
        ends = np.cumsum([drawn.exponential(20.0 if turn % 2 else 60.0) for turn in range(400)])
        return np.where(np.searchsorted(ends, times, side="right") % 2, 3.0, 0.5)
    return np.ones_like(times)


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
            self.setting, BOUNDS, AIM, Pace(HOLD, WINDOW_SECONDS), seen, self.memory, now
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
        held = [(ask.done or 0.0) - ask.begun for ask in ended if ask.begun is not None]
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
            slot_seconds=float(np.mean(held)) if held else None,
            refused_share=refused / len(came) if came else None,
        )


def play(
    name: str, engine: Engine, policy: Policy, asks: Sequence[Ask], adaptive: Setting | None = None
) -> tuple[Told, Adaptive | None]:
    """One way of running; with `adaptive` the levers that the controller moves."""
    simulation = Simulation(engine, policy)
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


@dataclass(frozen=True, slots=True)
class Judged:
    """Arrivals with what was made of them: as it began, the best static setting, adaptive."""

    case: Case
    asks: int
    fixed: Told
    best: Told
    adapted: Told
    moves: list[tuple[float, Move]]

    @property
    def share(self) -> float:
        """Of the best static setting's goodput."""
        return self.adapted.goodput / self.best.goodput if self.best.goodput else 1.0

    @property
    def holds(self) -> bool:
        """At least what it began from, and 95% of the best setting that somebody could have chosen."""
        return self.adapted.goodput >= self.fixed.goodput * 0.99 and self.share >= LEAST_SHARE


def judge(case: Case) -> Judged:
    """Play one case every way."""
    asks = arrivals(case)
    engine = ENGINES[case.engine]
    fixed, _none = play("static, as it began (16, 256)", engine, BEGIN, asks)
    grid = [
        play(
            f"static, best of {len(GRID)} ({slots}, {queue})",
            engine,
            replace(BEGIN, slots=slots, queue=queue),
            asks,
        )[0]
        for slots, queue in GRID
    ]
    best = max(grid, key=lambda one: one.goodput)
    adapted, controller = play("adaptive", engine, BEGIN, asks, Setting(admitted=16, queue=256))
    return Judged(case, len(asks), fixed, best, adapted, controller.moves if controller is not None else [])


def dynamic(case: Case) -> list[Told]:
    """The same arrivals with batches that end together, where the queue delay moves too."""
    asks, together = arrivals(case), replace(BEGIN, strategy="dynamic", delay=0.02)
    waits, _none = play("dynamic, delay 20 ms (16, 256)", ENGINES[case.engine], together, asks)
    begun = Setting(admitted=16, queue=256, delay=20_000)
    moved, _control = play("dynamic, adaptive", ENGINES[case.engine], together, asks, begun)
    return [waits, moved]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0 where the controller beats what it began from and reaches 95% of the best setting, each time."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adaptive", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--part", choices=("seen", "held-out", "both"), default="both")
    parser.add_argument(
        "--rate", type=float, nargs="*", default=[1.6, 2.2, 3.0], help="requests/s on average, recorded"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", type=int, metavar="RUN", help="keep the arrivals of a home's load run")
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("INFLIGHT_HOME", "var")))
    options = parser.parse_args(arguments)
    if options.record is not None:
        print(record(options.home, options.record))
        return 0
    told: dict[str, list[Judged]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        if options.part != "held-out":
            told["recorded"] = list(pool.map(judge, [Case("recorded", rate) for rate in options.rate]))
            for one in told["recorded"]:
                print("\n".join([*_table(one, dynamic(one.case)), *_moves(one)]), flush=True)
            told["made with"] = list(pool.map(judge, MADE_WITH))
            print("\n".join(_many(told["made with"])), flush=True)
        if options.part != "recorded":
            told["held out"] = list(pool.map(judge, HELD_OUT))
            print("Held out:\n")
            print("\n".join(_many(told["held out"])))
    for part, found in told.items():
        least = min(found, key=lambda one: one.share)
        print(
            f"{part.capitalize()}: {sum(one.holds for one in found)} of {len(found)} hold, "
            f"{sum(one.share for one in found) / len(found):.1%} of the best static setting on average; least "
            f"{least.share:.1%} ({least.case.title})."
        )
    print(f"Machine: {machine()}; a simulation, nothing was served.")
    if options.json:
        kept = {part: [asdict(one) | {"share": one.share} for one in found] for part, found in told.items()}
        options.json.write_text(json.dumps(kept, indent=1))
    return 0 if all(one.holds for found in told.values() for one in found) else 1


def _table(one: Judged, others: Sequence[Told]) -> list[str]:
    lines = [
        f"{one.asks} recorded requests, {one.case.rate:g} a second on average; promised: TTFT "
        f"{SLO.ttft_ms:.0f} ms, TPOT {SLO.tpot_ms:.0f} ms. In brackets: admitted, queue.",
        "",
        "| | good requests/s | good of all | TTFT p99 (ms) | TPOT p99 (ms) | refused | moves |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {told.name} | {told.goodput:.2f} | {told.good:.0%} | {told.ttft:.0f} | {told.tpot:.0f} "
        f"| {told.refused:.0%} | {told.moves or '-'} |"
        for told in (one.fixed, one.best, one.adapted, *others)
    ]
    return [*lines, "", f"Adaptive has {one.share:.1%} of the best static setting's good requests.", ""]


def _many(found: Sequence[Judged]) -> list[str]:
    lines = [
        "| arrivals | requests/s | seed | engine | as it began | best static | adaptive | of the best | moves |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        setting = one.best.name.partition("(")[2].rstrip(")")
        lines.append(
            f"| {one.case.shape} | {one.case.rate:g} | {one.case.seed} | {one.case.engine} "
            f"| {one.fixed.goodput:.2f} | {one.best.goodput:.2f} ({setting}) | {one.adapted.goodput:.2f} "
            f"| {one.share:.1%} | {one.adapted.moves} |"
        )
    return [*lines, ""]


def _moves(one: Judged) -> list[str]:
    shown = one.moves[:8]
    lines = [
        f"- {at:.0f} s: {move.lever} {move.before} to {move.after}. {move.sentence}" for at, move in shown
    ]
    if len(one.moves) > len(shown):
        lines.append(f"- and {len(one.moves) - len(shown)} more.")
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main())
