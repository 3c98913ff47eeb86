"""A build's logits against its source's: the same windows of a text, then golden prompts answered greedily by both.

    <serving python> -P -m workers.quality.logits PLAN

PLAN is the JSON of a Plan. Both files are loaded at once; each window is decoded by both before the next begins, and
so is each prompt, with the source first in every second one: what else the machine does hits both.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from apps.loadtests.domain.quality import Answered, TextWindow, common_prefix
from workers.builders.llamacpp_steps.events import StepFailed, run, say
from workers.quality.llama import CONTEXT, STEP, QualityRuntime, failures
from workers.quality.rows import PLAN, ROWS, Rows

# Tokens of a window before the first that is scored: without any context every model only guesses.
UNSCORED = 32
# Tokens of a prompt are read that many times as fast as an answer's are generated; it only weighs the progress.
READ_FASTER = 6.0
# Not more of a passage than a page shows.
SHOWN = 400


@dataclass(frozen=True, slots=True)
class Plan:
    """What to compare. `prompts` are [name, what is shown, what the engine reads]; `windows` at most so many."""

    source: str
    build: str
    text: str
    prompts: list[list[str]]
    windows: int
    answer_tokens: int
    threads: int

    def write(self, folder: Path) -> Path:
        """Write it into a folder; returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / PLAN
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    @property
    def key(self) -> str:
        """What the rows depend on: both files as they are, text, prompts and sizes."""
        files = [
            (path, found.st_size, found.st_mtime_ns)
            for path in (self.source, self.build)
            if (found := _stat(path))
        ]
        told = json.dumps([files, self.text, self.prompts, self.windows, self.answer_tokens, STEP, UNSCORED])
        return hashlib.sha256(told.encode()).hexdigest()


def _stat(path: str) -> Any:
    try:
        return Path(path).stat()
    except OSError as error:
        raise StepFailed(
            "engine_missing",
            f"{path} cannot be read: {error.strerror}.",
            "Build it again, or inspect its checkpoint again.",
        ) from error


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    path: Path = parser.parse_args().plan
    try:
        compare(Plan(**json.loads(path.read_text(encoding="utf-8"))), path.parent)
    except failures.EngineFailure as error:
        raise StepFailed("engine_failed", str(error), "See the run's log.") from error


def compare(plan: Plan, folder: Path) -> None:
    """Write every row that is not there yet."""
    key = plan.key
    source, build = _load(plan.source, plan.threads), _load(plan.build, plan.threads)
    try:
        tokens = source.tokenize(plan.text, special=False)
        if source.vocabulary_size != build.vocabulary_size or tokens != build.tokenize(
            plan.text, special=False
        ):
            raise StepFailed(
                "vocabularies_differ",
                "The build and its source do not read a text as the same tokens, so their logits cannot be compared.",
                "Compare a build with the checkpoint that it was made of.",
            )
        first = source.tokenize("", special=True)
        whole = range(0, len(tokens) - STEP + 1, STEP)
        windows = [tokens[begin : begin + STEP] for begin in whole][: plan.windows]
        each, answer = STEP / READ_FASTER, float(plan.answer_tokens)
        rows = Rows(folder / ROWS, key, len(windows) * each + len(plan.prompts) * answer)
        say(f"{len(windows)} windows of {STEP} tokens, {len(plan.prompts)} prompts")
        for index, window in enumerate(windows):
            if index not in rows.windows:
                rows.window(_window(index, first, window, source, build))
            rows.advance(each)
        for number, (name, shown, prompt) in enumerate(plan.prompts):
            if name not in rows.answers:
                sides = (source, build) if number % 2 == 0 else (build, source)
                rows.answer(_answer(name, shown, prompt, plan.answer_tokens, sides, source, build))
            rows.advance(answer)
        rows.close()
    finally:
        source.close()
        build.close()


def _load(path: str, threads: int) -> QualityRuntime:
    try:
        return QualityRuntime(Path(path), threads)
    except failures.EngineLoadError as error:
        raise StepFailed("engine_not_loaded", str(error), "See the run's log.") from error


def _window(
    index: int, first: list[int], tokens: list[int], source: QualityRuntime, build: QualityRuntime
) -> TextWindow:
    given = [*first, *tokens[:-1]]
    # Row i is the distribution of what follows given[i].
    begin = UNSCORED + len(first) - 1
    targets = np.array(tokens[UNSCORED:])
    ours, theirs = (_log_softmax(side.forced(given)[begin:]) for side in (source, build))
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise StepFailed(
            "engine_generates_nan",
            "An engine computes probabilities that are no numbers.",
            "Build with a wider weight type, or fetch the checkpoint again.",
        )
    places = np.arange(targets.size)
    divergence = np.maximum((np.exp(ours) * (ours - theirs)).sum(axis=1), 0.0)
    return TextWindow(
        index=index,
        tokens=int(targets.size),
        source_nll=float(-ours[places, targets].sum()),
        build_nll=float(-theirs[places, targets].sum()),
        divergence=float(divergence.sum()),
        most=float(divergence.max()),
        same=int((ours.argmax(axis=1) == theirs.argmax(axis=1)).sum()),
        text=source.text(tokens)[:SHOWN],
    )


def _log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return rows


def _answer(
    name: str,
    shown: str,
    prompt: str,
    most: int,
    sides: tuple[QualityRuntime, QualityRuntime],
    source: QualityRuntime,
    build: QualityRuntime,
) -> Answered:
    tokens = source.tokenize(prompt)[: CONTEXT - most - 1]
    told = {id(side): side.greedy(tokens, most) for side in sides}
    (one, one_seconds), (other, other_seconds) = told[id(source)], told[id(build)]
    return Answered(
        name=name,
        prompt=shown,
        source=source.text(one),
        build=build.text(other),
        common=common_prefix(one, other),
        length=max(len(one), len(other)),
        same=one == other,
        source_tokens=len(one),
        build_tokens=len(other),
        source_seconds=one_seconds,
        build_seconds=other_seconds,
    )


if __name__ == "__main__":
    run(main)
    sys.exit(0)
