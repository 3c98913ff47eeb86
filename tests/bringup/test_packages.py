"""Lock files, stamps of environments, and what pip's output says about progress."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from deploy.local import packages
from deploy.local.errors import Problem
from deploy.local.lock import LOCKS
from deploy.local.packages import REQUIREMENTS, Venv
from deploy.local.pip_progress import PipProgress, names_in, partial_bytes
from deploy.local.progress import Steps

PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def pins(name: str) -> set[tuple[str, str]]:
    return set(PINNED.findall((REQUIREMENTS / name).read_text()))


@pytest.mark.parametrize("name", [name for name, _ in LOCKS])
def test_locks_hold_hashes_and_no_address(name: str) -> None:
    text = (REQUIREMENTS / name).read_text()
    assert "://" not in text
    assert not re.search(r"^-{1,2}(i|index|extra|find|trusted)", text, re.MULTILINE)
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, block.splitlines()[0]


def test_dev_lock_is_a_superset_of_base_lock() -> None:
    assert pins("base.lock") <= pins("dev.lock")


def test_locked_supervisor_watches_the_processes() -> None:
    assert any(name == "supervisor" for name, _ in pins("base.lock"))


def fake_venv(root: Path, lock: Path) -> Venv:
    venv = Venv(root, (lock,))
    venv.site_packages.mkdir(parents=True)
    venv.python.parent.mkdir()
    venv.python.symlink_to(sys.executable)
    (root / "pyvenv.cfg").write_text(f"version = {'.'.join(map(str, sys.version_info[:3]))}\n")
    return venv


def test_stamp_makes_an_environment_current_until_its_lock_changes(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("a==1\n")
    venv = fake_venv(tmp_path / "venv", lock)
    assert not packages.is_current(venv)
    packages._write_stamp(venv)
    assert packages.is_current(venv)
    lock.write_text("a==2\n")
    assert not packages.is_current(venv)


@pytest.mark.parametrize(
    "stamp", ["", "[]", "null", "{", '{"python": "2.7", "locks": {}}', '{"locks": 3, "python": 1}']
)
def test_broken_stamp_is_no_stamp(tmp_path: Path, stamp: str) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("a==1\n")
    venv = fake_venv(tmp_path / "venv", lock)
    (venv.root / packages.STAMP).write_text(stamp)
    assert not packages.is_current(venv)


def test_stamp_of_an_environment_whose_python_is_gone_counts_for_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("a==1\n")
    venv = fake_venv(tmp_path / "venv", lock)
    packages._write_stamp(venv)
    venv.python.unlink()
    assert not packages.is_current(venv)
    assert not packages._same_python(venv)


def test_environment_of_another_python_is_not_reused(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("a==1\n")
    venv = fake_venv(tmp_path / "venv", lock)
    assert packages._same_python(venv)
    (venv.root / "pyvenv.cfg").write_text("version = 3.9.1\n")
    assert not packages._same_python(venv)


def test_dev_stamp_serves_make_up_as_well(tmp_path: Path) -> None:
    base, dev = tmp_path / "base.lock", tmp_path / "dev.lock"
    base.write_text("a==1\n")
    dev.write_text("a==1\nb==1\n")
    venv = fake_venv(tmp_path / "venv", dev)
    packages._write_stamp(Venv(venv.root, (dev,), implied=(base,)))
    assert packages.is_current(Venv(venv.root, (base,)))


def test_failing_pip_is_a_sentence_with_its_own_reason(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("a==1\n")
    said = "Collecting a==1\\nERROR: No matching distribution found for a==1"
    script = f"import sys; print('{said}'); sys.exit(1)"
    with Steps(1, out=io.StringIO()).step("x") as step, pytest.raises(Problem, match="No matching") as caught:
        packages.run_pip([sys.executable, "-c", script], lock, step, tmp_path / "pip.log", tmp_path / "cache")
    assert "pip.log" in caught.value.remedy
    assert "Collecting a==1" in (tmp_path / "pip.log").read_text()
    assert list((tmp_path / "cache").iterdir()) == []


def test_ensure_leaves_no_stamp_when_pip_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("a==1\n")
    venv = fake_venv(tmp_path / "venv", lock)
    packages._write_stamp(venv)
    lock.write_text("a==2\n")

    def fail(*args: object) -> None:
        raise Problem("no", "none")

    monkeypatch.setattr(packages, "run_pip", fail)
    with Steps(1, out=io.StringIO()).step("x") as step, pytest.raises(Problem):
        packages.ensure(venv, step, tmp_path / "log", tmp_path)
    assert not (venv.root / packages.STAMP).exists()


def test_names_of_a_lock_leave_other_systems_out() -> None:
    text = "a-b==1 \\\n    --hash=sha256:x\ncolorama==0.4 ; sys_platform == 'win32' \\\n    --hash=sha256:y\nA_b==2\n"
    assert names_in(text) == {"a-b"}


def test_progress_moves_through_download_and_installation() -> None:
    progress = PipProgress(expected=2)
    seen = [progress.share(0)]
    progress.feed(["Collecting a==1", "  Downloading a-1-py3-none-any.whl (10.0 MB)"])
    seen += [progress.share(1_000_000), progress.share(9_000_000)]
    assert "a 9 of 10 MB" in progress.detail(9_000_000)
    progress.feed(["Collecting b==1", "  Using cached b-1-py3-none-any.whl (12 kB)"])
    seen.append(progress.share(0))
    progress.feed(["Installing collected packages: a, b"])
    seen.append(progress.share(0))
    progress.installed = 2
    seen.append(progress.share(0))
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == 1


def test_progress_of_more_packages_than_expected_stays_below_the_whole() -> None:
    progress = PipProgress(expected=1)
    progress.feed(["Collecting a", "Collecting b", "Collecting c"])
    assert 0 < progress.share(0) <= 0.6


def test_size_of_the_file_being_written_is_measured(tmp_path: Path) -> None:
    (tmp_path / "pip-unpack-x").mkdir()
    (tmp_path / "pip-unpack-x" / "big.whl").write_bytes(b"x" * 1000)
    (tmp_path / "pip-unpack-x" / "note.txt").write_bytes(b"x" * 5000)
    assert partial_bytes(tmp_path) == 1000


def test_folders_that_pip_removes_meanwhile_count_as_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip-unpack-a").mkdir()
    (tmp_path / "pip-unpack-b").mkdir()
    (tmp_path / "pip-unpack-b/x-1-py3-none-any.whl").write_bytes(b"x" * 7)
    listed = os.listdir

    def removing(folder: str | Path) -> list[str]:
        if Path(folder).name == "pip-unpack-a":
            raise FileNotFoundError(folder)
        return listed(folder)

    monkeypatch.setattr("deploy.local.pip_progress.os.listdir", removing)
    assert partial_bytes(tmp_path) == 7
    assert partial_bytes(tmp_path / "gone") == 0


def test_stamp_names_python_and_every_lock(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("a==1\n")
    venv = fake_venv(tmp_path / "venv", lock)
    packages._write_stamp(venv)
    stamp = json.loads((venv.root / packages.STAMP).read_text())
    assert stamp == {"python": sys.version, "locks": {"some.lock": packages.sha256_of(lock)}}
