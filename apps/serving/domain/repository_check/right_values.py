"""What somebody meant by a value that its field cannot take, as it is to be written; and what a file is instead.

Guesses are made where only one meaning is likely; where there is none, the answer is empty.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from apps.serving.domain.repository_check.text_tree import Node, Token

_ENUM_WORDS = {
    "BYTES": "TYPE_STRING",
    "TYPE_BYTES": "TYPE_STRING",
    "STR": "TYPE_STRING",
    "FLOAT": "TYPE_FP32",
    "FLOAT32": "TYPE_FP32",
    "FLOAT16": "TYPE_FP16",
    "HALF": "TYPE_FP16",
    "BFLOAT16": "TYPE_BF16",
    "DOUBLE": "TYPE_FP64",
    "FLOAT64": "TYPE_FP64",
    "INT": "TYPE_INT32",
    "LONG": "TYPE_INT64",
    "CUDA": "KIND_GPU",
    "REJECTED": "REJECT",
    "DROP": "REJECT",
}
_TRUE, _FALSE = {"yes", "on", "true", "enabled"}, {"no", "off", "false", "disabled"}
_MICROSECONDS = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000}
_WITH_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s)\Z")
_WHOLE = re.compile(r"-?\d+\Z")
_LIST = re.compile(r"-?\d+(?:\s*[,;x ]\s*-?\d+)+\Z")


def enum_value(text: str, names: list[str]) -> str:
    """The name of an enumeration that was meant."""
    plain = text.strip("\"'").upper().replace("-", "_")
    if plain in names:
        return plain
    if _ENUM_WORDS.get(plain) in names:
        return _ENUM_WORDS[plain]
    prefixed = [name for name in names if name.endswith(f"_{plain}")]
    if prefixed:
        return prefixed[0]
    close = difflib.get_close_matches(plain, names, n=1, cutoff=0.75)
    return close[0] if close else ""


def truth(text: str) -> str:
    """true or false where that was meant."""
    plain = text.strip("\"'").lower()
    return "true" if plain in _TRUE else "false" if plain in _FALSE else ""


def whole(text: str, field: str, repeated: bool) -> str:
    """A whole number, or a list of them; times with a unit become microseconds where the field counts those."""
    plain = text.strip("\"'").strip("[]() ")
    if repeated and _LIST.match(plain):
        return f"[ {', '.join(re.findall(r'-?[0-9]+', plain))} ]"
    with_unit = _WITH_UNIT.match(plain)
    if with_unit and field.endswith("microseconds"):
        return str(round(float(with_unit[1]) * _MICROSECONDS[with_unit[2]]))
    if plain in ("None", "null", "?", "*") and repeated:
        return "[ -1 ]"
    try:
        number = float(plain)
    except ValueError:
        return ""
    found = str(int(number)) if number == int(number) else ""
    return f"[ {found} ]" if repeated and found else found


def scalar(token: Token, field: Any, repeated: bool) -> str:
    """What to write in place of one value of a field; empty where nobody can tell."""
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        return f'"{token.text}"'
    if kind == field.CPPTYPE_BOOL:
        return truth(token.text)
    if kind == field.CPPTYPE_ENUM:
        return enum_value(token.text, [value.name for value in field.enum_type.values])
    if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        plain = token.text.strip("\"'")
        return plain if _WHOLE.match(plain) else ""
    found = whole(token.text, field.name, repeated)
    unsigned = kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
    return "0" if unsigned and found.startswith("-") else found


def entry(node: Node) -> str:
    """A parameter written as `name: "value"` inside parameters, in the form that Triton's maps have."""
    value = node.values[0].text.strip("\"'") if node.values else "VALUE"
    return f'key: "{node.name}" value {{ string_value: "{value}" }}'


def wrong_format(text: str) -> str:
    """What a file that cannot be read seems to be, and what to do; empty where it seems to be protobuf text."""
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("{") and not start.startswith("{{"):
        return "This is JSON. Write protobuf text: names without quotes, no comma needed, messages in braces."
    if re.search(r"\{\{.*?\}\}|\{%", text):
        return "This is a template with {{ }} that nobody filled in. Write the values."
    if re.search("[\u201c\u201d\u2018\u2019]", text):
        return 'Typographic quotes are no quotes here: write " on both sides.'
    if re.search(r"(?m)^\s*//|/\*", text):
        return "A comment begins with #."
    if re.search(r":\s*<[A-Za-z_][\w -]*>", text):
        return "A value in angle brackets is a place for one. Write the value."
    if re.search(r"(?m)^\s*- \w", text) or re.search(r"(?m)^\w+:\s*\n\s+\w+:", text):
        return "This is YAML. Write protobuf text: messages in braces, no indentation by meaning."
    if re.search(r"(?m)^\s*\[\w+\]\s*$", text):
        return "This is an INI or TOML file. Write protobuf text."
    return ""
