"""Typed look-ups in a model's configuration, whatever its writer put there.

Null counts as absent. A value of the wrong type or out of all bounds gives an error finding that names the field, and
counts as absent too. Each look-up takes the names that a fact has in the dialects, in their order of precedence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from apps.core.exceptions import Finding
from apps.registry.domain.regular_files import clean_text

# Above every public model by a wide margin; they keep arithmetic and loops over layers small.
MOST_LAYERS = 2_048
MOST_HEADS = 65_536
MOST_WIDTH = 2**22
MOST_TOKENS = 2**40
SHOWN = 60


class MissingField(Exception):
    """A fact needs a field that the configuration does not have. `names` are its spellings."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names[0])
        self.names = names


class Config:
    """One object of a configuration; `where` is its place in the file ("text_config.")."""

    def __init__(
        self, data: Mapping[str, Any], where: str = "", findings: list[Finding] | None = None
    ) -> None:
        self.data = data
        self.where = where
        self.findings = [] if findings is None else findings
        self._told: set[str] = set()

    def get(self, name: str) -> Any:
        """A value as it stands, or None; a dotted name looks into an object."""
        value: Any = self.data
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def has(self, *names: str) -> bool:
        """Whether one of the names has a value that is not null."""
        return any(self.get(name) is not None for name in names)

    def whole(self, *names: str, most: int = MOST_WIDTH, least: int = 1) -> int | None:
        """A whole number from `least` to `most`."""
        for name in names:
            value = self.get(name)
            if value is None:
                continue
            if isinstance(value, float) and math.isfinite(value) and value == int(value):
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int):
                self._refuse(name, value, "a whole number")
                return None
            if not least <= value <= most:
                self._refuse(name, value, f"a whole number from {least} to {most}")
                return None
            return value
        return None

    def need(self, *names: str, most: int = MOST_WIDTH, least: int = 1) -> int:
        """The same; raises MissingField where there is none."""
        value = self.whole(*names, most=most, least=least)
        if value is None:
            raise MissingField(names)
        return value

    def real(self, *names: str) -> float | None:
        """A finite number above 0."""
        for name in names:
            value = self.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not _positive(value):
                self._refuse(name, value, "a number above 0")
                return None
            return float(value)
        return None

    def flag(self, *names: str) -> bool | None:
        """True or false; 0 and 1 count."""
        for name in names:
            value = self.get(name)
            if value is None:
                continue
            if value in (0, 1) and isinstance(value, bool | int):
                return bool(value)
            self._refuse(name, value, "true or false")
            return None
        return None

    def text(self, *names: str) -> str | None:
        """A text of a sane length."""
        for name in names:
            value = self.get(name)
            if value is None:
                continue
            if isinstance(value, str):
                return clean_text(value[:200])
            self._refuse(name, value, "a text")
            return None
        return None

    def words(self, name: str) -> tuple[str, ...] | None:
        """A list of texts."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(clean_text(item[:200]) for item in value)
        self._refuse(name, value, "a list of texts")
        return None

    def wholes(self, name: str, most: int = MOST_WIDTH, least: int = 0) -> tuple[int, ...] | None:
        """A list of whole numbers."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, list) and all(
            isinstance(item, int) and not isinstance(item, bool) and least <= item <= most for item in value
        ):
            return tuple(value)
        self._refuse(name, value, f"a list of whole numbers from {least} to {most}")
        return None

    def within(self, name: str) -> Config | None:
        """An object inside this one; anything else than an object or null is an error."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, Mapping):
            return Config(value, f"{self.where}{name}.", self.findings)
        self._refuse(name, value, "an object")
        return None

    def say(self, finding_id: str, severity: Any, message: str, where: str = "", remedy: str = "") -> None:
        """Add a finding about a field of this object, once."""
        if (key := f"{finding_id} {where}") not in self._told:
            self._told.add(key)
            place = f"{self.where}{where}" if where else self.where.rstrip(".")
            self.findings.append(Finding(finding_id, severity, message, place, remedy))

    def _refuse(self, name: str, value: object, wanted: str) -> None:
        self.say(
            "config_field_invalid",
            "error",
            f"{self.where}{name} is {shown(value)}, not {wanted}.",
            name,
            f"Correct {self.where}{name} in config.json, or fetch the file again.",
        )


def shown(value: object) -> str:
    """A value from a file as a sentence may quote it."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, str):
        text = clean_text(value[: SHOWN + 1])
        return f'"{text[:SHOWN]}"' if len(text) <= SHOWN else f'"{text[:SHOWN]}…"'
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a number of more than 18 digits"
    return str(value)


def _positive(value: float) -> bool:
    try:
        return math.isfinite(value) and value > 0
    except OverflowError:
        return False
