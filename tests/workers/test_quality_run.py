"""A quality run in this process with real children: llama.cpp on two tiny engines; stopping and going on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from apps.engines.models import Engine
from apps.loadtests import attempts, dispatch, services
from apps.loadtests.models import QualityRun
from apps.registry.models import Checkpoint
from tests import objects
from tests.triton_model.tiny import write_tiny
from workers import quality_run
from workers.builders.llamacpp_steps.convert import convert

pytestmark = pytest.mark.django_db(transaction=True)
TEXT = "abcdefghijklmnop" * 40


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving_python: str, settings: Any) -> Engine:
    """A tiny engine whose weights were halved in width, and its checkpoint; a text that the tiny vocabulary reads."""
    monkeypatch.setattr(dispatch, "_publish", lambda row: None)
    text, prompts = tmp_path / "text.txt", tmp_path / "prompts.json"
    text.write_text(TEXT, encoding="utf-8")
    prompts.write_text(json.dumps([{"name": "a", "prompt": "abc"}, {"name": "b", "prompt": "nop"}]))
    monkeypatch.setattr(quality_run, "TEXT", text)
    monkeypatch.setattr(quality_run, "PROMPTS", prompts)
    made = objects.engine(objects.build_profile())
    source = write_tiny(tmp_path / "source.gguf")
    Checkpoint.objects.filter(pk=made.checkpoint_id).update(path=str(source), chat_template="")
    convert(source, Path(made.path) / "model.gguf", "Q4_0")
    return Engine.objects.get(pk=made.pk)


def test_a_run_measures_a_loss_and_one_that_stopped_goes_on(engine: Engine, tmp_path: Path) -> None:
    row = services.start_quality_run("cli", engine, windows=3, answer_tokens=6)
    assert quality_run.run_quality(row.pk, "load")
    row.refresh_from_db()
    assert (row.state, row.sentence) == ("succeeded", "")
    told = row.result["figures"]
    assert (row.result["windows"], row.result["tokens"]) == (3, 3 * 96)
    assert told["divergence"]["value"] > 0
    assert told["divergence"]["low"] is not None
    assert row.result["source_perplexity"] != row.result["build_perplexity"]
    assert len(row.result["answers"]) == 2
    # A run that lost its last window and answers takes the rest over and comes to the same figures.
    place = Path(row.folder)
    lines = (place / "rows.jsonl").read_text().splitlines()
    kept = [line for line in lines if '"key"' in line or '"index": 0' in line or '"index": 1' in line]
    QualityRun.objects.filter(pk=row.pk).update(state="failed")
    row.refresh_from_db()
    (place / "rows.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    again = services.repeat_quality_run("cli", row)
    assert quality_run.run_quality(again.pk, "load")
    again.refresh_from_db()
    assert again.result["figures"]["divergence"] == told["divergence"]
    assert Path(again.log_path).is_file()
    assert not quality_run.run_quality(again.pk, "load")


def test_a_run_that_cannot_go_on_says_why(engine: Engine) -> None:
    shutil.rmtree(engine.path)
    row = services.start_quality_run("cli", engine)
    quality_run.run_quality(row.pk, "load")
    row.refresh_from_db()
    assert (row.state, row.reason) == ("failed", "engine_missing")
    assert "Build it again" in row.remedy
    cancelled = services.start_quality_run("cli", engine)
    claim = attempts.claim_run(cancelled.pk, "load", "n1", QualityRun)
    assert claim is not None
    services.cancel_quality_run("cli", cancelled)
    quality_run.QualityAttempt(claim, "load").run()
    cancelled.refresh_from_db()
    assert cancelled.state in ("cancelled", "failed")
