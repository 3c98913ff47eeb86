"""Where a server's engine lies on this host, and when it has to be fetched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from apps.core.exceptions import InfrastructureError
from workers import engine_place
from workers.instance_steps import Stepper
from workers.runtimes.base import Failure

OWN, OTHER = 1, 2
FINGERPRINT = "f" * 64


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path) -> Path:
    settings.INFLIGHT_HOME = str(tmp_path)
    return tmp_path


def _row(built_on: int | None, path: str, state: str = "placed") -> Any:
    manifest = {"files": [{"name": "model.gguf", "size_bytes": 3, "sha256": "a" * 64}]}
    engine = SimpleNamespace(fingerprint=FINGERPRINT, path=path, node_id=built_on, manifest=manifest)
    revision = SimpleNamespace(engine=engine)
    return SimpleNamespace(uid="abc", attempt=0, state=state, node_id=OWN, revision=revision)


@pytest.mark.parametrize(
    ("built_on", "settled"),
    [(OWN, "/there/engines/x"), (None, "/there/engines/x"), (OTHER, f"engines/{FINGERPRINT}")],
)
def test_the_engine_of_another_host_has_a_folder_of_its_own_here(
    home: Path, built_on: int | None, settled: str
) -> None:
    row = _row(built_on, "/there/engines/x")
    engine_place.settle(row)
    assert row.revision.engine.path == str(home / settled)
    assert engine_place.is_here(row) is (built_on != OTHER)


def test_it_is_here_when_all_its_files_are(home: Path) -> None:
    row = _row(OTHER, "/there/engines/x")
    engine_place.settle(row)
    engine_place.settle(row)
    folder = Path(row.revision.engine.path)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"fingerprint": FINGERPRINT}), encoding="utf-8")
    assert not engine_place.is_here(row)
    (folder / "model.gguf").write_bytes(b"abc")
    assert engine_place.is_here(row)


def test_a_row_without_an_engine_needs_none() -> None:
    row = _row(OTHER, "")
    assert engine_place.is_here(row)
    row.revision.engine = None
    engine_place.settle(row)
    assert engine_place.is_here(row)


class _Jobs:
    """Runs a job at once, and gives what came of it."""

    def __init__(self) -> None:
        self.done: list[Callable[[], Any]] = []

    def start(self, key: object, work: Callable[[], Any], *, wakes: bool = False) -> None:
        self.done.append(work)

    def take(self, key: object) -> Any:
        return self.done[-1]()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(None, None), (InfrastructureError("store_failed", "Away.", remedy="Wait."), "store_failed"),
     (OSError("no room"), "engine_not_kept")],
)  # fmt: skip
def test_a_fetch_that_fails_fails_the_start_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, reason: str | None
) -> None:
    def fetch(row: Any) -> Path:
        if error is not None:
            raise error
        return Path()

    failed: list[Failure] = []

    def fail(row: Any, failure: Failure) -> bool:
        failed.append(failure)
        return True

    jobs: Any = _Jobs()
    stepper = Stepper(SimpleNamespace(), jobs)  # type: ignore[arg-type]
    monkeypatch.setattr(engine_place, "fetch", fetch)
    monkeypatch.setattr(stepper, "_fail", fail)
    assert stepper._placed(_row(OTHER, "/there/engines/x")) is (error is not None)
    assert [each.reason for each in failed] == ([reason] if reason else [])
