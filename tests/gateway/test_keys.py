"""Keys: shown once, kept as a fingerprint, scoped, limited, revoked; who may do what with them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.core import clock
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.core.models import AuditEntry
from apps.gateway import services
from apps.gateway.keys import digest_of
from apps.gateway.models import GatewayKey, PriorityClass
from apps.gateway.serialize import key_dict, key_state
from tests import objects
from tests.people import person

pytestmark = pytest.mark.django_db


def test_only_the_fingerprint_is_kept() -> None:
    owner = person("operator")
    row, text = services.create_key(owner, {"name": " checkout ", "requests_per_minute": 60})
    assert text.startswith("ik-")
    # 256 random bits.
    assert len(text) == 3 + 43
    assert text.startswith(row.prefix)
    assert len(row.prefix) < 12
    assert (row.name, row.digest, row.owner, row.created_by) == ("checkout", digest_of(text), owner, owner)
    columns = GatewayKey.objects.filter(pk=row.pk).values_list().get()
    assert text not in map(str, columns)
    trail = AuditEntry.objects.get(verb="gatewaykey.created")
    assert text not in str(trail.detail) + trail.sentence + trail.object_label
    assert trail.detail["requests_per_minute"] == 60
    assert text not in str(key_dict(row))
    assert row.digest not in str(key_dict(row))


def test_no_two_keys_are_equal() -> None:
    owner = person("operator")
    texts = {services.create_key(owner, {"name": "a"})[1] for _n in range(20)}
    assert len(texts) == 20


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\x00b"}, "name"),
        ({"name": 7}, "name"),
        ({"name": "a", "requests_per_minute": 0}, "requests_per_minute"),
        ({"name": "a", "tokens_per_minute": -1}, "tokens_per_minute"),
        ({"name": "a", "concurrent_requests": "many"}, "concurrent_requests"),
        ({"name": "a", "max_tokens": 10**12}, "max_tokens"),
        ({"name": "a", "priority": "urgent"}, "priority"),
        ({"name": "a", "routes": []}, "routes"),
        ({"name": "a", "routes": ["nothing"]}, "routes"),
        ({"name": "a", "routes": 5}, "routes"),
        ({"name": "a", "expires_at": clock.now() - timedelta(seconds=1)}, "expires_at"),
        ({"name": "a", "budget": 5}, "budget"),
    ],
)
def test_what_is_wrong_is_named(data: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.create_key(person("operator"), data)
    findings = caught.value.findings
    assert field in {caught.value.field, *(finding.where for finding in findings)}
    assert not GatewayKey.objects.exists()


def test_a_key_is_changed_and_keeps_its_text() -> None:
    objects.deployment("demo")
    owner = person("operator")
    row, text = services.create_key(owner, {"name": "a", "max_tokens": 5})
    later = clock.now() + timedelta(days=1)
    changed = services.change_key(
        owner,
        row,
        {"name": "b", "routes": ["demo", "demo"], "priority": "low", "max_tokens": None, "expires_at": later},
    )
    assert (changed.name, changed.routes, changed.max_tokens) == ("b", ["demo"], None)
    assert changed.digest == digest_of(text)
    assert AuditEntry.objects.get(verb="gatewaykey.changed").detail["changes"]["max_tokens"] == [5, None]
    services.change_key(owner, row, {"name": "b"})
    assert AuditEntry.objects.filter(verb="gatewaykey.changed").count() == 1


def test_an_expired_key_can_be_renamed_without_a_new_expiry() -> None:
    owner = person("operator")
    row, _text = services.create_key(owner, {"name": "a", "expires_at": clock.now() + timedelta(hours=1)})
    past = clock.now() - timedelta(hours=1)
    GatewayKey.objects.filter(pk=row.pk).update(expires_at=past)
    assert services.change_key(owner, row, {"name": "b", "expires_at": past}).name == "b"


def test_a_model_that_is_gone_stays_in_the_scope_of_a_key() -> None:
    owner = person("operator")
    row, _text = services.create_key(owner, {"name": "a"})
    GatewayKey.objects.filter(pk=row.pk).update(routes=["gone"])
    assert services.change_key(owner, row, {"routes": ["gone"], "name": "b"}).routes == ["gone"]


def test_revoked_is_for_good() -> None:
    owner = person("operator")
    row, _text = services.create_key(owner, {"name": "a"})
    first = services.revoke_key(owner, row)
    assert key_state(first) == "revoked"
    assert services.revoke_key(owner, row).revoked_at == first.revoked_at
    assert AuditEntry.objects.filter(verb="gatewaykey.revoked").count() == 1
    with pytest.raises(NotPossibleNow):
        services.change_key(owner, row, {"name": "b"})


def test_states() -> None:
    owner = person("operator")
    row, _text = services.create_key(owner, {"name": "a"})
    assert key_state(row) == "active"
    row.expires_at = clock.now() - timedelta(seconds=1)
    assert key_state(row) == "expired"
    row.expires_at = None
    row.owner.is_active = False
    assert key_state(row) == "switched_off"


def test_who_may() -> None:
    boss, user, other, viewer = (
        person("administrator"),
        person("operator"),
        person("operator", name="other"),
        person("viewer"),
    )
    with pytest.raises(NotAllowed):
        services.create_key(viewer, {"name": "a"})
    with pytest.raises(NotAllowed):
        services.create_key(user, {"name": "a"}, owner=other)
    row, _text = services.create_key(boss, {"name": "a"}, owner=viewer)
    assert (row.owner, row.created_by) == (viewer, boss)
    with pytest.raises(NotAllowed):
        services.change_key(viewer, row, {"priority": PriorityClass.HIGH})
    # Its owner may end it, and so may every operator.
    services.revoke_key(viewer, row)
    second, _text = services.create_key(user, {"name": "b"})
    with pytest.raises(NotAllowed):
        services.revoke_key(viewer, second)
    services.revoke_key(other, second)
    with pytest.raises(InvalidInput) as caught:
        services.create_key("cli", {"name": "a"})
    assert caught.value.field == "owner"
