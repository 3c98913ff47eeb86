"""One conditional UPDATE moves a status: fenced, audited, versioned, announced after commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from apps.core.models import AuditEntry
from apps.core.transitions import IllegalMove, amend, state_changed, transition
from apps.fleet import states
from apps.fleet.models import Node


@pytest.fixture
def node(db: None) -> Node:
    return Node.objects.create(node_id="n-1", hostname="host", home="/home", state=states.JOINING)


@pytest.fixture
def announced() -> Iterator[list[tuple[str, str]]]:
    seen: list[tuple[str, str]] = []

    def listen(sender: type, from_state: str, to_state: str, **_: Any) -> None:
        seen.append((from_state, to_state))

    state_changed.connect(listen)
    yield seen
    state_changed.disconnect(listen)


def test_a_move_is_audited_and_versioned(node: Node) -> None:
    assert transition(node, states.READY, actor="ctl", sentence="Joined.")
    assert (node.state, node.version, node.sentence) == (states.READY, 2, "Joined.")
    entry = AuditEntry.objects.get()
    assert (entry.actor_label, entry.verb, entry.from_state, entry.to_state) == (
        "ctl",
        "node.ready",
        states.JOINING,
        states.READY,
    )


def test_the_second_one_comes_too_late(node: Node) -> None:
    twin = Node.objects.get(pk=node.pk)
    assert transition(node, states.READY, actor="ctl")
    assert not transition(twin, states.READY, actor="ctl", sources=[states.JOINING])
    assert twin.state == states.READY, "the loser sees the row as it stands"
    assert AuditEntry.objects.count() == 1


def test_an_arrow_that_does_not_exist_is_a_fault_of_ours(node: Node) -> None:
    with pytest.raises(IllegalMove, match="no move from"):
        transition(node, states.LOST, actor="sweep", sources=[states.JOINING])
    node.refresh_from_db()
    assert node.state == states.JOINING


def test_amend_changes_columns_and_version_only(node: Node) -> None:
    assert amend(node, hostname="other")
    assert (node.hostname, node.version, node.state) == ("other", 2, states.JOINING)
    assert not amend(node, states=[states.LOST], hostname="never")
    assert node.hostname == "other"


@pytest.mark.django_db(transaction=True)
def test_listeners_hear_only_after_commit(announced: list[tuple[str, str]]) -> None:
    node = Node.objects.create(node_id="n-2", hostname="host", home="/home", state=states.JOINING)
    with transaction.atomic():
        transition(node, states.READY, actor="ctl")
        assert announced == []
    assert announced == [(states.JOINING, states.READY)]
    with pytest.raises(RuntimeError), transaction.atomic():
        transition(node, states.SUSPECT, actor="sweep")
        raise RuntimeError
    assert len(announced) == 1, "a move that was rolled back is not announced"


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_exactly_one_wins() -> None:
    node = Node.objects.create(node_id="n-3", hostname="host", home="/home", state=states.JOINING)
    start = threading.Barrier(6)
    wins: list[bool] = []

    def race() -> None:
        mine = Node.objects.get(pk=node.pk)
        start.wait(timeout=10)
        wins.append(transition(mine, states.READY, actor="ctl", sources=[states.JOINING]))
        connection.close()

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(wins) == [False] * 5 + [True]
    assert AuditEntry.objects.filter(object_id=str(node.pk)).count() == 1
