"""The command line and environment of a server, as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.runtimes import arguments
from workers.runtimes.arguments import Installation
from workers.runtimes.base import Ports

OLD = Installation("/opt/tritonserver/bin/tritonserver", "/b", "/libs", "/site", "/usr", "/env/bin/python3")
PORTS = Ports(1001, 1002, 1003)
RESTRICTED = "model-repository,model-config,shared-memory,trace,logging,statistics:x-inflight-control=s3cret"
GOLDEN = (
    "/opt/tritonserver/bin/tritonserver",
    "--id=i-abc",
    "--model-repository=/home/instances/i-abc/repository",
    "--model-control-mode=explicit",
    "--disable-auto-complete-config",
    "--exit-on-error=false",
    "--exit-timeout-secs=1",
    "--strict-readiness=true",
    "--model-load-thread-count=1",
    "--http-address=127.0.0.1",
    "--http-port=1001",
    "--reuse-http-port=false",
    f"--http-restricted-api={RESTRICTED}",
    "--grpc-address=127.0.0.1",
    "--grpc-port=1002",
    "--reuse-grpc-port=false",
    f"--grpc-restricted-protocol={RESTRICTED}",
    "--metrics-address=127.0.0.1",
    "--metrics-port=1003",
    "--metrics-config=histogram_latencies=true",
    "--allow-sagemaker=false",
    "--allow-vertex-ai=false",
    "--log-format=ISO8601",
    "--log-verbose=0",
    "--backend-directory=/b",
    "--backend-config=python,shm-region-prefix-name=i-abc_",
)


def compose(installation: Installation) -> tuple[str, ...]:
    return arguments.compose_argv(
        installation, "i-abc", Path("/home/instances/i-abc/repository"), PORTS, "s3cret"
    )


def test_the_command_line_of_the_embedded_server() -> None:
    assert compose(OLD) == GOLDEN


def test_newer_servers_get_the_flags_that_they_know() -> None:
    known = frozenset({"--allow-client-shm", "--grpc-max-response-pool-size", "--http-max-input-size"})
    new = Installation(OLD.binary, OLD.backends, known_flags=known)
    assert compose(new) == (
        *GOLDEN,
        "--allow-client-shm=false",
        "--grpc-max-response-pool-size=256",
        "--http-max-input-size=67108864",
    )
    some = Installation(OLD.binary, OLD.backends, known_flags=frozenset({"--http-max-input-size"}))
    assert compose(some) == (*GOLDEN, "--http-max-input-size=67108864")


def test_a_server_of_the_system_keeps_its_own_backends() -> None:
    argv = compose(Installation("/opt/tritonserver/bin/tritonserver"))
    assert not any(part.startswith("--backend-directory") for part in argv)


def test_the_shown_command_line_holds_no_secret() -> None:
    shown = arguments.redacted(GOLDEN, "s3cret")
    assert "s3cret" not in " ".join(shown)
    assert sum("********" in part for part in shown) == 2


def test_the_environment_is_clean() -> None:
    inherited = {
        "AIP_MODE": "PREDICTION",
        "HF_TOKEN": "x",
        "LANG": "C.UTF-8",
        "DATABASE_URL": "x",
        "PATH": "/evil",
    }
    folder = Path("/home/instances/i-abc")
    found = arguments.compose_environment(OLD, "i-abc", Path("/home"), folder, None, inherited)
    assert found == {
        "LANG": "C.UTF-8",
        "PATH": "/env/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/home/instances/i-abc",
        "INFLIGHT_HOME": "/home",
        "INFLIGHT_SUPERVISED": "/home",
        "INFLIGHT_INSTANCE_UID": "i-abc",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "LD_LIBRARY_PATH": "/libs",
        "PYTHONPATH": "/site",
        "PYTHONHOME": "/usr",
    }


def test_a_gpu_is_the_only_one_that_its_server_sees() -> None:
    found = arguments.compose_environment(
        Installation("/t"), "i-abc", Path("/home"), Path("/f"), "GPU-1", {"LD_LIBRARY_PATH": "/system"}
    )
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert found["LD_LIBRARY_PATH"] == "/system"
    assert "PYTHONPATH" not in found


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (
            "Usage: tritonserver [options]\n  --help\n\tPrint\n  --id <string>\n\tuse --not-this\n",
            {"--help", "--id"},
        ),
        ("", set()),
    ],
)
def test_flags_of_a_help_text(text: str, flags: set[str]) -> None:
    assert arguments.flags_in_help(text) == flags
