"""A real embedded tritonserver and a real small LLM for tests marked `triton`; a missing one fails the test."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane.settings.env import parse_environment

CHECKOUT = Path(__file__).resolve().parents[2]
KEYS = (
    "INFLIGHT_TRITON_BIN",
    "INFLIGHT_TRITON_BACKENDS",
    "INFLIGHT_TRITON_LIBS",
    "INFLIGHT_SERVING_SITE_PACKAGES",
    "INFLIGHT_SERVING_PYTHON",
    "INFLIGHT_SERVING_PYTHONHOME",
)
# `make test` sets the variables and keeps its own home; `make up` leaves a file in its.
HOMES = (CHECKOUT / "var/test", CHECKOUT / "var")
CHECKPOINT = Path("checkpoints/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf")
REMEDY = "Run `make test` (or `make up`) once in this checkout: they install it."


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """Values of the settings of the same names, INFLIGHT_... -> text."""

    values: dict[str, str]

    @property
    def binary(self) -> Path:
        """The tritonserver program."""
        return Path(self.values["INFLIGHT_TRITON_BIN"])


def find_installation() -> TritonInstallation:
    """The installation of the environment, else the one that `make up` wrote down."""
    found = {key: os.environ.get(key, "") for key in KEYS}
    for home in HOMES:
        path = home / "run/environment"
        if found["INFLIGHT_TRITON_BIN"] or not path.is_file():
            continue
        known = parse_environment(path.read_text(encoding="utf-8"), str(path))
        found = {key: known.get(key, "") for key in KEYS}
    if not os.access(found["INFLIGHT_TRITON_BIN"], os.X_OK):
        pytest.fail(f"There is no embedded tritonserver. {REMEDY}")
    return TritonInstallation(found)


def find_gguf() -> Path:
    """The demo checkpoint, a chat model of 135M parameters that llama.cpp loads as it is."""
    named = os.environ.get("INFLIGHT_DEMO_CHECKPOINT")
    for path in [Path(named)] if named else [home / CHECKPOINT for home in HOMES]:
        if path.is_file():
            return path
    return pytest.fail(f"There is no demo checkpoint. {REMEDY}")


@pytest.fixture(scope="session")
def triton_installation() -> TritonInstallation:
    """A real embedded installation."""
    return find_installation()


@pytest.fixture(scope="session")
def demo_gguf() -> Path:
    """A real GGUF file of a chat model."""
    return find_gguf()


@pytest.fixture
def real_triton(triton_installation: TritonInstallation, settings: Any) -> TritonInstallation:
    """Point the settings of this process at the real installation."""
    for key, value in triton_installation.values.items():
        setattr(settings, key, value)
    return triton_installation
