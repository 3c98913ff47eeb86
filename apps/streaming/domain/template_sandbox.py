"""A Jinja sandbox with bounds on time and on the size of every text that a template can make.

Jinja's own sandbox keeps a template from Python's internals and from changing its arguments; it does not keep it from
running for ever or from filling the memory. Time is watched by a trace function over the template's own lines; what
multiplies or concatenates texts is checked before it happens.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

# A prompt is bounded by the engine's context anyway; this is far beyond the largest ones.
MAX_OUTPUT = 4_000_000
MAX_SECONDS = 2.0
MAX_POWER = 64
MAX_WIDTH = 1_000
TEMPLATE_FILE = "<template>"
PADDING = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill"})
# Filters and globals that no chat template needs and that make texts of any size, or HTML.
REMOVED = ("batch", "center", "format", "lipsum", "pprint", "slice", "urlize", "wordwrap", "xmlattr")
# A width of four digits, one that comes from an argument, or a field inside a field.
WIDE_FORMAT = re.compile(r"\d{4,}|\*|\{[^}]*\{")


class TemplateTooLarge(Exception):
    """A text grew beyond MAX_OUTPUT letters."""


class TemplateTooSlow(Exception):
    """The template ran for longer than MAX_SECONDS."""


class _BoundedGenerator(CodeGenerator):
    """Sends `a ~ b` through the environment, as Jinja does for the operators that it lets a sandbox intercept."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.join_bounded((")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write("))")


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's words for training; it prints nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """See the module docstring."""

    code_generator_class = _BoundedGenerator
    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse what makes a text, list or number of enormous size."""
        if operator == "**" and not (isinstance(right, int | float) and abs(right) <= MAX_POWER):
            raise SecurityError(f"a power of {right!r} is too large")
        if operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(many, str | bytes | list | tuple) and isinstance(times, int):
                    check_size(len(many) * max(times, 0))
        if operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            check_size(len(left) + len(right))
        if operator == "%" and isinstance(left, str):
            check_format(left)
        return super().call_binop(context, operator, left, right)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """What joins the output of a block, a macro or a captured text."""
        kept: list[str] = []
        size = 0
        for part in parts:
            size += len(part)
            check_size(size)
            kept.append(part)
        return "".join(kept)

    def join_bounded(self, parts: tuple[Any, ...]) -> str:
        """`a ~ b ~ ...`"""
        texts = [str(part) for part in parts]
        check_size(sum(map(len, texts)))
        return "".join(texts)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Methods of texts that pad to any width are not for templates."""
        if isinstance(obj, str) and attr in PADDING:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Any:
        """str.format goes through the sandbox's formatter; its widths are bounded here."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            check_format(value.__self__)
        return wrapped

    def call(self, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls of `replace` and `join` are checked by what they would make."""
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        if isinstance(owner, str) and name == "replace" and len(args) > 1:
            check_replace(owner, str(args[0]), str(args[1]))
        if isinstance(owner, str) and name == "join" and args:
            parts = [str(part) for part in args[0]]
            check_size(sum(map(len, parts)) + len(owner) * len(parts))
            args = (parts, *args[1:])
        return super().call(context, function, *args, **kwargs)


def environment() -> BoundedEnvironment:
    """An environment as Hugging Face's: blocks trimmed, break and continue in loops."""
    made = BoundedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
        autoescape=False,
    )
    for name in REMOVED:
        made.filters.pop(name, None)
        made.globals.pop(name, None)
    made.filters["indent"] = _indent
    made.filters["replace"] = _replace
    made.filters["join"] = _join
    return made


def check_size(letters: int) -> None:
    """Raises TemplateTooLarge."""
    if letters > MAX_OUTPUT:
        raise TemplateTooLarge


def check_format(text: str) -> None:
    """Raises SecurityError for a format that could pad to a great width."""
    if WIDE_FORMAT.search(text):
        raise SecurityError("a format with a width from outside or of four digits is not allowed")


def check_replace(text: str, old: str, new: str) -> None:
    """Raises TemplateTooLarge if replacing would make too much."""
    places = text.count(old) if old else len(text) + 1
    check_size(len(text) + places * max(len(new) - len(old), 0))


def _replace(text: Any, old: str, new: str, count: int | None = None) -> str:
    check_replace(str(text), str(old), str(new))
    return str(text).replace(str(old), str(new), -1 if count is None else count)


def _join(values: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        raise SecurityError("join takes no attribute here; use map first")
    parts = [str(value) for value in values]
    check_size(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    margin = width if isinstance(width, str) else " " * min(int(width), MAX_WIDTH)
    lines = str(text).splitlines(keepends=True)
    check_size(len(str(text)) + len(margin) * len(lines))
    done = [
        margin + line if (number or first) and (blank or line.strip()) else line
        for number, line in enumerate(lines)
    ]
    return "".join(done)


def render_bounded(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    """Render within the bounds. Raises TemplateTooLarge, TemplateTooSlow and what the template itself raises."""
    parts: list[str] = []
    size = 0
    before = sys.gettrace()
    sys.settrace(_watch(time.monotonic() + MAX_SECONDS))
    try:
        for part in template.generate(**variables):
            size += len(part)
            check_size(size)
            parts.append(part)
    finally:
        sys.settrace(before)
    return "".join(parts)


def _watch(deadline: float) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that looks at the clock on each line of the template, and nowhere else."""

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if time.monotonic() > deadline:
            raise TemplateTooSlow
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_filename == TEMPLATE_FILE else None

    return call
