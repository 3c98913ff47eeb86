"""Services, selectors and the prompt of a turn; no socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.chat import consumers, params, selectors, serialize, services, sources, states, targets
from apps.chat.models import Conversation, Turn
from apps.core.exceptions import InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.core.models import AuditEntry
from apps.realtime.schema import Ask
from apps.serving.models import Deployment, Instance
from apps.streaming import capabilities
from apps.streaming.token_source import GenerationRequest, SamplingParams
from apps.streaming.triton_messages import fitted

MOST_STATEMENTS = 10


def answered(conversation: Conversation, prompt: str, answer: str, state: str = states.DONE) -> Turn:
    """A turn that has ended."""
    turn = services.ask(conversation.owner, conversation, prompt)
    Turn.objects.filter(pk=turn.pk).update(state=state, answer=answer)
    return turn


def test_a_conversation_belongs_to_its_maker(
    person: Callable[..., User], olga: User, conversation: Conversation
) -> None:
    otto, anna = person("otto", "operator"), person("anna", "administrator")
    assert list(selectors.conversations(olga)) == [conversation]
    assert list(selectors.conversations(otto)) == []
    with pytest.raises(NotFound):
        selectors.conversation(otto, conversation.pk)
    assert selectors.conversation(anna, conversation.pk) == conversation
    turn = services.ask(olga, conversation, "x")
    with pytest.raises(NotFound):
        selectors.turn(otto, turn.uid)
    for act in (
        lambda: services.ask(anna, conversation, "x"),
        lambda: services.regenerate(anna, turn),
        lambda: services.rename_conversation(otto, conversation, "mine"),
        lambda: services.delete_conversation(otto, conversation),
        lambda: services.stop_turn(otto, turn),
    ):
        with pytest.raises(NotAllowed) as refusal:
            act()
        assert refusal.value.remedy


def test_chatting_needs_the_role(person: Callable[..., User], deployment: Deployment) -> None:
    with pytest.raises(NotAllowed):
        services.create_conversation(person("vera", "viewer"), deployment)
    services.create_conversation(person("otto", "operator"), deployment)


def test_what_is_done_leaves_a_trace(olga: User, deployment: Deployment) -> None:
    conversation = services.create_conversation(olga, deployment, title="  Two \n words ")
    assert conversation.title == "Two words"
    services.rename_conversation(olga, conversation, "Other")
    services.delete_conversation(olga, conversation)
    verbs = list(AuditEntry.objects.order_by("id").values_list("verb", flat=True))
    assert verbs == ["conversation.created", "conversation.renamed", "conversation.deleted"]
    assert not Conversation.objects.exists()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**6}, "max_tokens"),
        ({"temperature": 5.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**53}, "seed"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"stop_words": [""]}, "stop_words.0"),
        ({"stop_words": "END"}, "stop_words"),
        ({"bad_words": ["x"] * 17}, "bad_words"),
        ({"beam_width": 2}, "beam_width"),
        ({"priority": "urgent"}, "priority"),
    ],
)
def test_parameters_out_of_range_are_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        params.validate(given)
    assert refusal.value.field == field
    assert refusal.value.remedy


def test_every_fault_is_listed_not_only_the_first() -> None:
    with pytest.raises(InvalidInput) as refusal:
        params.validate({"top_p": 2, "temperature": -1})
    assert {finding.where for finding in refusal.value.findings} == {"top_p", "temperature"}


def test_parameters_reach_the_engine_under_its_names(olga: User, conversation: Conversation) -> None:
    given = {"max_tokens": 9, "temperature": 0.5, "seed": 4, "stop_words": ["END"], "bad_words": ["no"]}
    turn = services.ask(olga, conversation, "x", params=given)
    assert turn.params == given
    assert sources.sampling_params(turn) == SamplingParams(
        max_tokens=9, temperature=0.5, seed=4, stop=("END",), bad_words=("no",)
    )
    assert sources.sampling_params(Turn(params={"priority": "high"})) == SamplingParams()
    # The conversation goes on with them; without any the engine is greedy.
    Turn.objects.update(state=states.DONE)
    assert services.ask(olga, conversation, "y").params == given
    Turn.objects.update(state=states.DONE)
    plain = services.ask(olga, conversation, "z", params={})
    assert plain.params == {"max_tokens": 512}
    assert not sources.sampling_params(plain).samples


def test_the_prompt_is_the_history_by_the_checkpoints_template(
    olga: User, conversation: Conversation
) -> None:
    conversation.system_prompt = "Be short."
    conversation.save()
    first = answered(conversation, "Capital?", "Lyon")
    again = services.regenerate(olga, first)
    Turn.objects.filter(pk=again.pk).update(state=states.STOPPED, answer="Paris")
    answered(conversation, "Failed?", "half", states.FAILED)
    answered(conversation, "Nothing?", "", states.STOPPED)
    turn = services.ask(olga, conversation, "And Italy?")
    turn = Turn.objects.select_related("conversation__deployment").get(pk=turn.pk)
    assert sources.prompt_of(turn) == (
        "<|im_start|>system\nBe short.<|im_end|>\n"
        "<|im_start|>user\nCapital?<|im_end|>\n<|im_start|>assistant\nParis<|im_end|>\n"
        "<|im_start|>user\nAnd Italy?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_regenerating_an_early_turn_uses_only_what_came_before(
    olga: User, conversation: Conversation
) -> None:
    first = answered(conversation, "One?", "1")
    answered(conversation, "Two?", "2")
    again = services.regenerate(olga, first)
    assert [message["content"] for message in selectors.history(again)] == ["One?"]
    conversation.refresh_from_db()
    assert selectors.turns(conversation) == [again]
    told = serialize.turn_dict(again)
    assert (told["replaces"], told["siblings"], told["parent"]) == (first.uid, [first.uid, again.uid], None)


def test_a_question_in_other_words_begins_a_branch_and_loses_nothing(
    olga: User, conversation: Conversation
) -> None:
    first = answered(conversation, "One?", "1")
    second = answered(conversation, "Two?", "2")
    third = answered(conversation, "Three?", "3")
    edited = services.edit(olga, second, "Zwei?")
    Turn.objects.filter(pk=edited.pk).update(state=states.DONE, answer="zwei")
    assert [message["content"] for message in selectors.history(edited)] == ["One?", "1", "Zwei?"]
    conversation.refresh_from_db()
    assert selectors.turns(conversation) == [first, edited]
    assert edited.position == second.position
    # The other branch is whole: shown to its newest end, or up to a turn from which one goes on.
    shown = services.show_branch(olga, second)
    assert [one.turn for one in selectors.branch(shown)] == [first, second, third]
    assert selectors.branch(shown)[1].siblings == [second.uid, edited.uid]
    services.show_branch(olga, second, here=True)
    conversation.refresh_from_db()
    assert selectors.turns(conversation) == [first, second]
    fourth = services.ask(olga, conversation, "Four?")
    assert (fourth.parent, selectors.newest_end(second)) == (second, fourth)
    Turn.objects.filter(pk=fourth.pk).update(state=states.DONE)
    assert services.ask(olga, conversation, "Anew?", after=None).parent is None


def test_somebody_elses_branches_are_not_changed(
    person: Callable[..., User], conversation: Conversation
) -> None:
    first = answered(conversation, "One?", "1")
    otto = person("otto", "operator")
    for change in (lambda: services.edit(otto, first, "x"), lambda: services.show_branch(otto, first)):
        with pytest.raises(NotAllowed):
            change()


def test_parameters_that_the_engine_has_nothing_for_are_refused(
    olga: User, conversation: Conversation
) -> None:
    profile = conversation.deployment.build_profile
    assert profile is not None
    profile.builder, profile.recipe = "trtllm", "checkpoint"
    profile.save()
    for name, value in (("bad_words", ["no"]), ("min_tokens", 3), ("logprobs", 2)):
        with pytest.raises(InvalidInput) as refusal:
            services.ask(olga, conversation, "x", params={name: value})
        assert (refusal.value.code, refusal.value.field) == ("unsupported_parameter", name)
    given = {"max_tokens": 4, "temperature": 0.5, "stop_words": ["END"], "priority": "high"}
    assert services.ask(olga, conversation, "x", params=given).params == given


def test_thoughts_are_not_told_to_the_engine_again(olga: User, conversation: Conversation) -> None:
    answered(conversation, "One?", "<think>\nhm\n</think>\n\n1")
    turn = services.ask(olga, conversation, "Two?")
    assert [message["content"] for message in selectors.history(turn)] == ["One?", "1", "Two?"]


def test_a_checkpoint_without_a_template_says_so(olga: User, conversation: Conversation) -> None:
    checkpoint = conversation.deployment.build_profile.checkpoint
    checkpoint.chat_template = ""
    checkpoint.save()
    turn = services.ask(olga, conversation, "x")
    turn = Turn.objects.select_related("conversation__deployment").get(pk=turn.pk)
    with pytest.raises(InvalidInput) as refusal:
        sources.prepare(turn)
    assert refusal.value.code == "template_missing"


def test_requests_go_to_the_servers_in_turn(olga: User, conversation: Conversation) -> None:
    here = conversation.deployment.instances.get()
    Instance.objects.create(
        deployment=here.deployment,
        revision=here.revision,
        replica=1,
        uid="i-second",
        state="serving",
        http_port=4,
        grpc_port=5,
        metrics_port=6,
    )
    turn = services.ask(olga, conversation, "x")
    turn = Turn.objects.select_related("conversation__deployment").get(pk=turn.pk)
    chosen = {sources.prepare(turn).instance_uid for _number in range(4)}
    assert chosen == {"i-demo", "i-second"}
    assert sources.prepare(turn).revision_number == 3


def test_a_question_takes_few_statements(olga: User, conversation: Conversation) -> None:
    """64 chats begin within a second of one process: what one costs holds up the others' tokens."""
    asked = Ask(prompt="And then?", params={"max_tokens": 5})
    turn = services.ask(olga, conversation, "x")
    Turn.objects.filter(pk=turn.pk).update(state=states.DONE, answer="y")
    with CaptureQueriesContext(connection) as made:
        turn = consumers._make_turn(olga, conversation.pk, asked)
        shown = serialize.turn_dict(turn)
        answering = sources.prepare(turn)
    assert len(made) <= MOST_STATEMENTS, [query["sql"] for query in made.captured_queries]
    assert shown["siblings"] == [turn.uid]
    assert answering.request.prompt.count("<|im_start|>") == 4
    # The same as from a row that is read anew.
    again = Turn.objects.select_related("conversation__deployment").get(pk=turn.pk)
    assert sources.prepare(again).request == answering.request
    assert serialize.turn_dict(again) == shown


def test_two_running_turns_are_refused_by_the_database(olga: User, conversation: Conversation) -> None:
    services.ask(olga, conversation, "x")
    with pytest.raises(NotPossibleNow) as refusal:
        services.ask(olga, conversation, "y")
    assert refusal.value.code == "turn_running"
    assert Turn.objects.count() == 1


def test_texts_are_bounded_and_free_of_nul(olga: User, conversation: Conversation) -> None:
    with pytest.raises(InvalidInput) as refusal:
        services.ask(olga, conversation, "x" * 200_001)
    assert refusal.value.field == "prompt"
    with pytest.raises(InvalidInput) as refusal:
        services.rename_conversation(olga, conversation, "x" * 201)
    assert refusal.value.field == "title"
    assert services.ask(olga, conversation, "a\x00b").prompt == "ab"
    conversation.refresh_from_db()
    assert conversation.title == "ab"


def test_dictionaries_are_json_ready(olga: User, conversation: Conversation) -> None:
    import json

    turn = services.ask(olga, conversation, "Capital?")
    found = json.loads(json.dumps(serialize.turn_dict(turn)))
    assert found["started_at"] > 1_700_000_000
    assert found["first_token_at"] is None
    assert found["tone"] == "busy"
    shown = json.loads(json.dumps(serialize.conversation_dict(conversation)))
    assert (shown["deployment"], shown["owner"]) == ("demo", "olga")


@pytest.mark.parametrize("running", [0, sources.MOST_BY_GRPC + 1])
def test_a_model_that_sends_the_whole_text_so_far_is_read_so(
    olga: User, conversation: Conversation, monkeypatch: pytest.MonkeyPatch, running: int
) -> None:
    known = capabilities.of(targets.own(conversation))
    told = replace(known, kind="trtllm", accumulated=True)
    monkeypatch.setattr(capabilities, "of", lambda deployment: told)
    monkeypatch.setattr(sources, "_running", running)
    turn = services.ask(olga, conversation, "Hi")
    source: Any = sources.prepare(turn).source
    interface = capabilities.interface_of("trtllm")
    _request, rules = fitted(GenerationRequest("Hi"), interface, source._accumulated)
    assert rules is not None
    assert rules.accumulated
