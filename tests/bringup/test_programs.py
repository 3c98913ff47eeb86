"""supervisord's configuration, read back by supervisord's own parser; redis's configuration, by redis."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest
from supervisor.options import ServerOptions

from controlplane.settings.queues import node_queues
from deploy.local import programs
from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT, Home
from deploy.local.programs import Plan


def plan(
    root: Path, slots: tuple[int, ...] = (0,), redis: Path | None = Path("/usr/bin/redis-server")
) -> Plan:
    home = Home(root)
    home.create()
    return Plan(home, Path("/opt/in flight/.venv/bin/python"), "n-abc234", 8123, slots, redis)


def parsed(text: str, folder: Path) -> ServerOptions:
    config = folder / "supervisord.conf"
    config.write_text(text)
    options = ServerOptions()
    options.realize(["-n", "-c", str(config)])
    options.process_config(do_usage=False)
    return options


@pytest.mark.parametrize("name", ["plain", "with space", "100%s", "quo'te"])
def test_configuration_means_what_was_meant(tmp_path: Path, name: str) -> None:
    wanted = plan(tmp_path / name, slots=(0, 1))
    options = parsed(programs.supervisor_config(wanted, tmp_path), tmp_path)
    assert [group.name for group in options.process_group_configs] == [programs.GROUP]
    read = {config.name: config for config in options.process_group_configs[0].process_configs}
    meant = programs.programs(wanted)
    assert set(read) == {program.name for program in meant}
    for program in meant:
        found = read[program.name]
        assert tuple(shlex.split(found.command)) == program.argv
        assert found.stdout_logfile == str(wanted.home.logs / f"{program.name}.log")
        assert found.directory == str(CHECKOUT)
        assert found.autorestart is not False
        assert found.autostart is program.first
        assert (found.environment or {}) == ({} if program.pages else {"INFLIGHT_PAGES": "0"})
    assert options.pidfile == str(wanted.home.run / "supervisord.pid")


def test_redis_starts_first_and_the_rest_is_started_when_it_answers(tmp_path: Path) -> None:
    found = programs.programs(plan(tmp_path))
    assert [program.name for program in found if program.first] == ["redis"]
    assert [program.name for program in found] == [
        "redis",
        "web",
        "gateway",
        "worker-ctl",
        "worker-gpu0",
        "worker-load",
        "beat",
        "telemetry",
    ]


def test_external_redis_is_not_started(tmp_path: Path) -> None:
    assert "redis" not in {program.name for program in programs.programs(plan(tmp_path, redis=None))}


def test_one_worker_for_each_slot_on_a_queue_that_its_settings_declare(tmp_path: Path) -> None:
    found = programs.programs(plan(tmp_path, slots=(0, 3)))
    queues = [program.argv[program.argv.index("-Q") + 1] for program in found if "-Q" in program.argv]
    assert queues == ["node.n-abc234.ctl", "node.n-abc234.gpu0", "node.n-abc234.gpu3", "node.n-abc234.load"]
    assert set(queues) <= set(node_queues("n-abc234"))


def test_web_listens_on_loopback_only(tmp_path: Path) -> None:
    web = next(program for program in programs.programs(plan(tmp_path)) if program.name == "web")
    assert web.argv[web.argv.index("--host") + 1] == "127.0.0.1"


def test_several_gateways_share_one_port(tmp_path: Path) -> None:
    wanted = dataclasses.replace(plan(tmp_path), gateway_port=8765, gateway_processes=3)
    found = [one for one in programs.programs(wanted) if one.name.startswith("gateway")]
    assert [program.name for program in found] == ["gateway", "gateway-2", "gateway-3"]
    assert all(program.argv[-2:] == ("--port", "8765") for program in found)


@pytest.mark.parametrize("name", ["a ;b", "a #b", "a\nb"])
def test_path_that_the_format_cannot_say_is_refused(tmp_path: Path, name: str) -> None:
    wanted = plan(tmp_path / name)
    with pytest.raises(Problem, match="cannot be written"):
        programs.supervisor_config(wanted, tmp_path)


def test_redis_opens_no_port_and_evicts_nothing(tmp_path: Path) -> None:
    lines = programs.redis_config(Home(tmp_path)).splitlines()
    assert "port 0" in lines
    assert "maxmemory-policy noeviction" in lines
    assert "unixsocketperm 700" in lines
    assert "stop-writes-on-bgsave-error no" in lines
