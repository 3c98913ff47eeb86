"""The one exception of the launcher: what is wrong, and what the reader can do about it."""

from __future__ import annotations


class Problem(Exception):
    """A refusal that a person can act on. `what` and `remedy` are whole sentences."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} {remedy}")
        self.what = what
        self.remedy = remedy
