"""pytest plugin: reads only the files that can hold what a stage runs; importing all of them takes 20 s a process.

`--kind browser`: files that name the mark, or lie under a conftest.py that does. `--note-database-files FILE` writes
which files have tests that touch the database, `--database-files FILE` reads only those. `--only-read` runs nothing:
what is compiled of the tests then lies there for the processes of all stages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from deploy.local.suite import KINDS
from tests.bringup.database_only import touches_database

ROOT = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("stages")
    group.addoption("--kind", help="read only files that can hold tests of this mark")
    group.addoption("--only-read", action="store_true", help="read the files, and run nothing")
    group.addoption("--note-database-files", type=Path, help="write the files whose tests touch the database")
    group.addoption("--database-files", type=Path, help="read only the files that this one lists")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run nothing where reading was all that is wanted; a file that cannot be read fails as in any run."""
    return True if session.config.getoption("only_read") and not session.testsfailed else None


@cache
def names_mark(file: Path, kind: str) -> bool:
    """Whether a file's text has the mark."""
    return file.is_file() and f"mark.{kind}" in file.read_text(encoding="utf-8")


def may_hold(file: Path, kind: str) -> bool:
    """Whether a test file, or a conftest.py that it lies under, names the mark."""
    above = (folder / "conftest.py" for folder in file.parents if folder.is_relative_to(ROOT))
    return names_mark(file, kind) or any(names_mark(each, kind) for each in above)


@cache
def listed(file: Path) -> frozenset[str]:
    """Lines of a list."""
    return frozenset(file.read_text(encoding="utf-8").splitlines())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over a file that holds nothing wanted; None leaves it to others."""
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    kind, only = config.getoption("kind"), config.getoption("database_files")
    if kind and not may_hold(collection_path, kind):
        return True
    if only and collection_path.relative_to(ROOT).as_posix() not in listed(only):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Write down the files; every process of a run has the same ones. A mark that is not named fails the run."""
    target: Path | None = config.getoption("note_database_files")
    every = list(items) if target else []
    yield
    if target is None:
        return
    lost = {item.nodeid for item in every for kind in KINDS if is_lost(item, kind)}
    if lost:
        raise pytest.UsageError(
            f"No stage would find these, as their files do not name their mark: {sorted(lost)}"
        )
    found = {item.path.relative_to(ROOT).as_posix() for item in items if touches_database(item)}
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    fresh.write_text("\n".join(sorted(found)), encoding="utf-8")
    fresh.replace(target)


def is_lost(item: pytest.Item, kind: str) -> bool:
    """Whether a test has a mark that its file does not name."""
    return item.get_closest_marker(kind) is not None and not may_hold(item.path, kind)
