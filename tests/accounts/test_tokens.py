"""API tokens: shown once, kept as a digest, refused when revoked, expired or ownerless."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.accounts.models import ApiToken
from apps.accounts.services import authenticate_token, create_token, digest_of, revoke_token
from apps.core import clock
from apps.core.exceptions import InvalidInput, NotAllowed
from apps.core.models import AuditEntry
from tests.people import person

pytestmark = pytest.mark.django_db


def test_only_the_digest_is_kept() -> None:
    owner = person("viewer")
    token, text = create_token(owner, "ci")
    assert text.startswith("ifl_")
    assert len(text) > 30
    assert text.startswith(token.prefix)
    assert token.digest == digest_of(text)
    columns = ApiToken.objects.filter(pk=token.pk).values_list().get()
    assert text not in map(str, columns)
    trail = AuditEntry.objects.get(verb="token.created")
    assert text not in str(trail.detail) + trail.sentence + trail.object_label


def test_a_live_token_names_its_owner() -> None:
    owner = person("operator")
    _, text = create_token(owner, "ci", clock.now() + timedelta(hours=1))
    found = authenticate_token(text)
    assert found is not None
    assert found.owner == owner


@pytest.mark.parametrize("text", ["", "ifl_", "ifl_wrong", "wrong", "ifl_\udce4", "x" * 10_000])
def test_unknown_texts_are_nobody(text: str) -> None:
    assert authenticate_token(text) is None


def test_revoked_expired_and_switched_off() -> None:
    owner = person("viewer")
    revoked, text = create_token(owner, "revoked")
    revoke_token(owner, revoked)
    assert authenticate_token(text) is None

    expired, text = create_token(owner, "expired", clock.now() + timedelta(seconds=60))
    ApiToken.objects.filter(pk=expired.pk).update(expires_at=clock.now())
    assert authenticate_token(text) is None

    _, text = create_token(owner, "ownerless")
    owner.is_active = False
    owner.save()
    assert authenticate_token(text) is None


def test_last_used_is_written_once_a_minute(django_assert_num_queries: object) -> None:
    token, text = create_token(person("viewer"), "ci")
    authenticate_token(text)
    token.refresh_from_db()
    first = token.last_used_at
    assert first is not None
    with django_assert_num_queries(1):  # type: ignore[operator]
        authenticate_token(text)
    ApiToken.objects.filter(pk=token.pk).update(last_used_at=first - timedelta(minutes=2))
    authenticate_token(text)
    token.refresh_from_db()
    assert token.last_used_at is not None
    assert token.last_used_at >= first


@pytest.mark.parametrize(("name", "field"), [("", "name"), ("  ", "name"), ("x" * 101, "name")])
def test_a_token_needs_a_name(name: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        create_token(person("viewer"), name)
    assert caught.value.field == field
    assert caught.value.remedy


def test_an_expiry_in_the_past_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        create_token(person("viewer"), "ci", clock.now() - timedelta(seconds=1))
    assert caught.value.field == "expires_at"


def test_tokens_of_others_are_the_administrators() -> None:
    boss, user, other = person("administrator"), person("operator"), person("viewer")
    with pytest.raises(NotAllowed):
        create_token(user, "ci", owner=other)
    token, _ = create_token(boss, "ci", owner=other)
    with pytest.raises(NotAllowed):
        revoke_token(user, token)
    revoke_token(boss, token)
    assert AuditEntry.objects.filter(verb="token.revoked", actor=boss).count() == 1
    revoke_token(other, token)
    assert AuditEntry.objects.filter(verb="token.revoked").count() == 1


def test_without_a_role_there_is_no_token() -> None:
    with pytest.raises(NotAllowed):
        create_token(person(), "ci")
