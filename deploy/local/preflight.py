"""What the machine must have, asked before anything is downloaded: one line for each thing that is missing."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

GIB = 1024**3
# tritonserver's wheel is tagged manylinux_2_35.
LEAST_GLIBC = (2, 35)
# Django 5.2 refuses older ones.
LEAST_SQLITE = (3, 31, 0)
# Measured: .venv with the development tools 0.7 GB, serving environment 0.4 GB, checkpoint and demo engine 0.4 GB,
# package cache 0.4 GB; the rest is for logs and a build in progress.
FIRST_START_BYTES = 3 * GIB
LATER_START_BYTES = GIB // 2
# What tritonserver and the engines link and no wheel carries.
SYSTEM_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1")
PYTHON_MODULES = ("ssl", "sqlite3", "ctypes", "zlib", "bz2", "lzma", "venv", "ensurepip")


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about this machine; a test makes its own."""

    system: str
    architecture: str
    glibc: tuple[int, int] | None
    python: tuple[int, int]
    libpython: Path | None
    sqlite: tuple[int, ...]
    modules_missing: tuple[str, ...]
    libraries_missing: tuple[str, ...]
    distribution: str
    root: bool
    free_bytes: dict[str, int] = field(default_factory=dict)
    unwritable: tuple[str, ...] = ()


def look(folders: Iterable[Path]) -> Machine:
    """Gather the facts; `folders` are those that will be written to, made or not."""
    folders = list(folders)
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        glibc=_glibc(),
        python=sys.version_info[:2],
        libpython=find_libpython(),
        sqlite=_sqlite(),
        modules_missing=tuple(name for name in PYTHON_MODULES if not _importable(name)),
        libraries_missing=tuple(name for name in SYSTEM_LIBRARIES if not _loadable(name)),
        distribution=_distribution(Path("/etc/os-release")),
        root=os.geteuid() == 0,
        free_bytes={str(folder): shutil.disk_usage(_existing(folder)).free for folder in folders},
        unwritable=tuple(
            str(folder) for folder in folders if not os.access(_existing(folder), os.W_OK | os.X_OK)
        ),
    )


def problems(machine: Machine, need_bytes: int) -> list[str]:
    """One line, with its remedy, for each thing that is missing; an empty list when all is there."""
    found = _platform_problems(machine) + _python_problems(machine)
    for name in machine.libraries_missing:
        package = {"libstdc++.so.6": "libstdc++6", "libgcc_s.so.1": "libgcc-s1", "libz.so.1": "zlib1g"}[name]
        found.append(f"The system library {name} is missing. {_install(machine, package, name)}")
    for folder in machine.unwritable:
        found.append(
            f"{folder} cannot be written to. Give yourself the folder, or choose another: INFLIGHT_HOME=DIR"
        )
    for folder, free in machine.free_bytes.items():
        if free < need_bytes:
            found.append(
                f"{folder} has {free / GIB:.1f} GB free, {need_bytes / GIB:.1f} GB are needed. "
                "Free some space, or put the home on another disk: INFLIGHT_HOME=DIR"
            )
    return found


def _platform_problems(machine: Machine) -> list[str]:
    if machine.system != "Linux" or machine.architecture not in {"x86_64", "AMD64"}:
        where = f"{machine.system} on {machine.architecture}"
        return [
            f"The embedded tritonserver is built for Linux on x86-64, this is {where}. Use such a machine."
        ]
    if machine.glibc is None:
        return [
            "This system's C library is not glibc (musl?). Use Debian 12, Ubuntu 22.04 or another glibc system."
        ]
    if machine.glibc < LEAST_GLIBC:
        seen, least = (".".join(map(str, version)) for version in (machine.glibc, LEAST_GLIBC))
        return [
            f"glibc is {seen}, {least} or newer is needed. Use Debian 12, Ubuntu 22.04 or a newer system."
        ]
    return []


def _python_problems(machine: Machine) -> list[str]:
    found = []
    version = ".".join(map(str, machine.python))
    if not (3, 11) <= machine.python < (3, 14):
        remedy = _install(machine, "python3.11 python3.11-venv libpython3.11", "Python 3.11")
        found.append(f"Python is {version}, 3.11, 3.12 or 3.13 is needed. {remedy}")
    if machine.libpython is None:
        remedy = _install(machine, f"libpython{version}", "it")
        found.append(
            f"Python {version} has no shared library (libpython{version}.so.1.0), which models in Triton load. "
            f"{remedy} (a Python built by hand: configure it with --enable-shared)"
        )
    venv = [name for name in machine.modules_missing if name in {"venv", "ensurepip"}]
    if venv:
        remedy = _install(machine, f"python{version}-venv", "it")
        found.append(f"This Python cannot make virtual environments: no module {venv[-1]}. {remedy}")
    for name in machine.modules_missing:
        if name not in venv:
            found.append(f"This Python was built without its module {name}. Use the distribution's Python.")
    if machine.sqlite and machine.sqlite < LEAST_SQLITE:
        seen = ".".join(map(str, machine.sqlite))
        found.append(f"Python's SQLite is {seen}, 3.31 or newer is needed. Use the distribution's Python.")
    return found


def _install(machine: Machine, package: str, what: str) -> str:
    sudo = "" if machine.root else "sudo "
    if machine.distribution == "debian":
        return f"Install: {sudo}apt-get install -y {package}"
    if machine.distribution == "fedora":
        return f"Install: {sudo}dnf install -y {package.split()[0].replace('libpython', 'python')}"
    return f"Install {what} with your system's package manager (Debian names it {package})."


def find_libpython() -> Path | None:
    """Shared library of the Python that runs this, which the python backend's stub links; None when there is none."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    name = f"libpython{version}.so.1.0"
    multiarch = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    folders = [
        sysconfig.get_config_var("LIBDIR") or "",
        f"{sys.base_prefix}/lib",
        f"/usr/lib/{multiarch}",
        f"/lib/{multiarch}",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
    ]
    for folder in folders:
        path = Path(folder) / name
        if folder and path.is_file():
            return path.resolve()
    return None


def _glibc() -> tuple[int, int] | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    match = re.fullmatch(r"glibc (\d+)\.(\d+).*", text)
    return (int(match[1]), int(match[2])) if match else None


def _importable(name: str) -> bool:
    native = {"ssl": "_ssl", "sqlite3": "_sqlite3", "ctypes": "_ctypes", "bz2": "_bz2", "lzma": "_lzma"}
    return importlib.util.find_spec(native.get(name, name)) is not None


# Imported where they are used: a Python that lacks one must still reach the line that says so.
def _sqlite() -> tuple[int, ...]:
    try:
        import sqlite3
    except ImportError:
        return ()
    return sqlite3.sqlite_version_info


def _loadable(name: str) -> bool:
    try:
        import ctypes

        ctypes.CDLL(name)
    except ImportError:
        return True
    except OSError:
        return False
    return True


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there: that is where it will be made."""
    return next(candidate for candidate in (folder, *folder.parents) if candidate.is_dir())


def _distribution(release: Path) -> str:
    try:
        words = set(
            re.findall(r"^ID(?:_LIKE)?=\"?([^\"\n]*)", release.read_text(encoding="utf-8"), re.MULTILINE)
        )
    except OSError:
        return ""
    names = set(" ".join(words).split())
    if names & {"debian", "ubuntu"}:
        return "debian"
    return "fedora" if names & {"fedora", "rhel", "centos"} else ""
