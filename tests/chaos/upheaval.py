"""Break one part after the other under running streams: `python -m tests.chaos.upheaval`. Prints the table."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from tests.chaos.faults import FAULTS, Fault, Outcome
from tests.chaos.installation import Installation, own_stack
from tests.chaos.streams import Streams

# A slow consumer runs beside the others all the while.
SLOW_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    `streams` were open at the fault or began before all was well again; `lost` of them failed or were cut off;
    `duplicates`: servers or tokens twice.
    """

    name: str
    outcome: Outcome
    streams: int
    lost: int
    duplicates: int
    why: str

    def text(self) -> str:
        """As a row of the table."""
        seen, adopted, recovered = (
            "-" if seconds is None else f"{seconds:.1f} s"
            for seconds in (self.outcome.detected, self.outcome.adopted, self.outcome.recovered)
        )
        lost = f"{self.lost} of {self.streams}"
        return f"| {self.name} | {seen} | {adopted} | {recovered} | {lost} | {self.duplicates} |"


HEADER = (
    "| fault | detected after | servers adopted after | recovered after | streams lost | duplicates |\n"
    "|---|---|---|---|---|---|"
)


def strike(installation: Installation, running: Streams, fault: Fault) -> Line:
    """One fault under streams that all run. Fails where streams were lost that need not be."""
    if fault.loses:
        installation.forget_failures()
    # One slot is the slow consumer's, and one stream is always between two.
    running.wait_open(running.count - 2)
    began = time.monotonic()
    outcome = fault.strikes(installation)
    # What was open when it struck has ended by then, for good or bad.
    running.until(lambda: all(each.ended for each in running.answers if each.began < began), 90)
    lost = running.lost(began)
    meanwhile = sum(each.ended is None or each.ended > began for each in running.answers)
    doubled = running.duplicates() + _doubled_servers(installation)
    why = "; ".join(sorted({f"{each.outcome}: {each.detail[:120]}" for each in lost})[:2])
    line = Line(fault.name, outcome, meanwhile, len(lost), doubled, why)
    assert fault.loses or not lost, line
    assert not doubled, line
    return line


def _doubled_servers(installation: Installation) -> int:
    """Servers beyond one for each replica, and processes of this home that no row names."""
    rows = installation.instances("spawned", "loading", "serving")
    known = {each["pid"] for each in installation.show()["instances"]}
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
    slow = Streams(running.url, running.key, count=1, tokens=32, slow=SLOW_SECONDS).start()
    lines: list[Line] = []
    if say:
        print(HEADER, flush=True)
    try:
        for fault in faults:
            lines.append(strike(installation, running, fault))
            if say:
                print(lines[-1].text(), flush=True)
                if lines[-1].why:
                    print(f"<!-- {lines[-1].why} -->", flush=True)
    finally:
        running.stop(120)
        slow.stop(120)
    if say:
        print(f"| a slow consumer ({SLOW_SECONDS} s for each token) beside them all | - | - | {len(slow.lost())} of "
              f"{len(slow.answers)} | {slow.duplicates()} |")  # fmt: skip
    return lines


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48, help="length of each answer")
    parser.add_argument("--only", default="", help="faults whose name holds this")
    options = parser.parse_args(argv)
    for postgres in (False, True):
        chosen = tuple(fault for fault in FAULTS if options.only in fault.name and fault.postgres == postgres)
        if chosen:
            with own_stack(postgres) as installation:
                run(installation, chosen, options.streams, options.tokens, say=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
