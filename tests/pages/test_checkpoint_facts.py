"""The facts panel of a checkpoint: what is known, what is not, and over how many GPUs it may be split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.registry.domain.model_config import facts_of
from apps.registry.models import Checkpoint
from tests.people import client_of, person

pytestmark = pytest.mark.django_db
KNOWN = json.loads((Path(__file__).parents[1] / "data/hf_configs/architectures.json").read_text())


@pytest.fixture
def operator() -> Client:
    return client_of(person("operator"))


def shown(client: Client, config: dict[str, Any], **columns: Any) -> str:
    facts = facts_of(config).model_dump(mode="json")
    row = {
        "name": "m",
        "source": {"path": "/srv/m"},
        "path": "/srv/m",
        "state": "ready",
        "format": "hf",
        **columns,
    }
    Checkpoint.objects.create(**row, facts={**facts, "identity": {"size": 1}})
    page = client.get("/checkpoints/m/")
    assert page.status_code == 200
    return page.content.decode().replace("\u202f", " ").replace("&#x27;", "'")


def test_experts_latent_and_quantization(operator: Client) -> None:
    config = {
        **KNOWN["deepseek-v3"]["config"],
        "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
        "max_position_embeddings": 163840,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    page = shown(operator, config)
    for text in (
        "671 026 419 200",
        'data-copy="671026419200"',
        "512 values and 64 rotary ones",
        "70 272 B",
        "256, 8 used, each 2 048 wide, shared: 2 048 wide",
        "FP8_BLOCK_SCALES",
        "128 x 128",
        "RoPE yarn, factor 40, from 4 096 tokens",
        "163 840 tokens",
    ):
        assert text in page
    assert "identity" not in page


def test_windows_and_kinds_of_layers(operator: Client) -> None:
    assert "1 024 tokens on 29 layers, everything on 5" in shown(operator, KNOWN["gemma-3-4b"]["config"])
    Checkpoint.objects.all().delete()
    assert "32 (4 attention, 28 state space)" in shown(operator, KNOWN["jamba-v0.1"]["config"])


def test_why_a_size_is_refused(operator: Client) -> None:
    page = shown(operator, KNOWN["qwen2-57b-a14b"]["config"])
    assert "Over how many GPUs" in page
    assert "num_attention_heads 28 % tp 8 != 0" in page
    assert "num_layers 28 % pp 8 != 0" in page


@pytest.mark.parametrize(
    "facts", [{}, {"params": 5}, {"attention_window": 4096, "moe": None, "valid_tp": None}]
)
def test_a_row_that_knows_little(operator: Client, facts: dict[str, Any]) -> None:
    Checkpoint.objects.create(
        name="m", source={"path": "/srv/m"}, path="/srv/m", state="refused", facts=facts
    )
    page = operator.get("/checkpoints/m/").content.decode()
    assert "/srv/m" in page
    assert "Over how many GPUs" not in page


def test_the_api_answers_the_same_facts(operator: Client) -> None:
    shown(operator, KNOWN["gemma-3-4b"]["config"])
    told = operator.get("/api/v1/checkpoints/m").json()
    assert told["facts"]["params"] == KNOWN["gemma-3-4b"]["params"]
    assert told["facts"]["attention_window"] == {"full_layers": 5, "windowed_layers": 29, "window": 1024}
    assert [finding["id"] for finding in told["findings"]] == ["language_model_only"]
