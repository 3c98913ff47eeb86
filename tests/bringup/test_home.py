"""The home's layout, its node id, its socket folder, and the environment file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from controlplane.settings.env import parse_environment
from deploy.local import environment
from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT, Home, find_home, write_atomically


def test_home_is_var_in_the_checkout_unless_named(tmp_path: Path) -> None:
    assert find_home({}).root == CHECKOUT / "var"
    assert find_home({"INFLIGHT_HOME": str(tmp_path)}).root == tmp_path
    assert find_home({"INFLIGHT_HOME": ""}).root == CHECKOUT / "var"


@pytest.mark.parametrize(
    "name", ["/srv/x ", "/srv/a\nb", "/srv/a b", "/srv/$(id)", "/srv/a;b", "/srv/100%", "/srv/ü"]
)
def test_home_whose_path_would_not_survive_a_shell_is_refused(name: str) -> None:
    with pytest.raises(Problem, match="characters in its path") as caught:
        find_home({"INFLIGHT_HOME": name})
    assert "INFLIGHT_HOME=" in caught.value.remedy


def test_link_to_an_odd_folder_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "plain").symlink_to(tmp_path / "a b")
    with pytest.raises(Problem, match="characters in its path"):
        find_home({"INFLIGHT_HOME": str(tmp_path / "plain")})


def test_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Problem, match="is a file"):
        find_home({"INFLIGHT_HOME": str(tmp_path / "file")})


def test_created_home_is_for_its_owner_only(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    home.create()
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    assert home.run.is_dir()


def test_node_id_is_made_once_and_differs_between_homes(tmp_path: Path) -> None:
    first, second = Home(tmp_path / "a"), Home(tmp_path / "b")
    first.create()
    second.create()
    assert first.node_id() == first.node_id()
    assert first.node_id() != second.node_id()
    assert first.node_id().startswith("n-")


@pytest.mark.parametrize("broken", ["", "x y", "n-", "n-ABC'; DROP", "../../etc"])
def test_broken_node_id_is_a_sentence_not_a_new_node(tmp_path: Path, broken: str) -> None:
    home = Home(tmp_path)
    (tmp_path / "node-id").write_text(broken)
    with pytest.raises(Problem, match="is no node id"):
        home.node_id()


def test_sockets_lie_in_the_home_when_the_path_is_short() -> None:
    home = Home(Path("/srv/inflight"))
    assert home.sockets() == home.run


def test_sockets_of_a_deep_home_lie_in_a_private_short_folder(tmp_path: Path) -> None:
    home = Home(tmp_path / ("x" * 100))
    folder = home.create_sockets()
    assert folder != home.run
    assert len(str(folder / "supervisor.sock.4194304")) < 107
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "redis.sock").write_text("")
    home.remove_sockets()
    assert not folder.exists()


def test_socket_folder_that_is_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / ("x" * 120))
    trap = tmp_path / "trap"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    trap.symlink_to(elsewhere)
    monkeypatch.setattr(Home, "sockets", lambda self: trap)
    with pytest.raises(Problem, match="belongs to somebody else"):
        home.create_sockets()
    home.remove_sockets()
    assert elsewhere.is_dir()


def test_atomic_write_replaces_and_sets_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_atomically(path, "one", mode=0o600)
    write_atomically(path, "two", mode=0o600)
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["file"]


def test_environment_file_survives_a_round_trip_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "environment"
    values = {
        "INFLIGHT_HOME": "/srv/a b=c",
        "INFLIGHT_REDIS_SERVER": "",
        "DATABASE_URL": "postgres://u:p#w@h/d",
    }
    environment.write(path, values)
    assert environment.read(path) == values
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # Django's settings read the same file with a reader of their own.
    assert parse_environment(path.read_text(), str(path)) == values


def test_missing_environment_file_is_empty(tmp_path: Path) -> None:
    assert environment.read(tmp_path / "none") == {}


@pytest.mark.parametrize("line", ["no separator", "=value", "two words=1", "9=1", "A-B=1"])
def test_broken_line_of_the_environment_file_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "environment"
    path.write_text(f"# comment\n\nGOOD=1\n{line}\n")
    with pytest.raises(Problem, match="line 4") as caught:
        environment.read(path)
    assert "make up" in caught.value.remedy


def test_environment_file_of_bytes_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "environment"
    path.write_bytes(b"A=\xff\xfe\x00")
    with pytest.raises(Problem, match="is not text"):
        environment.read(path)


@pytest.mark.parametrize("value", ["a\nINFLIGHT_TRITON_BIN=/tmp/evil", " a", "a "])
def test_value_that_would_break_the_environment_file_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(Problem, match="cannot be kept"):
        environment.write(tmp_path / "environment", {"KEY": value})
    assert not (tmp_path / "environment").exists()
