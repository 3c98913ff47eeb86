"""One flag of a TensorRT-LLM program, and release numbers that can be compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# switch: present or not; onoff: enable|disable; the others take one value, words several.
Form = Literal["int", "float", "text", "path", "choice", "switch", "onoff", "words"]
Version = tuple[int, int, int]
# The release whose flags the tables describe from; older ones are not told apart.
OLDEST = "0.10"


@dataclass(frozen=True, slots=True)
class Flag:
    """`default` is the program's own. `since` is the first release that knows it, `until` the first that does not.

    `does` says in one sentence what it does and costs. `was` says what an older release's default was. `unverified`
    says which of these facts no source confirms. `low` and `high` bound a number.
    """

    name: str
    form: Form
    default: Any = None
    choices: tuple[str, ...] = ()
    since: str = OLDEST
    until: str = ""
    aliases: tuple[str, ...] = ()
    group: str = ""
    does: str = ""
    was: str = ""
    unverified: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def option(self) -> str:
        """As it stands on a command line."""
        return f"--{self.name}"

    def known_in(self, version: Version) -> bool:
        """Whether a release has it."""
        return parse_version(self.since) <= version and not (
            self.until and version >= parse_version(self.until)
        )

    def problem(self, value: Any) -> str:
        """Why a value does not fit; empty where it does."""
        return _PROBLEMS[self.form](self, value)

    def is_default(self, value: Any) -> bool:
        """Whether leaving the flag out says the same, in every release."""
        if self.was:
            return False
        return bool(value is None or value == self.default or value in ("", [], ()))

    def words(self, value: Any) -> list[str]:
        """The words of a command line that set it; none for a switch that is off."""
        if self.form == "switch":
            return [self.option] if value else []
        if self.form == "onoff" and isinstance(value, bool):
            return [self.option, "enable" if value else "disable"]
        values = value if self.form == "words" and isinstance(value, list | tuple) else [value]
        return [self.option, *(str(item) for item in values)]


def normalised(table: Mapping[str, Flag], values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings in the one way they are kept: full names, `enable` for true, defaults left out.

    Names that are no flags, and values of the wrong kind, stay as they are for the rules to name.
    """
    found: dict[str, Any] = {}
    for written, value in values.items():
        flag = table.get(str(written).lstrip("-").replace("-", "_"))
        if flag is None:
            found[str(written)] = value
            continue
        if flag.form == "onoff" and isinstance(value, bool):
            value = "enable" if value else "disable"
        if flag.form == "words" and isinstance(value, str):
            value = value.split()
        if flag.form == "float" and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not flag.is_default(value):
            found[flag.name] = list(value) if isinstance(value, tuple) else value
    order = {flag.name: index for index, flag in enumerate(table.values())}
    return dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))


def parse_version(text: str) -> Version:
    """`1.2.1`, `0.17`, `1.3.0rc14`: three numbers. Raises ValueError."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no release number")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def _bounds(flag: Flag, value: float) -> str:
    if flag.low is not None and value < flag.low:
        return f"at least {flag.low:g} is expected"
    if flag.high is not None and value > flag.high:
        return f"at most {flag.high:g} is expected"
    return ""


def _int(flag: Flag, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "a whole number is expected"
    return _bounds(flag, value)


def _float(flag: Flag, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "a number is expected"
    return _bounds(flag, value) if value == value else "a number is expected"


def _text(flag: Flag, value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value or "\n" in value:
        return "one line of text is expected"
    return "" if not value.startswith("-") else "a value that begins with a dash would be read as a flag"


def _choice(flag: Flag, value: Any) -> str:
    return "" if value in flag.choices else f"one of {', '.join(map(str, flag.choices))} is expected"


def _switch(flag: Flag, value: Any) -> str:
    return "" if isinstance(value, bool) else "true or false is expected"


def _onoff(flag: Flag, value: Any) -> str:
    return (
        "" if isinstance(value, bool) or value in ("enable", "disable") else "enable or disable is expected"
    )


def _many(flag: Flag, value: Any) -> str:
    if not isinstance(value, list | tuple) or not value:
        return "a list is expected"
    wrong = next((item for item in value if flag.choices and item not in flag.choices), None)
    if wrong is not None:
        return f"{wrong} is none of {', '.join(flag.choices)}"
    return next((said for item in value if (said := _text(flag, item))), "")


_PROBLEMS = {
    "int": _int,
    "float": _float,
    "text": _text,
    "path": _text,
    "choice": _choice,
    "switch": _switch,
    "onoff": _onoff,
    "words": _many,
}
