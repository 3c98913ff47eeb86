"""Comparisons, prompt sets, links and exports: what is made, kept, shown to whom, and written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from apps.chat import comparison_figures, comparisons, exports, prompt_sets, selectors, services, sharing
from apps.chat.compared_models import Comparison, ComparisonPart
from apps.chat.models import Conversation, Turn
from apps.core.exceptions import InflightError, InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.serving.models import Deployment, Instance, Revision
from apps.specs import services as specs
from tests import people
from tests.chat.rows import serving_deployment
from tests.specs.api import ok, refused, send

METRICS = {"ttft_ms": 50.0, "itl_p50_ms": 10.0, "itl_p99_ms": 20.0, "tokens_per_second": 90.0, "tokens": 5}


@pytest.fixture
def olga(db: None) -> User:
    """An operator."""
    return people.person("operator", name="olga")


@pytest.fixture
def two(db: None) -> tuple[Deployment, Deployment]:
    """Two deployments that serve."""
    return serving_deployment("f16"), serving_deployment("q4")


def _answered(conversation: Conversation, answer: str, position: int = 1, **columns: Any) -> Turn:
    """An ended answer without anything that streams."""
    found = {"state": "done", "prompt": f"Question {position}", "metrics": METRICS, **columns}
    turn = Turn.objects.create(
        conversation=conversation,
        uid=f"u{conversation.pk}-{position}",
        position=position,
        answer=answer,
        **found,
    )
    turn.parent = conversation.head
    turn.save(update_fields=["parent"])
    conversation.head = turn
    conversation.save(update_fields=["head"])
    return turn


def _sides(*names: str) -> list[dict[str, Any]]:
    return [{"deployment": name, "revision": None} for name in names]


def _part(row: Comparison, side: int, question: int = 0) -> Conversation:
    return ComparisonPart.objects.get(comparison=row, side=side, question=question).conversation


def test_each_side_answers_in_conversations_of_its_own(olga: User, two: Any) -> None:
    row = services.create_comparison(olga, {"sides": _sides("f16", "q4"), "prompts": ["One?", "Two?"]})
    assert row.title == "One?"
    assert sorted(row.parts.values_list("side", "question")) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    chained = services.create_comparison(
        olga, {"sides": _sides("f16", "q4"), "prompts": ["One?", "Two?"], "chained": True}
    )
    assert sorted(chained.parts.values_list("side", "question")) == [(0, 0), (1, 0)]
    # They are not among one's own conversations.
    assert list(selectors.conversations(olga)) == []


@pytest.mark.parametrize(
    ("data", "code", "field"),
    [
        ({"sides": _sides("f16"), "prompts": ["x"]}, "number_of_sides", "sides"),
        ({"sides": _sides(*["f16"] * 5), "prompts": ["x"]}, "invalid_value", "sides"),
        ({"sides": _sides("f16", "q4")}, "one_source_of_questions", "prompts"),
        (
            {"sides": _sides("f16", "q4"), "prompts": ["x"], "prompt_set": "y"},
            "one_source_of_questions",
            "prompt_set",
        ),
        ({"sides": _sides("f16", "q4"), "prompts": ["  "]}, "invalid_value", "prompts.0"),
        ({"sides": _sides("f16", "gone"), "prompts": ["x"]}, "deployment_unknown", "deployment"),
        ({"sides": _sides("f16", "q4"), "prompt_set": "none"}, "prompt_set_unknown", "prompt_set"),
        ({"sides": _sides("f16", "q4"), "conversation": 99}, "unknown_conversation", "conversation"),
        (
            {"sides": _sides("f16", "q4"), "prompts": ["x"], "params": {"top_p": 7}},
            "parameter_out_of_range",
            "top_p",
        ),
        (
            {"sides": [{"deployment": "f16", "revision": 9}], "prompts": ["x"]},
            "revision_not_serving",
            "revision",
        ),
        ({"sides": _sides("f16", "q4"), "prompts": ["x"], "color": "red"}, "invalid_value", "color"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    olga: User, two: Any, data: dict[str, Any], code: str, field: str
) -> None:
    with pytest.raises(InflightError) as found:
        services.create_comparison(olga, data)
    assert (found.value.code, found.value.field, bool(found.value.remedy)) == (code, field, True)
    assert not Comparison.objects.exists()


def test_a_revision_is_asked_where_it_serves(olga: User, two: Any) -> None:
    deployment = two[0]
    old = deployment.active_revision
    new = Revision.objects.create(
        deployment=deployment, number=4, engine=old.engine, batching={}, state="pending"
    )
    first = Instance.objects.get(uid="i-f16")
    Instance.objects.create(
        deployment=deployment,
        revision=new,
        uid="i-new",
        node=first.node,
        gpu=first.gpu,
        state="serving",
        http_port=4,
        grpc_port=5,
        metrics_port=6,
    )
    assert comparisons.engines_of(deployment) == [4, 3]
    sides = [{"deployment": "f16", "revision": 3}, {"deployment": "f16", "revision": 4}]
    row = services.create_comparison(olga, {"sides": sides, "prompts": ["x"]})
    assert [comparisons.pick(_part(row, side)).uid for side in (0, 1)] == ["i-f16", "i-new"]
    Instance.objects.filter(uid="i-new").update(state="draining")
    with pytest.raises(NotPossibleNow, match="Revision 4 of f16 does not serve"):
        comparisons.pick(_part(row, 1))


def test_a_saved_conversation_is_replayed_beside_its_own_answers(olga: User, two: Any) -> None:
    talk = services.create_conversation(olga, two[0], system_prompt="Be brief.", params={"max_tokens": 9})
    _answered(talk, "Paris.", 1)
    _answered(talk, "Berlin.", 2)
    row = services.create_comparison(olga, {"sides": _sides("q4"), "conversation": talk.pk})
    assert (row.chained, row.system_prompt, row.params) == (True, "Be brief.", {"max_tokens": 9})
    assert [comparisons.side_name(side) for side in row.sides] == ["f16, recorded", "q4"]
    _answered(_part(row, 1), "Paris!", 1)
    found = comparisons.answers(row)
    assert [[answer and answer["answer"] for answer in question] for question in found] == [
        ["Paris.", "Paris!"],
        ["Berlin.", None],
    ]
    # The recorded side stays what it was, whatever becomes of the conversation.
    services.delete_conversation(olga, talk)
    assert comparisons.answers(Comparison.objects.get(pk=row.pk))[0][0]["answer"] == "Paris."


def test_figures_are_medians_and_differences_are_from_the_first_side(olga: User, two: Any) -> None:
    row = services.create_comparison(olga, {"sides": _sides("f16", "q4"), "prompts": ["One?", "Two?"]})
    for side, question, text, speed in (
        (0, 0, "It is big.", 100.0),
        (0, 1, "Same.", 80.0),
        (1, 0, "It is small.", 210.0),
        (1, 1, "Same.", 190.0),
    ):
        _answered(
            _part(row, side, question),
            text,
            metrics={**METRICS, "tokens_per_second": speed, "cached_tokens": None},
        )
    answers = comparisons.answers(row)
    differing = comparison_figures.differences(answers)
    first, other = comparison_figures.summary(answers, differing)
    assert (first.tokens_per_second, other.tokens_per_second, first.tokens) == (90.0, 200.0, 10)
    assert (first.cached_tokens, first.likeness, other.same, other.answered) == (None, None, 1, 2)
    assert [(each.kind, each.text) for each in differing[0][1] or []] == [
        ("same", "It is "),
        ("removed", "big"),
        ("added", "small"),
        ("same", "."),
    ]


def test_an_export_says_all_and_no_answer_breaks_out_of_it(olga: User, two: Any) -> None:
    row = services.create_comparison(olga, {"sides": _sides("f16", "q4"), "prompts": ["| a |\n# b"]})
    nasty = "```\n# not a heading\n````\n| x |"
    _answered(_part(row, 0), nasty, instance_uid="i-f16", revision_number=3)
    value = json.loads(exports.export(row, "json"))
    assert value["format"] == "inflight/comparison/v1"
    assert value["questions"][0]["answers"][0]["answer"] == nasty
    assert value["questions"][0]["answers"][1] is None
    text = exports.export(row, "markdown")
    assert f"`````text\n{nasty}\n`````" in text
    assert "| f16 | 50.0 | 10.0 |" in text
    assert "instance i-f16, revision 3" in text
    with pytest.raises(InvalidInput, match="no format xml"):
        exports.export(row, "xml")
    talk = services.create_conversation(olga, two[0], title="A *talk*")
    _answered(talk, "Paris.")
    assert json.loads(exports.export(talk, "json"))["turns"][0]["answer"] == "Paris."
    assert exports.export(talk, "markdown").startswith("# A \\*talk\\*\n")
    assert exports.file_name(talk, "markdown") == f"conversation-{talk.pk}-a-talk.md"


def test_a_link_shows_until_it_is_revoked_and_to_viewers_only(olga: User, two: Any) -> None:
    viewer, nobody = people.person("viewer"), people.person(name="nobody")
    other, boss = people.person("operator", name="otto"), people.person("administrator")
    talk = services.create_conversation(olga, two[0])
    row = services.create_comparison(olga, {"sides": _sides("f16", "q4"), "prompts": ["x"]})
    for target in (talk, row):
        with pytest.raises(NotAllowed):
            services.share(other, target)
        link = services.share(olga, target)
        assert services.share(olga, target) == link
        assert sharing.shown(viewer, link.uid)[1] == target
        with pytest.raises(NotAllowed):
            sharing.shown(nobody, link.uid)
        with pytest.raises(NotAllowed):
            services.revoke_link(other, link)
        services.revoke_link(olga if target is talk else boss, link)
        with pytest.raises(NotFound, match="revoked by olga"):
            sharing.shown(viewer, link.uid)
        assert services.share(olga, target).uid != link.uid
    with pytest.raises(NotFound):
        sharing.shown(viewer, "guessed")
    # Without a link nothing of somebody else's is seen.
    with pytest.raises(NotFound):
        comparisons.comparison(other, row.pk)


def test_who_may_change_a_comparison(olga: User, two: Any) -> None:
    other = people.person("operator", name="otto")
    row = services.create_comparison(olga, {"sides": _sides("f16", "q4"), "prompts": ["x"]})
    for change in (
        lambda: services.rename_comparison(other, row, "mine"),
        lambda: services.repeat_comparison(other, row),
        lambda: services.delete_comparison(other, row),
    ):
        with pytest.raises(NotAllowed):
            change()
    with pytest.raises(InvalidInput):
        services.rename_comparison(olga, row, "  ")
    assert services.rename_comparison(olga, row, " Both \n of them ").title == "Both of them"
    again = services.repeat_comparison(olga, row)
    assert (again.questions, again.parts.count()) == (row.questions, 2)
    running = _answered(_part(row, 0), "", state="streaming")
    with pytest.raises(NotPossibleNow):
        services.delete_comparison(olga, row)
    Turn.objects.filter(pk=running.pk).update(state="done")
    services.delete_comparison(olga, row)
    assert Conversation.objects.count() == 2  # those of the repeated one


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"name": "Bad Name", "prompts": ["x"]}, "name"),
        ({"name": "a", "prompts": []}, "prompts"),
        ({"name": "a", "prompts": ["x", " \n"]}, "prompts.1"),
        ({"name": "a", "prompts": ["x"] * 201}, "prompts"),
        ({"name": "a"}, "prompts"),
        ({"name": "a", "prompts": "x"}, "prompts"),
    ],
)
def test_a_prompt_set_names_the_field_at_fault(db: None, data: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as found:
        services.save_prompt_set("cli", data)
    assert found.value.field == field


def test_a_prompt_set_is_asked_and_its_questions_kept(olga: User, two: Any) -> None:
    made = services.save_prompt_set(olga, {"name": "capitals", "prompts": ["France?", "Spain?"]})
    row = services.create_comparison(olga, {"sides": _sides("f16", "q4"), "prompt_set": "capitals"})
    services.save_prompt_set(olga, {"prompts": ["Italy?"]}, made)
    services.delete_prompt_set(olga, made)
    row.refresh_from_db()
    assert (row.title, [one["prompt"] for one in row.questions]) == ("capitals", ["France?", "Spain?"])


@pytest.mark.parametrize(
    ("text", "prompts"),
    [
        ("one\n\n two \r\n", ["one", "two"]),
        ("def f():\n  pass\n---\nsecond", ["def f():\n  pass", "second"]),
        (" \n---\n", []),
    ],
)
def test_typed_prompts(text: str, prompts: list[str]) -> None:
    assert prompt_sets.from_lines(text) == prompts


def test_a_prompt_set_is_code(db: None) -> None:
    text = (
        "apiVersion: inflight/v1\nkind: PromptSet\nmetadata: {name: capitals}\n"
        "spec: {description: Facts, prompts: [France, Spain]}\n"
    )
    assert [item.planned.action for item in specs.apply("cli", text, "f.yaml")] == ["create"]
    exported = specs.export("cli", ["PromptSet"])
    assert [item.planned.action for item in specs.apply("cli", exported, "f.yaml")] == ["unchanged"]
    with pytest.raises(InvalidInput, match="prompts"):
        specs.apply("cli", text.replace("France, Spain", "12"), "f.yaml")


def test_the_api_does_the_same(olga: User, two: Any) -> None:
    client = people.client_of(olga)
    made = ok(send(client, "POST", "/comparisons", {"sides": _sides("f16", "q4"), "prompts": ["x"]}), 201)
    row = Comparison.objects.get(pk=made["id"])
    turn = _answered(_part(row, 0), "Paris.", params={"max_tokens": 7})
    assert (
        ok(send(client, "GET", f"/comparisons/{row.pk}"))["questions"][0]["answers"][0]["answer"] == "Paris."
    )
    assert ok(send(client, "GET", "/comparisons"))["items"][0]["questions"] == 1
    refused(
        send(client, "POST", "/comparisons", {"sides": _sides("f16"), "prompts": ["x"]}),
        422,
        "number_of_sides",
        "sides",
    )
    link = ok(send(client, "POST", f"/comparisons/{row.pk}/share"))
    shown = ok(send(people.client_of(people.person("viewer")), "GET", f"/shared-links/{link['uid']}"))
    assert shown["shown"]["questions"] == ok(send(client, "GET", f"/comparisons/{row.pk}"))["questions"]
    ways = {way["id"]: way for way in ok(send(client, "GET", f"/turns/{turn.uid}/copy-as"))}
    assert '"max_tokens": 7' in ways["curl"]["text"]
    # Nothing listens there, so which inputs the model has is not known.
    assert (ways["tritonclient"]["text"], bool(ways["tritonclient"]["note"])) == ("", True)
    sets = ok(send(client, "POST", "/prompt-sets", {"name": "a", "prompts": ["x"]}), 201)
    assert ok(send(client, "PATCH", "/prompt-sets/a", {"description": "d"}))["prompts"] == sets["prompts"]
