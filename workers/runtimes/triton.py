"""tritonserver as a ServerRuntime: found by path, one process per instance, loopback only."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core import ids
from apps.core.exceptions import InflightError
from apps.serving.domain import repository
from workers.runtimes import arguments, memory_files, mpi, placed, ports, processes, spawn
from workers.runtimes import triton_answers as answers
from workers.runtimes.arguments import HEADER, Installation
from workers.runtimes.base import (
    Failure,
    Identity,
    Launch,
    ModelState,
    Observation,
    Ports,
    ServerFailure,
    ServerRuntime,
    ServerSpec,
)
from workers.runtimes.http import NoAnswer, Reply, call

STUB_NAME = "triton_python_b"
# Between two looks of a job that waits for a server; its end wakes the tick that decides.
LOOK_EVERY_SECONDS = 0.1


def configured() -> Installation:
    """The installation that the settings name, with the flags that its binary knows. Raises ServerFailure."""
    binary = settings.INFLIGHT_TRITON_BIN
    if not binary or not os.access(binary, os.X_OK) or not Path(binary).is_file():
        raise ServerFailure(
            Failure(
                "binary_missing",
                _("There is no tritonserver at %(path)s.") % {"path": binary or _("any configured place")},
                _("Run make up, which installs one, or set INFLIGHT_TRITON_BIN to yours."),
            )
        )
    found = Installation(
        binary=binary,
        backends=settings.INFLIGHT_TRITON_BACKENDS,
        libraries=settings.INFLIGHT_TRITON_LIBS,
        site_packages=settings.INFLIGHT_SERVING_SITE_PACKAGES,
        python_home=settings.INFLIGHT_SERVING_PYTHONHOME,
        python=_serving_python(),
    )
    stamp = os.stat(binary)
    flags = _known_flags(binary, found.libraries, stamp.st_mtime_ns, stamp.st_size)
    return dataclasses.replace(found, known_flags=flags)


def _serving_python() -> str:
    python = settings.INFLIGHT_SERVING_PYTHON
    return python if python and Path(python).is_file() else ""


@lru_cache(maxsize=8)
def _known_flags(binary: str, libraries: str, mtime: int, size: int) -> frozenset[str]:
    env = {"PATH": os.defpath, **({"LD_LIBRARY_PATH": libraries} if libraries else {})}
    try:
        said = subprocess.run(
            [binary, "--help"],
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerFailure(_does_not_run(binary, str(error))) from error
    flags = arguments.flags_in_help(said.stdout + said.stderr)
    if "--model-repository" not in flags:
        raise ServerFailure(_does_not_run(binary, (said.stderr or said.stdout).strip()[-300:]))
    return flags


def _does_not_run(binary: str, detail: str) -> Failure:
    return Failure(
        "binary_does_not_run",
        _("%(path)s does not run here: %(detail)s") % {"path": binary, "detail": detail},
        _("Check INFLIGHT_TRITON_LIBS (the folders of its shared libraries)."),
    )


def is_embedded(binary: str) -> bool:
    """Whether this is the server out of the wheel, which may be old: it listens on this machine only."""
    return "pytriton" in Path(binary).parts


class TritonRuntime(ServerRuntime):
    """See the module docstring. `home` is INFLIGHT_HOME; `code` the files of the model's version 1."""

    def check(self) -> Failure | None:
        """What is missing on this host before any server can start."""
        try:
            configured()
        except ServerFailure as error:
            return error.failure
        return None

    def prepare(self, spec: ServerSpec) -> Launch:
        """Write repository and secret and compose the command. Raises ServerFailure."""
        contained = spec.place is not None and bool(spec.place.image)
        installation = (
            placed.of_image(spec.place)
            if contained and spec.place is not None
            else placed.native(configured(), spec)
        )
        spec.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            repository.write(spec.repository_folder, spec.repository)
        except OSError as error:
            raise ServerFailure(
                Failure(
                    "folder_not_writable",
                    _("The model repository could not be written: %(detail)s.") % {"detail": error},
                    _("Free some space under the home, or correct its permissions."),
                )
            ) from error
        except InflightError as error:
            raise ServerFailure(Failure("config_refused", error.sentence, error.remedy)) from error
        secret = ensure_secret(spec.folder)
        chosen = ports.allocate()
        argv = arguments.compose_argv(
            installation, spec.uid, spec.repository_folder, chosen, secret, spec.auto_complete
        )
        if mpi.is_under_mpirun(spec.ranks):
            mpi.require_one_host(spec.ranks.count, len(spec.gpu.split(",")) if spec.gpu else 0)
            program = "mpirun" if contained else mpi.launcher()
            argv = mpi.started(argv, spec.ranks, program, os.geteuid() == 0)
        environment = {
            **arguments.compose_environment(
                installation, spec.uid, Path(settings.INFLIGHT_HOME), spec.folder, spec.gpu, os.environ
            ),
            **mpi.environment(spec.ranks),
            **spec.environment,
        }
        started = placed.Placed(argv, environment)
        if contained and spec.place is not None:
            started = placed.contained(spec.place, spec, argv, environment, chosen)
        shown_argv = arguments.redacted(started.argv, secret)
        spec.command.write_text(json.dumps(shown_argv), encoding="utf-8")
        return Launch(
            argv=started.argv,
            shown_argv=shown_argv,
            env=started.env,
            cwd=str(spec.folder),
            log=spec.log,
            ports=chosen,
        )

    def ensure_started(self, spec: ServerSpec, launch: Launch, record: Callable[[Identity], bool]) -> bool:
        """Start the process behind its gate; see spawn.spawn."""
        return spawn.spawn(spec.uid, launch, record)

    def adopt(self, identity: Identity) -> bool:
        """Whether exactly this process still runs."""
        return processes.is_alive(identity)

    def observe(self, spec: ServerSpec, ports: Ports, seconds: float) -> Observation:
        """Liveness, identity, version, state of the model and requests in flight."""
        try:
            if call("GET", ports.http, "/v2/health/live", seconds).status != 200:
                return Observation()
            about = call("GET", ports.http, "/v2", seconds).json() or {}
        except NoAnswer:
            return Observation()
        found = Observation(live=True, server_id=about.get("name"), version=about.get("version"))
        try:
            state, reason = self._model_state(spec, ports, seconds)
        except NoAnswer:
            return found
        figures = self._metrics(ports, seconds) if state == "ready" else ""
        return dataclasses.replace(
            found,
            model=state,
            model_reason=reason,
            in_flight=answers.whole(answers.summed(answers.IN_FLIGHT, figures)),
            progress=answers.summed(answers.PROGRESS, figures),
        )

    def until_live(self, ports: Ports, identity: Identity, seconds: float) -> None:
        """Wait until a server answers at all, or is gone; for jobs, never for a tick."""
        _until(lambda: not processes.is_alive(identity) or self._answers(ports), seconds)

    def _answers(self, ports: Ports) -> bool:
        try:
            return call("GET", ports.http, "/v2/health/live", 1.0).status == 200
        except NoAnswer:
            return False

    def until_idle(self, spec: ServerSpec, ports: Ports, identity: Identity, seconds: float) -> None:
        """Wait until no request is in a server, or it is gone, as far as it tells; for jobs, never for a tick."""

        def idle() -> bool:
            if spec.tells_requests:
                return self.drain(spec, ports, 2.0) == 0
            try:
                return self.is_finished(self._model_state(spec, ports, 2.0)[0], ports)
            except NoAnswer:
                return False

        _until(lambda: not processes.is_alive(identity) or idle(), seconds)

    def is_finished(self, state: ModelState | None, chosen: Ports) -> bool:
        """Whether a model that was asked to unload has finished its requests: it is gone, or nobody is connected.

        A python model that streams may keep a request's memory, and so itself, after the last answer.
        """
        return state == "absent" or (state == "unloading" and ports.callers(chosen) == 0)

    def _model_state(self, spec: ServerSpec, ports: Ports, seconds: float) -> tuple[ModelState | None, str]:
        reply = self._control(spec, ports, "index", seconds)
        rows = reply.json()
        if reply.status != 200 or not isinstance(rows, list):
            return None, reply.error
        for row in rows:
            if isinstance(row, dict) and row.get("name") == spec.model:
                reason = str(row.get("reason") or "")
                if row.get("state") == "UNAVAILABLE" and reason == "unloaded":
                    return "absent", reason
                return (answers.STATES.get(row["state"], "unknown") if "state" in row else "absent"), reason
        return "absent", ""

    def load(self, spec: ServerSpec, ports: Ports, seconds: float) -> Failure | None:
        """Load the model, after those that it calls, and wait for the answer."""
        for model in spec.loads or (*_others(spec), spec.model):
            try:
                reply = self._control(spec, ports, f"models/{model}/load", seconds)
            except NoAnswer as error:
                # A timeout does not end the load, and a server that died is noticed by its process.
                return None if error.timed_out else Failure("load_unanswered", str(error))
            if reply.status != 200:
                return answers.load_failure(reply)
        return None

    def is_embedded(self, spec: ServerSpec) -> bool:
        """Whether the server out of the wheel was started for it."""
        try:
            argv = json.loads(spec.command.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return is_embedded(settings.INFLIGHT_TRITON_BIN)
        return any(is_embedded(word) for word in argv if word.endswith("/tritonserver"))

    def unload(self, spec: ServerSpec, ports: Ports, seconds: float) -> Failure | None:
        """Ask for the model to be unloaded."""
        try:
            reply = self._control(spec, ports, f"models/{spec.model}/unload", seconds)
        except NoAnswer as error:
            return Failure("unload_unanswered", str(error))
        return None if reply.status == 200 else Failure("unload_failed", reply.error)

    def _control(self, spec: ServerSpec, ports: Ports, path: str, seconds: float) -> Reply:
        headers = {HEADER: read_secret(spec.folder), "Content-Type": "application/json"}
        return call("POST", ports.http, f"/v2/repository/{path}", seconds, {}, headers)

    def probe(self, spec: ServerSpec, ports: Ports, seconds: float) -> Failure | None:
        """Generate one token through the path that requests take; a model that takes no text need only be ready."""
        headers = {"Content-Type": "application/json"}
        try:
            about = call("GET", ports.http, f"/v2/models/{spec.model}", seconds).json() or {}
            body = answers.probe_request(about)
            if body is None:
                return None
            path = f"/v2/models/{spec.model}/generate_stream"
            reply = call("POST", ports.http, path, seconds, body, headers)
        except NoAnswer as error:
            return Failure(
                "probe_unanswered",
                _("The model is loaded but generates nothing: %(detail)s.") % {"detail": error},
                _("See the log of the server; a model that hangs is ended and started again."),
            )
        text = reply.body.decode(errors="replace")
        if reply.status == 200 and '"error"' not in text:
            return None
        return Failure(
            "probe_refused",
            _("The model refused to generate one token: %(detail)s") % {"detail": reply.error or text[:300]},
            _("See the log of the server."),
        )

    def drain(self, spec: ServerSpec, ports: Ports, seconds: float) -> int | None:
        """Requests that run or wait in the model, by its own metrics."""
        return answers.whole(answers.summed(answers.IN_FLIGHT, self._metrics(ports, seconds)))

    def _metrics(self, ports: Ports, seconds: float) -> str:
        try:
            reply = call("GET", ports.metrics, "/metrics", seconds)
        except NoAnswer:
            return ""
        return reply.body.decode(errors="replace") if reply.status == 200 else ""

    def stop(self, identity: Identity, force: bool) -> None:
        """SIGTERM to the server, or SIGKILL to its whole group."""
        if force:
            processes.kill_group(identity)
            placed.end(_folder(identity))
        else:
            processes.terminate(identity)

    def gone(self, identity: Identity) -> bool:
        """Whether nothing of the server runs any more."""
        return not processes.group_members(identity) and not placed.runs(_folder(identity))

    def model_process_runs(self, identity: Identity, expected: int | None = 1) -> bool | None:
        """Whether the stubs of the python backend run; null where the server has started none.

        Servers before 26.04 say "ready" over a dead stub, so they are looked for: one among the server's children,
        several, which may be children of a rank under mpirun or in a container, by the instance's id. `expected`
        null: any number is right.
        """
        if expected is not None and expected != 1:
            return processes.count_of(STUB_NAME, identity.uid) >= expected
        children = processes.children_of(identity.pid)
        if not children:
            return None
        return any(runs and name.startswith(STUB_NAME) for _pid, name, runs in children)

    def is_stopped(self, identity: Identity) -> bool:
        """Whether the server or a process of its model was stopped by a signal."""
        children = processes.children_of(identity.pid)
        watched = [pid for pid, name, _runs in children if name.startswith(STUB_NAME)]
        return any(processes.is_stopped(pid) for pid in (identity.pid, *watched))

    def cleanup(self, spec: ServerSpec) -> None:
        """Shared memory of the instance's prefix, its repository and its secret."""
        memory_files.remove_unmapped(arguments.shared_memory_prefix(spec.uid))
        repository.remove(spec.repository_folder)
        (spec.folder / "secret").unlink(missing_ok=True)
        spec.container.unlink(missing_ok=True)


def _until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)


def _folder(identity: Identity) -> Path:
    return Path(settings.INFLIGHT_HOME) / "instances" / identity.uid


def _others(spec: ServerSpec) -> list[str]:
    """The other models of the server's repository: an explicit start loads none of them by itself."""
    folder = spec.repository_folder
    found = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    return [name for name in found if name != spec.model]


def ensure_secret(folder: Path) -> str:
    """The secret of an instance's restricted API, made at the first start; the file is for its owner only."""
    path = folder / "secret"
    if path.is_file():
        return path.read_text(encoding="ascii").strip()
    made = ids.secret()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as handle:
        handle.write(made)
    return made


def read_secret(folder: Path) -> str:
    """The secret, or an empty text once the instance was cleared away."""
    try:
        return (folder / "secret").read_text(encoding="ascii").strip()
    except OSError:
        # Cleared away, or a disk that cannot be read: the server then refuses, and its row says so.
        return ""
