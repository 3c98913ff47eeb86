"""Canaries on the real engine, judged by what they do: `python -m tests.chaos.canary`.

Under requests through the gateway, two changes in turn. One keeps the service level: its share grows step by step
and it is promoted. One refuses what people ask (its sequences are too short for their prompts): it is taken back by
its error rate, and the server that was there before is the same as ever.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from typing import Any

import httpx

from tests.chaos.installation import Installation, own_stack

STEP_SECONDS = 240.0
# Their prompt fits 1,024 tokens and not 64.
PROMPT = "Say one word about this: " + "the river runs to the sea and the sea is wide and deep. " * 8
SLO: dict[str, Any] = {"ttft_ms": 60_000, "error_rate": 0.1, "window_seconds": 30}
VERBS = ("rollout.promoted", "rollout.rolled_back")
STEPS = [{"weight": 30, "seconds": 10}, {"weight": 60, "seconds": 10}]


class Asking:
    """Some clients that ask one after another, and what became of it."""

    def __init__(self, installation: Installation, clients: int) -> None:
        self.counts: Counter[int] = Counter()
        self._over = threading.Event()
        self._url = f"{installation.gateway_url}/chat/completions"
        self._key, self._name = installation.gateway_key(), installation.deployment
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Asking:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self) -> None:
        body = {"model": self._name, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 4}
        with httpx.Client(headers={"Authorization": f"Bearer {self._key}"}, timeout=60) as client:
            while not self._over.is_set():
                try:
                    self.counts[client.post(self._url, json=body).status_code] += 1
                except httpx.HTTPError:
                    self.counts[0] += 1


def run(installation: Installation, clients: int = 4, say: bool = False) -> dict[str, dict[str, Any]]:
    """Both; returns the entry of the timeline that decided each, by what was done."""
    began = time.monotonic()

    def step(text: str) -> None:
        if say:
            print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    good = installation.profile("canary-good", max_batch_size=12)
    short = installation.profile("canary-short", max_batch_size=12, max_seq_len=64)
    installation.ready()
    policies = {"slo": SLO, "rollout": {"canary": STEPS, "progress_seconds": 300}}
    found = {}
    with Asking(installation, clients) as asking:
        for profile, verb in ((good, "rollout.promoted"), (short, "rollout.rolled_back")):
            before = [(each["uid"], each["pid"]) for each in installation.instances("serving")]
            refused = asking.counts[400]
            newest = _entries(installation)[0]["id"]
            installation.change(profile, **policies)
            entry = _decided(installation, newest)
            assert entry["verb"] == verb, entry
            found[verb] = entry
            step(f"{verb}: {entry['sentence']}")
            for side in ("new", "old"):
                step(f"  {side}: {entry['detail'].get(side)}")
            after = _alone(installation)
            if verb == "rollout.rolled_back":
                assert asking.counts[400] > refused, "the canary got its share of the requests"
                assert after == before, "the old server goes on"
            else:
                assert not set(after) & set(before), "another server took over"
                assert asking.counts[400] == refused
    assert set(asking.counts) <= {200, 400}, asking.counts
    step(f"answers by status: {dict(asking.counts)}")
    return found


def _entries(installation: Installation) -> list[dict[str, Any]]:
    """The newest of the timeline."""
    path = f"/deployments/{installation.deployment}/timeline?limit=100"
    return list(installation.call("GET", path)["items"])


def _decided(installation: Installation, after: int) -> dict[str, Any]:
    """The entry that ended the roll-out, the first one beyond an id."""

    def ended() -> dict[str, Any] | None:
        rows = [row for row in _entries(installation) if row["verb"] in VERBS and row["id"] > after]
        return rows[-1] if rows else None

    entry: dict[str, Any] = installation.until(ended, STEP_SECONDS, "the roll-out is decided")[0]
    return entry


def _alone(installation: Installation) -> list[tuple[str, int]]:
    """The one server that is left once everything of the roll-out is over."""

    def over() -> list[tuple[str, int]]:
        rows = installation.instances("placed", "spawned", "loading", "serving", "draining")
        return [(row["uid"], row["pid"]) for row in rows] if len(rows) == 1 else []

    found: list[tuple[str, int]] = installation.until(over, STEP_SECONDS, "one server is left")[0]
    return found


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args(argv)
    with own_stack() as installation:
        run(installation, options.clients, say=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
