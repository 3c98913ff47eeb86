"""Quality of builds: figures with intervals, what a gate says, who may do what, what keeps a deployment back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.roles import ADMINISTRATOR, OPERATOR, VIEWER
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.core.models import AuditEntry
from apps.engines import states as engine_states
from apps.engines.models import Engine
from apps.loadtests import attempts, dispatch, quality_gate, services
from apps.loadtests.domain.quality import (
    Answered,
    TextWindow,
    Thresholds,
    UnreadableRows,
    judge,
    read_rows,
    summary,
)
from apps.loadtests.domain.quality_words import table
from apps.loadtests.models import QualityRun
from apps.serving import rollouts
from apps.serving import services as serving
from apps.specs import services as specs
from tests import objects, people
from tests.loadtests import quality_rows
from tests.loadtests.test_services import serving_deployment
from workers.quality import answers as asking
from workers.quality.rows import Rows


def test_figures_come_with_intervals_over_windows_and_answers() -> None:
    told = summary(quality_rows.windows(0.02), quality_rows.answers())
    figures = told["figures"]
    assert figures["perplexity_ratio"]["value"] == pytest.approx(math.exp(0.02))
    assert figures["perplexity_ratio"]["low"] < math.exp(0.02) < figures["perplexity_ratio"]["high"]
    # Eight windows that lie 0.002 above and below: t with 7 degrees of freedom.
    reach = 2.3646 * math.sqrt(8 * 0.002**2 / 7) / math.sqrt(8)
    assert figures["divergence"]["high"] - 0.02 == pytest.approx(reach, rel=1e-3)
    assert figures["top1"]["value"] == pytest.approx(94 / 96)
    # Wilson's interval of 6 of 8.
    assert (figures["agreement"]["low"], figures["agreement"]["high"]) == (
        pytest.approx(0.4093, abs=1e-3),
        pytest.approx(0.9285, abs=1e-3),
    )
    assert 1.3 < figures["speed_ratio"]["low"] < figures["speed_ratio"]["high"] < 1.6
    assert [row["share"] for row in told["answers"]][:3] == [pytest.approx(3 / 7)] * 2 + [1.0]
    assert "| 1.020 (1.018 to 1.022) | 0.0200 (0.0182 to 0.0218) |" in table([("Q8_0", told)])[2]


def test_what_nobody_measured_is_null() -> None:
    bare = [Answered("a", "A?", "yes", "no", 0, 3, False)]
    told = summary([], bare)
    assert told["figures"]["perplexity_ratio"] is None
    assert told["figures"]["speed_ratio"] is None
    assert told["source_perplexity"] is None
    assert told["figures"]["agreed_part"] == {"value": 0.0, "low": None, "high": None, "repeats": 1}
    assert summary([], [])["figures"]["agreement"] is None


@pytest.mark.parametrize(
    ("loss", "bounds", "failing"),
    [
        (0.02, {"max_perplexity_ratio": 1.05}, []),
        # The figure keeps it, its interval does not.
        (0.02, {"max_perplexity_ratio": 1.021}, ["its interval does not"]),
        (0.10, {"max_perplexity_ratio": 1.05}, ["at most 1.05 is asked"]),
        (0.02, {"max_divergence": 0.01, "min_top1": 0.99}, ["KL divergence", "Top-1 agreement"]),
        (0.02, {"min_agreement": 0.4}, []),
        (0.02, {"min_agreement": 0.5}, ["Greedy agreement is 0.75 (0.409 to 0.929)"]),
        (0.02, {}, []),
    ],
)
def test_a_gate_asks_for_the_whole_interval(
    loss: float, bounds: dict[str, float], failing: list[str]
) -> None:
    told = summary(quality_rows.windows(loss), quality_rows.answers())
    found = [each.sentence for each in judge(told, Thresholds(**bounds))]
    assert len(found) == len(failing)
    for sentence, words in zip(found, failing, strict=True):
        assert words in sentence


def test_a_gate_without_a_result_is_not_passed() -> None:
    found = judge(None, Thresholds(max_divergence=0.1))
    assert (found[0].measured, found[0].sentence) == (
        None,
        "KL divergence (nats a token) was not measured; at most 0.1 is asked.",
    )


WINDOW: dict[str, Any] = {
    "index": 0,
    "tokens": 96,
    "source_nll": 1.0,
    "build_nll": 1.0,
    "divergence": 0.0,
    "most": 0.0,
    "same": 96,
}


@pytest.mark.parametrize(
    "broken",
    [
        {**WINDOW, "tokens": 0},
        {**WINDOW, "same": 97},
        {**WINDOW, "divergence": float("nan")},
        {**WINDOW, "unknown": 1},
        {key: value for key, value in WINDOW.items() if key != "most"},
        [],
    ],
)
def test_rows_that_cannot_be_are_refused_with_their_line(broken: Any) -> None:
    text = json.dumps({"key": "x"}) + "\n" + json.dumps({"window": broken}) + "\n"
    with pytest.raises(UnreadableRows, match="Line 2 is no row"):
        read_rows(text)
    with pytest.raises(UnreadableRows, match="Line 1 is no JSON"):
        read_rows("{\n{}\n")


def test_rows_are_used_again_where_they_are_for_the_same(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "rows.jsonl"
    first = Rows(path, "one", 2.0)
    first.window(TextWindow(**WINDOW))
    first.close()
    # As a process that was killed leaves it.
    path.write_text(path.read_text() + '{"window": {"ind', encoding="utf-8")
    again = Rows(path, "one", 2.0)
    assert again.windows == {0}
    again.window(TextWindow(**{**WINDOW, "index": 1}))
    again.close()
    assert [window.index for window in read_rows(path.read_text())[0]] == [0, 1]
    other = Rows(path, "other", 2.0)
    assert other.windows == set()
    other.advance(1.0)
    other.close()
    assert '"done": 1.0, "total": 2.0' in capsys.readouterr().out


async def test_answers_of_two_deployments_are_compared_by_their_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Double:
        def __init__(self, addresses: list[Any], *_: Any, **__: Any) -> None:
            self.words = "Paris is large." if addresses[0].port == 1 else "Paris is lovely."

        async def ask(self, prompt: str, history: Any, tokens: int, answer: Any) -> None:
            assert (prompt, tokens) == ("<A?>", 8)
            answer.text += [self.words]
            for at in (1.0, 1.5, 2.0):
                answer.arrived(at, 1)

        async def close(self) -> None: ...

    monkeypatch.setattr(asking, "TritonHttpAsker", Double)
    one, other = (asking.Address("127.0.0.1", port, "m") for port in (1, 2))
    plan = asking.Plan([one], [other], [["a", "A?", "<A?>", "<A?>"]], 8, "x")
    path = plan.write(tmp_path)
    assert asking.read(path) == plan
    await asking.compare(plan, tmp_path)
    found = read_rows((tmp_path / "rows.jsonl").read_text())[1]
    assert (found[0].common, found[0].length, found[0].same) == (10, 16, False)
    assert (found[0].source_tokens, found[0].source_seconds) == (3, 1.0)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kinds of the runs whose worker was woken."""
    found: list[str] = []
    monkeypatch.setattr(dispatch, "_publish", lambda row: found.append(row.kind))
    return found


def built(name: str = "f16") -> Engine:
    """A ready engine that a build of a profile made."""
    profile = objects.build_profile(name)
    engine = objects.engine(profile)
    objects.build(profile, engine_states.SUCCEEDED, engine=engine)
    return engine


@pytest.mark.django_db
def test_a_run_is_queued_cancelled_repeated_and_deleted(
    sent: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    engine, actor = built(), people.person(OPERATOR)
    with django_capture_on_commit_callbacks(execute=True):
        row = services.start_quality_run(actor, engine)
    assert (row.state, row.title, sent) == ("queued", "tiny F16 / tiny", ["qualityrun"])
    assert services.cancel_quality_run(actor, row).state == "cancelled"
    again = services.repeat_quality_run(actor, row)
    claim = attempts.claim_run(again.pk, "load", "n1", QualityRun)
    assert claim is not None
    assert attempts.record_run(claim.run, claim.attempt, progress=0.5, folder="/nowhere")
    assert services.cancel_quality_run(actor, again).cancel_requested_at is not None
    assert attempts.stop_requested(claim.run)
    with pytest.raises(NotPossibleNow, match="is running"):
        services.delete_quality_run(actor, again)
    assert attempts.cancel_run(claim.run, claim.attempt, "Cancelled.", "load")
    again.refresh_from_db()
    # The next try goes on in its folder.
    assert services.repeat_quality_run(actor, again).folder == "/nowhere"
    services.delete_quality_run(actor, again)
    with pytest.raises(NotAllowed):
        services.start_quality_run(people.person(VIEWER), engine)


@pytest.mark.django_db
def test_what_cannot_be_compared_says_why(sent: list[str]) -> None:
    engine = built()
    with pytest.raises(InvalidInput, match="windows must be from 1"):
        services.start_quality_run("cli", engine, windows=0)
    Engine.objects.filter(pk=engine.pk).update(builder="trtllm")
    engine.refresh_from_db()
    with pytest.raises(InvalidInput, match="log-probabilities are not known") as refused:
        services.start_quality_run("cli", engine)
    assert "greedy answers" in refused.value.remedy
    row = serving_deployment()
    with pytest.raises(InvalidInput, match="with itself"):
        services.start_answer_run("cli", row, row)
    idle = objects.deployment("idle")
    with pytest.raises(NotPossibleNow, match="No instance of idle"):
        services.start_answer_run("cli", row, idle)


@pytest.mark.django_db
def test_a_gate_keeps_a_build_from_being_deployed_until_it_is_measured_or_waived(sent: list[str]) -> None:
    engine = built()
    profile = engine.builds.get().profile
    assert profile is not None
    deployment = objects.deployment(build_profile=profile)
    data = {"name": "close", "build_profile": "f16", "max_perplexity_ratio": 1.05}
    operator, administrator = people.person(OPERATOR), people.person(ADMINISTRATOR)
    gate = services.save_quality_gate(operator, data)
    with pytest.raises(NotPossibleNow, match="was not measured") as refused:
        serving.deploy("cli", deployment)
    assert "manage.py quality start" in refused.value.remedy
    quality_rows.run(1, engine, loss=0.2)
    with pytest.raises(NotPossibleNow, match="at most 1\\.05 is asked"):
        serving.deploy("cli", deployment)
    assert deployment.revisions.count() == 0
    # One that waited for its build is told the same; it fails rather than serve.
    build = engine.builds.get()
    type(deployment).objects.filter(pk=deployment.pk).update(state="waiting", waiting_build=build)
    deployment.refresh_from_db()
    assert serving.start_waiting("sweep", deployment, engine)
    deployment.refresh_from_db()
    assert (deployment.state, deployment.reason) == ("failed", "quality_gate")
    with pytest.raises(NotAllowed):
        services.waive_quality_gate(operator, engine, "demo only")
    with pytest.raises(InvalidInput, match="needs a reason"):
        services.waive_quality_gate(administrator, engine, " ")
    services.waive_quality_gate("cli", engine, "demo only")
    assert AuditEntry.objects.get(verb="engine.quality_waived").sentence == "demo only"
    assert quality_gate.verdict_of(engine).word == "waived"
    services.end_quality_waiver("cli", engine)
    assert quality_gate.verdict_of(engine).blocks
    services.save_quality_gate("cli", {"blocking": False}, gate)
    assert serving.deploy("cli", deployment).state == "starting"
    with pytest.raises(InvalidInput, match="asks for nothing"):
        services.save_quality_gate("cli", {"max_perplexity_ratio": None}, gate)


@pytest.mark.django_db
def test_a_canary_is_not_promoted_past_its_gate_but_what_serves_stays_free(sent: list[str]) -> None:
    row = serving_deployment()
    active = row.active_revision
    assert active is not None
    assert active.engine is not None
    assert row.build_profile is not None
    quality_rows.gate(row.build_profile)
    # The engine that serves already may be scaled and started again.
    serving.deploy("cli", row)
    other = Engine.objects.get(pk=active.engine.pk)
    other.pk, other.fingerprint = None, "b" * 64
    other.save()
    assert row.revisions.filter(state="pending").update(engine=other) == 1
    with pytest.raises(NotPossibleNow, match="Quality gate close"):
        rollouts.promote_rollout("canary", row)
    quality_rows.run(1, other)
    assert rollouts.promote_rollout("cli", row) == row


@pytest.mark.django_db
def test_a_document_makes_a_gate_and_comes_back_the_same() -> None:
    objects.build_profile()
    text = (
        "apiVersion: inflight/v1\nkind: QualityGate\nmetadata: {name: close}\n"
        "spec: {build: f16, maxPerplexityRatio: 1.05, minTop1: 0.95}\n"
    )
    specs.apply("cli", text, "x")
    exported = specs.export("cli", ["QualityGate"])
    assert "maxPerplexityRatio: 1.05" in exported
    assert specs.plan("cli", exported, "x").is_empty
    with pytest.raises(InvalidInput, match="none"):
        specs.plan("cli", text.replace("build: f16", "build: none"), "x")
    with pytest.raises(InvalidInput, match="maxPerplexityRatio"):
        specs.plan("cli", text.replace("1.05", "0.5"), "x")
