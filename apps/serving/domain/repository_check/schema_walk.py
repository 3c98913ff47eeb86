"""A configuration's text against Triton's schema: every fault with its place, not only the first.

Also what the parsed message cannot show any more: keys of a map that stood twice, and unfilled variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from tritonclient.grpc.model_config_pb2 import ModelConfig

from apps.serving.domain.repository_check import right_values
from apps.serving.domain.repository_check.findings import Remark, at
from apps.serving.domain.repository_check.known_mistakes import RIGHT_VALUE, right_form
from apps.serving.domain.repository_check.text_tree import Node, Token

# Decimal, hexadecimal, or octal where it begins with 0, as protobuf reads them.
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)\Z")
_TRUTH = {"true", "false", "True", "False", "t", "f", "0", "1"}
# google.protobuf.descriptor.FieldDescriptor.CPPTYPE_*
_INT32, _INT64, _UINT32, _UINT64, _DOUBLE, _FLOAT, _BOOL, _ENUM, _STRING, _MESSAGE = range(1, 11)
_UNSIGNED, _WHOLE = {_UINT32, _UINT64}, {_INT32, _INT64, _UINT32, _UINT64}
_BOUNDS = {
    _INT32: (-(2**31), 2**31 - 1),
    _INT64: (-(2**63), 2**63 - 1),
    _UINT32: (0, 2**32 - 1),
    _UINT64: (0, 2**64 - 1),
}
SCHEMA: Any = ModelConfig.DESCRIPTOR


class Walk:
    """One walk over a file's fields; `remarks` and the spans of what the official parser must not see."""

    def __init__(self, model: str, file: str) -> None:
        self.model = model
        self.file = file
        self.remarks: list[Remark] = []
        # (start, end) of fields that the schema refuses; they are cut out before the rest is parsed.
        self.refused: list[tuple[int, int]] = []

    def run(self, nodes: list[Node], kind: Any = SCHEMA, path: str = "") -> None:
        """Check the fields of one message."""
        seen: dict[str, Node] = {}
        choices: dict[str, Node] = {}
        counts: dict[str, int] = {}
        for node in nodes:
            field = kind.fields_by_name.get(node.name)
            where = f"{path}{node.name}"
            if field is not None and _is_repeated(field) and node.children is not None and not _is_map(field):
                where += f"[{counts.get(node.name, 0)}]"
                counts[node.name] = counts.get(node.name, 0) + 1
            if field is None:
                self._unknown(node, kind, where)
                continue
            if not self._well_formed(node, field, kind, where):
                continue
            if not _is_repeated(field) and node.name in seen:
                self._refuse(
                    "field_twice",
                    node,
                    where,
                    f"{node.name} stands a second time (first in line {seen[node.name].line}).",
                    "Keep one of them; the file is refused as it stands.",
                )
                continue
            seen.setdefault(node.name, node)
            self._one_choice(node, field, choices, where)
            if node.children is not None:
                self.run(node.children, field.message_type, f"{where}.")
        self._doubled_keys(nodes, kind, path)

    def _unknown(self, node: Node, kind: Any, where: str) -> None:
        form = right_form(kind.name, node.name, [field.name for field in kind.fields])
        if not form and kind.name == "ParametersEntry":
            form = right_values.entry(node)
        self._refuse(
            "unknown_field",
            node,
            where,
            f"{kind.name} has no field {node.name}; Triton refuses the whole file.",
            f"Write {form}." if form else "Remove it.",
            {"field": node.name, "message_type": kind.name, "right_form": form or None},
        )

    def _well_formed(self, node: Node, field: Any, kind: Any, where: str) -> bool:
        is_message = field.cpp_type == _MESSAGE
        wrong = ""
        if is_message and node.children is None:
            # An empty list is a legal way of writing nothing.
            if node.in_list and not node.values:
                return True
            wrong = "a message in braces is expected"
        elif not is_message and node.children is not None:
            wrong = "a value is expected, not a message"
        elif node.in_list and not _is_repeated(field):
            wrong = "one value is expected, not a list"
        elif not is_message:
            wrong = next((said for token in node.values if (said := _wrong_value(token, field))), "")
        if not wrong:
            return True
        form = self._meant(node, field) or RIGHT_VALUE.get((kind.name, node.name), "")
        remedy = f"Write {form}." if form else "Correct the value."
        facts = {"field": node.name, "message_type": kind.name, "right_form": form or None}
        self._refuse("wrong_value", node, where, f"{node.name}: {wrong}.", remedy, facts)
        return False

    @staticmethod
    def _meant(node: Node, field: Any) -> str:
        """The field as it was meant, where its values tell."""
        if field.cpp_type == _MESSAGE or node.children is not None or not node.values:
            return ""
        wrong = next((token for token in node.values if _wrong_value(token, field)), node.values[0])
        value = right_values.scalar(wrong, field, _is_repeated(field))
        return f"{node.name}: {value}" if value and not (node.in_list and not _is_repeated(field)) else ""

    def _one_choice(self, node: Node, field: Any, choices: dict[str, Node], where: str) -> None:
        oneof = field.containing_oneof
        if oneof is None:
            return
        other = choices.setdefault(oneof.name, node)
        if other.name != node.name:
            message = f"{node.name} and {other.name} (line {other.line}) exclude each other."
            self._refuse("exclusive_fields", node, where, message, "Keep one of them.")

    def _doubled_keys(self, nodes: list[Node], kind: Any, path: str) -> None:
        keys: dict[tuple[str, str], Node] = {}
        for node in nodes:
            field = kind.fields_by_name.get(node.name)
            if field is None or not _is_map(field) or node.children is None:
                continue
            key_node = node.child("key")
            key = key_node.text if key_node and key_node.text is not None else _plain(key_node)
            if key is None:
                continue
            first = keys.setdefault((node.name, key), node)
            if first is not node:
                self._doubled(node, first, key, f"{path}{node.name}")

    def _doubled(self, node: Node, first: Node, key: str, where: str) -> None:
        values = [value for entry in (first, node) if (value := _entry_value(entry)) is not None]
        step = next(iter(re.findall(r"step\[(\d+)\]", where)), None)
        place = f" of step {step}" if step is not None else ""
        self._add(
            "duplicate_key",
            node,
            where,
            f"The key {key} stands twice in {node.name}{place} (first in line {first.line}): "
            "the last entry replaces the others without a word.",
            "Remove one entry, or give it the key that was meant.",
            {"key": key, "map": node.name, "values": values, "lost": values[:-1]},
        )

    def _add(
        self,
        id: str,
        node: Node,
        where: str,
        message: str,
        remedy: str,
        facts: dict[str, Any] | None = None,
    ) -> None:
        place = at(self.file, node.line, where)
        self.remarks.append(Remark(id, "error", self.model, place, message, remedy, facts or {}))

    def _refuse(
        self,
        id: str,
        node: Node,
        where: str,
        message: str,
        remedy: str,
        facts: dict[str, Any] | None = None,
    ) -> None:
        self._add(id, node, where, message, remedy, facts)
        self.refused.append((node.start, node.end))


def string_values(nodes: Iterable[Node]) -> Iterator[tuple[Node, Token]]:
    """Every string token with the field that holds it."""
    for top in nodes:
        for node in top.walk():
            for token in node.values:
                if token.kind == "string":
                    yield node, token


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _is_map(field: Any) -> bool:
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)


def _plain(node: Node | None) -> str | None:
    return node.values[0].text if node is not None and node.values else None


def _entry_value(entry: Node) -> str | None:
    value = entry.child("value")
    if value is None:
        return None
    inner = value.child("string_value") if value.children is not None else value
    return inner.text if inner is not None else None


def _wrong_value(token: Token, field: Any) -> str:
    """Why a token cannot be a value of this field; empty where it can, or where it is a variable."""
    if token.kind == "variable":
        return ""
    if field.cpp_type == _STRING:
        return "" if token.kind == "string" else f"{token.text} must stand in quotes"
    if field.cpp_type == _BOOL:
        return "" if token.text in _TRUTH else f"{token.text} is neither true nor false (without quotes)"
    if field.cpp_type == _ENUM:
        return _wrong_enum(token, field)
    if field.cpp_type in _WHOLE:
        return _wrong_integer(token, field)
    return "" if token.kind in ("number", "name") else f"{token.text} is no number"


def _wrong_enum(token: Token, field: Any) -> str:
    names = [value.name for value in field.enum_type.values]
    if token.text in names or _INTEGER.match(token.text):
        return ""
    return f"{token.text} is none of {', '.join(names)}"


def _wrong_integer(token: Token, field: Any) -> str:
    if not _INTEGER.match(token.text):
        return f"{token.text} is no whole number (without quotes)"
    digits = token.text.lstrip("-")
    base = 16 if digits[:2].lower() == "0x" else 8 if digits.startswith("0") else 10
    value = int(digits, base) * (-1 if token.text.startswith("-") else 1)
    low, high = _BOUNDS[field.cpp_type]
    return "" if low <= value <= high else f"{token.text} is not from {low} to {high}"
