"""The advisor in another language: every sentence, with the values that it names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from apps.control import wording
from apps.control.domain.advice import rulebook
from apps.control.domain.advice.message import Message, message
from apps.control.domain.advice.outcome import Advice, CannotSay
from apps.telemetry.domain.vocabulary import BY_NAME
from apps.telemetry.titles import TITLES
from tests.control.scenarios import figures, subject

RULES = sorted(Path(rulebook.__file__).parent.glob("*.py"))


@pytest.fixture
def backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A language that marks what it translated."""
    monkeypatch.setattr(wording, "gettext", lambda text: f"<{text}>")


def test_a_message_reads_as_english_and_translates_with_its_values(backwards: None) -> None:
    found = message("%(share)s full; %(more)s", share="95%", more=message("wait %(n)s s", n="3"))
    assert found == "95% full; wait 3 s"
    assert wording.said(found) == "<95% full; <wait 3 s>>"
    assert wording.said(message("above 95%")) == "<above 95%>"
    assert wording.said("as it is") == "as it is"


def test_all_that_the_advisor_says_is_translated(backwards: None) -> None:
    for told in (figures(), figures(requests_running=16.0, requests_waiting=5.0), figures(30)):
        for each in wording.translated(rulebook.opinion(subject(), told)).outcomes:
            texts = [each.title]
            if isinstance(each, Advice):
                texts += [each.sentence, each.action, *(one.label for one in each.evidence)]
            elif isinstance(each, CannotSay):
                texts.append(each.why)
            assert all(text.startswith("<") for text in texts), texts


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_message_ids_are_literals_that_extraction_finds(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_":
            first = node.args[0]
            assert isinstance(first, ast.Constant), ast.unparse(node)
            values = {str(one.arg): "x" for one in node.keywords}
            assert isinstance(message(str(first.value), **values), Message)


def test_titles_for_translators_are_the_vocabularys() -> None:
    assert {name: str(title) for name, title in TITLES.items()} == {
        name: key.title for name, key in BY_NAME.items()
    }
