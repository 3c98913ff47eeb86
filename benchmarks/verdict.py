"""How often the verdict is wrong: comparisons of runs that are the same (A/A), and of runs with a planted difference.

    .venv/bin/python -m benchmarks.verdict                         # from the bundled recorded requests
    .venv/bin/python -m benchmarks.verdict --records FOLDER/inflight-*   # from records that benchmarks.study
    --keep left
    .venv/bin/python -m benchmarks.verdict --engine PATH.gguf      # ten real pairs of runs that are the same

Each run is a closed loop of clients whose requests are drawn, with replacement, from recorded ones (time to the first
token, time after it, tokens); a comparison has three repeats a side and goes through the product's own code,
from records to verdict. Planted: one side's times are divided by 1.10. False alarms are A/A comparisons whose
primary metric is called different; the corrected others are counted apart. Exit 1 unless 3 to 7% are false
alarms and at least 90% are found.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from apps.loadtests.domain import records
from apps.loadtests.domain.compare import DEFAULT_PRIMARY, MENTIONED, Arm, Comparison, Sample, compare, sample
from apps.loadtests.domain.metrics import Window
from apps.loadtests.domain.records import OK, Columns
from apps.serving.domain.batching import BatchingFacts

BUNDLED = Path(__file__).with_name("recorded_requests.json")
CLIENTS, WARM_UP, SECONDS, REPEATS = 16, 6.0, 24.0, 3
COMPARISONS, PLANTED = 1000, 0.10
Pool = npt.NDArray[np.float64]


def pool_of(folders: Sequence[Path]) -> Pool:
    """Rows of (seconds to the first token, seconds after it, tokens) of answered requests."""
    data = records.columns(
        records.read(path for folder in folders for path in sorted(folder.glob("records-*.jsonl.gz")))
    )
    good = data.where((data.result == OK) & (data.tokens > 1))
    return np.column_stack([good.first - good.due, good.last - good.first, good.tokens])


def closed_loop(pool: Pool, drawn: np.random.Generator, faster: float) -> Sample:
    """A run's sample: each client asks one drawn request after the other."""
    total = WARM_UP + SECONDS
    each = int(total / (pool[:, 0] + pool[:, 1]).mean() * 3) + 8
    chosen = pool[drawn.integers(0, len(pool), (CLIENTS, each))]
    lengths = (chosen[..., 0] + chosen[..., 1]) / faster
    ends = np.cumsum(lengths, axis=1)
    begins = ends - lengths
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


def one(pool: Pool, drawn: np.random.Generator, faster: float, seed: int) -> Comparison:
    """One comparison: three repeats a side, the second side `faster` times as fast."""
    sides = [[closed_loop(pool, drawn, speed) for _ in range(REPEATS)] for speed in (1.0, faster)]
    arms = [Arm("A", sides[0]), Arm("B", sides[1])]
    return compare(arms, DEFAULT_PRIMARY, seed, MENTIONED)


def rates(pool: Pool, count: int, faster: float, seed: int) -> tuple[float, float]:
    """Shares of comparisons whose primary metric, and any of whose other metrics, is called different."""
    drawn = np.random.default_rng(seed)
    primary = others = 0
    for number in range(count):
        found = one(pool, drawn, faster, seed + number).arms[0].differences
        primary += found[DEFAULT_PRIMARY].different
        others += any(item.different for name, item in found.items() if name != DEFAULT_PRIMARY)
    return primary / count, others / count


def real_pairs(engine: Path, count: int, seconds: float) -> int:
    """Pairs of runs of the same configuration on the same server: how many are called different."""
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
            runs = [
                study.turn(server, Path(place) / f"{number}-{side}", options, 2 * number + side)[0]
                for side in (0, 1)
            ]
            found = compare([Arm("A", runs[:1]), Arm("B", runs[1:])], DEFAULT_PRIMARY, number).arms[0]
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
    parser.add_argument("--seconds", type=float, default=9.0, help="measured time of each run of a real pair")
    options = parser.parse_args()
    if options.engine is not None:
        found = real_pairs(options.engine, options.pairs, options.seconds)
        print(f"{found} of {options.pairs} real A/A pairs were called different; at most 2 are wanted.")
        return 0 if found <= 2 else 1
    pool = pool_of(options.records) if options.records else np.array(json.loads(BUNDLED.read_text()))
    if options.bundle:
        rows = [[round(a, 4), round(b, 4), int(c)] for a, b, c in pool]
        BUNDLED.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    false, false_others = rates(pool, options.comparisons, 1.0, options.seed)
    planted, _ = rates(pool, options.comparisons, 1 + PLANTED, options.seed + 1_000_000)
    print(
        f"{len(pool)} recorded requests; {options.comparisons} comparisons each, {REPEATS} repeats a side of "
        f"{SECONDS:.0f} s and {CLIENTS} clients, primary metric {DEFAULT_PRIMARY}.\n\n"
        "| | called different | wanted |\n|---|---|---|\n"
        f"| the same (A/A) | {false:.1%} | 3 to 7% |\n"
        f"| 10% planted | {planted:.1%} | at least 90% |\n"
        f"| the same, any of {len(MENTIONED) - 1} other metrics (corrected) | {false_others:.1%} | at most about 5% |"
    )
    return 0 if 0.03 <= false <= 0.07 and planted >= 0.9 else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
