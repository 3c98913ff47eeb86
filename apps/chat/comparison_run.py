"""Asks what a comparison has not answered yet, from this process: the command line's way. The page does it itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User

from apps.chat import comparisons, follow, selectors, services, states, turn_runner
from apps.chat.compared_models import Comparison, ComparisonPart
from apps.chat.models import Turn
from apps.realtime import pool

Told = Callable[[int, int, dict[str, Any]], None]


async def run(actor: User, comparison: Comparison, told: Told | None = None) -> int:
    """Ask every question that a side has not answered, in the comparison's mode; returns how many were asked.

    `told(question, side, turn)` hears of each ended answer. Raises what services.ask raises.
    """
    asked = 0
    for question in range(len(comparison.questions)):
        missing = await pool.run(_missing, comparison, question)
        work = [_ask(actor, part, again, comparison, question, told) for part, again in missing]
        if comparison.mode == Comparison.Mode.TOGETHER:
            await asyncio.gather(*work)
        else:
            for one in work:
                await one
        asked += len(missing)
    return asked


async def _ask(
    actor: User,
    part: ComparisonPart,
    again: Turn | None,
    comparison: Comparison,
    question: int,
    told: Told | None,
) -> None:
    def make() -> Turn:
        if again is not None:
            return services.regenerate(actor, again)
        # Read anew: an earlier answer took its time, and another revision may serve by now.
        conversation = selectors.conversation_to_ask(actor, part.conversation_id)
        return services.ask(actor, conversation, comparison.questions[question]["prompt"])

    begun = await turn_runner.begin(make)
    ended = await follow.whole(begun.turn)
    if told is not None:
        told(question, part.side, ended)


def _missing(comparison: Comparison, question: int) -> list[tuple[ComparisonPart, Turn | None]]:
    """Parts without a whole answer to a question, each with the turn that is asked anew, if there is one."""
    found = comparisons.answers(comparison)[question]
    parts = ComparisonPart.objects.filter(
        comparison=comparison, question=0 if comparison.chained else question
    ).select_related("conversation__owner", "conversation__deployment")
    missing: list[tuple[ComparisonPart, Turn | None]] = []
    for part in parts:
        answer = found[part.side]
        if answer is not None and answer["state"] == states.DONE:
            continue
        again = (
            Turn.objects.filter(uid=answer["uid"]).select_related("conversation__owner", "parent").first()
            if answer
            else None
        )
        missing.append((part, again))
    return missing
