"""Hosts join with a token: who makes one, what it gives, and that it gives it once."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.accounts.roles import ADMINISTRATOR, OPERATOR
from apps.core import clock
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.core.models import AuditEntry
from apps.fleet import join_handover, join_source, join_tokens
from apps.fleet.join_tokens import JoinRefused
from apps.fleet.models import JoinToken
from deploy import install_worker
from deploy.local import join_client
from deploy.local.join_client import ExchangeFailed
from tests.people import person

POSTGRES, REDIS = "postgres://u:pw@db.example/inflight", "rediss://:pw@redis.example:6380"


@pytest.fixture(autouse=True)
def addresses(settings: Any) -> None:
    """An installation that other hosts reach."""
    settings.INFLIGHT_DATABASE_URL = POSTGRES
    settings.INFLIGHT_REDIS_URL = REDIS
    settings.INFLIGHT_WEB_URL = "https://inflight.example"


@pytest.mark.django_db
class TestTokens:
    """The service."""

    def test_only_administrators_make_and_revoke_them(self) -> None:
        operator = person(OPERATOR)
        row, _raw = join_tokens.create_join_token("cli")
        for call in (
            lambda: join_tokens.create_join_token(operator),
            lambda: join_tokens.revoke_join_token(operator, row),
        ):
            with pytest.raises(NotAllowed):
                call()

    def test_the_token_is_kept_as_a_hash_and_stands_in_no_audit_row(self) -> None:
        row, raw = join_tokens.create_join_token(person(ADMINISTRATOR), labels={"zone": "a"})
        stored = json.dumps(list(JoinToken.objects.values()), default=str)
        told = json.dumps(list(AuditEntry.objects.values()), default=str)
        assert raw not in stored
        assert raw not in told
        assert len(row.digest) == 64
        assert raw.startswith(row.prefix)

    def test_it_is_good_once_and_brings_all_that_a_worker_needs(self, settings: Any) -> None:
        row, raw = join_tokens.create_join_token("cli", labels={"zone": "a"})
        handed = join_tokens.redeem_join_token(raw, "n-new", "host-b")
        assert handed.environment["DATABASE_URL"] == POSTGRES
        assert handed.environment["INFLIGHT_REDIS_URL"] == REDIS
        assert handed.environment["INFLIGHT_SECRET_KEY"] == settings.SECRET_KEY
        assert handed.environment["INFLIGHT_NODE_ID"] == "n-new"
        assert set(handed.environment) <= join_client.VARIABLES
        assert set(handed.secrets) == {"secrets.key"}
        assert handed.labels == {"zone": "a"}
        row.refresh_from_db()
        assert (row.used_by, row.used_from, join_tokens.state_of(row)) == ("n-new", "host-b", "used")
        with pytest.raises(JoinRefused):
            join_tokens.redeem_join_token(raw, "n-other", "host-c")

    def test_expired_revoked_and_unknown_ones_are_refused_alike(self) -> None:
        old, expired = join_tokens.create_join_token("cli")
        JoinToken.objects.filter(pk=old.pk).update(expires_at=clock.now() - timedelta(seconds=1))
        taken, revoked = join_tokens.create_join_token("cli")
        join_tokens.revoke_join_token("cli", taken)
        codes = set()
        for raw in (expired, revoked, "ifj_unknown", "", "ifl_x"):
            with pytest.raises(JoinRefused) as caught:
                join_tokens.redeem_join_token(raw, "n-new", "host-b")
            codes.add((caught.value.code, caught.value.sentence))
        assert len(codes) == 1

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"minutes": 0}, "minutes"),
            ({"minutes": 1441}, "minutes"),
            ({"labels": {"a b": "c"}}, "labels"),
            ({"labels": {"a": "x" * 101}}, "labels.a"),
            ({"labels": {f"k{n}": "v" for n in range(65)}}, "labels"),
        ],
    )
    def test_bad_input_names_its_field(self, changes: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            join_tokens.create_join_token("cli", **changes)
        assert caught.value.field == field

    @pytest.mark.parametrize(
        ("node_id", "hostname"), [("", "h"), ("a b", "h"), ("-x", "h"), ("n", ""), ("n", "h\n")]
    )
    def test_a_host_without_a_name_does_not_spend_the_token(self, node_id: str, hostname: str) -> None:
        _row, raw = join_tokens.create_join_token("cli")
        with pytest.raises(InvalidInput):
            join_tokens.redeem_join_token(raw, node_id, hostname)
        assert join_tokens.check_join_token(raw)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"INFLIGHT_DATABASE_URL": ""}, "join_needs_postgresql"),
        ({"INFLIGHT_DATABASE_URL": "sqlite:////x/db"}, "join_needs_postgresql"),
        ({"INFLIGHT_DATABASE_URL": "postgres://u@localhost/x"}, "join_database_local"),
        ({"INFLIGHT_DATABASE_URL": "postgres://u@[::1]/x"}, "join_database_local"),
        ({"INFLIGHT_DATABASE_URL": "postgres://u@%2Frun%2Fpg/x"}, "join_database_local"),
        ({"INFLIGHT_REDIS_URL": "unix:///run/redis.sock"}, "join_redis_local"),
        ({"INFLIGHT_REDIS_URL": "redis://127.0.0.1:6379"}, "join_redis_local"),
        ({"INFLIGHT_DATABASE_URL": "postgres://u@127.0.0.1/x", "INFLIGHT_JOIN_DATABASE_URL": POSTGRES}, ""),
        ({"INFLIGHT_REDIS_URL": "unix:///run/redis.sock", "INFLIGHT_JOIN_REDIS_URL": REDIS}, ""),
    ],
)
def test_an_address_that_means_this_host_only_is_not_handed_on(
    settings: Any, changes: dict[str, str], code: str
) -> None:
    for key, value in changes.items():
        setattr(settings, key, value)
    if not code:
        join_handover.require_reachable()
        return
    with pytest.raises(NotPossibleNow) as caught:
        join_handover.require_reachable()
    assert caught.value.code == code
    assert caught.value.remedy


def test_certificates_travel_as_texts(settings: Any, tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----\n", encoding="ascii")
    settings.INFLIGHT_REDIS_CA = str(pem)
    settings.INFLIGHT_DATABASE_URL = f"{POSTGRES}?sslmode=verify-full&sslrootcert={pem}"
    handed = join_handover.handover("n-new", {})
    assert set(handed.certificates) == {"redis-ca.pem", "database-ca.pem"}
    assert set(handed.certificates) <= set(join_client.CERTIFICATES)
    settings.INFLIGHT_REDIS_CA = str(tmp_path / "none.pem")
    with pytest.raises(NotPossibleNow) as caught:
        join_handover.handover("n-new", {})
    assert caught.value.code == "join_certificate_unreadable"


GOOD: dict[str, dict[str, str]] = {
    "environment": {"DATABASE_URL": POSTGRES, "INFLIGHT_REDIS_URL": REDIS, "INFLIGHT_SECRET_KEY": "s"},
    "certificates": {"redis-ca.pem": "PEM"},
    "secrets": {"secrets.key": "KEY"},
    "labels": {},
}


class _Answering(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        owner: Any = self.server
        owner.seen.append(
            (
                self.path,
                self.headers.get("Authorization"),
                self.rfile.read(int(self.headers["Content-Length"])),
            )
        )
        status, body = owner.told
        self.send_response(status)
        if status in (301, 302, 307):
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


Scripted = Callable[[int, bytes], tuple[str, list[Any]]]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    """A control plane that answers as it is told."""
    server = HTTPServer(("127.0.0.1", 0), _Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def tell(status: int, body: bytes) -> tuple[str, list[Any]]:
        server.told, server.seen = (status, body), []  # type: ignore[attr-defined]
        return f"http://127.0.0.1:{server.server_port}", server.seen  # type: ignore[attr-defined]

    yield tell
    server.shutdown()
    thread.join(5)
    server.server_close()


class TestExchange:
    """The joining host's side."""

    def test_the_token_is_in_a_header_alone(self, scripted: Scripted) -> None:
        url, seen = scripted(200, json.dumps(GOOD).encode())
        assert join_client.exchange(url, " ifj_x\n", "n-new", "host-b") == GOOD
        path, authorization, body = seen[0]
        assert (path, authorization) == ("/api/v1/join", "Bearer ifj_x")
        assert b"ifj_x" not in body

    @pytest.mark.parametrize(
        ("status", "body", "words"),
        [
            (401, b'{"message": "Spent.", "remedy": "Make another."}', "Spent."),
            (502, b"<html>", "answered 502"),
            (307, b"", "answered 307"),
            (200, b"<html>", "no control plane"),
            (200, b'{"environment": {}}', "no control plane"),
            (200, json.dumps({**GOOD, "environment": {"PATH": "/evil"}}).encode(), "PATH"),
            (
                200,
                json.dumps({**GOOD, "environment": {"DATABASE_URL": "a\nLD_PRELOAD=x"}}).encode(),
                "DATABASE_URL",
            ),
            (200, json.dumps({**GOOD, "environment": {"DATABASE_URL": 3}}).encode(), "no text"),
            (200, json.dumps({**GOOD, "secrets": {"../../x": "y"}}).encode(), "nobody asked for"),
            (200, json.dumps({**GOOD, "certificates": {"../x": "y"}}).encode(), "nobody asked for"),
        ],
    )
    def test_what_is_no_good_answer_is_refused_in_words(
        self, scripted: Scripted, status: int, body: bytes, words: str
    ) -> None:
        url, _seen = scripted(status, body)
        with pytest.raises(ExchangeFailed) as caught:
            join_client.exchange(url, "ifj_x", "n-new", "host-b")
        assert words in caught.value.what

    @pytest.mark.parametrize(
        ("url", "token", "words"),
        [("ftp://x", "t", "no address"), ("http://", "t", "no address"), ("http://127.0.0.1:9", "", "no join token"),
         ("http://127.0.0.1:9", "t", "cannot be reached")],
    )  # fmt: skip
    def test_nobody_to_ask(self, url: str, token: str, words: str) -> None:
        with pytest.raises(ExchangeFailed) as caught:
            join_client.exchange(url, token, "n-new", "host-b")
        assert words in caught.value.what
        assert caught.value.remedy

    def test_what_was_handed_over_is_for_its_owner_only(self, tmp_path: Path) -> None:
        values = join_client.keep(tmp_path, GOOD)
        certificate = tmp_path / "run/certificates/redis-ca.pem"
        assert values["INFLIGHT_REDIS_CA"] == str(certificate)
        for path in (certificate, tmp_path / "secrets.key"):
            assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.django_db
def test_the_exchange_over_rest_and_the_programs_archive(client: Client) -> None:
    _row, raw = join_tokens.create_join_token("cli")
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {raw}"}
    assert client.get("/fleet/-/source.tar.gz").status_code == 401
    answer: Any = client.get("/fleet/-/source.tar.gz", **bearer)  # type: ignore[arg-type]
    archive = b"".join(answer.streaming_content)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        names = tar.getnames()
    assert "inflight/manage.py" in names
    assert "inflight/deploy/local/worker.py" in names
    assert not [name for name in names if {"__pycache__", "var", ".git", ".venv"} & set(name.split("/"))]
    body = {"node_id": "n-new", "hostname": "host-b"}
    answers = [
        client.post("/api/v1/join", body, content_type="application/json", **bearer).status_code  # type: ignore[arg-type]
        for _ in range(2)
    ]
    assert answers == [200, 401]
    assert b"INFLIGHT_JOIN_TOKEN" in client.get("/fleet/-/install.py").content


def test_links_in_the_checkout_do_not_travel(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps/one.py").write_text("1", encoding="utf-8")
    (tmp_path / "apps/link").symlink_to("/etc/passwd")
    settings.BASE_DIR = tmp_path
    with tarfile.open(fileobj=join_source.archive()) as tar:
        assert tar.getnames() == ["inflight/apps", "inflight/apps/one.py"]


class TestInstaller:
    """What the page's command runs, on a Python without tarfile's filters (Debian 12 has 3.11.2)."""

    @pytest.fixture(autouse=True)
    def _old_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)

    @staticmethod
    def _archive(*members: tarfile.TarInfo) -> io.BytesIO:
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w:gz") as tar:
            for member in members:
                member.size = 1 if member.isfile() else 0
                tar.addfile(member, io.BytesIO(b"1") if member.isfile() else None)
        held.seek(0)
        return held

    def test_the_program_is_unpacked(self, tmp_path: Path) -> None:
        folder, plain, program = (tarfile.TarInfo(f"inflight{name}") for name in ("", "/a.py", "/b.sh"))
        folder.type, plain.mode, program.mode = tarfile.DIRTYPE, 0o4666, 0o755
        assert install_worker.unpack(self._archive(folder, plain, program), tmp_path) == tmp_path / "inflight"
        modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "inflight").iterdir()}
        assert modes == {"a.py": 0o644, "b.sh": 0o755}

    @pytest.mark.parametrize("name", ["../evil", "/etc/evil", "inflight/../../evil", "link"])
    def test_what_would_lie_outside_is_refused(self, tmp_path: Path, name: str, capsys: Any) -> None:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        into = tmp_path / "into"
        with pytest.raises(SystemExit):
            install_worker.unpack(self._archive(member), into)
        assert "cannot be unpacked" in capsys.readouterr().err
        assert not list(into.iterdir())
        assert not (tmp_path / "evil").exists()
