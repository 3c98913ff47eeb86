"""Attempts in this process with the real child programs, against the double: what is fetched, and how it ends."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.core.models import AuditEntry
from apps.engines.models import Build
from apps.engines.services import save_build_profile, start_build
from apps.engines.sweep import sweep as engines_sweep
from apps.fleet.processes import mark_of, ours
from apps.fleet.services import register_node
from apps.registry import states
from apps.registry.hub import policy
from apps.registry.hub.folders import MANIFEST
from apps.registry.models import Checkpoint
from apps.registry.services import inspect_again, register_checkpoint, retry_fetch, save_hub_access
from tests.registry.hub.conftest import CONFIG, safetensors_repo
from tests.registry.hub.double import Hub, Repo
from tests.support.celery import celery_broker, start_worker, wait_until
from tests.support.llama import demo_file, serving_python
from workers.fetch_run import run_fetch

__all__ = ["celery_broker", "demo_file", "serving_python", "start_worker"]
pytestmark = [pytest.mark.usefixtures("transactional_db", "sent"), pytest.mark.one_database]
MEGABYTE = 1024 * 1024


@pytest.fixture
def fetch(mirror: Hub) -> Callable[..., Checkpoint]:
    """Register a repository and run attempts until the row rests."""

    def run(repo: str = "acme/tiny", row: Checkpoint | None = None, tries: int = 1, **hub: Any) -> Checkpoint:
        pickle = hub.pop("pickle", False)
        if row is None:
            row = register_checkpoint(
                "test", "tiny", {"huggingface": {"repo": repo, **hub}, "pickle": pickle}
            )
        for _try in range(tries):
            Checkpoint.objects.filter(pk=row.pk).update(not_before=None)
            if not run_fetch(row.pk, "load"):
                break
        row.refresh_from_db()
        mark = mark_of(django_settings.INFLIGHT_NODE_ID, "checkpoint", row.pk, row.attempt)
        assert ours(mark) == []
        return row

    return run


def log_of(row: Checkpoint) -> str:
    return Path(row.log_path).read_text()


def test_a_repository_of_safetensors(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    repo = mirror.repos["acme/tiny"] = safetensors_repo()
    row = fetch()
    assert (row.state, row.sentence, row.format) == (states.READY, "", "hf"), log_of(row)
    assert row.commit == repo.revisions["main"]
    folder = Path(row.path)
    assert str(folder) == row.folder
    assert {path.name for path in folder.iterdir()} == {
        *(set(repo.files) - {"modeling_custom.py"}),
        MANIFEST,
    }
    for name in set(repo.files) - {"modeling_custom.py"}:
        assert (folder / name).read_bytes() == repo.files[name], name
    manifest = json.loads((folder / MANIFEST).read_text())
    assert (manifest["repo"], manifest["commit"]) == ("acme/tiny", row.commit)
    assert row.bytes_done == row.bytes_total == sum(len(repo.files[name]) for name in repo.files) - 17
    assert row.child_pid is None
    assert [entry.verb for entry in AuditEntry.objects.filter(object_type="checkpoint").order_by("id")] == [
        "checkpoint.registered",
        "checkpoint.downloading",
        "checkpoint.inspecting",
        "checkpoint.ready",
    ]
    # The same again under another name: nothing is fetched twice.
    asked = len([item for item in mirror.asked if item.server == "store"])
    other = register_checkpoint("test", "again", {"huggingface": {"repo": "acme/tiny"}})
    run_fetch(other.pk, "load")
    other.refresh_from_db()
    assert (other.state, other.folder) == (states.READY, row.folder)
    assert len([item for item in mirror.asked if item.server == "store"]) == asked


def test_the_one_gguf_of_a_repository(
    mirror: Hub, fetch: Callable[..., Checkpoint], gguf_bytes: bytes
) -> None:
    mirror.repos["acme/tiny"] = Repo(
        {"sub/tiny-f32.gguf": gguf_bytes, "mmproj-f16.gguf": b"x", "README.md": b"r"}
    )
    row = fetch()
    assert (row.state, row.format) == (states.READY, "gguf"), row.sentence
    assert Path(row.path).name == "tiny-f32.gguf"
    assert row.sha256 == hashlib.sha256(gguf_bytes).hexdigest()
    assert row.facts["params"] > 0
    assert row.chat_template == "{{ x }}"


def test_a_person_chooses_among_several(
    mirror: Hub, fetch: Callable[..., Checkpoint], gguf_bytes: bytes
) -> None:
    mirror.repos["acme/tiny"] = Repo({"a-Q4.gguf": b"GGUF", "a-F32.gguf": gguf_bytes})
    row = fetch()
    assert (row.state, row.reason) == (states.REFUSED, "choose_files")
    assert [item["name"] for item in row.offered] == ["a-Q4.gguf", "a-F32.gguf"]
    retry_fetch("test", row, ["a-F32.gguf"])
    row = fetch(row=row)
    assert (row.state, row.offered) == (states.READY, []), row.sentence
    assert row.source["huggingface"]["files"] == ["a-F32.gguf"]
    assert mirror.ranges("a-Q4.gguf") == []


def test_a_branch_is_pinned_when_it_is_first_asked(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    repo = mirror.repos["acme/tiny"] = safetensors_repo()
    first = repo.revisions["main"]
    mirror.stumbles = []
    mirror.corrupt = {"model-00001-of-00002.safetensors": 2}
    row = fetch()
    assert (row.state, row.reason, row.commit) == (states.FAILED, "checksum_mismatch", first)
    repo.push(**{"config.json": b'{"model_type": "other"}'})
    retry_fetch("test", row)
    row = fetch(row=row)
    assert (row.state, row.commit) == (states.READY, first)
    assert (Path(row.path) / "config.json").read_bytes() == repo.commits[first]["config.json"]


def test_what_came_damaged_once_is_fetched_anew(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    mirror.repos["acme/tiny"] = safetensors_repo()
    mirror.corrupt = {"model-00002-of-00002.safetensors": 1, "config.json": 1}
    row = fetch()
    assert row.state == states.READY, row.sentence
    assert row.bytes_done == row.bytes_total
    assert mirror.ranges("model-00002-of-00002.safetensors") == ["", ""]
    assert "fetched anew" in log_of(row)


def test_broken_connections_go_on_where_they_broke(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    name = "model-00001-of-00002.safetensors"
    mirror.repos["acme/tiny"] = safetensors_repo()
    mirror.break_after = {name: [MEGABYTE + 10, MEGABYTE]}
    row = fetch()
    assert row.state == states.READY, row.sentence
    assert row.bytes_done == row.bytes_total
    first, *later = mirror.ranges(name)
    assert first == ""
    assert len(later) == 2
    assert all(item.startswith("bytes=") for item in later)


def test_a_server_without_ranges_begins_anew(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    name = "model-00001-of-00002.safetensors"
    mirror.repos["acme/tiny"] = safetensors_repo()
    mirror.break_after = {name: [2 * MEGABYTE]}
    mirror.ignore_ranges = True
    row = fetch()
    assert row.state == states.READY, row.sentence
    assert row.bytes_done == row.bytes_total


def test_the_token_goes_to_the_hub_and_nowhere_else(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    mirror.repos["acme/tiny"] = Repo({**safetensors_repo().files}, gated=True)
    mirror.token = "hf_secret_of_tests"
    row = fetch()
    assert (row.state, row.reason) == (states.FAILED, "gated_repo")
    assert "licence" in row.remedy
    save_hub_access("test", {"token": mirror.token})
    retry_fetch("test", row)
    row = fetch(row=row)
    assert row.state == states.READY, row.sentence
    sent = [item for item in mirror.asked if "authorization" in item.headers]
    assert {item.server for item in sent} == {"hub"}
    for path in (django_settings.INFLIGHT_HOME / "fetches").rglob("*"):
        assert not path.is_file() or mirror.token.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("repo", "revision", "token", "reason"),
    [
        ("acme/none", "main", "", "repo_not_found"),
        ("acme/private", "main", "", "repo_not_found"),
        ("acme/tiny", "v9", "", "revision_not_found"),
        ("acme/tiny", "main", "hf_wrong_token", "token_refused"),
    ],
)
def test_what_is_not_there(
    mirror: Hub, fetch: Callable[..., Checkpoint], repo: str, revision: str, token: str, reason: str
) -> None:
    mirror.repos["acme/tiny"] = safetensors_repo()
    mirror.repos["acme/private"] = Repo(safetensors_repo().files, private=True)
    save_hub_access("test", {"token": token})
    row = fetch(repo, revision=revision)
    assert (row.state, row.reason) == (states.FAILED, reason), row.sentence
    assert row.sentence.endswith(".")
    assert row.remedy


@pytest.mark.parametrize(
    ("status", "headers", "reason", "seconds"),
    [(429, {"Retry_After": "120"}, "rate_limited", 120), (503, {}, "hub_error", 5)],
)
def test_a_hub_that_is_busy_is_asked_again_later(
    mirror: Hub,
    fetch: Callable[..., Checkpoint],
    status: int,
    headers: dict[str, str],
    reason: str,
    seconds: int,
) -> None:
    mirror.repos["acme/tiny"] = safetensors_repo()
    mirror.stumbles = [(status, headers)]
    row = fetch()
    assert (row.state, row.reason, row.retries) == (states.REGISTERED, reason, 1)
    assert row.not_before is not None
    assert abs((row.not_before - row.state_since).total_seconds() - seconds) < 2
    assert not run_fetch(row.pk, "load"), "not before its time"
    assert fetch(row=row).state == states.READY


def test_no_network_is_tried_again_and_then_said(
    mirror: Hub, fetch: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "MAX_RETRIES", 1)
    monkeypatch.setattr("apps.registry.hub.attempts.MAX_RETRIES", 1)
    save_hub_access("test", {"endpoint": "http://127.0.0.1:9"})
    row = fetch(tries=3)
    assert (row.state, row.reason, row.attempt) == (states.FAILED, "no_network", 2)
    assert "mirror" in row.remedy


def test_an_answer_that_is_no_hubs(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    mirror.repos["acme/tiny"] = safetensors_repo()
    mirror.listing = b"<html>Sign in to the hotel's network</html>"
    row = fetch()
    assert (row.state, row.reason) == (states.FAILED, "hub_answer_invalid")


def test_a_redirect_to_an_address_that_is_not_open_is_refused(
    mirror: Hub, fetch: Callable[..., Checkpoint], settings: Any
) -> None:
    mirror.repos["acme/tiny"] = safetensors_repo()
    settings.INFLIGHT_OUTBOUND_ALLOW = [mirror.url.removeprefix("http://")]
    row = fetch()
    assert (row.state, row.reason) == (states.REFUSED, "url_not_allowed")
    assert [item for item in mirror.asked if item.server == "store"] == []


def test_pickles_need_consent(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    files = {
        "config.json": CONFIG,
        "pytorch_model.bin": b"\x80\x04pickle",
        "pytorch_model.bin.index.json": b"{}",
    }
    mirror.repos["acme/tiny"] = Repo(files)
    row = fetch()
    assert (row.state, row.reason) == (states.REFUSED, "pickle_refused")
    assert "safetensors" in row.remedy
    Checkpoint.objects.all().delete()
    row = fetch(pickle=True)
    assert row.state == states.READY, row.sentence
    assert {path.name for path in Path(row.path).iterdir()} == {*files, MANIFEST}


def test_the_disk_is_looked_at_first(
    mirror: Hub, fetch: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.repos["acme/tiny"] = safetensors_repo()
    monkeypatch.setattr(policy, "DISK_MARGIN_BYTES", 10**18)
    row = fetch()
    assert (row.state, row.reason) == (states.FAILED, "disk_full")
    assert "GB are needed" in row.sentence
    assert [item for item in mirror.asked if item.server == "store"] == []


def test_a_file_name_that_leads_out_is_refused(
    mirror: Hub, fetch: Callable[..., Checkpoint], home: Path
) -> None:
    mirror.repos["acme/tiny"] = safetensors_repo(3, **{"../../evil.json": b"{}"})
    mirror.repos["acme/tiny"].files["x/../../evil.gguf"] = b"GGUF"
    row = fetch(files=["../../evil.json", "model*"])
    assert (row.state, row.reason) == (states.REFUSED, "hub_unsafe_name")
    assert not (home / "evil.json").exists()


def test_a_killed_child_is_tried_again(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    """The machine's memory ran out: SIGKILL to the child alone, in the middle of a file."""
    name = "model-00001-of-00002.safetensors"
    mirror.repos["acme/tiny"] = safetensors_repo()
    mirror.hold_after = {name: 2 * MEGABYTE + 5}
    row = register_checkpoint("test", "tiny", {"huggingface": {"repo": "acme/tiny"}})
    killed = threading.Event()

    def kill() -> None:
        part = wait_until(
            lambda: [
                path
                for path in (django_settings.INFLIGHT_HOME / "checkpoints").glob(f".*/{name}.part")
                if path.stat().st_size >= 2 * MEGABYTE
            ],
            120,
            "two megabytes here",
        )
        assert part
        mark = mark_of(django_settings.INFLIGHT_NODE_ID, "checkpoint", row.pk, 1)
        for process in ours(mark):
            os.kill(process.pid, 9)
        mirror.hold_after.clear()
        mirror.release.set()
        killed.set()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    row = fetch(row=row)
    thread.join(30)
    assert killed.is_set()
    assert (row.state, row.reason) == (states.REGISTERED, "killed")
    assert row.retries == 0, "it gained bytes"
    row = fetch(row=row)
    assert row.state == states.READY, row.sentence
    assert mirror.ranges(name) == ["", f"bytes={2 * MEGABYTE}-"]


def test_what_was_fetched_and_is_gone_is_fetched_again(mirror: Hub, fetch: Callable[..., Checkpoint]) -> None:
    mirror.repos["acme/tiny"] = safetensors_repo(1)
    row = fetch()
    assert inspect_again("test", row).state == states.READY
    shutil.rmtree(row.folder)
    assert inspect_again("test", row).state == states.REGISTERED
    assert fetch(row=row).state == states.READY


@pytest.mark.integration
@pytest.mark.slow
def test_an_engine_is_built_from_a_gguf_that_was_fetched(
    mirror: Hub,
    fetch: Callable[..., Checkpoint],
    demo_file: Path,
    serving_python: str,
    start_worker: Callable[..., Any],
) -> None:
    data = demo_file.read_bytes()
    mirror.repos["acme/tiny"] = Repo({"model-q4.gguf": data, "model-q8.gguf": b"GGUF"})
    row = fetch(files=["*q4*"])
    assert row.state == states.READY, row.sentence
    assert row.sha256 == hashlib.sha256(data).hexdigest()
    start_worker("gpu0")
    register_node("test")
    profile = save_build_profile("test", {"name": "q8", "checkpoint": "tiny", "quantization": "Q8_0"})
    build = start_build("test", profile)
    Build.objects.update(dispatched_at=None)
    engines_sweep()

    def ended() -> Build | None:
        now = Build.objects.get(pk=build.pk)
        return now if now.is_terminal else None

    made = wait_until(ended, 120, "an engine")
    assert (made.state, made.sentence) == ("succeeded", "")
    assert made.engine.manifest["source"]["sha256"] == row.sha256
