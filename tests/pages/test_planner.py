"""The planner's page: the whole plan from its address, refusals in words, and links that carry it on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from apps.dashboard import planner
from apps.engines import memory_plans
from apps.engines.domain.memory.inputs import PlanInput
from apps.engines.domain.trtllm.request import read_request
from apps.registry.models import Checkpoint
from apps.registry.services import register_checkpoint
from tests import objects
from tests.people import client_of, person
from tests.support.llama import write_llama

pytestmark = pytest.mark.django_db
LLAMA_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


@pytest.fixture
def operator() -> Client:
    return client_of(person("operator"))


@pytest.fixture
def llama(db: None) -> str:
    """Llama-3-8B as a folder with its configuration only."""
    folder = Path(settings.INFLIGHT_HOME) / "checkpoints" / "llama-8b"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    register_checkpoint("test", "llama-8b", {"path": str(folder)})
    return "llama-8b"


def page(client: Client, query: str = "", part: str = "planner") -> str:
    response = client.get(f"{reverse(f'planner:{part}')}?{query}")
    assert response.status_code == 200
    return response.content.decode()


def test_nothing_to_plan_with_says_what_to_do(operator: Client) -> None:
    assert "Register a checkpoint" in page(operator)


def test_a_plan_stands_in_the_address(operator: Client, llama: str) -> None:
    text = page(operator, "checkpoint=llama-8b&gpu=l4&weights=fp8&kv=fp8&max_batch_size=8&max_seq_len=8192")
    assert 'data-fits="yes"' in text
    assert "22.0" in text
    assert '<option value="fp8" selected>FP8</option>' in text
    assert "builder: trtllm" in text
    text = page(operator, "checkpoint=llama-8b&gpu=b200&weights=mxfp4")
    assert "No builder of this installation writes mxfp4 weights" in text


def test_the_part_says_its_address(operator: Client, llama: str) -> None:
    response = operator.get(
        reverse("planner:result"), {"checkpoint": llama, "gpu": "l4", "max_batch_size": "8"}
    )
    assert response.headers["HX-Replace-Url"] == "/planner/?checkpoint=llama-8b&gpu=l4&max_batch_size=8"
    assert "<html" not in response.content.decode()


def test_what_does_not_fit_says_what_to_change(operator: Client, llama: str) -> None:
    text = page(operator, "checkpoint=llama-8b&gpu=a2", "result")
    assert 'data-fits="no"' in text
    assert "does_not_fit" not in text
    assert "Spread it over more GPUs" in text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("tp=3", "num_attention_heads 32"),
        ("gpu=abacus", "no GPU"),
        ("gpu=fleet:nowhere/7", "no such slot"),
        ("max_batch_size=x", "max_batch_size"),
        ("max_batch_size=0", "max_batch_size is 0"),
        ("gpu_memory=much", "no amount of memory"),
        ("kv_fraction=nan", "kv_fraction"),
        ("weights=wide", "no weight format"),
        ("kv=" + "x" * 500, "kv"),
        ("checkpoint=other", "no checkpoint other"),
    ],
)
def test_a_refusal_names_the_field(operator: Client, llama: str, query: str, words: str) -> None:
    start = "" if query.startswith("checkpoint") else "checkpoint=llama-8b&"
    text = page(operator, f"{start}{query}", "result")
    assert "data-refused" in text
    assert words in text


def test_a_plan_of_the_embedded_engine_is_carried_into_a_build(operator: Client) -> None:
    slot = objects.node().gpus.get()
    write_llama(Path(settings.INFLIGHT_HOME) / "checkpoints" / "whole" / "tiny.gguf")
    register_checkpoint("test", "whole", {"demo": "whole"})
    name = f"fleet:{slot.node.node_id}/{slot.index}"
    query = f"checkpoint=whole&gpu={name}&gpu_memory=8GiB&weights=q8_0&max_batch_size=4&max_seq_len=512"
    text = page(operator, query)
    assert 'data-fits="yes"' in text
    link = f"{reverse('engines:new')}?checkpoint=whole&amp;type=Q8_0"
    assert link in text
    form = operator.get(link.replace("&amp;", "&")).content.decode()
    assert '<option value="Q8_0" selected>' in form
    assert '<option value="whole" selected>' in form


def test_a_plan_for_tensorrt_llm_is_carried_as_documents(operator: Client, llama: str) -> None:
    row = Checkpoint.objects.get(name=llama)
    given = PlanInput(gpu="h100-sxm", tp=2, weights="fp8", kv="fp8", max_batch_size=32, max_seq_len=4096)
    documents = memory_plans.build_documents(row, memory_plans.answer(row, given))
    read = read_request(yaml.safe_load_all(yaml.safe_dump_all(documents)))
    assert (read.parallel.tp, read.quantization.format, read.quantization.kv_cache) == (2, "fp8", "fp8")
    assert read.build["max_batch_size"] == 32
    assert read.model == row.path
    text = page(operator, f"{planner.address(row, given)}", "result")
    assert "builder: trtllm" in text
    assert planner.read(QueryDict(planner.address(row, given))) == given


def test_the_form_of_a_build_says_whether_its_engine_fits(operator: Client) -> None:
    slot = objects.node().gpus.get()
    slot.node.versions = {"memory_bytes": 8 * 2**30}
    slot.node.save()
    write_llama(Path(settings.INFLIGHT_HOME) / "checkpoints" / "whole" / "tiny.gguf")
    register_checkpoint("test", "whole", {"demo": "whole"})
    preview = reverse("engines:preview")
    text = operator.get(
        preview, {"mode": "new", "checkpoint": "whole", "quantization": "Q8_0"}
    ).content.decode()
    assert 'data-build-plan="yes"' in text
    slot.node.versions = {"memory_bytes": 2**20}
    slot.node.save()
    text = operator.get(
        preview, {"mode": "new", "checkpoint": "whole", "quantization": "Q8_0"}
    ).content.decode()
    assert 'data-build-plan="no"' in text


def test_the_checkpoints_page_leads_here(operator: Client, llama: str) -> None:
    text = operator.get(reverse("registry:checkpoint", args=[llama])).content.decode()
    assert f"{reverse('planner:planner')}?checkpoint={llama}" in text
