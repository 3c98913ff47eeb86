"""A pasted text as commands: words, program and flags, as the shell and argparse would see them. Nothing is run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from apps.core.exceptions import InvalidInput

# Programs by the last part of their path. `legacy` is the build.py that each model had before 0.8.
PROGRAMS: dict[str, str] = {
    "trtllm-build": "build",
    "tensorrt_llm.commands.build": "build",
    "convert_checkpoint.py": "convert",
    "quantize.py": "quantize",
    "build.py": "legacy",
}
SHORT = {"sq": "smoothquant"}
LONGEST = 64 * 1024
_DASHES = str.maketrans({"\u2013": "--", "\u2014": "--", "\u2212": "-", "\u2010": "-", "\u2011": "-"})
_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " "})
_ENDS = {"&&", "||", ";", "|", ">", ">>", "2>&1", "&", "&>", "<", "2>"}


@dataclass(slots=True)
class Command:
    """One program with its flags in order: (name as typed without dashes, words after it)."""

    kind: str
    program: str
    flags: list[tuple[str, list[str]]] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)


def read_commands(text: str) -> tuple[list[Command], list[str]]:
    """The commands of a paste that are known, in order, and the first words of the others. Raises InvalidInput."""
    if len(text) > LONGEST:
        raise InvalidInput(
            "command_too_long",
            f"More than {LONGEST} characters.",
            field="command",
            remedy="Paste the command alone.",
        )
    known: list[Command] = []
    others: list[str] = []
    for words in _segments(_split(text)):
        at = next((index for index, word in enumerate(words) if _program(word)), None)
        if at is None:
            others.append(words[0])
        else:
            known.append(_command(_program(words[at]), words[at], words[at + 1 :]))
    if not known:
        raise InvalidInput(
            "command_unknown",
            "This calls neither trtllm-build nor convert_checkpoint.py nor quantize.py.",
            field="command",
            remedy="Paste the whole line, beginning with the program.",
        )
    return known, others


def _program(word: str) -> str:
    return PROGRAMS.get(word.rsplit("/", 1)[-1].lstrip("!$"), "")


def _split(text: str) -> list[str]:
    plain = text.strip().replace("\r\n", "\n").translate(_QUOTES)
    plain = re.sub(r"(?<=\s)[\u2013\u2014](?=\w)", "--", plain)
    if re.search(r"\\[ \t]+\S", plain):
        raise InvalidInput(
            "shell_line_continuation",
            "A backslash is followed by a space and more text, so the shell would end the command there.",
            field="command",
            remedy="Put the backslash at the very end of each line.",
        )
    joined = re.sub(r"\\[ \t]*\n", " ", plain)
    # A line that begins with a flag goes on with the command before it, as some pages break lines.
    joined = re.sub(r"\n[ \t]*(?=-{1,2}[a-zA-Z])", " ", joined)
    joined = re.sub(r"^[ \t]*(?:\$|>|!|#\s*\$)[ \t]*(?=\S)", "", joined, flags=re.MULTILINE)
    words: list[str] = []
    try:
        for line in joined.split("\n"):
            lexer = shlex.shlex(line, posix=True, punctuation_chars="();|&")
            lexer.whitespace_split = True
            words += [*lexer, "\n"]
    except ValueError as error:
        raise InvalidInput(
            "command_unreadable",
            f"The quotes do not close ({error}).",
            field="command",
            remedy="Paste it whole.",
        ) from error
    return words


def _segments(words: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for word in words:
        if word == "\n" or word in _ENDS or word.startswith(">"):
            found.append([])
        else:
            found[-1].append(word)
    return [segment for segment in found if segment]


def _command(kind: str, program: str, words: list[str]) -> Command:
    command = Command(kind, program.rsplit("/", 1)[-1])
    for word in words:
        name, equals, value = word.translate(_DASHES).partition("=")
        if name.startswith("--") or (name.startswith("-") and name[1:] in SHORT):
            bare = name.lstrip("-")
            command.flags.append((SHORT.get(bare, bare), [value] if equals else []))
        elif command.flags:
            command.flags[-1][1].append(word)
        else:
            command.stray.append(word)
    return command
