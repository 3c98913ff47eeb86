"""Second stage: each tensor dequantised and written again in the wanted type, streamed."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path
from typing import BinaryIO

from apps.registry.domain.gguf_reader import Header, read_header
from apps.registry.domain.gguf_types import BY_NAME
from workers.builders.llamacpp_steps.events import Progress, run, say, send
from workers.builders.llamacpp_steps.plan import Target, plan_tensors
from workers.builders.llamacpp_steps.weights import converted
from workers.builders.llamacpp_steps.writer import pad, write_header

# llama.h, enum llama_ftype; a test compares them with the gguf package and with the builder's own table.
FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "BF16": 32}


def main() -> None:
    """Command line of the stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--type", choices=sorted(FILE_TYPES), required=True)
    options = parser.parse_args()
    convert(options.source, options.target, options.type)


def convert(source: Path, target: Path, kind: str) -> None:
    """Write `target` from `source` with weights of type `kind`; sends what each type's share became."""
    header = read_header(source)
    targets = plan_tensors(header, kind)
    _note_exceptions(targets, kind)
    target.parent.mkdir(parents=True, exist_ok=True)
    progress = Progress(sum(item.size for item in targets))
    with source.open("rb") as reading, target.open("wb") as writing:
        write_header(reading, header, targets, FILE_TYPES[kind], writing)
        for item in targets:
            _write_tensor(reading, item, header, writing, progress)
        writing.flush()
        os.fsync(writing.fileno())
    types = Counter(item.type for item in targets)
    say(
        f"{len(targets)} tensors written: "
        + ", ".join(f"{count} {name}" for name, count in types.most_common())
    )
    send("result", facts={"tensor_types": dict(types), "notes": _notes(targets, kind)})


def _write_tensor(
    reading: BinaryIO, item: Target, header: Header, writing: BinaryIO, progress: Progress
) -> None:
    size = 0
    for piece in converted(reading, item):
        size += writing.write(piece)
        progress.add(len(piece))
    if size != item.size:
        raise AssertionError(f"{item.source.name}: {size} bytes written, {item.size} planned")
    pad(size, header.alignment, writing)
    say(f"{item.source.name}: {item.source.type} -> {item.type}" + (" (copied)" if item.raw else ""))


def _notes(targets: list[Target], kind: str) -> list[str]:
    kept = Counter(item.note for item in targets if item.note)
    return [f"{count} tensors stay F16 instead of {kind}: {why}." for why, count in kept.items()]


def _note_exceptions(targets: list[Target], kind: str) -> None:
    for text in _notes(targets, kind):
        send("note", text=text)
    widened = [item for item in targets if not item.raw and _bits(item.source.type) < _bits(item.type)]
    if widened and kind not in {"F16", "BF16"}:
        send(
            "note",
            text=f"{len(widened)} tensors were narrower in the checkpoint; {kind} brings nothing back.",
        )


def _bits(kind: str) -> float:
    return BY_NAME[kind].size * 8 / BY_NAME[kind].block


if __name__ == "__main__":
    run(main)
