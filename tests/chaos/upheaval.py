"""Break one part after the other under running streams: `python -m tests.chaos.upheaval`. Prints the table.

It goes on after a fault that was not overcome, and exits with 1 where anything that is asked did not hold.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import httpx

from tests.chaos.faults import FAULTS
from tests.chaos.installation import Installation
from tests.chaos.outcome import HEADER, CannotBeShown, Fault, Line
from tests.chaos.streams import Streams
from tests.chaos.worlds import world

STREAMS_END_SECONDS = 90.0


def strike(installation: Installation, running: Streams, fault: Fault) -> Line:
    """One fault under streams that all run; whatever comes of it is a line."""
    if fault.needs == "clock" and installation.clock is None:
        return Line(fault, None, why=installation.no_clock, skipped=True)
    outcome, why = None, ""
    began = time.monotonic()
    try:
        if fault.prepares is not None:
            fault.prepares(installation)
        if fault.loses:
            installation.forget_failures()
        # One stream is always between two.
        running.wait_open(running.count - 1)
        began = time.monotonic()
        outcome = fault.strikes(installation)
    except CannotBeShown as reason:
        return Line(fault, None, why=str(reason), skipped=True)
    except Exception as error:
        # Whatever it is, the next faults are made.
        why = f"{type(error).__name__}: {error}"[:300]
    try:
        # What was open when it struck has ended by then, for good or bad.
        running.until(
            lambda: all(each.ended for each in running.answers if each.began < began), STREAMS_END_SECONDS
        )
    except AssertionError as error:
        outcome, why = None, why or str(error)[:300]
    lost = running.lost(began)
    meanwhile = sum(each.ended is None or each.ended > began for each in running.answers)
    doubled = running.duplicates(began) + _doubled_servers(installation)
    why = why or "; ".join(sorted({f"{each.outcome}: {each.detail[:160]}" for each in lost})[:3])
    more = (outcome.streams, outcome.lost) if outcome is not None else (0, 0)
    return Line(fault, outcome, meanwhile + more[0], len(lost) + more[1], doubled, why)


def _doubled_servers(installation: Installation) -> int:
    """Servers beyond one for each replica, and processes of this home that no row names; 0 where nobody answers."""
    try:
        rows = installation.instances("spawned", "loading", "serving")
        known = {each["pid"] for each in installation.call("GET", "/instances")["items"]}
    except (AssertionError, httpx.HTTPError):
        return 0
    servers = [pid for pid in installation.pids("tritonserver") if installation.leads(pid)]
    return (
        len(rows)
        - len({(each["revision"], each["replica"]) for each in rows})
        + sum(pid not in known for pid in servers)
    )


def run(
    installation: Installation, faults: tuple[Fault, ...], streams: int, tokens: int, say: bool = False
) -> list[Line]:
    """All of them in turn."""
    installation.ready()
    running = Streams(
        installation.gateway_url, installation.gateway_key(), count=streams, tokens=tokens
    ).start()
    lines: list[Line] = []
    try:
        for fault in faults:
            lines.append(strike(installation, running, fault))
            if say:
                print(lines[-1].text(), flush=True)
                if lines[-1].why and not lines[-1].skipped:
                    print(f"<!-- {lines[-1].why} -->", flush=True)
    finally:
        running.stop(120)
    return lines


def report(lines: list[Line], seconds: float) -> str:
    """What came of all of it, and under what load this machine was, in lines."""
    missed = [f"{line.fault.name}: {text}" for line in lines for text in line.missed()]
    skipped = [f"{line.fault.name}: not shown, {line.why}" for line in lines if line.skipped]
    shown = len(lines) - len(skipped)
    verdict = (
        ["Asked and not held:", *(f"  {text}" for text in missed)] if missed else ["All that is asked holds."]
    )
    return "\n".join(
        [
            "",
            f"{shown} faults in {seconds:.0f} s on {os.cpu_count()} cores; load of the last 15 minutes "
            f"{os.getloadavg()[2]:.1f}.",
            *skipped,
            *verdict,
        ]
    )


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48, help="length of each answer")
    parser.add_argument("--only", default="", help="faults whose name holds this")
    options = parser.parse_args(argv)
    began, lines = time.monotonic(), []
    print(HEADER, flush=True)
    for postgres in (False, True):
        chosen = tuple(
            fault
            for fault in FAULTS
            if options.only in fault.name and (fault.needs == "postgres") == postgres
        )
        if chosen:
            with world(postgres) as installation:
                lines += run(installation, chosen, options.streams, options.tokens, say=True)
    print(report(lines, time.monotonic() - began), flush=True)
    return int(not lines or any(line.missed() for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
