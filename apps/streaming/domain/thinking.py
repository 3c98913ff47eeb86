"""What a reasoning model thinks before it answers, apart from its answer.

Models of the common families write it at the beginning, between marks of their own. Templates of some put the first
mark into the prompt, so an answer may begin inside; then the closing mark alone tells.
"""

from __future__ import annotations

from dataclasses import dataclass

# (opening, closing) as the models write them; static/js/playground/thinking.js has the same list.
MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
)


@dataclass(frozen=True, slots=True)
class Parts:
    """`thought` is null where the model did not think aloud; `open`: it has not finished thinking."""

    thought: str | None
    answer: str
    open: bool = False


def split(text: str) -> Parts:
    """The two parts of an answer, or of as much of it as there is. Marks in the middle of an answer are its text."""
    begin = text.lstrip()
    for opening, closing in MARKS:
        if begin.startswith(opening):
            inside = begin[len(opening) :]
            thought, found, answer = inside.partition(closing)
            return Parts(thought.strip(), answer.lstrip() if found else "", not found)
    for opening, closing in MARKS:
        thought, found, answer = text.partition(closing)
        # On a line of its own: an answer about these marks has them between other words.
        if found and opening not in thought and (not thought or thought.endswith("\n")):
            return Parts(thought.strip(), answer.lstrip())
    return Parts(None, text)
