"""A hub on loopback, allowed and set as mirror, and a home without anything fetched."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.registry.hub import dispatch
from apps.registry.models import Checkpoint
from apps.registry.services import save_hub_access
from tests.registry.hub.double import Hub, Repo, serve
from tests.support.llama import write_llama

CONFIG = json.dumps(
    {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 64,
        "max_position_embeddings": 512,
        "torch_dtype": "float16",
    }
).encode()


@pytest.fixture
def hub() -> Iterator[Hub]:
    """The double, with no repository in it."""
    with serve() as made:
        yield made


@pytest.fixture
def mirror(hub: Hub, settings: Any, db: None) -> Hub:
    """The double, set as this installation's mirror."""
    settings.INFLIGHT_OUTBOUND_ALLOW = ["127.0.0.1", "localhost"]
    save_hub_access("test", {"endpoint": hub.url})
    return hub


@pytest.fixture(autouse=True)
def home() -> Iterator[Path]:
    """This run's home; what a test fetches goes."""
    folder = Path(django_settings.INFLIGHT_HOME)

    def clean() -> None:
        for path in [*(folder / "checkpoints").glob("*--*"), *(folder / "checkpoints").glob(".*")]:
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(folder / "fetches", ignore_errors=True)
        for path in (folder / "uploads").glob("*"):
            path.unlink()

    clean()
    yield folder
    clean()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of checkpoints whose message was sent; no broker is asked."""
    found: list[str] = []

    def publish(row: Checkpoint) -> None:
        found.append(row.name)

    monkeypatch.setattr(dispatch, "_publish", publish)
    return found


@pytest.fixture
def gguf_bytes(tmp_path: Path) -> bytes:
    """A complete llama GGUF of a few hundred kilobytes."""
    return write_llama(tmp_path / "double" / "m.gguf", tokenizer__chat_template="{{ x }}").read_bytes()


def safetensors(tensor: str, size: int) -> bytes:
    """A file of weights with one tensor, of exactly `size` bytes."""
    rows = (size - 512) // 2
    header = json.dumps({tensor: {"dtype": "F16", "shape": [rows], "data_offsets": [0, 2 * rows]}}).encode()
    padded = header.ljust(size - 8 - 2 * rows)
    data = (bytes(range(256)) * (2 * rows // 256 + 1))[: 2 * rows]
    return len(padded).to_bytes(8, "little") + padded + data


def safetensors_repo(megabytes: int = 3, **more: bytes) -> Repo:
    """A repository in transformers' form with two files of weights."""
    return Repo(
        {
            "config.json": CONFIG,
            "tokenizer.json": b'{"version": "1.0"}',
            "model-00001-of-00002.safetensors": safetensors("a", megabytes * 1024 * 1024),
            "model-00002-of-00002.safetensors": safetensors("b", 1024 * 1024),
            "README.md": b"# A model\n",
            "modeling_custom.py": b"raise SystemExit\n",
            **more,
        }
    )


@pytest.fixture(autouse=True)
def _node_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts are ended by their mark, on the whole host: two test processes must not share node and row number."""
    monkeypatch.setattr(django_settings, "INFLIGHT_NODE_ID", f"n-test-{os.getpid()}")
