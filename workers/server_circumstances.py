"""What is known of a server besides its log: its command, its model's configuration, its engine's config.json, files.

Read from its own folder, which stands until it is cleared away, and from the engine's. An imported repository is
somebody else's: each part is read within bounds and left out where it cannot be read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

from apps.diagnosis.domain.circumstances import BadCircumstance, Circumstances, read_circumstances
from workers.runtimes.base import ServerSpec

CONFIG = "config.pbtxt"
ENGINE_CONFIG = "config.json"
# Larger ones are not what they are called.
MOST_BYTES = 1024 * 1024
MOST_MODELS = 100
MOST_FILES = 2_000


def of(spec: ServerSpec) -> Circumstances:
    """Everything that is known; empty where the server was never prepared."""
    model = _model(spec)
    named = model.engine_folder()
    # A relative one counts from where the server runs.
    folder = spec.folder / named if named else spec.engine
    known = replace(model, command=_command(spec))
    if folder is None:
        return known
    engine = _read("engine", _text(folder / ENGINE_CONFIG))
    return replace(known, engine=engine.engine, files=_names(folder))


def _command(spec: ServerSpec) -> tuple[str, ...]:
    try:
        found = json.loads(_text(spec.command))
    except (ValueError, RecursionError):
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _model(spec: ServerSpec) -> Circumstances:
    """Of the configurations of its repository the one that names an engine, else the served model's own."""
    own = _config(spec.repository_folder / spec.model / CONFIG)
    if own.engine_folder():
        return own
    try:
        paths = sorted(islice(spec.repository_folder.glob(f"*/{CONFIG}"), MOST_MODELS))
    except OSError:
        return own
    return next((found for found in map(_config, paths) if found.engine_folder()), own)


def _config(path: Path) -> Circumstances:
    found = _read("model", _text(path))
    # No path has a NUL in it, and no database takes one.
    return replace(found, model={name: value for name, value in found.model.items() if "\0" not in value})


def _read(name: str, text: str) -> Circumstances:
    try:
        return read_circumstances(**{name: text})
    except (BadCircumstance, RecursionError):
        return Circumstances()


def _text(path: Path) -> str:
    """The file's text, empty where it is none that can be read; a pipe would wait for ever."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def _names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in islice(folder.iterdir(), MOST_FILES)))
    except (OSError, ValueError):
        return ()
