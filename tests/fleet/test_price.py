"""What a slot costs: three doors, one service, nothing made of nonsense."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command

from apps.accounts.roles import OPERATOR, VIEWER
from apps.core.exceptions import InvalidInput, NotAllowed
from apps.core.models import AuditEntry
from apps.fleet import selectors, services
from apps.fleet.models import Gpu
from tests import objects, people

pytestmark = pytest.mark.django_db


@pytest.fixture
def slot() -> Gpu:
    return objects.node().gpus.get()


@pytest.mark.parametrize(
    ("given", "kept"),
    [("2.49", "2.4900"), (2.5, "2.5000"), ("2,49", "2.4900"), ("0", "0"), ("", None), (None, None)],
)
def test_a_price_is_kept_and_absent_is_not_zero(slot: Gpu, given: object, kept: str | None) -> None:
    services.set_price(people.person(OPERATOR), slot, given)
    slot.refresh_from_db()
    assert slot.price_per_hour == (None if kept is None else Decimal(kept))
    assert AuditEntry.objects.filter(verb="node.priced").count() == 1


@pytest.mark.parametrize("given", ["cheap", "-1", "NaN", "inf", "1e12", "100000000", "2.49 EUR", True])
def test_nonsense_names_the_field_and_the_remedy(slot: Gpu, given: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        services.set_price("cli", slot, given)
    assert refused.value.field == "price_per_hour"
    assert "2.49" in refused.value.remedy
    slot.refresh_from_db()
    assert slot.price_per_hour is None


def test_who_may_only_look_may_not_price(slot: Gpu) -> None:
    with pytest.raises(NotAllowed):
        services.set_price(people.person(VIEWER), slot, "1")


def test_page_and_command_set_the_same_price(slot: Gpu) -> None:
    client = people.client_of(people.person(OPERATOR))
    assert client.post("/fleet/n1/0/price/", {"price": "3.10"}).status_code == 303
    assert 'value="3.1"' in client.get("/fleet/n1/").content.decode()
    call_command("node", "price", "n1", "0", "1.25", "--json")
    assert selectors.slot("n1", 0).price_per_hour == Decimal("1.25")
    call_command("node", "price", "n1", "0", "--json")
    assert selectors.slot("n1", 0).price_per_hour is None
    with pytest.raises(CommandError, match="no slot 7"):
        call_command("node", "price", "n1", "7", "1")
