"""A pasted `fill_template.py -i FILE "name:value,..."` line: what it meant, and what the script makes of it.

The script cuts at commas and then at colons, each cut taking one level of backslashes. Inflight writes repositories
itself; this reads what people already have.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from apps.core.exceptions import Finding, InvalidInput
from apps.serving.domain.repository_check import trtllm_parameters as known
from apps.serving.domain.repository_check.variables import BARE

VARIABLES = frozenset(
    {
        parameter.template_variable
        for table in (known.TENSORRT_LLM, *known.BY_MODEL.values())
        for parameter in table
    }
    | set(BARE)
    | {"triton_backend", "engine_dir", "n_mels", "zero_pad", "context_model_name", "generation_model_name"}
)
_PAIR = re.compile(r"\s*([A-Za-z_]\w*)\s*:")


@dataclass(frozen=True, slots=True)
class Filled:
    """What a line says. `file` is the template, `meant` the values that a person meant, by variable.

    `script_error` is what fill_template.py ends with, empty where it runs; `substituted` what it would then fill in.
    """

    file: str
    meant: dict[str, str]
    substituted: dict[str, str]
    script_error: str = ""
    findings: tuple[Finding, ...] = field(default=())


def read_line(line: str) -> Filled:
    """Read one command line. Raises InvalidInput where it is none of fill_template.py."""
    try:
        words = shlex.split(line.replace("\\\n", " "))
    except ValueError as error:
        raise _refuse(f"the quotes do not close ({error})") from error
    at = next((index for index, word in enumerate(words) if word.endswith("fill_template.py")), None)
    if at is None:
        raise _refuse("it does not call fill_template.py")
    rest = [word for word in words[at + 1 :] if word not in ("-i", "--in_place")]
    if len(rest) != 2:
        raise _refuse("a template's path and one list of values are expected")
    return read_values(rest[1], rest[0])


def read_values(text: str, file: str = "") -> Filled:
    """Read the list of values `name:value,name:value`."""
    substituted, error = _as_the_script(text)
    meant = _as_meant(text)
    findings: list[Finding] = []
    if error:
        findings.append(
            Finding(
                "fill_template_fails",
                "warning",
                f"fill_template.py ends with {error}; with --in_place the file stays as it was.",
                file,
                "Commas inside a value need a backslash; a value with a colon cannot be passed to the script.",
            )
        )
    for name in meant:
        if name not in VARIABLES:
            findings.append(
                Finding(
                    "unknown_variable",
                    "warning",
                    f"No template has a variable {name}.",
                    file,
                    "Check its spelling; names are matched exactly, spaces included.",
                )
            )
    spaced = [name for name in substituted if name != name.strip()]
    for name in spaced:
        findings.append(
            Finding(
                "nothing_substituted",
                "warning",
                f"{name!r} has a space, so the script fills nothing in and says nothing.",
                file,
                f"Write {name.strip()}:",
            )
        )
    effective = {name: value for name, value in substituted.items() if name not in spaced}
    return Filled(file, meant, effective, error, tuple(findings))


def _as_the_script(text: str) -> tuple[dict[str, str], str]:
    values: dict[str, str] = {}
    for pair in _cut(text, ","):
        parts = _cut(pair, ":")
        if len(parts) < 2:
            return {}, f"ValueError not enough values to unpack (expected 2, got {len(parts)})"
        if len(parts) > 2:
            return {}, "ValueError too many values to unpack (expected 2)"
        values[parts[0]] = parts[1]
    return values, ""


def _cut(text: str, at: str) -> list[str]:
    pieces, current, escaped = [], "", False
    for character in text:
        if escaped:
            current, escaped = current + character, False
        elif character == "\\":
            escaped = True
        elif character == at:
            pieces.append(current)
            current = ""
        else:
            current += character
    return [*pieces, current]


def _as_meant(text: str) -> dict[str, str]:
    """A comma ends a value only where a variable's name and a colon follow."""
    starts = [
        found
        for found in re.finditer(r"(?:^|,)\s*([A-Za-z_]\w*)\s*:", text)
        if found.start() == 0 or found[1] in VARIABLES or not _inside_path(text, found.end())
    ]
    values: dict[str, str] = {}
    for index, found in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        values[found[1]] = re.sub(r"\\([,:\\])", r"\1", text[found.end() : end]).strip()
    return values


def _inside_path(text: str, colon_end: int) -> bool:
    """Whether the colon is that of an address such as s3://."""
    return text.startswith("//", colon_end)


def _refuse(why: str) -> InvalidInput:
    return InvalidInput(
        "fill_template_unreadable",
        f"This is no fill_template.py line: {why}.",
        field="command",
        remedy='Paste it as it was run: fill_template.py -i FILE "name:value,name:value".',
    )
