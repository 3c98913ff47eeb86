"""Sentences of the advisor as translatable messages: an English format string and its values, in plain Python.

A Message is its English text, so rules and tests read it as such; `apps/control/wording.py` says it in the reader's
language. The function is imported as `_`, which gettext's extraction looks for.
"""

from __future__ import annotations

from collections.abc import Mapping


class Message(str):
    """An English sentence that knows how it was made: of `template` with `%(name)s` and `values`."""

    __slots__ = ("template", "values")

    template: str
    values: Mapping[str, str]


def message(template: str, **values: str) -> Message:
    """A sentence of a format string and values, which are texts or messages."""
    made = Message(template % values if values else template)
    made.template, made.values = template, values
    return made
