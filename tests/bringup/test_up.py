"""What `make up` does anew, what it leaves alone, and what it tells the processes."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from deploy.local import environment, ports, up
from deploy.local.errors import Problem
from deploy.local.home import Home
from deploy.local.progress import Step, Steps
from deploy.local.serving_environment import ServingEnvironment


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    (made.root / "db.sqlite3").write_text("database")
    (made.root / "static").mkdir()
    return made


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    for name in ("apps/a/migrations/0001.py", "apps/a/static/x.css", "static/js/y.js", "controlplane/s.py"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (root / "requirements").mkdir()
    (root / "requirements/base.lock").write_text("x")
    (root / "examples").mkdir()
    (root / "examples/demo.yaml").write_text("demo")
    monkeypatch.setattr(up, "CHECKOUT", root)
    return root


class Manage:
    """Stands in for manage.py: remembers what was asked, writes the slots, fails when told to."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.asked: list[str] = []
        self.failing = ""

    def __call__(self, python: Path, arguments: list[str], *rest: object) -> None:
        self.asked.append(arguments[0])
        if arguments[0] == self.failing:
            raise Problem(f"manage.py {arguments[0]} failed.", "See the log.")
        if arguments[0] == "prepare":
            Path(arguments[arguments.index("--slots-file") + 1]).write_text("0\n")


@pytest.fixture
def manage(home: Home, monkeypatch: pytest.MonkeyPatch) -> Manage:
    made = Manage(home)
    monkeypatch.setattr(up.manage, "run", made)
    return made


@pytest.fixture
def step() -> Step:
    with Steps(1, out=io.StringIO()).step("x") as made:
        return made


def prepare(home: Home, step: Step, children: dict[str, str] | None = None) -> None:
    up.prepare(home, Path("python"), children or {}, step)


def test_preparation_is_done_once(home: Home, checkout: Path, manage: Manage, step: Step) -> None:
    prepare(home, step)
    prepare(home, step)
    assert manage.asked == ["prepare"]


@pytest.mark.parametrize(
    "name",
    [
        "apps/a/migrations/0002.py",
        "apps/a/static/z.css",
        "static/js/y.js",
        "controlplane/s.py",
        "requirements/base.lock",
    ],
)
def test_preparation_is_done_again_when_a_source_changes(
    home: Home, checkout: Path, manage: Manage, step: Step, name: str
) -> None:
    prepare(home, step)
    (checkout / name).write_text("changed")
    prepare(home, step)
    assert manage.asked == ["prepare", "prepare"]


def test_preparation_is_done_again_for_another_database(
    home: Home, checkout: Path, manage: Manage, step: Step
) -> None:
    prepare(home, step)
    restored = home.root / "restored"
    restored.write_text("an older one")
    restored.replace(home.root / "db.sqlite3")
    prepare(home, step)
    assert manage.asked == ["prepare", "prepare"]


def test_database_elsewhere_is_always_looked_at(
    home: Home, checkout: Path, manage: Manage, step: Step
) -> None:
    children = {"DATABASE_URL": "postgres://db/inflight"}
    prepare(home, step, children)
    prepare(home, step, children)
    assert manage.asked == ["prepare", "prepare"]


def test_failed_preparation_is_tried_again(home: Home, checkout: Path, manage: Manage, step: Step) -> None:
    prepare(home, step)
    (checkout / "controlplane/s.py").write_text("changed")
    manage.failing = "prepare"
    with pytest.raises(Problem):
        prepare(home, step)
    (checkout / "controlplane/s.py").write_text("x")
    manage.failing = ""
    prepare(home, step)
    assert manage.asked == ["prepare"] * 3


def demo(home: Home, wait: bool = False) -> None:
    up._demo(home, Path("python"), {}, Steps(2, out=io.StringIO()), wait)


def test_demo_is_applied_once_so_that_what_people_change_stays(
    home: Home, checkout: Path, manage: Manage
) -> None:
    demo(home)
    demo(home)
    assert manage.asked == ["apply"]
    (checkout / "examples/demo.yaml").write_text("another version")
    demo(home)
    assert manage.asked == ["apply", "apply"]


def test_demo_that_could_not_be_applied_is_tried_again(home: Home, checkout: Path, manage: Manage) -> None:
    manage.failing = "apply"
    with pytest.raises(Problem):
        demo(home)
    manage.failing = ""
    demo(home, wait=True)
    assert manage.asked == ["apply", "apply", "wait_for"]


def test_slots_are_read(tmp_path: Path) -> None:
    (tmp_path / "slots").write_text("0\n1\n")
    assert up.read_slots(tmp_path / "slots") == (0, 1)


@pytest.mark.parametrize("text", ["", "\n", "zero", "0\n-1", "Traceback (most recent call last):"])
def test_slots_that_are_no_numbers_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "slots").write_text(text)
    with pytest.raises(Problem, match="not slot numbers"):
        up.read_slots(tmp_path / "slots")


def test_taken_port_is_said_in_words_and_the_next_one_written_down(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port != 8000)
    assert up.write_environment(home, {}, ServingEnvironment(home), Path("/usr/bin/redis-server")) == 8001
    assert "Port 8000 is taken: the pages will be on 8001." in capsys.readouterr().out
    known = environment.read(home.environment)
    assert known["INFLIGHT_WEB_URL"] == "http://127.0.0.1:8001"
    assert known["INFLIGHT_REDIS_URL"] == f"unix://{home.sockets()}/redis.sock"
    assert known["INFLIGHT_NODE_ID"] == home.node_id()
    home.remove_sockets()


def test_what_the_caller_sets_is_kept(home: Home) -> None:
    given = {
        "INFLIGHT_REDIS_URL": "redis://10.0.0.1:6379",
        "INFLIGHT_TRITON_BIN": "/opt/tritonserver/bin/tritonserver",
        "INFLIGHT_NODE_ID": "n-chosen",
        "DATABASE_URL": "postgres://u@db/inflight",
    }
    up.write_environment(home, given, ServingEnvironment(home), None)
    known = environment.read(home.environment)
    assert {key: known[key] for key in given} == given
    home.remove_sockets()


def test_named_redis_must_answer(home: Home, step: Step, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="Nothing answers at INFLIGHT_REDIS_URL"):
        up.ensure_redis(home, {"INFLIGHT_REDIS_URL": f"unix://{tmp_path}/none.sock"}, step, Path("python"))


def test_machine_that_lacks_something_is_refused_before_anything_is_made(
    tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        up.preflight, "problems", lambda machine, need: ["One thing. Remedy.", "Another. Remedy."]
    )
    home = Home(tmp_path / "home")
    with pytest.raises(Problem) as caught:
        up.up(home, dict(os.environ), wait_for_demo=False)
    assert "  - One thing. Remedy.\n  - Another. Remedy." in caught.value.what
    assert caught.value.remedy == "Nothing was downloaded."
    assert not home.root.exists()
