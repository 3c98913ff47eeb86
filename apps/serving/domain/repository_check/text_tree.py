"""Protobuf text read tolerantly, keeping places, repeated keys and unfilled `${...}` variables.

The official parser decides what a configuration means; it stops at the first error, forgets that a map key stood
twice and cannot read a template. This reader says where things stand, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# Deeper than any message of ModelConfig, far less than Python's own limit.
DEEPEST = 40
LARGEST = 4 * 1024 * 1024

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f\v]+|\#[^\n]*)
  | (?P<variable>\$\{[^}\n]*\}|\$[A-Za-z_]\w*)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?))
  | (?P<name>-?[A-Za-z_][A-Za-z0-9_]*)
  | (?P<symbol>[{}<>\[\]:,;/.])
    """,
    re.VERBOSE,
)
VARIABLE_IN_TEXT = re.compile(r"\$\{([^}]*)\}")
_CLOSING = {"{": "}", "<": ">", "[": "]"}


class TreeError(ValueError):
    """The text has no structure from `line`, `column` on (both from 1)."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.line = line
        self.column = column
        self.message = message


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: `kind` as the pattern names it, `start` and `end` are offsets."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(slots=True)
class Node:
    """One field as it is written: a scalar has `values` (tokens as written), a message has `children`.

    A list of messages gives one node for each; a list of scalars gives one node with several values.
    """

    name: str
    start: int
    end: int
    line: int
    column: int
    values: list[Token] = field(default_factory=list)
    children: list[Node] | None = None
    in_list: bool = False

    def child(self, name: str) -> Node | None:
        """The first field of that name inside."""
        return next((node for node in self.children or () if node.name == name), None)

    @property
    def text(self) -> str | None:
        """A string value with its quotes and escapes gone; None where it is none."""
        if not self.values or any(token.kind != "string" for token in self.values):
            return None
        return "".join(_unquote(token.text) for token in self.values)

    def walk(self) -> Iterator[Node]:
        """This field and every field inside."""
        yield self
        for node in self.children or ():
            yield from node.walk()


def read_tree(text: str) -> list[Node]:
    """The fields of a text. Raises TreeError where brackets, names or values are out of place."""
    if len(text) > LARGEST:
        raise TreeError(1, 1, f"the text is longer than {LARGEST} characters")
    return _Reader(text).fields(None, 0)


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of an offset."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _unquote(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), quoted[1:-1])


def tokens(text: str) -> list[Token]:
    """Every piece but space and comments. Raises TreeError at a character that begins none."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise TreeError(*place(text, at), f"unexpected {text[at]!r}")
        if match.lastgroup != "space":
            found.append(Token(str(match.lastgroup), match[0], at, match.end()))
        at = match.end()
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0

    def fields(self, closing: str | None, depth: int) -> list[Node]:
        if depth > DEEPEST:
            raise self._error("nested deeper than any configuration")
        found: list[Node] = []
        while True:
            token = self._peek()
            if token is None:
                if closing is not None:
                    raise self._error(f"the text ends before {closing!r}")
                return found
            if token.text == closing:
                self._at += 1
                return found
            if token.text in (",", ";"):
                self._at += 1
                continue
            found.extend(self._field(depth))

    def _field(self, depth: int) -> list[Node]:
        first = self._next()
        name = self._extension() if first.text == "[" else first.text
        if first.kind not in ("name", "variable") and first.text != "[":
            raise self._error(f"expected a field name, got {first.text!r}", first)
        colon = self._take(":")
        token = self._peek()
        if token is None:
            raise self._error(f"the text ends after {name}", first)
        if token.text == "[":
            self._at += 1
            return self._list(name, first, depth)
        if token.text in ("{", "<"):
            return [self._message(name, first, depth)]
        if not colon:
            raise self._error(f"expected ':' or a message after {name}, got {token.text!r}", token)
        return [self._scalar(name, first)]

    def _extension(self) -> str:
        parts = []
        while (token := self._next()).text != "]":
            parts.append(token.text)
        return "[" + "".join(parts) + "]"

    def _list(self, name: str, first: Token, depth: int) -> list[Node]:
        nodes: list[Node] = []
        flat = self._node(name, first)
        flat.in_list = True
        while True:
            token = self._peek()
            if token is None:
                raise self._error("the text ends before ']'", first)
            if token.text == "]":
                self._at += 1
                break
            if token.text == ",":
                self._at += 1
            elif token.text in ("{", "<"):
                nodes.append(self._message(name, token, depth))
                nodes[-1].in_list = True
            else:
                flat.values.append(self._value())
        flat.end = self._tokens[self._at - 1].end
        return nodes or [flat]

    def _message(self, name: str, first: Token, depth: int) -> Node:
        opening = self._next()
        node = self._node(name, first)
        node.children = self.fields(_CLOSING[opening.text], depth + 1)
        node.end = self._tokens[self._at - 1].end
        return node

    def _scalar(self, name: str, first: Token) -> Node:
        node = self._node(name, first)
        node.values.append(self._value())
        # Strings that stand beside each other are one.
        while node.values[0].kind == "string" and (token := self._peek()) and token.kind == "string":
            node.values.append(self._next())
        node.end = node.values[-1].end
        return node

    def _value(self) -> Token:
        token = self._next()
        if token.kind == "symbol":
            raise self._error(f"expected a value, got {token.text!r}", token)
        return token

    def _node(self, name: str, first: Token) -> Node:
        return Node(name, first.start, first.end, *place(self._text, first.start))

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> Token:
        token = self._peek()
        if token is None:
            raise self._error("the text ends too early")
        self._at += 1
        return token

    def _take(self, text: str) -> bool:
        token = self._peek()
        if token is not None and token.text == text:
            self._at += 1
            return True
        return False

    def _error(self, message: str, token: Token | None = None) -> TreeError:
        offset = token.start if token else (self._tokens[-1].end if self._tokens else 0)
        return TreeError(*place(self._text, offset), message)
