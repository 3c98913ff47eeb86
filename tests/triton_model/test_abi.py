"""The struct layouts are those of the locked library, or the model refuses to load."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llamacpp_abi as abi
import pytest
from llamacpp_errors import EngineLoadError


def filled(kind: type[ctypes.Structure], defaults: dict[str, object]) -> ctypes.Structure:
    values = kind()
    for field, value in defaults.items():
        if isinstance(value, tuple):
            getattr(values, field)[:] = value
        else:
            setattr(values, field, value)
    return values


@pytest.mark.parametrize(
    ("kind", "defaults"),
    [(abi.ModelParams, abi.MODEL_DEFAULTS), (abi.ContextParams, abi.CONTEXT_DEFAULTS)],
)
def test_known_defaults_pass_and_a_moved_field_does_not(
    kind: type[ctypes.Structure], defaults: dict[str, object]
) -> None:
    values = filled(kind, defaults)
    abi.check_layout("params", values, defaults)
    moved = kind.from_buffer_copy(b"\0" * 4 + bytes(values)[:-4])
    with pytest.raises(EngineLoadError, match=r"serving-binaries\.lock"):
        abi.check_layout("params", moved, defaults)


def test_every_field_is_checked() -> None:
    for kind, defaults in ((abi.ModelParams, abi.MODEL_DEFAULTS), (abi.ContextParams, abi.CONTEXT_DEFAULTS)):
        assert {name for name, _ in kind._fields_} == {*defaults, "tail"}


def test_a_library_that_is_no_llama_cpp_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "xllamacpp.so"
    path.write_bytes(b"not a library")
    with pytest.raises(EngineLoadError, match=r"cannot be used as llama\.cpp"):
        abi.open_library(path)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abi, "PACKAGE", "no_such_package_here")
    with pytest.raises(EngineLoadError, match="is not installed"):
        abi.find_library()
