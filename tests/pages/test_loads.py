"""Pages of load tests: what they say, exports, forms that are refused, capacity."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.roles import ADMINISTRATOR, OPERATOR
from apps.loadtests.models import LoadRun
from tests.pages.conftest import World

SignIn = Callable[..., Client]
URL = "/load-tests/"


@pytest.fixture
def client(world: World, sign_in: SignIn) -> Client:
    """An operator's client; a study with six runs stands."""
    return sign_in(OPERATOR)


def test_a_comparison_says_its_verdict_first_and_exports_itself(client: Client) -> None:
    url = f"{URL}compare/?arm=slow:1,3,5&arm=quick:2,4,6"
    page = client.get(url).content.decode()
    main = page[page.index('id="main"') :]
    assert main.index("verdict-text") < main.index("interval-zero") < main.index("What differed")
    assert "tokens/s (" in main
    assert "better" in main
    assert "batching.strategy" in main
    url = f"{URL}studies/1/?"
    shared = client.get(f"{url}&format=html").content.decode()
    assert "verdict-text" in shared
    assert "<script" not in shared
    assert "tokens/s" in client.get(f"{url}&format=md").content.decode()
    table = list(csv.DictReader(io.StringIO(client.get(f"{url}&format=csv").content.decode())))
    assert [row["configuration"] for row in table] == ["slow"] * 3 + ["quick"] * 3
    told = json.loads(client.get(f"{url}&format=json").content)
    assert told["comparison"]["arms"][0]["differences"]["output_tokens_per_second"]["better"] is True


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("arm=1", "needs 2 to"),
        ("arm=1&arm=x", "names no runs"),
        ("arm=1&arm=2&primary=beauty", "is no metric"),
    ],
)
def test_a_comparison_that_cannot_be_made_says_why(client: Client, query: str, words: str) -> None:
    answer = client.get(f"{URL}compare/?{query}")
    assert answer.status_code == 422
    assert words in answer.content.decode()


def test_a_study_shows_its_verdict_and_a_run_its_figures(client: Client) -> None:
    assert "tokens/s (" in client.get(f"{URL}studies/1/").content.decode()
    page = client.get(f"{URL}runs/1/").content.decode()
    assert "TTFT p99" in page
    assert "generator was the bottleneck" not in page
    live = client.get(f"{URL}runs/7/").content.decode()
    assert "lplot-line" in live
    assert "Stop" in live


def test_a_generator_that_was_late_is_told(client: Client) -> None:
    row = LoadRun.objects.get(number=1)
    row.summary["generator"] |= {
        "bound": True,
        "reasons": ["1% of the requests were sent more than 9 ms late"],
    }
    row.save()
    assert "The generator was the bottleneck" in client.get(f"{URL}runs/1/").content.decode()


def test_a_run_of_aiperf_stands_beside_ours_and_is_exported(client: Client) -> None:
    theirs = LoadRun.objects.get(number=2)
    words = ["aiperf", "profile", "--model", "demo"]
    theirs.summary = {**theirs.summary, "aiperf": {"version": "0.13.0", "commands": [words]}}
    del theirs.summary["generator"]
    theirs.generator, theirs.environment = "aiperf", {"generator": {"name": "aiperf", "version": "0.13.0"}}
    theirs.save()
    page = client.get(f"{URL}runs/1/").content.decode()
    assert "Beside another generator" in page
    # The load does not go through the gateway, so AIPerf cannot be asked to send it.
    assert "Run with AIPerf" not in page
    other = client.get(f"{URL}runs/2/").content.decode()
    assert "AIPerf 0.13.0" in other
    assert "aiperf profile --model demo" in other
    assert "Known when the run has ended" not in other
    # Its other runs are members of a study; the newest of ours under this load is the one beside it.
    told = json.loads(client.get(f"{URL}runs/2/?format=json").content)
    assert (told["beside"]["ours"], told["beside"]["aiperf"]) == (6, 2)
    rows = list(csv.DictReader(io.StringIO(client.get(f"{URL}runs/2/?format=csv").content.decode())))
    ttft = next(row for row in rows if row["figure"] == "ttft_p50_ms")
    assert float(ttft["aiperf"]) > 0
    assert float(ttft["other"]) > 0
    assert "| TTFT p99 ms |" in client.get(f"{URL}runs/2/?format=md").content.decode()
    assert client.get(f"{URL}runs/2/?format=exe").status_code == 422


def test_the_form_shows_what_is_wrong_where_it_is_wrong(client: Client) -> None:
    values = {
        "target": "demo", "via": "http", "mode": "closed", "steps": "four", "arrivals": "poisson", "input_mean": 8,
        "output_least": 8, "output_most": 16, "shared_prefix": 0, "turns": 1, "dataset": "", "warm_up": 1,
        "seconds": 5, "most": 10,
    }  # fmt: skip
    answer = client.post(f"{URL}new/", values)
    assert answer.status_code == 422
    assert "These are no numbers." in answer.content.decode()
    answer = client.post(f"{URL}new/", {**values, "steps": "4"})
    assert "No instance of demo is serving" in answer.content.decode()


def test_production_is_marked_by_administrators(client: Client, sign_in: SignIn) -> None:
    url = f"{URL}production/demo/"
    assert client.post(url, {"production": "on"}).status_code == 403
    assert sign_in(ADMINISTRATOR).post(url, {"production": "on"}).status_code == 303
    assert "chip-warn" in client.get(URL).content.decode()
