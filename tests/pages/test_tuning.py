"""Pages of tunings and of adaptive batching: what they say, forms that are refused, what is pressed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.roles import OPERATOR
from apps.gateway import adaptive
from apps.loadtests.tuning_models import Tuning
from apps.serving.models import Deployment
from tests.pages.conftest import World

SignIn = Callable[..., Client]
URL = "/load-tests/tunings/"


@pytest.fixture
def client(world: World, sign_in: SignIn) -> Client:
    """An operator's client; tuning #1 has ended with a winner."""
    return sign_in(OPERATOR)


def test_a_tuning_says_who_won_why_and_what_was_left_out(client: Client) -> None:
    page = client.get(f"{URL}1/").content.decode()
    main = page[page.index('id="main"') :]
    assert main.index("verdict-text") < main.index("plot-front-title") < main.index('id="trials"')
    assert "beaten by none" in main
    assert "breaks a bound" in main
    assert "8.0 GiB are needed." in main
    assert "Apply the winner" in main
    assert "TTFT p99 at most 500" in main
    # One that goes on shows how far it is and can be cancelled.
    Tuning.objects.filter(number=1).update(state="running", winner=None, report=[], finished_at=None)
    live = client.get(f"{URL}1/").content.decode()
    assert "The next trial is being chosen; 3 of 6 are done." in live
    assert "1 was left out by the memory plan." in live
    assert "Cancel the tuning" in live
    assert "Apply the winner" not in live
    assert "#1 demo" in client.get("/load-tests/").content.decode()


def test_the_winner_is_applied_by_a_press(client: Client) -> None:
    answer = client.post(f"{URL}1/apply/", {"trial": "3"})
    assert answer.status_code == 409
    assert "does not keep the constraints" in answer.content.decode()
    assert client.post(f"{URL}1/apply/").status_code == 303
    row = Deployment.objects.select_related("batching").get(name="demo")
    assert (row.batching.name, row.batching.max_batch_size) == ("demo-tuned-1-2", 8)
    page = client.get(f"{URL}1/").content.decode()
    assert "Trial 2 was applied to demo" in page


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"values": "max_batch_size: [0, 4]"}, "cannot be 0"),
        ({"values": "- 1"}, "Write one parameter a line"),
        ({"values": "{"}, "This is no YAML"),
        ({"values": "beauty: [1]"}, "cannot be tuned"),
        ({"objective": "goodput_per_second"}, "the scenario has none"),
        ({"clients": "5000"}, "less than or equal to 4096"),
        ({"trials": "1"}, "greater than or equal to 2"),
    ],
)
def test_the_form_shows_what_is_wrong_where_it_is_wrong(
    client: Client, changed: dict[str, str], words: str
) -> None:
    form = {
        "deployment": "demo",
        "objective": "output_tokens_per_second",
        "parameters": ["strategy", "max_batch_size"],
        "values": "",
        "mode": "closed",
        "clients": "8",
        "rate": "1",
        "warm_up": "1",
        "seconds": "5",
        "trials": "3",
        "minutes": "10",
    }
    answer = client.post(f"{URL}new/", {**form, **changed})
    assert answer.status_code == 422
    assert words in answer.content.decode()


def test_adaptive_batching_is_off_until_switched_on_and_says_what_it_moves(client: Client) -> None:
    url = "/deployments/demo/adaptive/"
    assert "Nothing was moved yet." in client.get(url).content.decode()
    settings = {
        "enabled": "on",
        "least_admitted": "1",
        "least_queue": "4",
        "most_queue": "64",
        "window_seconds": "30",
        "hold": "2",
        "settle_seconds": "15",
    }
    refused = client.post(url, settings)
    assert refused.status_code == 422
    assert "Nothing is promised of demo" in refused.content.decode()
    assert client.post(url, {**settings, "ttft_ms": "900"}).status_code == 303
    row = adaptive.of(Deployment.objects.get(name="demo"))
    assert row is not None
    assert row.enabled
    move = {"lever": "queue", "before": 64, "after": 8, "sentence": "Who would wait longer is refused."}
    assert adaptive.looked(row, admitted=None, queue=8, memory={}, sentence="9 answers", moves=[move])
    page = client.get(url).content.decode()
    assert "Who would wait longer is refused." in page
    assert "waiting requests" in page
