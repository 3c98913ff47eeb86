"""Rendered TensorRT-LLM repositories in the real server: the ensemble, the BLS model and llmapi load and stream.

Configuration, start, probe and streams are the product's. Python stand-ins compute (tests/support/trtllm/models): no
tensorrt_llm runs without a GPU.
"""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from apps.serving import adoption, preview, selectors, services, states
from apps.serving.domain import repository
from apps.serving.domain.trtllm import spec, templates
from apps.serving.domain.trtllm.render import render
from apps.serving.models import Deployment, Instance
from apps.streaming import answers
from apps.streaming.selectors import as_source_endpoint, pick_endpoint
from apps.streaming.token_source import Endpoint, GenerationRequest, SamplingParams
from apps.streaming.triton_grpc import TritonGrpcSource
from apps.streaming.triton_http import TritonHttpSource
from tests import objects
from tests.support.standin import Ticker, end_all
from tests.support.triton import TritonInstallation
from tests.support.trtllm import rows, served
from tests.support.trtllm_templates import write_engine
from workers.runtimes import processes
from workers.runtimes.base import Identity

pytestmark = [pytest.mark.triton, pytest.mark.django_db, pytest.mark.timeout(180)]


@pytest.fixture
def ticking(real_triton: TritonInstallation, tmp_path: Path, settings: Any, monkeypatch: Any) -> Any:
    """Ticks over the real server, with stand-ins where the node has NVIDIA's parts."""
    settings.INFLIGHT_TRITON_BACKENDS = str(
        served.write_backends(tmp_path / "backends", settings.INFLIGHT_TRITON_BACKENDS)
    )
    monkeypatch.setenv("INFLIGHT_TRTLLM_TEMPLATES", str(served.write_templates(tmp_path)))
    served.node()
    yield Ticker()
    end_all()


def deployed(recipe: str, **placed_by: Any) -> Deployment:
    profile = rows.profile(recipe, recipe=recipe)
    served.engine(profile, recipe)
    kind = "llmapi" if recipe == "checkpoint" else "trtllm"
    batching = objects.batching("two", engine=kind, max_batch_size=2)
    placement = {"device": "gpu", "trtllm": placed_by}
    row = objects.deployment("fox", build_profile=profile, batching=batching, placement=placement)
    return services.deploy("test", row)


def said(demo: Deployment, source: Any, **params: Any) -> tuple[answers.Answer, list[str]]:
    """A whole answer of the deployment, as chat and gateway read it, and the pieces in which it came."""
    endpoint, pieces = pick_endpoint(demo), list[str]()
    request = GenerationRequest("Tell me of a fox: ", SamplingParams(**params), "r-1")
    return asyncio.run(answers.answer(source(endpoint), request, pieces.append)), pieces


def both_ways(demo: Deployment) -> None:
    """A stream over HTTP and one over gRPC, to the length and to a stop word."""
    for source in (TritonHttpSource, TritonGrpcSource):
        whole, pieces = said(demo, source, max_tokens=40)
        # It came bit by bit, not at the end.
        assert len(pieces) > 10
        assert whole.end.error is None, whole.end
        assert whole.text == served.STORY[:40]
        stopped, _pieces = said(demo, source, max_tokens=40, stop=("there",))
        assert stopped.end.error is None, stopped.end
        # Whole or in part the word may have been streamed before it was met; nothing comes behind it.
        assert stopped.text in {served.STORY[:end] for end in range(17, 23)}
        assert stopped.end.reason == "stop"


def test_the_ensemble_streams_and_becomes_the_bls_model_without_a_dropped_stream(ticking: Ticker) -> None:
    demo = deployed("engine")
    ticking.until_state(demo, states.READY, 90)
    both_ways(demo)
    before = Instance.objects.get(state=states.SERVING)

    long: list[answers.Answer] = []
    endpoint = as_source_endpoint(selectors.endpoint(before))
    reader = threading.Thread(target=lambda: long.append(said_from(endpoint, 700)))
    reader.start()
    around = {"answering_model": "tensorrt_llm_bls", "bls_instances": 1}
    services.save_deployment("test", {"placement": {"device": "gpu", "trtllm": around}}, demo)
    services.deploy("test", demo)
    ticking.until(lambda: Instance.objects.filter(pk=before.pk, state=states.GONE).exists(), 90)
    reader.join(30)
    # The server was asked to unload its ensemble while the stream ran, and ended when that was done.
    assert long[0].end.error is None, long[0].end
    assert len(long[0].text) == 700
    both_ways(demo)
    after = Instance.objects.get(state=states.SERVING)
    assert after.uid != before.uid
    services.stop("test", demo)
    ticking.until_state(demo, states.STOPPED, 60)
    assert processes.group_members(Identity(after.pid or 0, after.process_created or 0.0, after.uid)) == []


def said_from(endpoint: Endpoint, tokens: int) -> answers.Answer:
    request = GenerationRequest("Tell me of a fox: ", SamplingParams(max_tokens=tokens))
    return asyncio.run(answers.answer(TritonGrpcSource(endpoint), request))


def test_the_llmapi_model_streams_in_its_own_names(ticking: Ticker) -> None:
    demo = deployed("checkpoint")
    ticking.until_state(demo, states.READY, 90)
    both_ways(demo)
    assert said(demo, TritonGrpcSource, max_tokens=3)[0].end.reason == "length"


def test_an_engine_that_does_not_load_says_why_in_its_own_words(ticking: Ticker) -> None:
    demo = deployed("engine")
    engine = demo.revisions.get().engine
    assert engine is not None
    words = (
        "[TensorRT-LLM][ERROR] [executor] Executor creation failed\n"
        "Internal: unexpected error when creating modelInstanceState: [TensorRT-LLM][ERROR] CUDA runtime error in "
        "::cudaMallocAsync(ptr, n, mMemPool->getPool(), mCudaStream->get()): out of memory"
    )
    (Path(engine.path) / "fails.txt").write_text(words)
    ticking.until_state(demo, states.FAILED, 90)
    row = Instance.objects.get()
    assert row.reason == "load_failed"
    assert "out of memory" in row.diagnosis["log"]
    assert row.diagnosis["diagnosis"]["id"].startswith("gpu_o")


def test_a_repository_that_somebody_had_is_adopted_and_streams(ticking: Ticker, settings: Any) -> None:
    root = Path(settings.INFLIGHT_HOME) / "checkpoints/theirs"
    engine = write_engine(root.with_name("their-engine") / "engine", batch=2)
    (engine / "tokenizer.json").write_text("{}")
    values = {"recipe": "engine", "model": str(engine), "max_batch_size": 2, "instances": {"bls": 1}}
    found = templates.find(os.environ["INFLIGHT_TRTLLM_TEMPLATES"])
    repository.write(root, render(spec.parse(values | {"version": "1.2"}), found).files)
    row = services.import_repository("test", "theirs", {"path": str(root)})
    plan = adoption.adoption_plan(row)
    assert (plan.entry, plan.tuned, plan.blockers) == ("ensemble", "tensorrt_llm", ())
    demo = services.adopt_repository("test", row, "fox", {"placement": {"device": "gpu"}})
    services.deploy("test", demo)
    ticking.until_state(demo, states.READY, 90)
    both_ways(demo)
    # Its settings are editable, and only what was edited changes.
    services.save_batching_profile("test", {"trtllm": {"max_beam_width": 2}}, demo.batching)
    demo = selectors.deployment("fox")
    before, after = preview.rendered_files(demo.revisions.get()), preview.rendered_files(demo)
    assert [path for path in after if after[path] != before[path]] == ["tensorrt_llm/config.pbtxt"]
    assert 'key: "max_beam_width"\n  value {\n    string_value: "2"' in after["tensorrt_llm/config.pbtxt"]
