"""Stands in for Open MPI's mpirun: starts ranks, tags nothing, and ends all where one ends badly."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from acting import Act


def main() -> None:
    if ":" in sys.argv:
        _wait(_of_segments(sys.argv[1:]), "")
        return
    parser = argparse.ArgumentParser("mpirun", allow_abbrev=False)
    parser.add_argument("-n", "-np", type=int, required=True)
    for flag in ("--allow-run-as-root", "--oversubscribe", "--tag-output"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    act = Act("mpirun")
    ranks = [_start(options.program, rank, options.n) for rank in range(options.n)]
    _wait(ranks, act.how)


def _of_segments(words: list[str]) -> list[subprocess.Popen[bytes]]:
    """Ranks of a command with a part for each, parted by colons: `-n 1 PROGRAM ... : -n 1 PROGRAM ...`."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    programs = []
    for part in parts:
        while part[0].startswith("-"):
            del part[: 2 if part[0] == "-n" else 1]
        programs.append(part)
    return [_start(program, rank, len(programs)) for rank, program in enumerate(programs)]


def _wait(ranks: list[subprocess.Popen[bytes]], how: str) -> None:
    """Until all have ended; a signal to end is theirs too, and one that ends badly ends all."""
    signal.signal(signal.SIGTERM, lambda number, frame: [rank.terminate() for rank in ranks])
    if how.startswith("killed"):
        ranks[-1].kill()
    while True:
        codes = [rank.poll() for rank in ranks]
        bad = next((at for at, code in enumerate(codes) if code not in (None, 0)), None)
        if bad is not None:
            for rank in ranks:
                rank.kill()
                rank.wait()
            code = codes[bad] or 1
            why = f"signal {-code} (Killed)" if code < 0 else f"code {code}"
            print(
                f"mpirun noticed that process rank {bad} with PID {ranks[bad].pid} exited on {why}.",
                flush=True,
            )
            sys.exit(137 if code < 0 else code)
        if all(code == 0 for code in codes):
            return
        time.sleep(0.01)


def _start(program: list[str], rank: int, size: int) -> subprocess.Popen[bytes]:
    mine = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size)}
    return subprocess.Popen(program, env={**os.environ, **mine}, start_new_session=True)


if __name__ == "__main__":
    main()
