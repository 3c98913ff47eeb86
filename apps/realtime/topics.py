"""Which live topics exist, who may read them and where their data comes from.

An app registers the topics of its objects in `AppConfig.ready`:

    topics.register("builds", permission=Action.VIEW, snapshot=builds_snapshot, keyed=False)
    topics.register("build", permission=Action.VIEW, snapshot=build_snapshot)
    topics.register_log("log:build", permission=Action.VIEW, path=build_log_path)
    topics.register_samples("metrics", permission=Action.VIEW, history=recent_samples)

The functions are synchronous and may read the database: they run in a pool thread of the web process, once for
all sockets that want the topic. They raise `NotFound` for an object that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext as _

from apps.core.exceptions import NotFound
from apps.realtime.schema import TOPIC_PATTERN

# The number of the object, 0 for a topic without one.
Key = int
SnapshotFunction = Callable[[Key], Mapping[str, Any]]
# Path of the log file; empty while there is none yet.
PathFunction = Callable[[Key], str]
# (key, epoch seconds after which, or None for the newest minute) -> samples, oldest first.
HistoryFunction = Callable[[Key, float | None], list[dict[str, Any]]]
PermissionCheck = Callable[[User | AnonymousUser, Any], bool]

_TOPIC = re.compile(TOPIC_PATTERN)


@dataclass(frozen=True, slots=True)
class Topic:
    """A parsed topic: `kind` is the name without its number ("log:build"), `key` the number (0: none)."""

    kind: str
    key: Key

    @property
    def name(self) -> str:
        """The topic as the client writes it."""
        return f"{self.kind}:{self.key}" if self.key else self.kind


@dataclass(frozen=True, slots=True)
class TopicKind:
    """How one kind of topic is served: who may read it, and whether it has a number, or goes without."""

    kind: str
    permission: str
    keyed: bool
    unkeyed: bool


@dataclass(frozen=True, slots=True)
class StateKind(TopicKind):
    """Snapshot and changes."""

    snapshot: SnapshotFunction


@dataclass(frozen=True, slots=True)
class LogKind(TopicKind):
    """A file that is tailed."""

    path: PathFunction


@dataclass(frozen=True, slots=True)
class SamplesKind(TopicKind):
    """Metric samples."""

    history: HistoryFunction


_kinds: dict[str, TopicKind] = {}


def _nobody(user: User | AnonymousUser, action: Any) -> bool:
    return False


# Realtime lies below accounts, so the role check is handed in; until then nobody may read anything.
_permission_check: PermissionCheck = _nobody


def use_permission_check(check: PermissionCheck) -> None:
    """Set the function (user, action) -> bool that answers for every topic; `accounts.roles.may`."""
    global _permission_check  # noqa: PLW0603 - one process-wide registration at start
    _permission_check = check


def may(user: User | AnonymousUser, permission: str) -> bool:
    """Whether the person may do what a topic or a socket asks for. Reads the database."""
    return _permission_check(user, permission)


def register(kind: str, *, permission: str, snapshot: SnapshotFunction, keyed: bool = True) -> None:
    """Register a state topic. `snapshot(key)` returns the whole of it, JSON-ready (datetimes are allowed).

    Versions are counted per topic in Redis at each publish (versions.py), so lists have one too.
    """
    _add(StateKind(kind, str(permission), keyed, not keyed, snapshot))


def register_log(kind: str, *, permission: str, path: PathFunction) -> None:
    """Register a log topic: the file is tailed by offset from the web process."""
    _add(LogKind(kind, str(permission), True, False, path))


def register_samples(
    kind: str, *, permission: str, history: HistoryFunction, keyed: bool = True, unkeyed: bool = False
) -> None:
    """Register a topic of metric samples; `history` answers what a client missed.

    A kind may exist with a number and without (metrics:3 and metrics).
    """
    _add(SamplesKind(kind, str(permission), keyed, unkeyed, history))


def _add(kind: TopicKind) -> None:
    if kind.kind in _kinds:
        raise ImproperlyConfigured(f"The live topic {kind.kind!r} is registered twice.")
    if not _TOPIC.match(kind.kind):
        raise ImproperlyConfigured(f"{kind.kind!r} is no name for a live topic ({TOPIC_PATTERN}).")
    _kinds[kind.kind] = kind


def registered() -> dict[str, TopicKind]:
    """Every registered kind, by name."""
    return dict(_kinds)


def parse(name: str) -> tuple[Topic, TopicKind]:
    """Split a topic into kind and number and find its registration.

    Raises NotFound, naming the topic, for a kind that nobody registered or a number where none belongs.
    """
    head, _separator, tail = name.rpartition(":")
    topic = Topic(head, int(tail)) if tail.isdigit() and head else Topic(name, 0)
    kind = _kinds.get(topic.kind)
    if kind is None or not (kind.keyed if topic.key else kind.unkeyed):
        raise NotFound(
            "unknown_topic",
            _("There is no live topic “%(topic)s”.") % {"topic": name},
            remedy=_("Reload the page; it may come from an older version."),
            field="topic",
        )
    return topic, kind
