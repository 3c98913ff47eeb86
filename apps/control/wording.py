"""The advisor's sentences in the language of whoever reads them."""

from __future__ import annotations

from dataclasses import replace

from django.utils.translation import gettext

from apps.control.domain.advice.message import Message
from apps.control.domain.advice.outcome import Advice, CannotSay, Fine
from apps.control.domain.advice.rulebook import Opinion


def said(text: str) -> str:
    """A message translated, its values too; other texts as they are."""
    if not isinstance(text, Message):
        return text
    template = gettext(text.template)
    return template % {name: said(value) for name, value in text.values.items()} if text.values else template


def translated(opinion: Opinion) -> Opinion:
    """An opinion whose every text is in the language that is active."""
    return replace(opinion, outcomes=tuple(_outcome(each) for each in opinion.outcomes))


def _outcome(each: Advice | CannotSay | Fine) -> Advice | CannotSay | Fine:
    title = said(each.title)
    if isinstance(each, Advice):
        evidence = tuple(replace(one, label=said(one.label)) for one in each.evidence)
        return replace(
            each, title=title, sentence=said(each.sentence), action=said(each.action), evidence=evidence
        )
    return (
        replace(each, title=title, why=said(each.why))
        if isinstance(each, CannotSay)
        else replace(each, title=title)
    )
