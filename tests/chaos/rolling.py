"""Update a deployment again and again under running streams: `python -m tests.chaos.rolling --updates 100`."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

from tests.chaos.installation import Installation, gone, own_stack
from tests.chaos.streams import Streams

LONG_ENOUGH = 3.0
UPDATE_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Update:
    """One update: how long until the new server served alone, and when the requests went over."""

    number: int
    seconds: float
    switched_at: float
    old: str
    new: str


def update(installation: Installation, profile: str, number: int) -> Update:
    """One rolling update; ends with another instance id and the old process gone."""
    [before] = installation.instances("serving")
    began = time.monotonic()
    installation.change(profile)

    def switched() -> str:
        rows = installation.call("GET", f"/deployments/{installation.deployment}/rollout")["traffic"]
        return next((each["uid"] for each in rows if each["uid"] != before["uid"]), "")

    new, _seconds = installation.until(
        switched, UPDATE_SECONDS, f"update {number}: the new server has the requests"
    )
    at = time.monotonic()
    installation.until(
        lambda: gone(int(before["pid"])), UPDATE_SECONDS, f"update {number}: the old process is gone"
    )
    installation.ready(UPDATE_SECONDS)
    [after] = installation.instances("serving")
    assert after["uid"] == new != before["uid"], (before["uid"], new, after["uid"])
    assert after["pid"] != before["pid"]
    return Update(number, time.monotonic() - began, at, before["uid"], new)


def run(
    installation: Installation,
    updates: int,
    streams: int,
    tokens: int,
    say: bool = False,
    brief: int = 0,
) -> list[Update]:
    """The updates under the streams. Fails where a stream was lost or none was open long enough across a switch.

    `brief` of the streams ask for a few tokens only, so that an update that waits for all of them is short.
    """
    profiles = [
        installation.profile(f"rolling-{name}", max_batch_size=size) for name, size in (("a", 16), ("b", 12))
    ]
    installation.ready()
    running = Streams(
        installation.gateway_url, installation.gateway_key(), count=streams, tokens=tokens, brief=brief
    ).start()
    done = []
    try:
        running.wait_open(streams)
        for number in range(updates):
            done.append(update(installation, profiles[number % 2], number + 1))
            if say:
                print(
                    f"{number + 1:4d} of {updates}: {done[-1].seconds:5.1f} s  {running.summary()}",
                    flush=True,
                )
    finally:
        running.stop()
    lost = running.lost()
    assert not lost, [(each.outcome, each.detail) for each in lost[:5]]
    assert running.duplicates() == 0
    for each in done:
        across = [answer for answer in running.answers if answer.was_open_across(each.switched_at)]
        assert max(answer.seconds for answer in across) >= LONG_ENOUGH, each
    if say:
        print(report(done, running))
    return done


def report(done: list[Update], streams: Streams) -> str:
    """What came out, in lines."""
    took = sorted(each.seconds for each in done)
    ok = streams.summary().get("ok", 0)
    longest = max(answer.seconds for answer in streams.answers)
    return (
        f"{len(done)} updates, each with a new instance id and the old process gone.\n"
        f"{ok} streams whole, {len(streams.lost())} lost, {streams.duplicates()} with tokens twice; "
        f"longest {longest:.1f} s.\n"
        f"An update took {statistics.median(took):.1f} s in the median, {took[-1]:.1f} s at most."
    )


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48, help="length of each answer")
    options = parser.parse_args(argv)
    with own_stack() as installation:
        run(installation, options.updates, options.streams, options.tokens, say=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
