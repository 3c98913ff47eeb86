"""How often the verdict is wrong: comparisons of runs that are the same (A/A), and of runs with a planted difference.

    .venv/bin/python -m benchmarks.verdict                         # from the bundled recorded requests
    .venv/bin/python -m benchmarks.verdict --records FOLDER/inflight-*   # from records that benchmarks.study
    --keep left
    .venv/bin/python -m benchmarks.verdict --engine PATH.gguf      # ten real pairs of runs that are the same

A comparison has six interleaved repeats a side and goes through the product's own code, from records to verdict. What
is resampled is a recorded run: each run of a comparison draws one of the recorded runs (so what changes from run to
run is in it), cuts it by time into epochs of about an answer's length and draws epochs again (so requests that were
slow together stay together, for all clients), and each client of its closed loop asks requests of the epoch that it
is in. Planted: one side's times are divided by 1.10. False alarms are A/A comparisons whose primary metric is called
different; the corrected others are counted apart. Exit 1 unless 3 to 7% are false alarms and at least 90% are found.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from apps.loadtests.domain import records
from apps.loadtests.domain.compare import DEFAULT_PRIMARY, MENTIONED, Arm, Comparison, Sample, compare, sample
from apps.loadtests.domain.metrics import Window
from apps.loadtests.domain.records import OK, Columns
from apps.serving.domain.batching import BatchingFacts

BUNDLED = Path(__file__).with_name("recorded_requests.json")
CLIENTS, WARM_UP, SECONDS, REPEATS = 16, 6.0, 24.0, 6
COMPARISONS, PLANTED = 1000, 0.10
# A real pair is measured, so it has fewer repeats, and shorter ones.
REAL_REPEATS = 3
# Drawn blocks tell only whether repeats differ beyond their noise, which nothing here counts.
DRAWS = 20
FEWEST_IN_EPOCH = 8
# Of a recorded run, in order of time: (seconds to the first token, seconds after it, tokens) of each request.
Run = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded run, cut by time: requests of each epoch, in order."""

    epochs: tuple[Run, ...]
    seconds: float


def recorded(run: Run) -> Recorded:
    """Cut a run into epochs of at least FEWEST_IN_EPOCH requests, about as long as an answer takes."""
    usual = float((run[:, 0] + run[:, 1]).mean())
    count = max(1, min(len(run) // FEWEST_IN_EPOCH, round(SECONDS / usual)))
    return Recorded(tuple(np.array_split(run, count)), usual)


def runs_of(folders: Sequence[Path]) -> list[Run]:
    """The answered requests of each folder's run, in the order in which they were due."""
    found = []
    for folder in folders:
        data = records.columns(records.read(sorted(folder.glob("records-*.jsonl.gz"))))
        good = data.where((data.result == OK) & (data.tokens > 1))
        rows = np.column_stack([good.first - good.due, good.last - good.first, good.tokens])
        found.append(rows[np.argsort(good.due, kind="stable")])
    return [run for run in found if len(run)]


def bundled() -> list[Run]:
    """The runs that lie beside this file."""
    return [np.array(run, dtype=np.float64) for run in json.loads(BUNDLED.read_text())]


def _requests(run: Recorded, drawn: np.random.Generator, faster: float) -> tuple[Run, Run]:
    """(moments at which requests are due, the requests), a row a client: each asks one after the other."""
    total = WARM_UP + SECONDS
    order = drawn.integers(0, len(run.epochs), int(total / run.seconds) + 2)
    now = np.zeros(CLIENTS)
    begins, chosen = [], []
    while (now < total).any():
        epoch = order[np.minimum((now / run.seconds).astype(np.int64), order.size - 1)]
        sizes = np.array([len(run.epochs[each]) for each in epoch])
        places = (drawn.random(CLIENTS) * sizes).astype(np.int64)
        rows = np.array([run.epochs[each][place] for each, place in zip(epoch, places, strict=True)])
        begins.append(now)
        chosen.append(rows)
        now = now + (rows[:, 0] + rows[:, 1]) / faster
    return np.stack(begins, axis=1), np.stack(chosen, axis=1)


def closed_loop(runs: Sequence[Recorded], drawn: np.random.Generator, faster: float) -> Sample:
    """A run's sample, drawn from one of the recorded ones."""
    total = WARM_UP + SECONDS
    begins, chosen = _requests(runs[int(drawn.integers(len(runs)))], drawn, faster)
    ends = begins + (chosen[..., 0] + chosen[..., 1]) / faster
    kept = begins < total
    due, ended = begins[kept], ends[kept]
    first = due + chosen[..., 0][kept] / faster
    tokens = chosen[..., 2][kept].astype(np.int64)
    owner = np.repeat(np.arange(due.size), tokens)
    place = np.arange(owner.size) - np.repeat(np.cumsum(tokens) - tokens, tokens)
    step = (ended - first) / np.maximum(tokens - 1, 1)
    arrival = first[owner] + place * step[owner]
    data = Columns(
        step=np.zeros(due.size, dtype=np.int64),
        due=due,
        sent=due,
        first=first,
        second=first + step,
        last=ended,
        ended=ended,
        tokens=tokens.astype(np.float64),
        prompt_tokens=np.full(due.size, np.nan),
        result=np.full(due.size, OK),
        owner=owner.astype(np.int64),
        arrival=arrival,
        arrival_tokens=np.ones(owner.size),
    )
    return sample(data, Window(WARM_UP, total), "closed")


def one(
    runs: Sequence[Recorded], drawn: np.random.Generator, faster: float, seed: int, repeats: int = REPEATS
) -> Comparison:
    """One comparison of interleaved repeats, the second side `faster` times as fast."""
    sides = [[closed_loop(runs, drawn, speed) for _ in range(repeats)] for speed in (1.0, faster)]
    arms = [Arm("A", sides[0]), Arm("B", sides[1])]
    return compare(arms, DEFAULT_PRIMARY, seed, MENTIONED, DRAWS)


def rates(runs: Sequence[Recorded], count: int, faster: float, seed: int) -> tuple[float, float]:
    """Shares of comparisons whose primary metric, and any of whose other metrics, is called different."""
    drawn = np.random.default_rng(seed)
    primary = others = 0
    for number in range(count):
        found = one(runs, drawn, faster, seed + number).arms[0].differences
        primary += found[DEFAULT_PRIMARY].different
        others += any(item.different for name, item in found.items() if name != DEFAULT_PRIMARY)
    return primary / count, others / count


def real_pairs(engine: Path, count: int, seconds: float) -> int:
    """Pairs of sides of the same configuration on the same server, runs in turns: how many are called different."""
    from benchmarks import study
    from benchmarks.serving import find_installation, serve

    options = argparse.Namespace(slots=CLIENTS, warm_up=2.0, seconds=seconds)
    different = 0
    facts = BatchingFacts("inflight", CLIENTS, 1024, 0, 256, 0)
    with (
        serve(find_installation(), engine, facts) as server,
        tempfile.TemporaryDirectory(prefix="inflight-pairs-") as place,
    ):
        for number in range(count):
            sides: dict[int, list[Sample]] = {0: [], 1: []}
            for repeat in range(REAL_REPEATS):
                for side in (0, 1) if repeat % 2 == 0 else (1, 0):
                    folder = Path(place) / f"{number}-{side}-{repeat}"
                    seed = REAL_REPEATS * number + repeat
                    sides[side].append(study.turn(server, folder, options, seed)[0])
            arms = [Arm("A", sides[0]), Arm("B", sides[1])]
            found = compare(arms, DEFAULT_PRIMARY, number, MENTIONED).arms[0]
            tokens = found.differences[DEFAULT_PRIMARY]
            different += tokens.different
            print(f"pair {number + 1}: {found.verdict}", file=sys.stderr, flush=True)
    return different


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--records", type=Path, nargs="+", help="folders of runs; default: the bundled requests"
    )
    parser.add_argument(
        "--bundle", action="store_true", help="write the requests of --records as the bundled ones"
    )
    parser.add_argument("--comparisons", type=int, default=COMPARISONS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", type=Path, help="a GGUF file: real pairs instead of resampled ones")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=6.0, help="measured time of each run of a real pair")
    options = parser.parse_args()
    if options.engine is not None:
        found = real_pairs(options.engine, options.pairs, options.seconds)
        print(f"{found} of {options.pairs} real A/A pairs were called different; at most 2 are wanted.")
        return 0 if found <= 2 else 1
    given = runs_of(options.records) if options.records else bundled()
    if not given:
        parser.error("the folders hold no records of answered requests")
    if options.bundle:
        kept = [[[round(a, 4), round(b, 4), int(c)] for a, b, c in run] for run in given]
        BUNDLED.write_text("[\n" + ",\n".join(json.dumps(run) for run in kept) + "\n]\n")
    runs = [recorded(run) for run in given]
    false, false_others = rates(runs, options.comparisons, 1.0, options.seed)
    planted, _ = rates(runs, options.comparisons, 1 + PLANTED, options.seed + 1_000_000)
    print(
        f"{sum(map(len, given))} recorded requests of {len(runs)} runs; {options.comparisons} comparisons each, "
        f"{REPEATS} repeats a side of {SECONDS:.0f} s and {CLIENTS} clients, primary metric {DEFAULT_PRIMARY}.\n\n"
        "| | called different | wanted |\n|---|---|---|\n"
        f"| the same (A/A) | {false:.1%} | 3 to 7% |\n"
        f"| 10% planted | {planted:.1%} | at least 90% |\n"
        f"| the same, any of {len(MENTIONED) - 1} other metrics (corrected) | {false_others:.1%} | at most about 5% |"
    )
    return 0 if 0.03 <= false <= 0.07 and planted >= 0.9 else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
