"""Two builds side by side: what differed in what was asked for, in versions and commands, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

Section = Literal["specification", "versions", "host", "command", "result"]
# Parts of a specification that name the same thing for every build of a checkpoint, or are shown elsewhere.
PASSED_OVER = frozenset({"builder_version", "versions", "path"})
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared of one build; `manifest` is empty for one that made no engine, sizes are bytes."""

    number: int
    state: str
    spec: Mapping[str, Any]
    stages: Sequence[Mapping[str, Any]] = ()
    manifest: Mapping[str, Any] | None = None
    size_bytes: int | None = None
    seconds: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not the same; null on the side that does not have it."""

    section: Section
    name: str
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class StagePair:
    """A stage on both sides: seconds, highest memory and work folder in bytes; null where it did not run."""

    name: str
    title: str
    left_seconds: float | None
    right_seconds: float | None
    left_peak_bytes: int | None
    right_peak_bytes: int | None

    @property
    def change(self) -> float | None:
        """Share by which the right one took longer (negative: shorter)."""
        if not self.left_seconds or self.right_seconds is None:
            return None
        return (self.right_seconds - self.left_seconds) / self.left_seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of it. `same_input`: nothing of what was asked for differs."""

    left: int
    right: int
    differences: tuple[Difference, ...]
    stages: tuple[StagePair, ...]

    @property
    def same_input(self) -> bool:
        """Whether both were asked for the same."""
        return not any(found.section != "result" for found in self.differences)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "left": self.left,
            "right": self.right,
            "same_input": self.same_input,
            "differences": [asdict(found) for found in self.differences],
            "stages": [{**asdict(pair), "change": pair.change} for pair in self.stages],
        }


def compare(left: Side, right: Side) -> Comparison:
    """Compare two builds, whatever became of them."""
    sides = (left, right)
    specs = [_flat(_without(side.spec, PASSED_OVER)) for side in sides]
    versions = [_flat(_versions(side)) for side in sides]
    hosts = [_flat(_host(side)) for side in sides]
    found = [
        *_differences("specification", *specs),
        *_differences("versions", *versions),
        *_differences("host", *hosts),
        *_commands(left.stages, right.stages),
        *_differences("result", *map(_result, sides)),
    ]
    return Comparison(left.number, right.number, tuple(found), tuple(_stages(left.stages, right.stages)))


def stage_seconds(stage: Mapping[str, Any]) -> float | None:
    """How long a stage ran by its row; null while it runs or where it did not."""
    try:
        begun, ended = (datetime.fromisoformat(str(stage[key])) for key in ("started_at", "finished_at"))
        return (ended - begun).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None


def _commands(left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]) -> Iterable[Difference]:
    """Words of each stage's command that only one side has, with a flag's value beside the flag."""
    ours, theirs = (
        {str(stage.get("name")): _flags(stage.get("argv") or ()) for stage in side} for side in (left, right)
    )
    for stage in dict.fromkeys([*ours, *theirs]):
        for found in _differences("command", ours.get(stage, {}), theirs.get(stage, {})):
            yield Difference("command", f"{stage}: {found.name}", found.left, found.right)


def _flags(argv: Iterable[Any]) -> dict[str, Any]:
    """{flag: value} of a command; paths are passed over, because each attempt has folders of its own."""
    found: dict[str, Any] = {}
    flag = ""
    for word in map(str, argv):
        if word.startswith("-"):
            flag, _joined, value = word.partition("=")
            found[flag] = value or True
        elif flag:
            found[flag] = word if found[flag] is True else f"{found[flag]} {word}"
    return {name: value for name, value in found.items() if not str(value).startswith("/")}


def _stages(left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]) -> Iterable[StagePair]:
    ours, theirs = ({str(stage.get("name")): stage for stage in side} for side in (left, right))
    for name in dict.fromkeys([*ours, *theirs]):
        a, b = ours.get(name, {}), theirs.get(name, {})
        yield StagePair(
            name=name,
            title=str(a.get("title") or b.get("title") or name),
            left_seconds=stage_seconds(a),
            right_seconds=stage_seconds(b),
            left_peak_bytes=a.get("peak_bytes"),
            right_peak_bytes=b.get("peak_bytes"),
        )


def _versions(side: Side) -> Mapping[str, Any]:
    manifest = side.manifest or {}
    known = {**_mapping(side.spec.get("versions")), **_mapping(manifest.get("versions"))}
    builder = side.spec.get("builder_version")
    return {**known, **({"builder": builder} if builder else {})}


def _host(side: Side) -> Mapping[str, Any]:
    manifest = side.manifest or {}
    node = _mapping(manifest.get("node"))
    return {
        key: value
        for key, value in (
            ("gpu", manifest.get("gpu")),
            ("image", manifest.get("image")),
            ("node", node.get("node_id")),
        )
        if value
    }


def _result(side: Side) -> Mapping[str, Any]:
    values = {
        "state": side.state,
        "reason": side.reason or None,
        "seconds": round(side.seconds, 1) if side.seconds is not None else None,
        "size_bytes": side.size_bytes,
    }
    return {key: value for key, value in values.items() if value is not None}


def _differences(section: Section, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterable[Difference]:
    for name in dict.fromkeys([*left, *right]):
        if left.get(name) != right.get(name):
            yield Difference(section, name, left.get(name), right.get(name))


def _flat(value: Mapping[str, Any], before: str = "", depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, inner in value.items():
        name = f"{before}{key}"
        if isinstance(inner, Mapping) and inner and depth < MAX_DEPTH:
            found |= _flat(inner, f"{name}.", depth + 1)
        elif inner not in (None, "", {}, []):
            found[name] = inner
    return found


def _without(value: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if key not in names}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
