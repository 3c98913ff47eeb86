"""A deployment that follows its load, asleep and awake again, under streams: `python -m tests.chaos.scaling`.

1 -> 2 servers as requests pile up, back to 1 as they fall, none while nobody asks, 1 for the next request. Every
stream goes through the gateway and must come to its end.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from tests.chaos.installation import Installation, own_stack
from tests.chaos.streams import Streams

# As quick as the settings allow; each step still takes the windows, and the start or the drain of a server.
SCALING: dict[str, Any] = {
    "min_replicas": 0,
    "max_replicas": 2,
    "targets": [{"metric": "in_flight", "value": 3}],
    "up_window_seconds": 5,
    "down_window_seconds": 15,
    "up_cooldown_seconds": 5,
    "down_cooldown_seconds": 5,
    "idle_seconds": 15,
    "wake_seconds": 120,
}
STEP_SECONDS = 120.0
FEW, MANY = 2, 8


def run(installation: Installation, tokens: int = 32, say: bool = False) -> list[dict[str, Any]]:
    """The whole way; returns the decisions, oldest first. Fails where a stream was lost or a step does not come."""
    began = time.monotonic()

    def step(text: str) -> None:
        if say:
            print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    def servers(count: int) -> bool:
        shown = installation.show()
        return bool(
            shown["replicas_wanted"] == count
            and [each["state"] for each in shown["instances"] if each["state"] != "failed"]
            == ["serving"] * count
        )

    shown = installation.show()
    installation.change(shown["batching"], scaling=SCALING)
    installation.ready()
    key = installation.gateway_key()

    def streams(count: int) -> Streams:
        return Streams(installation.gateway_url, key, count=count, tokens=tokens).start()

    few = streams(FEW)
    few.wait_open(FEW)
    step(f"1 server, {FEW} streams at once")
    many = streams(MANY)
    installation.until(lambda: servers(2), STEP_SECONDS, "the load has brought a second server")
    step(f"2 servers, {FEW + MANY} streams at once")
    many.stop()
    installation.until(lambda: servers(1), STEP_SECONDS, "the second server has gone with the load")
    step(f"1 server, {FEW} streams at once")
    few.stop()
    installation.until(lambda: installation.show()["state"] == "asleep", STEP_SECONDS, "it sleeps")
    installation.until(lambda: servers(0), STEP_SECONDS, "its last server is gone")
    step("asleep, no server")
    one = streams(1)
    asked = time.monotonic()
    one.wait_open(1, STEP_SECONDS)
    step(
        f"1 server again; the request that woke it had its first token after {time.monotonic() - asked:.1f} s"
    )
    one.stop()
    for each in (few, many, one):
        assert not each.lost(), each.why()
        assert each.duplicates() == 0
        assert each.summary().get("ok", 0) > 0, each.summary()
    rows = installation.call("GET", f"/deployments/{installation.deployment}/scaling?limit=100")["items"]
    found = [each for each in reversed(rows) if each["before"] != each["after"]]
    moves = [(each["before"], each["after"]) for each in found]
    assert moves == [(1, 2), (2, 1), (1, 0), (0, 1)], [
        (each["before"], each["after"], each["sentence"]) for each in found
    ]
    whole = sum(each.summary().get("ok", 0) for each in (few, many, one))
    step(f"{whole} streams whole, 0 lost, 0 with tokens twice")
    for each in found:
        step(f"{each['before']} -> {each['after']}: {each['sentence']}")
    return found


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=32, help="length of each answer")
    options = parser.parse_args(argv)
    with own_stack() as installation:
        run(installation, options.tokens, say=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
