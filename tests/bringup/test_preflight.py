"""What the machine lacks is said in one line each, with the remedy, before anything is downloaded."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local import preflight
from deploy.local.home import CHECKOUT
from deploy.local.preflight import GIB, Machine

GOOD = Machine(
    system="Linux",
    architecture="x86_64",
    glibc=(2, 36),
    python=(3, 11),
    libpython=Path("/usr/lib/libpython3.11.so.1.0"),
    sqlite=(3, 40, 0),
    modules_missing=(),
    libraries_missing=(),
    distribution="debian",
    root=True,
    free_bytes={"/srv/inflight": 10 * GIB},
)


def test_good_machine_lacks_nothing() -> None:
    assert preflight.problems(GOOD, 3 * GIB) == []


@pytest.mark.parametrize(
    ("change", "says", "remedy"),
    [
        ({"architecture": "aarch64"}, "Linux on aarch64", "Use such a machine"),
        ({"system": "Darwin"}, "Darwin", "Use such a machine"),
        ({"glibc": None}, "not glibc", "Debian 12"),
        ({"glibc": (2, 31)}, "glibc is 2.31, 2.35 or newer", "Ubuntu 22.04"),
        ({"python": (3, 10)}, "Python is 3.10", "apt-get install -y python3.11"),
        ({"python": (3, 14)}, "Python is 3.14", "apt-get install"),
        ({"libpython": None}, "libpython3.11.so.1.0", "apt-get install -y libpython3.11"),
        ({"modules_missing": ("ensurepip",)}, "no module ensurepip", "apt-get install -y python3.11-venv"),
        ({"modules_missing": ("ssl",)}, "without its module ssl", "distribution's Python"),
        ({"sqlite": (3, 22, 0)}, "SQLite is 3.22.0", "3.31 or newer"),
        (
            {"libraries_missing": ("libstdc++.so.6",)},
            "libstdc++.so.6 is missing",
            "apt-get install -y libstdc++6",
        ),
        ({"unwritable": ("/srv/inflight",)}, "/srv/inflight cannot be written", "INFLIGHT_HOME"),
        ({"free_bytes": {"/srv/inflight": GIB}}, "1.0 GB free, 3.0 GB are needed", "INFLIGHT_HOME"),
    ],
)
def test_each_missing_thing_is_one_line_with_its_remedy(
    change: dict[str, object], says: str, remedy: str
) -> None:
    found = preflight.problems(replace(GOOD, **change), 3 * GIB)  # type: ignore[arg-type]
    assert len(found) == 1
    assert says in found[0]
    assert remedy in found[0]
    assert "\n" not in found[0]


def test_several_missing_things_are_all_said_at_once() -> None:
    machine = replace(GOOD, libpython=None, modules_missing=("ensurepip",), free_bytes={"/x": 0})
    assert len(preflight.problems(machine, GIB)) == 3


def test_people_who_are_not_root_are_told_to_use_sudo() -> None:
    found = preflight.problems(replace(GOOD, libpython=None, root=False), GIB)
    assert "sudo apt-get install -y libpython3.11" in found[0]


@pytest.mark.parametrize(
    ("distribution", "words"), [("fedora", "dnf install -y python3.11"), ("", "package manager")]
)
def test_other_distributions_get_their_own_remedy(distribution: str, words: str) -> None:
    found = preflight.problems(replace(GOOD, libpython=None, distribution=distribution), GIB)
    assert words in found[0]


def test_this_machine_is_looked_at_without_making_folders(tmp_path: Path) -> None:
    wanted = tmp_path / "not" / "there" / "yet"
    machine = preflight.look([wanted])
    assert machine.python == sys.version_info[:2]
    assert machine.free_bytes[str(wanted)] > 0
    assert not wanted.parent.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "debian"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ("ID=arch\n", ""),
        ("\x00garbage", ""),
    ],
)
def test_distribution_is_read_from_os_release(tmp_path: Path, text: str, expected: str) -> None:
    release = tmp_path / "os-release"
    release.write_text(text)
    assert preflight._distribution(release) == expected


def test_missing_os_release_is_no_distribution(tmp_path: Path) -> None:
    assert preflight._distribution(tmp_path / "none") == ""


def test_launcher_names_the_python_it_needs() -> None:
    done = subprocess.run(
        ["sh", "deploy/local/launch.sh", "status"],
        check=False,
        cwd=CHECKOUT,
        env={"PATH": "/usr/bin:/bin", "PYTHON": "/nonexistent/python"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert "Python 3.11, 3.12 or 3.13" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_launcher_imports_the_standard_library_alone() -> None:
    script = (
        "import sys, importlib, pkgutil, deploy.local\n"
        "names = [m.name for m in pkgutil.iter_modules(deploy.local.__path__) if m.name != '__main__']\n"
        "[importlib.import_module('deploy.local.' + name) for name in names]\n"
        "roots = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(roots - set(sys.stdlib_module_names) - {'deploy', '__main__'}))\n"
    )
    # -S -I leaves site-packages out; the checkout is put back by hand.
    code = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r})\n{script}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"
