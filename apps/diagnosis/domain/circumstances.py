"""What is known besides the log: the command that was run, the engine's own configuration, the model's, its files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

# Parameters of config.pbtxt that name the engine's folder, the usual one first.
ENGINE_FOLDERS = ("gpt_model_path", "engine_dir", "encoder_model_path")
# No figure is longer; Python itself refuses to read one of some thousand digits.
MOST_DIGITS = 100


class BadCircumstance(ValueError):
    """A text that is not of the form that it should have. `field` names which of them."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field, self.why = field, why


@dataclass(frozen=True, slots=True)
class Circumstances:
    """`command` is argv (several commands one behind another), `engine` the engine's config.json, `params` loose
    figures (engine_max_batch_size, vocab_size, ...), `model` the string parameters of config.pbtxt, `files` the
    names in the engine's folder. Each may be empty: nothing known."""

    command: tuple[str, ...] = ()
    engine: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def flag(self, *names: str) -> str | None:
        """Value of the first of these flags that the command has, spelled `--a 1` or `--a=1`."""
        for index, part in enumerate(self.command):
            name, joined, value = part.partition("=")
            if name in names:
                if joined:
                    return value
                after = self.command[index + 1 : index + 2]
                return after[0] if after and not after[0].startswith("--") else None
        return None

    def number(self, *names: str) -> int | None:
        """The same as a whole number."""
        return as_number(self.flag(*names))

    def launched(self) -> int | None:
        """Processes that the command starts: mpirun's, over all parts between its colons, or --world_size."""
        parts: list[list[str]] = [[]]
        for word in self.command:
            if word == ":":
                parts.append([])
            else:
                parts[-1].append(word)
        each = [Circumstances(tuple(part)).number("--world_size", "-n", "-np", "--np") for part in parts]
        told = [number for number in each if number is not None]
        return sum(told) if len(told) == len(each) else None

    def world_size(self) -> int | None:
        """Ranks of the engine: tp x pp x cp of its config.json, else as many as there are rank files."""
        mapping = _inner(self.engine, "pretrained_config", "mapping")
        sizes = [as_number(mapping.get(key, 1)) for key in ("tp_size", "pp_size", "cp_size")]
        if mapping and None not in sizes:
            product = 1
            for size in sizes:
                product *= size or 1
            return product
        ranks = sum(name.startswith("rank") and name.endswith(".engine") for name in self.files)
        return ranks or None

    def max_batch_size(self) -> int | None:
        """The batch that the engine was built for."""
        built = _inner(self.engine, "build_config").get("max_batch_size")
        return as_number(self.params.get("engine_max_batch_size", built)) or self.number("--max_batch_size")

    def vocab_size(self) -> int | None:
        """Words of the model."""
        return as_number(
            self.params.get("vocab_size", _inner(self.engine, "pretrained_config").get("vocab_size"))
        )

    def engine_folder(self) -> str | None:
        """Folder of the engine as the server sees it."""
        return next((self.model[name] for name in ENGINE_FOLDERS if self.model.get(name)), None)


def read_circumstances(
    *, command: str = "", engine: str = "", params: str = "", model: str = "", files: str = ""
) -> Circumstances:
    """From texts: a shell command, two JSON objects, a config.pbtxt, one name a line. Raises BadCircumstance."""
    return Circumstances(
        command=_command(command),
        engine=_mapping("engine", engine),
        params=_mapping("params", params),
        model=_parameters(model),
        files=tuple(line.strip() for line in files.splitlines() if line.strip()),
    )


def as_number(value: Any) -> int | None:
    """A whole number, also one in a text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if not isinstance(value, str) or len(value) > MOST_DIGITS:
        return None
    return int(value) if value.strip().isdecimal() else None


def _command(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text.replace("\\\n", " "), comments=True))
    except ValueError as error:
        raise BadCircumstance("command", str(error)) from error


def _mapping(name: str, text: str) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadCircumstance(name, str(error)) from error
    if not isinstance(value, dict):
        raise BadCircumstance(name, "not a JSON object")
    return value


def _parameters(text: str) -> Mapping[str, str]:
    if not text.strip():
        return {}
    try:
        config = text_format.Parse(text, ModelConfig())
    except text_format.ParseError as error:
        raise BadCircumstance("model", str(error)) from error
    return {name: value.string_value for name, value in config.parameters.items()}


def _inner(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    found: Any = value
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
