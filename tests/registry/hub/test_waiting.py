"""Waiting, claiming, fencing, cancelling, deleting: rows without any worker; and how hubs are asked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.core import clock
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.core.models import AuditEntry
from apps.registry import states
from apps.registry.hub import attempts
from apps.registry.hub.access import access
from apps.registry.hub.attempts import Failure
from apps.registry.hub.folders import MANIFEST, partial_of
from apps.registry.inspection import Inspected
from apps.registry.models import Checkpoint, HubAccess
from apps.registry.serialize import checkpoint_dict
from apps.registry.services import (
    cancel_fetch,
    change_source,
    delete_checkpoint,
    inspect_again,
    register_checkpoint,
    retry_fetch,
    save_hub_access,
)
from apps.registry.sweep import sweep
from apps.specs.services import apply, export
from tests import objects
from tests.pages.conftest import sign_in
from tests.people import client_of, person
from tests.registry.hub.conftest import CONFIG
from workers import fetch_sweep

__all__ = ["sign_in"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
HUB = {"huggingface": {"repo": "acme/tiny"}}


@pytest.fixture
def waiting() -> Checkpoint:
    return register_checkpoint("test", "tiny", HUB)


def claim(row: Checkpoint) -> Checkpoint:
    found = attempts.claim_fetch(row.pk, "load", "n-test")
    assert found is not None
    return found.checkpoint


def test_a_repository_waits_and_is_sent(sent: list[str], django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        row = register_checkpoint("test", "tiny", HUB)
    assert (row.state, row.path, sent) == (states.REGISTERED, "", ["tiny"])
    sweep()
    assert sent == ["tiny"], "sent just now"
    Checkpoint.objects.update(dispatched_at=clock.now() - timedelta(seconds=11))
    sweep()
    assert sent == ["tiny", "tiny"]
    Checkpoint.objects.update(dispatched_at=None, not_before=clock.now() + timedelta(seconds=60))
    sweep()
    assert sent == ["tiny", "tiny"], "not before its time"


def test_a_waiting_row_says_when_nobody_takes_it(waiting: Checkpoint) -> None:
    old = clock.now() - timedelta(seconds=60)
    Checkpoint.objects.update(dispatched_at=old, state_since=old)
    sweep()
    waiting.refresh_from_db()
    assert waiting.reason == "not_taken"
    assert claim(waiting).reason == ""


def test_a_queue_that_is_gone_is_said(waiting: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(row: Checkpoint) -> None:
        raise OSError("no broker")

    monkeypatch.setattr("apps.registry.hub.dispatch._publish", gone)
    sweep()
    waiting.refresh_from_db()
    assert waiting.reason == "queue_unreachable"


def test_one_claim_and_its_number_fences_the_rest(waiting: Checkpoint) -> None:
    row = claim(waiting)
    assert (row.state, row.attempt, row.node_id) == (states.DOWNLOADING, 1, "n-test")
    assert attempts.claim_fetch(row.pk, "load", "n-test") is None
    assert attempts.renew_fetch(row, 1)
    lost = Failure("worker_lost", "It is gone.", retry=True, retry_after=0.0)
    assert attempts.fail_fetch(row, 1, lost, "sweep")
    again = claim(row)
    assert again.attempt == 2
    stale = Checkpoint.objects.get(pk=row.pk)
    assert not attempts.renew_fetch(stale, 1)
    assert not attempts.record_fetch(stale, 1, bytes_done=5)
    assert not attempts.begin_inspection(stale, 1, "/x", "load")
    assert not attempts.finish_fetch(stale, 1, Inspected("gguf", 1, "", {}, ""), "load")
    assert not attempts.fail_fetch(stale, 1, Failure("x", "y"), "load")
    assert Checkpoint.objects.get(pk=row.pk).state == states.DOWNLOADING


def test_a_lease_that_ran_out_is_reaped_and_others_are_left(waiting: Checkpoint) -> None:
    row = claim(waiting)
    assert fetch_sweep.reap() == 0
    Checkpoint.objects.update(lease_expires_at=clock.now())
    assert not attempts.renew_fetch(row, 1), "a lease that has run out is not renewed"
    assert fetch_sweep.reap() == 1
    row.refresh_from_db()
    assert (row.state, row.reason, row.retries, row.not_before) == (
        states.REGISTERED,
        "worker_lost",
        1,
        None,
    )
    assert AuditEntry.objects.filter(verb="checkpoint.requeued", reason="worker_lost").count() == 1


def test_tries_end_and_bytes_gained_begin_the_count_anew(waiting: Checkpoint) -> None:
    failure = Failure("no_network", "No network.", "Check it.", retry=True)
    row = waiting
    for number in range(1, 5):
        row = claim(row)
        attempts.fail_fetch(row, row.attempt, failure, "load")
        assert (row.state, row.retries) == (states.REGISTERED, number)
        assert row.not_before is not None
        assert row.not_before > clock.now()
        Checkpoint.objects.update(not_before=None)
    row = claim(row)
    attempts.fail_fetch(row, row.attempt, failure, "load", progressed=True)
    assert (row.state, row.retries) == (states.REGISTERED, 0)
    Checkpoint.objects.update(not_before=None, retries=4)
    row = claim(row)
    attempts.fail_fetch(row, row.attempt, failure, "load")
    assert (row.state, row.reason, row.remedy) == (states.FAILED, "no_network", "Check it.")


def test_cancel_before_and_while_it_is_fetched(waiting: Checkpoint) -> None:
    assert cancel_fetch("test", waiting).state == states.CANCELLED
    with pytest.raises(NotPossibleNow):
        cancel_fetch("test", waiting)
    assert retry_fetch("test", waiting).state == states.REGISTERED
    row = claim(waiting)
    cancel_fetch("test", row)
    assert (row.state, attempts.cancel_requested(row)) == (states.DOWNLOADING, True)
    assert checkpoint_dict(row)["fetch"]["cancelling"]
    lost = Failure("worker_lost", "It is gone.", retry=True)
    attempts.fail_fetch(row, row.attempt, lost, "sweep")
    assert row.state == states.CANCELLED, "what somebody cancelled is not tried again"
    retry_fetch("test", row)
    assert not attempts.cancel_requested(row)


def test_nothing_else_is_done_while_it_is_fetched(waiting: Checkpoint) -> None:
    row = claim(waiting)
    for act in (
        lambda: change_source("test", row, HUB),
        lambda: inspect_again("test", row),
        lambda: retry_fetch("test", row),
        lambda: delete_checkpoint("test", row),
    ):
        with pytest.raises(NotPossibleNow) as caught:
            act()
        assert caught.value.code == "checkpoint_busy"


def test_files_on_this_host_are_not_fetched(tmp_path: Path) -> None:
    row = objects.checkpoint()
    assert (row.state, checkpoint_dict(row)["fetch"]) == (states.READY, None)
    with pytest.raises(NotPossibleNow):
        retry_fetch("test", row)
    change_source("test", row, HUB)
    assert (row.state, row.path) == (states.REGISTERED, "")


def test_a_local_folder_of_pickles_needs_consent(settings: Any, tmp_path: Path) -> None:
    settings.INFLIGHT_CHECKPOINT_ROOTS = [str(tmp_path)]
    (tmp_path / "config.json").write_bytes(CONFIG)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    row = register_checkpoint("test", "old", {"path": str(tmp_path)})
    assert (row.state, row.reason) == (states.REFUSED, "pickle_refused")
    change_source("test", row, {"path": str(tmp_path), "pickle": True})
    assert row.state == states.READY


def test_deleting_takes_what_was_fetched_along_unless_another_uses_it(
    home: Path, django_capture_on_commit_callbacks: Any
) -> None:
    folder = home / "checkpoints" / "acme--tiny--abc"
    for place in (folder, partial_of(folder)):
        place.mkdir(parents=True)
        (place / MANIFEST).write_text("{}")
    rows = [register_checkpoint("test", name, HUB) for name in ("one", "two", "three")]
    Checkpoint.objects.update(folder=str(folder), path=str(folder), state=states.READY)
    for row, files, there in zip(rows, (True, False, True), (True, True, True), strict=True):
        row.refresh_from_db()
        with django_capture_on_commit_callbacks(execute=True):
            delete_checkpoint("test", row, files=files)
        assert folder.is_dir() == there or not Checkpoint.objects.exists()
    assert not folder.exists()
    assert not partial_of(folder).exists()


def test_as_code(home: Path) -> None:
    spec = {"huggingface": {"repo": "acme/tiny", "revision": "v1", "files": ["*Q4*"]}, "pickle": True}
    document = {"apiVersion": "inflight/v1", "kind": "Checkpoint", "metadata": {"name": "tiny"}}
    text = json.dumps({**document, "spec": {"source": spec}})
    assert [done.planned.action for done in apply("test", text, "x")] == ["create"]
    row = Checkpoint.objects.get()
    assert (row.state, row.source) == (states.REGISTERED, spec)
    assert [done.planned.action for done in apply("test", text, "x")] == ["unchanged"]
    assert [done.planned.action for done in apply("test", export("test"), "x")] == ["unchanged"]


def test_what_nobody_goes_on_with_is_removed_after_a_week(waiting: Checkpoint, home: Path) -> None:
    names = (
        "checkpoints/.x--y.partial",
        "checkpoints/.kept--y.partial",
        "fetches/999999",
        f"fetches/{waiting.pk}",
    )
    Checkpoint.objects.update(folder=str(home / "checkpoints" / "kept--y"))
    for name in names:
        (home / name).mkdir(parents=True)
        os.utime(home / name, (0, 0))
    sweep()
    assert [(home / name).exists() for name in names] == [False, True, False, True]


class TestHubAccess:
    """Mirror and token."""

    def test_the_token_is_kept_encrypted_and_never_told(self, settings: Any) -> None:
        settings.INFLIGHT_OUTBOUND_ALLOW = ["mirror.internal"]
        boss = person("administrator")
        save_hub_access(boss, {"token": "hf_abcdefgh", "endpoint": "https://mirror.internal/hub/"})
        row = HubAccess.objects.get()
        assert "hf_abcdefgh" not in row.token_encrypted
        assert (access().token, access().endpoint) == ("hf_abcdefgh", "https://mirror.internal/hub")
        assert "hf_abcdefgh" not in repr(access())
        assert "hf_abcdefgh" not in json.dumps([entry.detail for entry in AuditEntry.objects.all()])
        client = client_of(boss)
        for path in (
            "/api/v1/hub-access",
            "/checkpoints/-/hub/",
            f"/admin/registry/hubaccess/{row.pk}/change/",
        ):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "hf_abcdefgh" not in answer.content.decode()
        save_hub_access(boss, {"endpoint": ""})
        assert (access().token, access().endpoint) == ("hf_abcdefgh", None)
        save_hub_access(boss, {"token": None})
        assert access().token is None

    @pytest.mark.parametrize(
        ("data", "field"),
        [
            ({"endpoint": "http://169.254.169.254/"}, "endpoint"),
            ({"endpoint": "http://localhost:1"}, "endpoint"),
            ({"endpoint": "file:///etc/passwd"}, "endpoint"),
            ({"endpoint": "https://a:b@example.org"}, "endpoint"),
            ({"endpoint": "https://example.org/?x=1"}, "endpoint"),
            ({"token": "has spaces in it"}, "token"),
            ({"token": "line\nbreak-in-it"}, "token"),
            ({"token": "short"}, "token"),
            ({"token": 12345678}, "token"),
            ({"secret": "x"}, "secret"),
        ],
    )
    def test_what_is_refused(self, data: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            save_hub_access("test", data)
        assert caught.value.field == field
        assert not HubAccess.objects.exists()

    def test_only_administrators_change_it(self) -> None:
        with pytest.raises(NotAllowed):
            save_hub_access(person("operator"), {"endpoint": ""})

    def test_by_page_admin_and_api(self, settings: Any) -> None:
        client = client_of(person("administrator"))
        page = {"endpoint": "https://example.org", "token": "hf_from_page"}
        assert client.post("/checkpoints/-/hub/", page).status_code == 303
        assert access().token == "hf_from_page"
        wrong = client.post("/checkpoints/-/hub/", {"endpoint": "http://localhost"})
        assert wrong.status_code == 422
        assert "INFLIGHT_OUTBOUND_ALLOW" in wrong.content.decode()
        admin = {"endpoint": "https://example.com", "token": "hf_from_admin"}
        assert client.post("/admin/registry/hubaccess/1/change/", admin).status_code == 302
        assert (access().endpoint, access().token) == ("https://example.com", "hf_from_admin")
        body = {"endpoint": None, "token": "hf_from_api"}
        answer = client.put("/api/v1/hub-access", json.dumps(body), content_type="application/json")
        assert answer.json()["has_token"] is True
        assert (access().endpoint, access().token) == (None, "hf_from_api")
        assert client.get("/admin/registry/hubaccess/add/").status_code == 403


class TestDoors:
    """Pages and API."""

    def test_upload_through_page_and_api(self, sent: list[str], gguf_bytes: bytes) -> None:
        client = client_of(person("operator", "code-author"))
        data = {"name": "packed", "kind": "archive", "upload": SimpleUploadedFile("m.zip", b"PK\x05\x06")}
        assert client.post("/checkpoints/-/new/", data).status_code == 303
        row = Checkpoint.objects.get()
        assert row.state == states.REGISTERED
        assert Path(row.source["archive"]).read_bytes() == b"PK\x05\x06"
        answer = client.post(
            "/api/v1/checkpoint-archives", {"upload": SimpleUploadedFile("m.tar.gz", b"\x1f\x8b")}
        )
        assert answer.status_code == 201, answer.content
        assert Path(answer.json()["archive"]).name.endswith(".tar.gz")
        refused = client.post("/checkpoints/-/new/", {**data, "upload": SimpleUploadedFile("m.rar", b"x")})
        assert refused.status_code == 422

    def test_cancel_retry_and_choose(self, waiting: Checkpoint, sign_in: Callable[..., Client]) -> None:
        client = sign_in("operator")
        assert client.post("/checkpoints/tiny/cancel/").status_code == 303
        waiting.refresh_from_db()
        assert waiting.state == states.CANCELLED
        Checkpoint.objects.update(state=states.REFUSED, offered=[{"name": "a.gguf", "size_bytes": 5}])
        page = client.get("/checkpoints/tiny/").content.decode()
        assert 'value="a.gguf"' in page
        assert client.post("/checkpoints/tiny/retry/", {"file": "a.gguf"}).status_code == 303
        waiting.refresh_from_db()
        assert (waiting.state, waiting.source["huggingface"]["files"]) == (states.REGISTERED, ["a.gguf"])
        body = json.dumps({"files": []})
        answer = client.post("/api/v1/checkpoints/tiny/retry", body, content_type="application/json")
        assert answer.status_code == 409
        assert client.post("/api/v1/checkpoints/tiny/cancel").json()["state"] == states.CANCELLED

    def test_the_page_tells_how_far_it_is(self, waiting: Checkpoint, sign_in: Callable[..., Client]) -> None:
        row = claim(waiting)
        attempts.record_fetch(
            row,
            1,
            bytes_done=25_000_000,
            bytes_total=100_000_000,
            rate_bytes_per_second=5e6,
            eta_seconds=15.0,
        )
        page = sign_in("viewer").get("/checkpoints/tiny/").content.decode()
        for words in ("aria-valuenow", "25\u202f%", "5.0\u202fMB/s", "15\u202fs left", "25.0\u202fMB"):
            assert words in page, words
