"""Silence of one node and of many, as a table."""

from __future__ import annotations

import pytest

from apps.fleet.domain.silence import BRAKE_SECONDS, Seen, judge, verdict


def seen(node: int = 1, silent: float | None = 1.0, state: str = "ready", echo: float | None = None) -> Seen:
    return Seen(node, state, silent, silent if echo is None else echo, 0.0)


@pytest.mark.parametrize(
    ("given", "target", "reason"),
    [
        (seen(), None, None),
        (seen(silent=9.0), None, None),
        (seen(silent=9.1), "suspect", "no_heartbeat"),
        (seen(echo=9.1), "suspect", "takes_no_tasks"),
        (seen(silent=99), "suspect", "no_heartbeat"),
        (seen(silent=12, state="suspect"), None, None),
        (seen(silent=15.1, state="suspect"), "lost", "no_heartbeat"),
        (seen(echo=15.1, state="suspect"), "lost", "takes_no_tasks"),
        (Seen(1, "ready", 1.0, None, 0.0), None, None),
        (Seen(1, "ready", None, None, 24.0), None, None),
        (Seen(1, "ready", None, None, 24.1), "suspect", "no_heartbeat"),
    ],
)
def test_one_node(given: Seen, target: str | None, reason: str | None) -> None:
    found = verdict(given)
    assert (found and found.target, found and found.reason) == (target, reason)


def test_the_brake_holds_until_our_own_way_is_proven() -> None:
    def look(silent: float, own: float = 1.0, me: int | None = 1) -> tuple[int, bool]:
        nodes = [seen(1, own), *(seen(number, silent) for number in range(2, 6)), seen(6)]
        found = judge(nodes, me)
        return len(found.verdicts), found.doubted

    assert look(1.0) == (0, False)
    assert look(20) == (0, True)
    assert look(BRAKE_SECONDS + 1) == (4, False), "our own beats arrived all the while: they are gone indeed"
    assert look(BRAKE_SECONDS + 1, own=20) == (0, True), "we are as silent as they"
    assert look(BRAKE_SECONDS + 1, me=None) == (0, True), "nobody proves the way"


def test_less_than_half_is_no_reason_to_doubt_and_a_node_alone_is_judged() -> None:
    assert not judge([seen(1, 20), seen(2), seen(3)], 2).doubted
    assert len(judge([seen(1, 20)], None).verdicts) == 1
    assert judge([], None).verdicts == ()
