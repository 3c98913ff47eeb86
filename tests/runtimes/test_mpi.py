"""Servers of several ranks as data, and that one signal ends all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workers.runtimes import mpi, processes
from workers.runtimes.arguments import Installation, compose_argv
from workers.runtimes.base import Identity, Ports, ServerFailure

ALONE = compose_argv(
    Installation("/opt/tritonserver/bin/tritonserver", known_flags=frozenset({"--allow-client-shm"})),
    "i-1",
    Path("/home/i-1/repository"),
    Ports(1, 2, 3),
    "secret",
)


def test_one_rank_is_the_server_itself() -> None:
    assert mpi.compose(ALONE, 1, "mpirun", "tensorrt_llm", True) == ALONE


def test_four_ranks_are_one_command() -> None:
    found = mpi.compose(ALONE, mpi.world_size(2, 2), "/usr/bin/mpirun", "tensorrt_llm", True)
    assert found[:4] == ("/usr/bin/mpirun", "--allow-run-as-root", "-n", "1")
    ranks = " ".join(found).split(" : ")
    assert len(ranks) == 4
    assert "--http-address=127.0.0.1" in ranks[0]
    assert "--model-control-mode=explicit --disable" in ranks[0]
    for number, rank in enumerate(ranks[1:], 1):
        words = rank.split()
        assert words[:3] == ["-n", "1", "/opt/tritonserver/bin/tritonserver"]
        assert words[3:] == [
            "--id=i-1",
            "--model-repository=/home/i-1/repository",
            "--model-control-mode=explicit",
            "--disable-auto-complete-config",
            "--exit-on-error=false",
            "--exit-timeout-secs=1",
            "--strict-readiness=true",
            "--model-load-thread-count=1",
            "--log-format=ISO8601",
            "--log-verbose=0",
            f"--backend-config=python,shm-region-prefix-name=i-1_{number}_",
            "--load-model=tensorrt_llm",
            "--allow-http=false",
            "--allow-grpc=false",
            "--allow-metrics=false",
        ]
        assert "secret" not in rank
    assert ranks[0].endswith("shm-region-prefix-name=i-1_0_ --allow-client-shm=false")


def test_nobody_but_root_is_told_to_run_as_root() -> None:
    assert "--allow-run-as-root" not in mpi.compose(ALONE, 2, "mpirun", "tensorrt_llm", False)


def test_more_than_one_host_is_refused_in_words() -> None:
    mpi.require_one_host(2, 2)
    with pytest.raises(ServerFailure, match="several hosts is not offered"):
        mpi.require_one_host(4, 2)


def test_a_missing_launcher_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerFailure, match="mpirun"):
        mpi.launcher()


def test_the_whole_group_ends_with_one_kill(tmp_path: Path) -> None:
    """A double of mpirun: it starts its ranks in its own group and dies without ending them."""
    double = tmp_path / "mpirun"
    double.write_text(
        f"#!{sys.executable}\n"
        "import os, subprocess, sys, time\n"
        "words, ranks = sys.argv[1:], []\n"
        "while words:\n"
        "    end = words.index(':') if ':' in words else len(words)\n"
        "    ranks.append(subprocess.Popen(words[2:end])); words = words[end + 1:]\n"
        f"open({str(tmp_path / 'up')!r}, 'w').write(str(len(ranks)))\n"
        "time.sleep(60)\n"
    )
    double.chmod(0o755)
    argv = mpi.compose((sys.executable, "-c", "import time; time.sleep(60)"), 3, str(double), "m", False)
    # The double's ranks take no flags of a server.
    argv = tuple(part for part in argv if not part.startswith(("--load", "--allow")))
    environment = {**os.environ, processes.UID_VARIABLE: "i-mpi"}
    leader = subprocess.Popen(argv, start_new_session=True, env=environment)
    identity = Identity(leader.pid, processes.create_time(leader.pid) or 0.0, "i-mpi")
    deadline = time.monotonic() + 20
    while len(processes.group_members(identity)) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(processes.group_members(identity)) == 4
    leader.kill()
    leader.wait()
    # The launcher is gone, its ranks are not: the group is what is owned.
    assert len(processes.group_members(identity)) == 3
    processes.kill_group(identity)
    assert processes.wait_gone(identity, 10)
