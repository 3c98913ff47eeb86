"""Sources are exactly one of three, and never lead out of the allowed roots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.core.exceptions import InvalidInput
from apps.registry.domain.sources import locate, parse_source


@pytest.mark.parametrize(
    "data",
    [
        {"demo": "smollm2-135m"},
        {"path": "/data/m.gguf"},
        {"huggingface": {"repo": "owner/name", "revision": "main"}},
    ],
)
def test_the_three_forms(data: dict[str, Any]) -> None:
    assert parse_source(data).as_dict() == data


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "source"),
        ("demo", "source"),
        (None, "source"),
        ({"demo": "a", "path": "/b"}, "source"),
        ({"demo": "../etc"}, "source.demo"),
        ({"demo": "a/b"}, "source.demo"),
        ({"demo": ""}, "source.demo"),
        ({"path": ""}, "source.path"),
        ({"path": 7}, "source.path"),
        ({"hugingface": {"repo": "a/b"}}, "source.hugingface"),
        ({"huggingface": {"repo": "no-slash"}}, "source.huggingface.repo"),
        ({"huggingface": {"repo": "a/../../b"}}, "source.huggingface.repo"),
        ({"huggingface": {"repo": "a/b", "token": "x"}}, "source.huggingface.token"),
    ],
)
def test_wrong_forms_name_the_field(data: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_source(data)
    assert caught.value.code == "source_invalid"
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    (folder / "demo").mkdir(parents=True)
    (folder / "demo" / "m.gguf").write_bytes(b"x")
    (folder / "hf").mkdir()
    (folder / "hf" / "config.json").write_text("{}")
    (folder / "two").mkdir()
    for name in ("a.gguf", "b.gguf"):
        (folder / "two" / name).write_bytes(b"x")
    (folder / "empty").mkdir()
    (tmp_path / "outside.gguf").write_bytes(b"x")
    (folder / "link.gguf").symlink_to(tmp_path / "outside.gguf")
    (folder / "inner.gguf").symlink_to(folder / "demo" / "m.gguf")
    (folder / "loop.gguf").symlink_to(folder / "loop.gguf")
    return folder


def find(data: dict[str, Any], home: Path) -> Any:
    return locate(parse_source(data), home, [home])


def test_what_is_found(home: Path) -> None:
    assert find({"demo": "demo"}, home).path == home / "demo" / "m.gguf"
    assert find({"path": str(home / "demo")}, home).path == home / "demo" / "m.gguf"
    assert find({"path": str(home / "inner.gguf")}, home).path == home / "demo" / "m.gguf"
    assert find({"path": str(home / "hf")}, home).form == "hf"
    (home / "owner--name").mkdir()
    (home / "owner--name" / "m.gguf").write_bytes(b"x")
    assert find({"huggingface": {"repo": "owner/name"}}, home).form == "gguf"


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        ({"demo": "nothing"}, "demo_missing", "make up"),
        ({"path": "relative.gguf"}, "path_not_absolute", "/"),
        ({"path": "{home}/nothing.gguf"}, "path_missing", "spelling"),
        ({"path": "{home}/../outside.gguf"}, "path_outside_roots", "INFLIGHT_CHECKPOINT_ROOTS"),
        ({"path": "{home}/link.gguf"}, "path_outside_roots", "INFLIGHT_CHECKPOINT_ROOTS"),
        ({"path": "/etc/passwd"}, "path_outside_roots", "INFLIGHT_CHECKPOINT_ROOTS"),
        ({"path": "{home}/loop.gguf"}, "path_unreadable", "Check"),
        ({"path": "{home}/a\0b"}, "path_not_absolute", "/"),
        ({"path": "{home}/two"}, "several_files", "a.gguf"),
        ({"path": "{home}/empty"}, "folder_without_weights", ".gguf"),
        ({"path": "/dev/null"}, "path_outside_roots", "INFLIGHT_CHECKPOINT_ROOTS"),
    ],
)
def test_what_is_refused(data: dict[str, Any], code: str, says: str, home: Path) -> None:
    filled = {
        key: value.format(home=home) if isinstance(value, str) else value for key, value in data.items()
    }
    with pytest.raises(InvalidInput) as caught:
        find(filled, home)
    assert caught.value.code == code
    assert says in caught.value.remedy


def test_a_device_inside_the_roots_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        locate(parse_source({"path": "/dev/null"}), tmp_path, [Path("/dev")])
    assert caught.value.code == "path_not_a_file"
