"""What a batching profile sets for each class of requests in Triton's queue; the classes are `priority_reach`'s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.core.exceptions import InvalidInput
from apps.serving.domain.priority_reach import LEVELS

DEFAULT_LEVEL = LEVELS["normal"]

_BOUNDS = {"max_queue_size": 100_000, "queue_timeout_microseconds": 600_000_000}


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Settings of one class, high, normal or low. Null: the profile's own value holds for it, too."""

    name: str
    max_queue_size: int | None = None
    queue_timeout_microseconds: int | None = None

    @property
    def level(self) -> int:
        """Its number in Triton, 1 the most urgent."""
        return LEVELS[self.name]

    def as_dict(self) -> dict[str, Any]:
        """JSON form, without what is null."""
        found: dict[str, Any] = {"name": self.name}
        for key in _BOUNDS:
            if getattr(self, key) is not None:
                found[key] = getattr(self, key)
        return found


def classes(values: Any, field: str = "priority_classes") -> tuple[PriorityClass, ...]:
    """Typed classes of their JSON form. Raises InvalidInput naming the field."""
    if not isinstance(values, list | tuple) or len(values) > len(LEVELS):
        raise _refused(field, f"{values!r} is no list of at most {len(LEVELS)} classes")
    found = [_class(value, f"{field}.{index}") for index, value in enumerate(values)]
    names = [item.name for item in found]
    for name in names:
        if names.count(name) > 1:
            raise _refused(field, f"the class {name} appears twice")
    return tuple(sorted(found, key=lambda item: item.level))


def _class(value: Any, where: str) -> PriorityClass:
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping) or set(value) - {"name", *_BOUNDS}:
        raise _refused(where, f"{value!r} is no class; it has name, {', '.join(_BOUNDS)}")
    name = value.get("name")
    if not isinstance(name, str) or name not in LEVELS:
        raise _refused(where, f"{name!r} is no class; the classes are {', '.join(LEVELS)}")
    for key, most in _BOUNDS.items():
        number = value.get(key)
        if number is not None and (type(number) is not int or not 0 <= number <= most):
            raise _refused(f"{where}.{key}", f"{number!r} is no whole number from 0 to {most}")
    return PriorityClass(name, value.get("max_queue_size"), value.get("queue_timeout_microseconds"))


def default_level(name: str, field: str = "default_priority_class") -> int:
    """Level of requests that name no class: that of `name`, where empty that of normal."""
    if name and name not in LEVELS:
        raise _refused(field, f"there is no class {name}; the classes are {', '.join(LEVELS)}")
    return LEVELS.get(name, DEFAULT_LEVEL)


def _refused(field: str, why: str) -> InvalidInput:
    return InvalidInput(
        "priority_classes",
        f"{field}: {why}.",
        field=field,
        remedy="Name classes among high, normal and low.",
    )
