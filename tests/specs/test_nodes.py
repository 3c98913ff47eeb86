"""Nodes as documents: what somebody decided about a host travels; the host itself is found, never made."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from apps.accounts.roles import ADMINISTRATOR, OPERATOR
from apps.core.exceptions import InvalidInput, NotAllowed
from apps.core.models import AuditEntry
from apps.fleet.models import Gpu, Node
from apps.specs import services
from tests import objects
from tests.people import person

pytestmark = pytest.mark.django_db

HEAD = "apiVersion: inflight/v1\nkind: Node\nmetadata: {name: n1}\nspec:\n"
WHOLE = (
    HEAD + "  labels: {zone: a}\n  policy: {purposes: [serve], shareGpus: false}\n"
    "  slots: [{index: 0, pricePerHour: 2.49}]\n"
)


@pytest.fixture
def node() -> Node:
    return objects.node()


def test_labels_policy_and_prices_there_and_back(node: Node) -> None:
    assert services.export("cli") == ""
    plan = services.plan("cli", WHOLE, "f.yaml").as_dict()
    paths = {change["path"] for change in plan["objects"][0]["changes"]}
    assert paths == {"labels.zone", "policy.purposes", "policy.shareGpus", "slots"}
    services.apply(person(ADMINISTRATOR), WHOLE, "f.yaml")
    node.refresh_from_db()
    assert (node.labels, node.policy) == ({"zone": "a"}, {"purposes": ["serve"], "share_gpus": False})
    assert Gpu.objects.get().price_per_hour == Decimal("2.49")
    verbs = set(AuditEntry.objects.values_list("verb", flat=True))
    assert {"node.labelled", "node.policy", "node.priced"} <= verbs
    written = services.export("cli", ["Node"])
    assert services.plan("cli", written, "f.yaml").is_empty
    assert services.plan("cli", WHOLE, "f.yaml").is_empty
    # What is left out has its default again.
    services.apply("cli", HEAD + "  labels: {zone: a}\n", "f.yaml")
    node.refresh_from_db()
    assert (node.labels, node.policy) == ({"zone": "a"}, {})
    assert Gpu.objects.get().price_per_hour is None


def test_what_does_not_change_needs_no_role_of_its_own(node: Node) -> None:
    operator = person(OPERATOR)
    services.apply(operator, HEAD + "  labels: {zone: b}\n", "f.yaml")
    with pytest.raises(NotAllowed):
        services.apply(operator, WHOLE, "f.yaml")
    node.refresh_from_db()
    assert node.labels == {"zone": "b"}


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        (("name: n1", "name: n9"), "metadata.name", "no node of this id has joined"),
        (("name: n1", "name: a b"), "metadata.name", "form that is not allowed"),
        (("index: 0", "index: 7"), "spec.slots.0.index", "it has no slot 7"),
        (("2.49", "-1"), "spec.slots.0.pricePerHour", "at least 0"),
        (("2.49", "cheap"), "spec.slots.0.pricePerHour", "number"),
        (("{zone: a}", "{a b: c}"), "spec.labels", "no label"),
        (("shareGpus", "sharedGpus"), "spec.policy.sharedGpus", "shareGpus"),
        (("[serve]", "[cook]"), "spec.policy.purposes.0", "build, serve, test"),
        (("2.49}]", "2.49}, {index: 0, pricePerHour: 1}]"), "spec.slots", "named once"),
    ],
)
def test_nonsense_names_its_field_and_nothing_is_written(
    node: Node, change: tuple[str, str], where: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.apply("cli", WHOLE.replace(*change), "f.yaml")
    findings: Any = caught.value.findings
    assert findings[0].where == where
    assert words in f"{findings[0].message} {findings[0].remedy}"
    node.refresh_from_db()
    assert node.labels == {}
