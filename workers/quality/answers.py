"""Golden prompts answered greedily by two deployments that serve, whatever engine is behind them.

    <python> -m workers.quality.answers PLAN

Each prompt goes to both, one request at a time; the answers' text is compared by characters.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from apps.loadtests.domain.quality import Answered, common_prefix
from apps.loadtests.domain.records import OK
from apps.loadtests.domain.workload import Frame
from workers.builders.llamacpp_steps.events import StepFailed, run
from workers.loadgen.answers import Answer
from workers.loadgen.asker import TritonHttpAsker
from workers.loadgen.plan import Address
from workers.quality.rows import PLAN, ROWS, Rows

ANSWER_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Whom to ask what. `prompts` are [name, what is shown, what the source reads, what the build reads]; `subject`
    names the revisions that answer, so that answers of another are not kept."""

    source: list[Address]
    build: list[Address]
    prompts: list[list[str]]
    answer_tokens: int
    subject: str

    def write(self, folder: Path) -> Path:
        """Write it into a folder; returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / PLAN
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    @property
    def key(self) -> str:
        """What the rows depend on."""
        told = json.dumps([self.subject, self.prompts, self.answer_tokens])
        return hashlib.sha256(told.encode()).hexdigest()


def read(path: Path) -> Plan:
    """The plan of a file that `write` made. Raises ValueError, KeyError or TypeError for another."""
    said = json.loads(path.read_text(encoding="utf-8"))
    for side in ("source", "build"):
        said[side] = [Address(**address) for address in said[side]]
    return Plan(**said)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    path: Path = parser.parse_args().plan
    asyncio.run(compare(read(path), path.parent))


async def compare(plan: Plan, folder: Path) -> None:
    """Write every row that is not there yet."""
    rows = Rows(folder / ROWS, plan.key, float(len(plan.prompts)))
    askers = {
        side: TritonHttpAsker(addresses, Frame(), keep_text=True, exact=False)
        for side, addresses in (("source", plan.source), ("build", plan.build))
    }
    try:
        for number, (name, shown, *prompts) in enumerate(plan.prompts):
            if name not in rows.answers:
                texts = dict(zip(("source", "build"), prompts, strict=True))
                order = ("source", "build") if number % 2 == 0 else ("build", "source")
                told = {
                    side: await _ask(askers[side], side, texts[side], plan.answer_tokens) for side in order
                }
                rows.answer(_compared(name, shown, told["source"], told["build"]))
            rows.advance(1.0)
    finally:
        for asker in askers.values():
            await asker.close()
    rows.close()


async def _ask(asker: TritonHttpAsker, side: str, prompt: str, tokens: int) -> Answer:
    answer = Answer()
    try:
        await asyncio.wait_for(asker.ask(prompt, (), tokens, answer), ANSWER_SECONDS)
    except TimeoutError:
        answer.fail("timeout")
    if answer.result != OK:
        raise StepFailed(
            "no_answer",
            f"The {side}'s deployment did not answer a golden prompt: {answer.code}.",
            "See on its page whether it serves, then start the run again.",
        )
    answer.ended = answer.ended or time.perf_counter()
    return answer


def _compared(name: str, prompt: str, source: Answer, build: Answer) -> Answered:
    one, other = "".join(source.text), "".join(build.text)
    return Answered(
        name=name,
        prompt=prompt,
        source=one,
        build=other,
        common=common_prefix(one, other),
        length=max(len(one), len(other)),
        same=one == other,
        source_tokens=source.total,
        build_tokens=build.total,
        source_seconds=_seconds(source),
        build_seconds=_seconds(build),
    )


def _seconds(answer: Answer) -> float | None:
    """From the first message to the last; null where there is one or none."""
    found = answer.arrivals
    return found[-1] - found[0] if len(found) > 1 else None


if __name__ == "__main__":
    run(main)
