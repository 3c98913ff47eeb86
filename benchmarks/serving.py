"""A tritonserver of one's own that serves one engine file, for benchmarks and for tests of the model.

The command line, the environment and the repository are those of the product; only the life of the process is
simpler: it ends with the block that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from apps.serving.domain import repository
from apps.serving.domain.batching import BatchingFacts
from controlplane.settings.env import parse_environment
from workers.runtimes import memory_files, ports
from workers.runtimes.arguments import (
    HEADER,
    Installation,
    compose_argv,
    compose_environment,
    shared_memory_prefix,
)

CHECKOUT = Path(__file__).resolve().parents[1]
MODEL_CODE = CHECKOUT / "workers/triton_models/llamacpp/1"
MODEL = "demo"
START_SECONDS = 60.0
LOAD_SECONDS = 180.0
STOP_SECONDS = 30.0
# Of sys/prctl.h.
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
# Where `make up` and `make test` leave what they installed.
HOMES = (CHECKOUT / "var", CHECKOUT / "var/test")


class ServerProblem(RuntimeError):
    """The server did not start or load; the text ends with its last log lines."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that has the model loaded. URLs as apps.streaming.token_source.Endpoint has them."""

    process: subprocess.Popen[bytes]
    http_url: str
    grpc_url: str
    metrics_url: str
    log: Path
    secret: str

    def metrics(self) -> str:
        """The metrics text."""
        with urllib.request.urlopen(self.metrics_url, timeout=10) as response:
            text: str = response.read().decode()
        return text

    def control(self, path: str) -> str:
        """POST to a restricted API, as unload is. Raises ServerProblem with what the server says."""
        return _post(f"{self.http_url}{path}", self.secret, LOAD_SECONDS)


def find_installation(environ: Mapping[str, str] | None = None) -> Installation:
    """The tritonserver that the environment names, else the one of a home. Raises ServerProblem with a remedy."""
    found = dict(os.environ if environ is None else environ)
    for home in (Path(found["INFLIGHT_HOME"]),) if found.get("INFLIGHT_HOME") else HOMES:
        path = home / "run/environment"
        if not found.get("INFLIGHT_TRITON_BIN") and path.is_file():
            found |= parse_environment(path.read_text(encoding="utf-8"), str(path))
    binary = found.get("INFLIGHT_TRITON_BIN", "")
    if not os.access(binary, os.X_OK):
        raise ServerProblem("There is no tritonserver; run `make up` once in this checkout, it installs one.")
    return Installation(
        binary=binary,
        backends=found.get("INFLIGHT_TRITON_BACKENDS", ""),
        libraries=found.get("INFLIGHT_TRITON_LIBS", ""),
        site_packages=found.get("INFLIGHT_SERVING_SITE_PACKAGES", ""),
        python_home=found.get("INFLIGHT_SERVING_PYTHONHOME", ""),
        python=found.get("INFLIGHT_SERVING_PYTHON", ""),
    )


@contextlib.contextmanager
def serve(
    installation: Installation,
    engine: Path,
    batching: BatchingFacts,
    parameters: Mapping[str, str] | None = None,
) -> Iterator[RunningServer]:
    """Start a server with one model and end it, its process group, its folder and its shared memory at the end.

    `parameters` are added to the model's, for those that no batching profile has.
    """

    def fill(root: Path) -> None:
        _write_repository(root, engine, batching, parameters or {})

    with serve_folder(installation, fill) as running:
        running.control(f"/v2/repository/models/{MODEL}/load")
        yield running


@contextlib.contextmanager
def serve_folder(
    installation: Installation, fill: Callable[[Path], None], without: Collection[str] = ()
) -> Iterator[RunningServer]:
    """The same over a repository that `fill` writes, nothing loaded; flags named in `without` are left out."""
    uid = f"own{secrets.token_hex(5)}"
    folder = Path(tempfile.mkdtemp(prefix="inflight-serve-"))
    try:
        (folder / "repository").mkdir()
        fill(folder / "repository")
        running = _start(installation, uid, folder, without)
        try:
            _until_live(running)
            yield running
        finally:
            _end(running.process)
    finally:
        memory_files.remove_unmapped(shared_memory_prefix(uid))
        repository.remove(folder / "repository")
        shutil.rmtree(folder, ignore_errors=True)


def _write_repository(
    root: Path, engine: Path, batching: BatchingFacts, parameters: Mapping[str, str]
) -> None:
    model = repository.LlamaCppModel(MODEL, str(engine.resolve()), "cpu", batching)
    code = {path.name: path.read_bytes() for path in sorted(MODEL_CODE.glob("*.py"))}
    files = repository.files(model, code)
    more = "".join(
        f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'
        for name, value in parameters.items()
    )
    written = tuple(
        repository.RepositoryFile(file.path, file.content + more.encode())
        if file.path.endswith("config.pbtxt")
        else file
        for file in files
    )
    repository.write(root, written)


def _start(
    installation: Installation, uid: str, folder: Path, without: Collection[str] = ()
) -> RunningServer:
    chosen = ports.allocate()
    secret = secrets.token_urlsafe(24)
    log = folder / "triton.log"
    argv = compose_argv(installation, uid, folder / "repository", chosen, secret)
    argv = tuple(word for word in argv if word not in without)
    env = compose_environment(installation, uid, folder, folder, None, os.environ)
    with log.open("wb") as handle:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            # Also where this process is killed: a server of ours never outlives it.
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, its library is loaded before the fork
        )
    return RunningServer(
        process=process,
        http_url=f"http://127.0.0.1:{chosen.http}",
        grpc_url=f"127.0.0.1:{chosen.grpc}",
        metrics_url=f"http://127.0.0.1:{chosen.metrics}/metrics",
        log=log,
        secret=secret,
    )


def _die_with_parent() -> None:
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _until_live(running: RunningServer) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if running.process.poll() is not None:
            raise ServerProblem(
                f"tritonserver ended with {running.process.returncode}.\n{_tail(running.log)}"
            )
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{running.http_url}/v2/health/live", timeout=1),
        ):
            return
        time.sleep(0.05)
    raise ServerProblem(
        f"tritonserver did not open its ports within {START_SECONDS:.0f} s.\n{_tail(running.log)}"
    )


def _post(url: str, secret: str, seconds: float) -> str:
    request = urllib.request.Request(url, data=b"{}", headers={HEADER: secret}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            text: str = response.read().decode()
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        with contextlib.suppress(ValueError, AttributeError):
            said = json.loads(said).get("error", said)
        raise ServerProblem(said) from error
    return text


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to exit, wait, then kill its session: the stub is a process of its own."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
