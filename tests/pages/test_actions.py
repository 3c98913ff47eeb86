"""What pages do through services, and how a refusal reaches the person: toast, page, message, field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from apps.accounts.roles import OPERATOR
from apps.core.models import AuditEntry
from apps.engines import states as build_states
from apps.engines.models import Build, BuildProfile
from apps.fleet.models import Node
from apps.registry.models import Checkpoint
from apps.serving.models import Deployment
from tests import objects
from tests.pages.conftest import World, conversation_of

HTMX = {"HTTP_HX_REQUEST": "true"}


@pytest.fixture
def operator(sign_in: Callable[..., Client]) -> Client:
    """A client of an operator."""
    return sign_in(OPERATOR)


def _trigger(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.headers["HX-Trigger"])
    return found


def test_cancel_by_htmx_answers_with_a_toast_and_a_refresh(world: World, operator: Client) -> None:
    answer = operator.post(reverse("engines:cancel", args=[7]), **HTMX)
    assert answer.status_code == 204
    said = _trigger(answer)
    assert said["toast"] == {"tone": "ok", "text": "Build #7 is cancelled.", "more": ""}
    assert "refresh" in said
    world.build.refresh_from_db()
    assert world.build.state == build_states.CANCELLED
    assert AuditEntry.objects.filter(verb="build.cancelled", actor__username=OPERATOR).exists()


def test_cancel_without_scripts_redirects_with_a_message(world: World, operator: Client) -> None:
    answer = operator.post(reverse("engines:cancel", args=[7]))
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/builds/7/"
    assert "is cancelled" in operator.get("/builds/7/").content.decode()


def test_a_refusal_by_htmx_is_a_toast_with_sentence_and_remedy(world: World, operator: Client) -> None:
    operator.post(reverse("engines:cancel", args=[7]))
    answer = operator.post(reverse("engines:cancel", args=[7]), **HTMX)
    assert answer.status_code == 409
    assert answer.headers["HX-Reswap"] == "none"
    said = _trigger(answer)["toast"]
    assert said["tone"] == "bad"
    assert "has ended: cancelled" in said["text"]
    assert said["more"] == "There is nothing to cancel."


def test_a_refusal_without_scripts_is_a_page_with_the_status(world: World, operator: Client) -> None:
    operator.post(reverse("engines:cancel", args=[7]))
    answer = operator.post(reverse("engines:cancel", args=[7]))
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "has ended: cancelled" in text
    assert "There is nothing to cancel." in text
    assert "build_ended" in text
    assert "Back" not in text
    answer = operator.post(
        reverse("engines:cancel", args=[7]), headers={"Referer": "http://testserver/builds/7/"}
    )
    assert 'href="http://testserver/builds/7/"' in answer.content.decode()
    answer = operator.post(reverse("engines:cancel", args=[7]), headers={"Referer": "https://example.com/"})
    assert "example.com" not in answer.content.decode()


def test_retry_starts_another_build_and_goes_there(world: World, operator: Client) -> None:
    operator.post(reverse("engines:cancel", args=[7]))
    answer = operator.post(reverse("engines:retry", args=[7]), **HTMX)
    newest = Build.objects.order_by("-number").first()
    assert newest is not None
    assert answer.headers["HX-Redirect"] == f"/builds/{newest.number}/"
    assert newest.number == 8


def test_deploy_and_stop(world: World, operator: Client) -> None:
    assert operator.post(reverse("serving:deploy", args=["demo"]), **HTMX).status_code == 204
    world.deployment.refresh_from_db()
    assert world.deployment.desired == Deployment.Desired.RUNNING
    assert operator.post(reverse("serving:stop", args=["demo"]), **HTMX).status_code == 204
    world.deployment.refresh_from_db()
    assert world.deployment.desired == Deployment.Desired.STOPPED


def test_roll_back_to_the_current_revision_is_refused(world: World, operator: Client) -> None:
    answer = operator.post(reverse("serving:roll_back", args=["demo", 1]), **HTMX)
    assert answer.status_code == 409
    assert "current one" in _trigger(answer)["toast"]["text"]


def test_cordon_and_uncordon(world: World, operator: Client) -> None:
    operator.post(reverse("fleet:cordon", args=["n1"]), {"reason": "new fans"})
    world.node.refresh_from_db()
    assert (world.node.cordoned, world.node.cordon_reason) == (True, "new fans")
    Node.objects.filter(pk=world.node.pk).update(protocol_version=99, clock_skew_seconds=-42.25)
    shown = operator.get(reverse("fleet:node", args=["n1"])).content.decode()
    assert "Its workers speak protocol 99" in shown
    assert "Its clock is -42.2 s off" in shown
    shown = operator.get(reverse("fleet:fleet")).content.decode()
    assert "another release" in shown
    assert "clock is off" in shown
    operator.post(reverse("fleet:uncordon", args=["n1"]))
    world.node.refresh_from_db()
    assert not world.node.cordoned


def test_a_checkpoint_in_use_is_not_deleted(world: World, operator: Client) -> None:
    operator.post(reverse("engines:cancel", args=[7]))
    answer = operator.post(reverse("registry:delete", args=["tiny"]))
    assert answer.status_code == 409
    assert "is still used by" in answer.content.decode()
    assert Checkpoint.objects.filter(name="tiny").exists()


def test_conversations_are_begun_renamed_and_deleted(world: World, operator: Client) -> None:
    from django.contrib.auth.models import User

    answer = operator.post(reverse("chat:new"), {"deployment": "demo"})
    assert answer.status_code == 303
    row = User.objects.get(username=OPERATOR).conversations.get()
    assert answer.headers["Location"] == f"/playground/{row.pk}/"
    operator.post(reverse("chat:rename", args=[row.pk]), {"title": "Lighthouses"})
    row.refresh_from_db()
    assert row.title == "Lighthouses"
    operator.post(reverse("chat:delete", args=[row.pk]))
    assert not User.objects.get(username=OPERATOR).conversations.exists()


def test_a_conversation_needs_a_deployment(world: World, operator: Client) -> None:
    assert operator.post(reverse("chat:new"), {}).status_code == 422
    assert operator.post(reverse("chat:new"), {"deployment": "none"}).status_code == 404


def test_an_external_server_is_talked_to_without_charts(world: World, operator: Client) -> None:
    from django.contrib.auth.models import User

    from apps.gateway.models import ExternalDeployment

    ExternalDeployment.objects.create(name="afar", base_url="https://api.example.org/v1", model="large-1")
    page = operator.get(reverse("chat:playground")).content.decode()
    assert 'name="external" value="afar"' in page
    assert '<option value="external:afar"' in operator.get(reverse("chat:compare")).content.decode()
    assert operator.post(reverse("chat:new"), {"external": "afar"}).status_code == 303
    row = User.objects.get(username=OPERATOR).conversations.get()
    text = operator.get(reverse("chat:conversation", args=[row.pk])).content.decode()
    assert "api.example.org" in text
    assert 'data-param="temperature"' in text
    for absent in ("data-chart", "data-busy", "Chat template", 'data-param="top_k"', "param-priority"):
        assert absent not in text
    assert "afar (external)" in operator.get(reverse("chat:playground")).content.decode()
    given = {"side": ["demo", "external:afar"], "prompts": "One?", "max_tokens": "9"}
    assert operator.post(reverse("chat:new_comparison"), given).status_code == 303
    compared = User.objects.get(username=OPERATOR).comparisons.get()
    text = operator.get(reverse("chat:comparison", args=[compared.pk])).content.decode()
    assert "afar (external)" in text


class TestCheckpointForm:
    """Registering, with the refusal beside its field."""

    def test_registers_and_shows_it(self, world: World, operator: Client) -> None:
        objects.gguf_file("second")
        answer = operator.post(reverse("registry:new"), {"name": "second", "kind": "demo", "demo": "second"})
        assert answer.status_code == 303
        assert Checkpoint.objects.get(name="second").state == "ready"

    @pytest.mark.parametrize(
        ("data", "field", "words"),
        [
            ({"name": "Bad Name", "kind": "demo", "demo": "tiny"}, "name", "cannot be a name"),
            ({"name": "tiny", "kind": "demo", "demo": "tiny"}, "name", "There already is a checkpoint tiny"),
            ({"name": "x", "kind": "path", "path": "/etc/passwd"}, "path", ""),
            ({"name": "x", "kind": "path", "path": ""}, "path", ""),
            ({"name": "x", "kind": "huggingface", "repo": "ab"}, "repo", ""),
        ],
    )
    def test_a_refusal_stands_at_its_field(
        self, world: World, operator: Client, data: dict[str, str], field: str, words: str
    ) -> None:
        answer = operator.post(reverse("registry:new"), data)
        assert answer.status_code == 422
        errors = answer.context["form"].errors
        assert list(errors) == [field]
        assert words in str(errors[field])
        assert f'id="id_{field}-error"' in answer.content.decode()
        assert Checkpoint.objects.count() == 1

    def test_the_check_shows_what_the_header_says(self, world: World, operator: Client) -> None:
        text = operator.post(
            reverse("registry:check"), {"name": "new", "kind": "demo", "demo": "tiny"}
        ).content.decode()
        assert "can be registered" in text
        assert "llama" in text
        assert Checkpoint.objects.count() == 1

    def test_the_check_names_every_reason(self, world: World, operator: Client) -> None:
        data = {"name": "tiny", "kind": "path", "path": "/etc/passwd"}
        text = operator.post(reverse("registry:check"), data).content.decode()
        assert "There already is a checkpoint tiny" in text
        assert "can be registered" not in text


class TestBuildForm:
    """A build from a new profile or from one that exists."""

    def test_makes_the_profile_and_starts(self, world: World, operator: Client) -> None:
        data = {"mode": "new", "checkpoint": "tiny", "quantization": "Q8_0", "name": ""}
        answer = operator.post(reverse("engines:new"), data)
        profile = BuildProfile.objects.get(name="tiny-q8_0")
        build = Build.objects.get(profile=profile)
        assert answer.headers["Location"] == f"/builds/{build.number}/"

    def test_takes_an_equal_profile_again(self, world: World, operator: Client) -> None:
        data = {"mode": "new", "checkpoint": "tiny", "quantization": "Q8_0"}
        operator.post(reverse("engines:new"), data)
        assert operator.post(reverse("engines:new"), data).status_code == 303
        assert BuildProfile.objects.filter(quantization="Q8_0").count() == 1

    def test_two_presses_make_one_build(self, world: World, operator: Client) -> None:
        data = {"mode": "profile", "profile": "f16"}
        answers = [operator.post(reverse("engines:new"), data).headers["Location"] for _press in range(2)]
        assert answers == ["/builds/7/", "/builds/7/"]

    @pytest.mark.parametrize(
        ("data", "field"),
        [
            ({"mode": "new", "checkpoint": "", "quantization": "F16"}, "checkpoint"),
            ({"mode": "profile", "profile": ""}, "profile"),
            ({"mode": "new", "checkpoint": "tiny", "quantization": "Q9_9"}, "quantization"),
            ({"mode": "new", "checkpoint": "tiny", "quantization": "Q4_0", "name": "Not A Name"}, "name"),
        ],
    )
    def test_a_refusal_stands_at_its_field(
        self, world: World, operator: Client, data: dict[str, str], field: str
    ) -> None:
        answer = operator.post(reverse("engines:new"), data)
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == [field]

    def test_the_preview_estimates_and_finds_the_running_build(self, world: World, operator: Client) -> None:
        text = operator.get(
            reverse("engines:preview"), {"mode": "profile", "profile": "f16"}
        ).content.decode()
        assert "Engine, estimated" in text
        assert "It is being built now" in text
        assert 'href="/builds/7/"' in text


class TestDeploymentForm:
    """Saving a deployment, and deploying it at once."""

    def test_saves_and_deploys(self, world: World, operator: Client) -> None:
        data = {
            "name": "two",
            "build_profile": "f16",
            "batching": "inflight-16",
            "replicas": "2",
            "device": "cpu",
        }
        answer = operator.post(reverse("serving:new"), {**data, "deploy": "on"})
        row = Deployment.objects.get(name="two")
        assert answer.headers["Location"] == "/deployments/two/"
        assert (row.replicas, row.placement, row.desired) == (2, {"device": "cpu"}, "running")

    def test_saves_without_deploying(self, world: World, operator: Client) -> None:
        data = {
            "name": "two",
            "build_profile": "f16",
            "batching": "inflight-16",
            "replicas": "1",
            "device": "any",
        }
        operator.post(reverse("serving:new"), data)
        assert Deployment.objects.get(name="two").state == "stopped"

    def test_keeps_the_row_and_says_why_it_was_not_deployed(self, world: World, operator: Client) -> None:
        Build.objects.all().delete()
        Checkpoint.objects.update(path="/gone", sentence="Its file is gone.")
        Checkpoint.objects.filter(name="tiny").update(**{"state": "missing"})
        from apps.engines.models import Engine

        Deployment.objects.get(name="demo").instances.all().delete()
        Deployment.objects.get(name="demo").revisions.all().delete()
        Engine.objects.all().delete()
        data = {
            "name": "two",
            "build_profile": "f16",
            "batching": "inflight-16",
            "replicas": "1",
            "device": "any",
        }
        answer = operator.post(reverse("serving:new"), {**data, "deploy": "on"})
        assert answer.status_code == 303
        said = [str(message) for message in get_messages(answer.wsgi_request)]
        assert said
        assert said[0].startswith("two is saved, but not deployed. The checkpoint tiny is missing.")

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"name": "demo"}, "name"),
            ({"name": "warmup"}, "name"),
            ({"replicas": "0"}, "replicas"),
            ({"batching": ""}, "batching"),
            ({"device": "tpu"}, "device"),
        ],
    )
    def test_a_refusal_stands_at_its_field(
        self, world: World, operator: Client, change: dict[str, str], field: str
    ) -> None:
        data = {
            "name": "two",
            "build_profile": "f16",
            "batching": "inflight-16",
            "replicas": "1",
            "device": "any",
        }
        answer = operator.post(reverse("serving:new"), {**data, **change})
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == [field]

    def test_changes_all_but_the_name(self, world: World, operator: Client) -> None:
        objects.batching("slow", max_batch_size=2)
        data = {"name": "other", "build_profile": "f16", "batching": "slow", "replicas": "3", "device": "any"}
        assert operator.post(reverse("serving:edit", args=["demo"]), data).status_code == 303
        world.deployment.refresh_from_db()
        assert (world.deployment.name, world.deployment.replicas) == ("demo", 3)
        assert world.deployment.batching.name == "slow"

    def test_the_preview_shows_the_rendered_file(self, world: World, operator: Client) -> None:
        given = {"build_profile": "f16", "batching": "inflight-16"}
        text = operator.get(reverse("serving:preview"), given).content.decode()
        assert "config.pbtxt" in text
        assert "KV cache" in text


def test_a_private_conversation_page_carries_its_turns(world: World, operator: Client) -> None:
    from django.contrib.auth.models import User

    from apps.chat.models import Turn

    row = conversation_of(User.objects.get(username=OPERATOR), world.deployment)
    row.head = Turn.objects.create(
        conversation=row, uid="t1", position=1, prompt="Why?", answer="Because.", state="done",
        metrics={"ttft_ms": 142.24, "tokens": 1234, "tokens_per_second": 38.4},
    )  # fmt: skip
    row.save()
    text = operator.get(reverse("chat:conversation", args=[row.pk])).content.decode()
    assert "Because." in text
    assert "<b data-ttft>142</b>" in text
    assert "<b data-tokens>1\u202f234</b>" in text
