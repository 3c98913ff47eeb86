"""Rows of quality as workers would have left them: results of domain.quality from synthetic windows and answers."""

from __future__ import annotations

from typing import Any

from apps.core import clock
from apps.engines.models import BuildProfile, Engine
from apps.loadtests.domain.quality import Answered, TextWindow, summary
from apps.loadtests.models import QualityGate, QualityRun
from apps.serving.models import Deployment


def windows(loss: float = 0.02, count: int = 8) -> list[TextWindow]:
    """Windows of 96 tokens whose build loses `loss` nats a token, a little more in every second one."""
    found = []
    for index in range(count):
        more = loss * (1.1 if index % 2 else 0.9)
        source = 96 * (3.0 + 0.1 * index)
        found.append(
            TextWindow(index, 96, source, source + 96 * more, 96 * more, 4 * more, 94, f"Passage {index}.")
        )
    return found


def answers(different: int = 2, count: int = 8, faster: float = 1.5) -> list[Answered]:
    """Answers of which the first `different` part after their third word."""
    found = []
    for index in range(count):
        same = index >= different
        source = f"The answer to question {index} is plain."
        build = source if same else f"The answer to <b>something</b> {index} is not."
        found.append(
            Answered(
                f"q{index}",
                f"Question {index}?",
                source,
                build,
                *(7, 7, True) if same else (3, 7, False),
                source_tokens=7,
                build_tokens=7,
                source_seconds=0.3 + 0.01 * index,
                build_seconds=(0.3 + 0.012 * index) / faster,
            )
        )
    return found


def run(number: int, engine: Engine | None, loss: float = 0.02, **columns: Any) -> QualityRun:
    """A run that has ended."""
    values = {
        "state": "succeeded",
        "method": "logits",
        "engine": engine,
        "title": "tiny F16 / tiny",
        "settings": {"windows": 8, "answer_tokens": 7},
        "result": summary(windows(loss), answers()),
        "progress": 1.0,
        "finished_at": clock.now(),
        **columns,
    }
    return QualityRun.objects.create(number=number, **values)


def gate(profile: BuildProfile, **bounds: Any) -> QualityGate:
    """A gate; without bounds a perplexity ratio of at most 1.05."""
    return QualityGate.objects.create(
        name="close", build_profile=profile, **(bounds or {"max_perplexity_ratio": 1.05})
    )


def everything(deployment: Deployment) -> None:
    """A gate with a result that it lets pass, and a run that goes on."""
    profile = deployment.build_profile
    assert profile is not None
    gate(profile)
    engine = Engine.objects.filter(checkpoint=profile.checkpoint).first()
    run(1, engine)
    run(2, engine, state="running", result=None, progress=0.4, eta_seconds=9.0, finished_at=None)
