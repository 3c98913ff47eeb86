"""How quickly a change that cannot serve is taken back, under streams: `python -m tests.chaos.rollback`.

Twice: a new server whose model cannot be loaded, and one that hangs until the progress deadline. The old server must
be untouched and no stream lost.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.installation import Installation, own_stack
from tests.chaos.streams import Streams

# After the failure, or after the deadline.
AIM_SECONDS = 30.0
PROGRESS_SECONDS = 15
STEP_SECONDS = 120.0


def _break_model(installation: Installation, uid: str) -> None:
    """The model's program of one server is none any more; it has not been loaded yet."""

    def found() -> list[Path]:
        folder = installation.stack.home / "instances" / uid / "repository"
        return [*folder.glob("*/*/llamacpp_engine.py")]

    [path] = installation.until(found, STEP_SECONDS, "the repository is written")[0]
    path.chmod(0o644)
    path.write_text("this is no program\n")


def taken_back(
    installation: Installation, profile: str, hinder: Callable[[str], float], rollout: dict[str, Any]
) -> float:
    """Deploy a change that fails; seconds from its failure, as `hinder` tells, until the old one goes on alone."""
    known = {each["uid"] for each in installation.show()["instances"]}
    [old] = installation.instances("serving")
    installation.change(profile, rollout=rollout)

    def new() -> str:
        return next(
            (each["uid"] for each in installation.show()["instances"] if each["uid"] not in known), ""
        )

    failed_at = hinder(installation.until(new, STEP_SECONDS, "the new server is there")[0])
    installation.until(
        lambda: installation.show()["reason"] == "rollout_failed", STEP_SECONDS, "the roll-out is given up"
    )
    took = time.monotonic() - failed_at
    [kept] = installation.instances("serving")
    assert (kept["uid"], kept["pid"]) == (old["uid"], old["pid"]), "the old server goes on"
    return took


def run(
    installation: Installation, streams: int = 4, tokens: int = 48, say: bool = False
) -> dict[str, float]:
    """Both; returns the seconds of each."""
    good = installation.show()["batching"]
    bad = [installation.profile(f"rollback-{size}", max_batch_size=size) for size in (7, 9)]
    installation.ready()
    running = Streams(
        installation.gateway_url, installation.gateway_key(), count=streams, tokens=tokens
    ).start()
    found = {}
    try:
        running.wait_open(streams)

        def failed(uid: str) -> float:
            _break_model(installation, uid)

            def seen() -> bool:
                return any(row["uid"] == uid for row in installation.instances("failed"))

            installation.until(seen, STEP_SECONDS, "the load has failed")
            return time.monotonic()

        found["load failure"] = taken_back(installation, bad[0], failed, {})

        def stopped(uid: str) -> float:
            def pid() -> int:
                return next(
                    (each["pid"] or 0 for each in installation.show()["instances"] if each["uid"] == uid), 0
                )

            os.kill(installation.until(pid, STEP_SECONDS, "it has a process")[0], signal.SIGSTOP)
            return time.monotonic() + PROGRESS_SECONDS

        late = {"progress_seconds": PROGRESS_SECONDS}
        found["progress deadline"] = taken_back(installation, bad[1], stopped, late)
    finally:
        running.stop()
    assert not running.lost(), running.why()
    installation.change(good, rollout={})
    installation.ready()
    if say:
        for name, seconds in found.items():
            print(f"{name}: taken back after {max(0.0, seconds):.1f} s")
        print(f"{running.summary().get('ok', 0)} streams whole, 0 lost; the old server untouched")
    assert max(found.values()) <= AIM_SECONDS, found
    return found


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=48, help="length of each answer")
    options = parser.parse_args(argv)
    with own_stack() as installation:
        run(installation, options.streams, options.tokens, say=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
