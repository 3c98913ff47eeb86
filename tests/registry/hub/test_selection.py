"""Which files of a repository are fetched."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.exceptions import InvalidInput
from apps.registry.hub.selection import RepoFile, choose


def listing(*names: str) -> list[RepoFile]:
    return [RepoFile(name, 10 + index) for index, name in enumerate(names)]


SIDES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "merges.txt",
    "LICENSE",
)
AWAY = (
    "modeling_x.py",
    ".gitattributes",
    "image.png",
    "onnx/model.onnx",
    "original/params.json",
    "tf_model.h5",
)


@pytest.mark.parametrize(
    ("names", "patterns", "pickle", "form", "wanted"),
    [
        (("model.safetensors", *SIDES, *AWAY), [], False, "hf", {"model.safetensors", *SIDES}),
        (
            ("a.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json", "config.json"),
            [],
            True,
            "hf",
            {"a.safetensors", "config.json"},
        ),
        (
            (
                "consolidated.safetensors",
                "model-1.safetensors",
                "model.safetensors.index.json",
                "config.json",
            ),
            [],
            False,
            "hf",
            {"model-1.safetensors", "model.safetensors.index.json", "config.json"},
        ),
        (
            ("pytorch_model.bin", "pytorch_model.bin.index.json", "training_args.bin", "config.json"),
            [],
            True,
            "hf",
            {"pytorch_model.bin", "pytorch_model.bin.index.json", "config.json"},
        ),
        (("x.Q8_0.gguf", "README.md", "mmproj-x.gguf"), [], False, "gguf", {"x.Q8_0.gguf"}),
        (("a.gguf", "b-Q4.gguf", "README.md"), ["*Q4*"], False, "gguf", {"b-Q4.gguf"}),
        (
            ("a.gguf", "model.safetensors", "config.json"),
            [],
            False,
            "hf",
            {"model.safetensors", "config.json"},
        ),
        (("a.gguf", "model.safetensors", "config.json"), ["a.gguf"], False, "gguf", {"a.gguf"}),
        (
            ("x.safetensors", "y.safetensors", "config.json", "run.py"),
            ["x.*", "run.py"],
            False,
            "hf",
            {"x.safetensors", "config.json"},
        ),
    ],
)
def test_what_is_fetched(
    names: tuple[str, ...], patterns: list[str], pickle: bool, form: str, wanted: set[str]
) -> None:
    found = choose(listing(*names), patterns, pickle)
    assert (found.form, {file.name for file in found.files}) == (form, wanted)
    assert found.total == sum(file.size for file in found.files)


@pytest.mark.parametrize(
    ("names", "patterns", "code"),
    [
        (("a.gguf", "b.gguf"), [], "choose_files"),
        (("a.gguf", "b.gguf"), ["*.gguf"], "choose_files"),
        (("a.gguf",), ["c.gguf"], "files_not_found"),
        (("a-00001-of-00002.gguf", "a-00002-of-00002.gguf"), [], "gguf_sharded"),
        (("pytorch_model.bin", "config.json"), [], "pickle_refused"),
        (("model.pt", "config.json"), [], "pickle_refused"),
        (("a.safetensors", "x.bin", "config.json"), ["x.bin"], "pickle_refused"),
        (("README.md", "data.csv"), [], "no_weights"),
        ((), [], "no_weights"),
        (("model.safetensors",), [], "no_config"),
        (("a/../../x.gguf",), [], "hub_unsafe_name"),
        (("/etc/x.gguf",), [], "hub_unsafe_name"),
        (("a//x.gguf",), [], "hub_unsafe_name"),
        (("a\\b.gguf",), [], "hub_unsafe_name"),
        (("/".join("abcdefghij") + ".gguf",), [], "hub_unsafe_name"),
    ],
)
def test_what_is_refused(names: tuple[str, ...], patterns: list[str], code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        choose(listing(*names), patterns)
    assert caught.value.code == code
    assert caught.value.remedy


def test_the_choice_tells_names_and_sizes_smallest_first() -> None:
    with pytest.raises(InvalidInput) as caught:
        choose([RepoFile("big.gguf", 9), RepoFile("small.gguf", 3), RepoFile("mmproj.gguf", 1)])
    choices: Any = caught.value.facts["choices"]
    assert choices == [{"name": "small.gguf", "size_bytes": 3}, {"name": "big.gguf", "size_bytes": 9}]
