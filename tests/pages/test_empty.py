"""No row at all, and a Redis that is gone: every page still says what it is and what comes next."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.roles import OPERATOR, VIEWER
from apps.dashboard import health

NEXT = {
    "/": "No deployment yet",
    "/checkpoints/": "No checkpoint yet",
    "/builds/": "No build yet",
    "/deployments/": "No deployment yet",
    "/fleet/": "No node yet",
    "/playground/": "No conversation yet",
    "/builds/new/": "No checkpoint to build from",
    "/deployments/-/new/": "Nothing to deploy yet",
}


@pytest.mark.parametrize(("path", "words"), NEXT.items())
def test_empty_pages_say_what_this_is(sign_in: Callable[..., Client], path: str, words: str) -> None:
    assert words in sign_in(OPERATOR).get(path).content.decode()


def test_a_viewer_is_offered_no_button_that_is_not_theirs(sign_in: Callable[..., Client]) -> None:
    client = sign_in(VIEWER)
    for path in ("/", "/checkpoints/", "/builds/", "/deployments/"):
        text = client.get(path).content.decode()
        assert "/new/" not in text
        assert "/playground/" not in text
        assert "/admin/" not in text


@pytest.fixture
def no_redis(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that name a Redis that is not there."""
    settings.REDIS_URL = "unix:///nonexistent/redis.sock?db=3"
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer"}}
    monkeypatch.setattr(health, "_last", (0.0, ""))


@pytest.mark.usefixtures("no_redis")
def test_without_redis_pages_render_with_the_reason(world: object, sign_in: Callable[..., Client]) -> None:
    client = sign_in(OPERATOR)
    for path in ("/", "/builds/7/", "/deployments/demo/", "/fleet/", "/deployments/demo/instances/"):
        text = client.get(path).content.decode()
        banner = text[text.index("data-live-banner") :]
        assert not banner.startswith("data-live-banner hidden")
        assert "Redis does not answer" in banner


def test_with_redis_the_banner_is_hidden(
    sign_in: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_last", (0.0, ""))
    assert "data-live-banner hidden" in sign_in(VIEWER).get("/").content.decode()


@pytest.mark.django_db
def test_healthz_and_readyz_are_open(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok", "checks": {"database": "ok", "redis": "ok"}}


@pytest.mark.django_db
@pytest.mark.usefixtures("no_redis")
def test_readyz_names_what_fails(client: Client) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"database": "ok", "redis": "failed"}


class TestPalette:
    """Only what the person may see and do."""

    def _titles(self, client: Client, words: str = "") -> list[str]:
        found = json.loads(client.get("/palette.json", {"q": words}).content)
        return [item["title"] for item in found["items"]]

    def test_pages_and_objects(self, world: object, sign_in: Callable[..., Client]) -> None:
        client = sign_in(OPERATOR)
        assert self._titles(client)[:3] == ["Overview", "Checkpoints", "Builds"]
        assert "demo" in self._titles(client, "demo")
        assert "#7 tiny F16" in self._titles(client, "#7")

    def test_actions_for_those_who_may(self, world: object, sign_in: Callable[..., Client]) -> None:
        assert "Deploy demo" in self._titles(sign_in(OPERATOR), "demo")
        assert "Deploy demo" not in self._titles(sign_in(VIEWER), "demo")
        assert "New build" not in self._titles(sign_in(VIEWER), "")

    def test_an_action_that_ends_work_asks_first(self, world: object, sign_in: Callable[..., Client]) -> None:
        answer = sign_in(OPERATOR).get("/palette.json", {"q": "tiny"}).json()
        cancel = next(item for item in answer["items"] if item["title"].startswith("Cancel build"))
        assert cancel["method"] == "post"
        assert cancel["confirm"]["question"] == "Cancel build #7?"

    def test_nobody_gets_nothing(self, world: object, sign_in: Callable[..., Client]) -> None:
        assert self._titles(sign_in(), "demo") == []


class TestFrame:
    """What surrounds a page, and the part that live regions ask for."""

    def test_a_part_is_the_main_column_alone(self, world: object, sign_in: Callable[..., Client]) -> None:
        client = sign_in(VIEWER)
        part = client.get("/builds/", headers={"X-Part": "main"}).content.decode()
        assert part.lstrip().startswith('<main id="main">')
        assert "#7" in part
        assert "<nav class" not in part

    def test_no_script_is_inline(self, world: object, sign_in: Callable[..., Client]) -> None:
        import re

        client = sign_in(OPERATOR)
        for path in ("/", "/builds/7/", "/deployments/demo/", "/builds/new/", "/playground/"):
            text = client.get(path).content.decode()
            for attributes, body in re.findall(r"<script([^>]*)>(.*?)</script>", text, re.S):
                assert "src=" in attributes or 'type="application/json"' in attributes
                assert "src=" not in attributes or not body.strip()
            assert not re.search(r"\son[a-z]+=", text)

    def test_running_work_is_in_the_frame_of_every_page(
        self, world: object, sign_in: Callable[..., Client]
    ) -> None:
        assert "Build #7 tiny F16" in sign_in(VIEWER).get("/fleet/").content.decode()

    def test_text_of_people_is_escaped(self, world: Any, sign_in: Callable[..., Client]) -> None:
        evil = "<script>alert(1)</script>"
        type(world.build).objects.update(sentence=evil, state="failed", reason="x")
        type(world.deployment).objects.update(sentence=evil)
        client = sign_in(OPERATOR)
        for path in ("/", "/builds/", "/builds/7/", "/deployments/", "/deployments/demo/"):
            assert evil not in client.get(path).content.decode()
