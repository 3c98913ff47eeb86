"""The command line and the environment of a tritonserver as data. Defaults: docs/architecture.md, Serving."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workers.runtimes.base import Ports

# Everything but health, metadata and inference needs the instance's secret, over HTTP and over gRPC.
RESTRICTED = ("model-repository", "model-config", "shared-memory", "trace", "logging", "statistics")
HEADER = "x-inflight-control"
LOOPBACK = "127.0.0.1"
# Requests were drained before the server is asked to exit. What is left are connections that callers keep open for
# later, and a server waits for these to the end of this time.
EXIT_SECONDS = 1
# Only servers of these releases or newer know them; older ones end with a usage text at an unknown flag.
NEWER_FLAGS = {
    "--allow-client-shm": "false",
    # Bounds what a slow reader of a stream makes the server keep.
    "--grpc-max-response-pool-size": "256",
    "--http-max-input-size": str(64 * 1024 * 1024),
}
PASSED_ON = ("TZ", "LANG", "LC_ALL", "TMPDIR", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@dataclass(frozen=True, slots=True)
class Installation:
    """Where a tritonserver and what its python backend needs lie; empty text: the server's own default.

    `python` is the interpreter of the serving environment, whose site-packages the models import from.
    `known_flags` are those that its `--help` lists.
    """

    binary: str
    backends: str = ""
    libraries: str = ""
    site_packages: str = ""
    python_home: str = ""
    python: str = ""
    known_flags: frozenset[str] = field(default=frozenset())


def compose_argv(
    installation: Installation,
    uid: str,
    repository: Path,
    ports: Ports,
    secret: str,
    auto_complete: bool = False,
) -> tuple[str, ...]:
    """The command line of one server: loopback only, empty EXPLICIT start, restricted APIs, own shared memory."""
    restriction = f"{','.join(RESTRICTED)}:{HEADER}={secret}"
    flags = {
        "--id": uid,
        "--model-repository": str(repository),
        "--model-control-mode": "explicit",
        "--disable-auto-complete-config": None,
        "--exit-on-error": "false",
        "--exit-timeout-secs": str(EXIT_SECONDS),
        "--strict-readiness": "true",
        "--model-load-thread-count": "1",
        "--http-address": LOOPBACK,
        "--http-port": str(ports.http),
        "--reuse-http-port": "false",
        "--http-restricted-api": restriction,
        "--grpc-address": LOOPBACK,
        "--grpc-port": str(ports.grpc),
        "--reuse-grpc-port": "false",
        "--grpc-restricted-protocol": restriction,
        "--metrics-address": LOOPBACK,
        "--metrics-port": str(ports.metrics),
        "--metrics-config": "histogram_latencies=true",
        "--allow-sagemaker": "false",
        "--allow-vertex-ai": "false",
        "--log-format": "ISO8601",
        "--log-verbose": "0",
    }
    if auto_complete:
        del flags["--disable-auto-complete-config"]
    if installation.backends:
        flags["--backend-directory"] = installation.backends
    flags["--backend-config"] = f"python,shm-region-prefix-name={shared_memory_prefix(uid)}"
    flags |= {flag: value for flag, value in NEWER_FLAGS.items() if flag in installation.known_flags}
    return (
        installation.binary,
        *(flag if value is None else f"{flag}={value}" for flag, value in flags.items()),
    )


def shared_memory_prefix(uid: str) -> str:
    """How the names of a server's regions in /dev/shm begin."""
    return f"{uid}_"


def redacted(argv: Iterable[str], secret: str) -> tuple[str, ...]:
    """The command line as people may see it."""
    return tuple(part.replace(secret, "********") for part in argv)


def compose_environment(
    installation: Installation,
    uid: str,
    home: Path,
    folder: Path,
    gpu: str | None,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """The whole environment of a server: nothing of ours leaks into it but what is named here.

    `home` is INFLIGHT_HOME, `folder` the instance's own, which is all the HOME that the server has. `gpu` null
    hides every GPU, so that a server on a CPU slot makes no CUDA context.
    """
    found = {key: inherited[key] for key in PASSED_ON if key in inherited}
    found |= {
        "PATH": path_of(installation.python),
        "HOME": str(folder),
        "INFLIGHT_HOME": str(home),
        "INFLIGHT_SUPERVISED": str(home),
        "INFLIGHT_INSTANCE_UID": uid,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "CUDA_VISIBLE_DEVICES": gpu if gpu is not None else "",
    }
    libraries = installation.libraries or inherited.get("LD_LIBRARY_PATH", "")
    optional = {
        "LD_LIBRARY_PATH": libraries,
        "PYTHONPATH": installation.site_packages,
        "PYTHONHOME": installation.python_home,
    }
    return found | {key: value for key, value in optional.items() if value}


def path_of(python: str) -> str:
    """PATH of a server whose models import from the environment of this interpreter.

    The stub of the python backend reads no PYTHON* variable (it starts Python isolated); it takes the first python3
    on PATH for its own, and so finds the site-packages of that virtual environment.
    """
    usual = "/usr/local/bin:/usr/bin:/bin"
    return f"{Path(python).parent}:{usual}" if python else usual


def flags_in_help(text: str) -> frozenset[str]:
    """Names of the flags that a `--help` text lists."""
    return frozenset(re.findall(r"^\s+(--[a-z0-9-]+)", text, re.MULTILINE))
