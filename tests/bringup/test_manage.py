"""Management commands run by the launcher: their lines, and the one line that says why one failed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from deploy.local import manage
from deploy.local.errors import Problem


def command(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Path]:
    (tmp_path / "manage.py").write_text(script)
    monkeypatch.setattr(manage, "CHECKOUT", tmp_path)
    said: list[str] = []
    log = tmp_path / "log"
    try:
        manage.run(Path(sys.executable), ["apply", "-f", "x"], dict(os.environ), log, said.append)
    finally:
        assert log.read_text().startswith("$ manage.py apply -f x\n")
    return said, log


def test_lines_are_said_and_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, log = command(tmp_path, "print('one'); print('two')", monkeypatch)
    assert said == ["one", "two"]
    assert log.read_text().endswith("one\ntwo\n")


def test_command_error_is_the_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; print('working'); sys.exit('CommandError: No such deployment: demo.')"
    with pytest.raises(Problem, match="apply failed: CommandError: No such deployment: demo"):
        command(tmp_path, script, monkeypatch)


def test_traceback_is_for_the_log_and_its_exception_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Problem, match="ValueError: first line") as caught:
        command(
            tmp_path,
            "print('working', flush=True); raise ValueError('first line\\n\\n more of it')",
            monkeypatch,
        )
    assert "Traceback" not in str(caught.value)
    assert "Traceback" in (tmp_path / "log").read_text()


def test_silent_failure_says_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Problem, match="ended with 7"):
        command(tmp_path, "raise SystemExit(7)", monkeypatch)


def test_reason_of_a_chain_is_the_last_exception() -> None:
    lines = [
        manage.TRACEBACK,
        "  File x",
        "KeyError: 1",
        "",
        "During handling:",
        "",
        manage.TRACEBACK,
        "  y",
        "Bad: 2",
        "z",
    ]
    assert manage.reason(lines) == "Bad: 2"
    assert manage.reason([]) == ""
