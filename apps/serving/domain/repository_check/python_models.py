"""What a model.py asks of its configuration, read from its syntax tree; the file is never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from apps.serving.domain import pbtxt
from apps.serving.domain.repository_check.findings import Remark
from apps.serving.domain.repository_check.folders import ModelFolder, read_text
from apps.serving.domain.repository_check.one_config import ReadConfig

# Read without a default by preprocessing's model.py of these releases; later ones ask for another key.
_VISION_KEYS = ("visual_model_path", "multimodal_model_path")


def needed_parameters(source: str) -> tuple[set[str], set[str]]:
    """Keys that a model.py takes out of `parameters` without a default, and keys that it reads in any way.

    Raises SyntaxError, ValueError or RecursionError where it is no Python.
    """
    needed: set[str] = set()
    mentioned: set[str] = set()
    guarded: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and _is_parameters(node.value):
            key = _text(node.slice)
            if key is not None:
                needed.add(key)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            key = _text(node.args[0])
            if key is not None and node.func.attr in ("get", "pop") and _is_parameters(node.func.value):
                mentioned.add(key)
        elif isinstance(node, ast.Compare) and any(isinstance(op, ast.In) for op in node.ops):
            key = _text(node.left)
            if key is not None and any(_is_parameters(other) for other in node.comparators):
                guarded.add(key)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            mentioned.add(node.value)
    return needed - guarded, needed | mentioned | guarded


def check_python_model(read: ReadConfig, folder: ModelFolder, kind: str) -> Iterator[Remark]:
    """Remarks about parameters that the model's code needs and the configuration does not have."""
    if read.config is None:
        return
    have = set(pbtxt.parameters(read.config))
    path = folder.file(read.config.default_model_filename or "model.py")
    source = _source(path) if path is not None else None
    if source is None:
        if kind == "preprocessing" and "tokenizer_dir" in have and not have & set(_VISION_KEYS):
            yield _vision_key(read)
        return
    try:
        needed, _mentioned = needed_parameters(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = f"model.py is no Python that this version reads: {error}."
        yield Remark("model_code_unreadable", "warning", read.model, "model.py", message)
        return
    for key in sorted(needed - have):
        message = f"model.py takes {key} without a default: initialize ends with KeyError: '{key}'."
        remedy = f'Add parameters {{ key: "{key}" value {{ string_value: "" }} }}.'
        facts = {"key": key, "raises": f"KeyError: '{key}'"}
        yield Remark("parameter_missing", "error", read.model, read.file, message, remedy, facts)


def _vision_key(read: ReadConfig) -> Remark:
    key = _VISION_KEYS[0]
    message = (
        f"There is no {key}, and no model.py here to look into: the one of TensorRT-LLM 0.16 takes it without a "
        f"default, and initialize ends with KeyError: '{key}'."
    )
    remedy = f'Add parameters {{ key: "{key}" value {{ string_value: "" }} }}; from 0.17 on it is {_VISION_KEYS[1]}.'
    facts = {"key": key, "raises": f"KeyError: '{key}'"}
    return Remark("parameter_missing", "error", read.model, read.file, message, remedy, facts)


def _source(path: Path) -> str | None:
    try:
        return read_text(path)
    except (OSError, ValueError):
        return None


def _is_parameters(node: ast.expr) -> bool:
    """Whether an expression is the configuration's parameters: `parameters`, `config['parameters']`."""
    if isinstance(node, ast.Subscript):
        return _text(node.slice) == "parameters"
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("parameters", "params", "model_parameters")


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
