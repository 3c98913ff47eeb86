"""YAML text in, plain values with their line numbers out. Hostile text is refused before anything is built of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from django.utils.translation import gettext as _

from apps.core.exceptions import InvalidInput

MAX_BYTES = 1024 * 1024
MAX_DOCUMENTS = 500
MAX_EVENTS = 100_000
MAX_DEPTH = 32
MAX_ALIASES = 100
# Values after every alias is written out: a few lines of nested aliases can stand for billions.
MAX_VALUES = 100_000


@dataclass(frozen=True, slots=True)
class RawDocument:
    """One document of a file: its number from 1, its value and the nodes that know their lines."""

    number: int
    value: Any
    node: yaml.Node

    def line_of(self, path: Sequence[str | int]) -> int:
        """Line (from 1) of the deepest part of `path` that the text holds."""
        node = self.node
        line = node.start_mark.line
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            line, node = found
        return int(line) + 1


def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key.start_mark.line, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        value = node.value[part]
        return value.start_mark.line, value
    return None


class _Reader(yaml.SafeLoader):
    """Plain values only, as `yaml.safe_load` builds them; nodes are at hand for the checks."""

    def documents(self) -> Iterator[yaml.Node]:
        while self.check_node():
            node = self.get_node()
            if node is not None:
                yield node


def read_documents(text: str, where: str) -> list[RawDocument]:
    """Read the documents of a YAML text; empty ones are passed over but counted.

    `where` names the text in errors. Raises InvalidInput naming the line for broken or hostile text.
    """
    if len(text.encode("utf-8", "surrogateescape")) > MAX_BYTES:
        raise _refused(where, 0, _("the text is larger than %(limit)d KiB") % {"limit": MAX_BYTES // 1024})
    try:
        _check_events(text, where)
        reader = _Reader(text)
        found = []
        for number, node in enumerate(reader.documents(), start=1):
            _NodeCheck(where).check(node)
            found.append(RawDocument(number, reader.construct_document(node), node))
    except yaml.YAMLError as error:
        raise _unreadable(error, where) from error
    except ValueError as error:
        # A date that does not exist, a number of many thousand digits.
        raise _refused(where, 0, str(error)) from error
    found = [document for document in found if document.value is not None]
    if not found:
        raise InvalidInput(
            "yaml_empty",
            _("%(where)s holds no document.") % {"where": where},
            remedy=_("See examples/demo.yaml for one document of each kind."),
        )
    return found


def _check_events(text: str, where: str) -> None:
    """Count what the text asks for without building any of it."""
    depth = documents = aliases = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        line = event.start_mark.line + 1 if event.start_mark else 0
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        if depth > MAX_DEPTH:
            raise _refused(where, line, _("more than %(limit)d levels deep") % {"limit": MAX_DEPTH})
        if documents > MAX_DOCUMENTS:
            raise _refused(where, line, _("more than %(limit)d documents") % {"limit": MAX_DOCUMENTS})
        if aliases > MAX_ALIASES:
            raise _refused(where, line, _("more than %(limit)d aliases") % {"limit": MAX_ALIASES})
        if count > MAX_EVENTS:
            raise _refused(where, line, _("more than %(limit)d parts") % {"limit": MAX_EVENTS})


class _NodeCheck:
    """Refuses duplicate keys, keys that are not text, endless aliases and their explosions."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.sizes: dict[int, int] = {}
        self.open: set[int] = set()

    def check(self, node: yaml.Node) -> int:
        """Number of values under a node with every alias written out."""
        known = self.sizes.get(id(node))
        if known is not None:
            return known
        line = node.start_mark.line + 1
        if id(node) in self.open:
            raise _refused(self.where, line, _("an alias that contains itself"))
        self.open.add(id(node))
        size = 1 + sum(self.check(child) for child in self._children(node))
        self.open.discard(id(node))
        if size > MAX_VALUES:
            raise _refused(self.where, line, _("aliases that stand for too many values"))
        self.sizes[id(node)] = size
        return size

    def _children(self, node: yaml.Node) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        if not isinstance(node, yaml.MappingNode):
            return []
        seen: set[Hashable] = set()
        for key, _value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag not in {
                "tag:yaml.org,2002:str",
                "tag:yaml.org,2002:merge",
            }:
                shown = key.value if isinstance(key, yaml.ScalarNode) else _("a list or mapping")
                raise _refused(
                    self.where,
                    line,
                    _("the key %(key)s is not text; put it in quotes") % {"key": shown},
                )
            if key.value in seen:
                raise _refused(
                    self.where, line, _("the key %(key)s is there twice; keep one") % {"key": key.value}
                )
            seen.add(key.value)
        return [value for _key, value in node.value]


def _refused(where: str, line: int, reason: str) -> InvalidInput:
    place = _("%(where)s, line %(line)d") % {"where": where, "line": line} if line else where
    return InvalidInput(
        "yaml_refused",
        _("%(place)s: %(reason)s.") % {"place": place, "reason": reason},
        remedy=_("Correct the file and try again."),
    )


def _unreadable(error: yaml.YAMLError, where: str) -> InvalidInput:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    line = mark.line + 1 if mark is not None else 0
    refused = _refused(where, line, str(problem).rstrip("."))
    refused.code = "yaml_syntax"
    return refused
