"""Stages of `make test`: what is counted, what fails, what is ended."""

from __future__ import annotations

import io
import itertools
import os
import sys
from pathlib import Path

import pytest

from deploy.local import cli, stages, suite
from deploy.local.errors import Problem
from deploy.local.home import Home
from deploy.local.progress import Steps
from deploy.local.stages import Counts, Result, Stage, read_report, run_stage, run_together
from deploy.local.suite import Suite
from tests.bringup import fewer_files
from tests.bringup.database_only import touches_database
from tests.support.waiting import eventually

REPORT = '<testsuites><testsuite errors="1" failures="2" skipped="3" tests="10"></testsuite></testsuites>'


def test_report_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "r.xml"
    path.write_text(REPORT)
    assert read_report(path) == Counts(passed=4, failed=3, skipped=3)


@pytest.mark.parametrize("text", ["", "<testsuites>", "no xml", "<testsuites/>"])
def test_broken_report_counts_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.xml"
    path.write_text(text)
    assert read_report(path) == Counts()
    assert read_report(tmp_path / "none") == Counts()


def stage(tmp_path: Path, script: str, report: bool = False) -> Result:
    argv = [sys.executable, "-S", "-c", script]
    return run_stage("x", argv, dict(os.environ), 60, tmp_path / "r.xml" if report else None)


def test_stage_that_ends_well_is_well(tmp_path: Path) -> None:
    assert stage(tmp_path, "pass").why == ""


def test_failing_stage_says_its_exit_code(tmp_path: Path) -> None:
    assert stage(tmp_path, "raise SystemExit(3)").why == "ended with 3"


def test_stage_past_its_limit_is_ended_with_its_children(tmp_path: Path) -> None:
    argv = ["/bin/sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"]
    result = run_stage("x", argv, dict(os.environ), limit=2)
    assert result.why.startswith("not done after")
    child = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{child}/stat")
    # Its signal was sent; a machine that does much else lets it run into it a little later.
    eventually(
        lambda: not state.exists() or state.read_text().rsplit(") ", 1)[1][0] == "Z", "the child ended"
    )


def test_stage_that_ran_no_test_has_failed(tmp_path: Path) -> None:
    assert stage(tmp_path, "pass", report=True).why == "ran no test"


def python_stage(name: str, script: str, limit: float = 60) -> Stage:
    return Stage(name, [sys.executable, "-S", "-c", script], dict(os.environ), limit)


def test_stages_beside_each_other_are_printed_whole_and_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = tmp_path / "done"
    waits = f"import os, time\nwhile not os.path.exists({str(done)!r}): time.sleep(0.01)\nprint('first')"
    found = run_together(
        [
            python_stage("slow one", waits),
            python_stage("broken", "print('second'); raise SystemExit(3)"),
            python_stage("last", f"open({str(done)!r}, 'w')"),
        ],
        tmp_path / "said",
    )
    assert [(each.name, each.why) for each in found] == [
        ("slow one", ""),
        ("broken", "ended with 3"),
        ("last", ""),
    ]
    assert capsys.readouterr().out == "\n== slow one\nfirst\n\n== broken\nsecond\n\n== last\n"


def test_one_beside_others_that_hangs_is_ended(tmp_path: Path) -> None:
    found = run_together(
        [python_stage("hangs", "import time; time.sleep(60)", 0.5), python_stage("ends", "pass")], tmp_path
    )
    assert [each.why for each in found] == ["not done after 0.5 s", ""]


def test_report_of_an_earlier_run_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(REPORT)
    assert stage(tmp_path, "pass", report=True).why == "ran no test"


def test_closing_line_counts_all_stages_and_failed_checks(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        Result("ruff", 1, "ended with 1"),
        Result("unit", 1, "ended with 1", Counts(5, 2)),
        Result("db", 1, "", Counts(3)),
    ]
    assert suite._report(results, 3) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "8 passed, 3 failed"
    assert suite._report(results[2:], 3) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed"


def test_tests_do_not_see_a_running_installation(tmp_path: Path) -> None:
    given = {
        "INFLIGHT_HOME": "/x",
        "DATABASE_URL": "postgres://",
        "DJANGO_SETTINGS_MODULE": "y",
        "PATH": "/bin",
    }
    found = suite._environment(Home(tmp_path), given, {"INFLIGHT_TRITON_BIN": "/t"})
    assert not {"INFLIGHT_HOME", "DATABASE_URL", "DJANGO_SETTINGS_MODULE"} & set(found)
    assert found["INFLIGHT_TRITON_BIN"] == "/t"


@pytest.mark.parametrize(("full", "chosen"), [(False, "(browser) and not slow"), (True, "browser")])
def test_slow_tests_are_for_the_full_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool, chosen: str
) -> None:
    seen: list[list[str]] = []

    def note(name: str, argv: list[str], environ: dict[str, str], limit: float, report: Path) -> Result:
        seen.append(argv)
        return Result(name, limit, "")

    monkeypatch.setattr(suite, "run_stage", note)
    suite._pytest(Suite(Home(tmp_path), Path("python"), {}), "browser", "browser", full)
    assert seen[0][seen[0].index("-m", 3) + 1] == chosen


def test_missing_system_packages_are_named_to_who_cannot_install_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suite, "find_browser", lambda: None)
    monkeypatch.setattr(suite.postgres, "find_programs", lambda: None)
    found = suite.missing_system_packages(root=False)
    assert len(found) == 2
    assert all("apt-get install -y" in text for text in found)


@pytest.mark.parametrize(
    ("fails", "says"), [("", ""), ("update", "apt-get update failed"), ("install", "install")]
)
def test_missing_system_packages_are_installed_through_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, says: str
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$@"\n[ "$1" != "{fails or "none"}" ]\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(suite, "find_browser", lambda: None)
    monkeypatch.setattr(suite.postgres, "find_programs", lambda: Path("/usr/lib/postgresql/15/bin"))
    log = tmp_path / "apt.log"
    with Steps(1, out=io.StringIO()).step("x") as step:
        if fails:
            with pytest.raises(Problem, match=says):
                suite.install_system_packages(step, log)
        else:
            suite.install_system_packages(step, log)
    assert log.read_text().startswith("update\n")
    assert ("chromium" in log.read_text()) is (fails != "update")


class Item:
    """A collected test as the plugin sees it."""

    def __init__(self, marked: bool, *fixtures: str) -> None:
        self.fixturenames = fixtures
        self._marked = marked

    def get_closest_marker(self, name: str) -> object | None:
        return object() if self._marked and name == "django_db" else None


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (Item(True), True),
        (Item(False, "transactional_db"), True),
        (Item(False, "db"), True),
        (Item(False, "tmp_path"), False),
    ],
)
def test_database_tests_are_told_from_others(item: Item, expected: bool) -> None:
    assert touches_database(item) is expected  # type: ignore[arg-type]


def test_stages_read_the_files_that_can_hold_their_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fewer_files, "ROOT", tmp_path)
    for name, text in {
        "a/test_one.py": "pytestmark = pytest.mark.triton",
        "a/test_two.py": "def test_two(): pass",
        "b/conftest.py": "item.add_marker(pytest.mark.browser)",
        "b/c/test_three.py": "def test_three(): pass",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    held = {
        (kind, file.name)
        for kind in ("triton", "browser")
        for file in tmp_path.rglob("test_*.py")
        if fewer_files.may_hold(file, kind)
    }
    assert held == {("triton", "test_one.py"), ("browser", "test_three.py")}


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("yes", True), ("", False), ("0", False), ("No", False)]
)
def test_make_variables_are_yes_or_no(value: str, expected: bool) -> None:
    assert cli.chosen("DETACH", {"DETACH": value}) is expected


def test_make_variable_that_is_neither_is_refused() -> None:
    with pytest.raises(Problem, match="DETACH=maybe"):
        cli.chosen("DETACH", {"DETACH": "maybe"})


def test_refusal_is_printed_and_exits_with_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFLIGHT_HOME", "/dev/null")
    assert cli.main(["status"]) == 1
    assert "INFLIGHT_HOME /dev/null is a file." in capsys.readouterr().err


def test_unknown_command_is_wrong_usage() -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["explode"])
    assert caught.value.code == 2


def test_stage_names_have_limits() -> None:
    assert set(suite.KINDS) < set(stages_with_limits())


@pytest.mark.parametrize(
    "marks", [*itertools.combinations(suite.KINDS, 1), *itertools.combinations(suite.KINDS, 2)]
)
def test_a_test_of_several_kinds_runs_in_one_stage(marks: tuple[str, ...]) -> None:
    worn = {kind: kind in marks for kind in suite.KINDS}
    chosen = [kind for kind in suite.KINDS if eval(suite.marks_of(kind), {}, worn)]
    assert chosen == [marks[-1]]


def stages_with_limits() -> set[str]:
    return set(suite.LIMITS)


def test_line_of_a_result_is_readable() -> None:
    assert stages.Result("unit", 61, "", Counts(3)).line().split() == [
        "unit",
        "3",
        "passed,",
        "0",
        "failed,",
        "ok",
        "in",
        "1",
        "min",
        "01",
        "s",
    ]
