"""The processes of one machine, and supervisord's configuration for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import Problem
from deploy.local.home import CHECKOUT, Home

GROUP = "inflight"
CELERY = ("-m", "celery", "-A", "controlplane")


@dataclass(frozen=True, slots=True)
class Program:
    """One supervised process. `first` starts with supervisord itself, the others when it answers.

    `pages`: it needs what only pages need; the others start sooner without, and servers wait for them.
    """

    name: str
    argv: tuple[str, ...]
    does: str
    first: bool = False
    stop_seconds: int = 10
    # Seconds that it must stay up to count as started.
    start_seconds: int = 1
    pages: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: one web port, one node, one worker per GPU slot, a redis of our own unless one was named."""

    home: Home
    python: Path
    node_id: str
    port: int
    slots: tuple[int, ...]
    redis_server: Path | None
    gateway_port: int = 8001
    gateway_processes: int = 1
    # Several hosts share the database: each has a door. A worker's host has no pages, no gateway and no sweeps.
    several: bool = False
    worker: bool = False


def programs(plan: Plan) -> list[Program]:
    """All processes in the order in which they are started; they are stopped in the opposite one."""
    if plan.worker:
        return _of_worker(plan)
    python = str(plan.python)
    found = [_redis(plan.home, plan.redis_server)] if plan.redis_server else []
    web = (
        *("-m", "uvicorn", "controlplane.asgi:application", "--host", "127.0.0.1", "--port", str(plan.port)),
        *("--loop", "uvloop", "--timeout-graceful-shutdown", "10", "--ws-max-size", "1048576"),
        # Tokens are short messages: packing each costs more than relaying it.
        *("--ws-ping-interval", "20", "--ws-per-message-deflate", "false"),
        *("--lifespan", "off", "--no-access-log"),
    )
    found.append(Program("web", (python, *web), "pages, REST, websockets", stop_seconds=15))
    found += _gateways(plan)
    found += _workers(plan)
    # It has an application of its own, which knows tasks by name only.
    beat = ("-m", "celery", "-A", "controlplane.beat", "beat", "-S", "controlplane.beat:Scheduler")
    found.append(Program("beat", (python, *beat, "--pidfile=", "-l", "INFO"), "periodic sweeps"))
    telemetry = (python, str(CHECKOUT / "manage.py"), "run_telemetry")
    found.append(Program("telemetry", telemetry, "live samples of servers and devices", pages=False))
    if plan.several:
        found.append(_door(plan))
    return found


def _of_worker(plan: Plan) -> list[Program]:
    """What runs on a host that joined: its workers, its door, and the scraper of its own devices."""
    telemetry = (str(plan.python), str(CHECKOUT / "manage.py"), "run_telemetry", "--node")
    devices = Program("telemetry", telemetry, "samples of this host's devices", pages=False)
    return [*_workers(plan), _door(plan), devices]


def _workers(plan: Plan) -> list[Program]:
    node = plan.node_id
    found = [_worker(plan, "worker-ctl", "ctl", f"node.{node}.ctl", "control of this node's servers")]
    for slot in plan.slots:
        name = f"gpu{slot}"
        found.append(_worker(plan, f"worker-{name}", name, f"node.{node}.{name}", f"builds on slot {slot}"))
    found.append(
        _worker(plan, "worker-load", "load", f"node.{node}.load", "checkpoints from hubs and archives")
    )
    return found


def _door(plan: Plan) -> Program:
    argv = (str(plan.python), str(CHECKOUT / "manage.py"), "run_door")
    return Program("door", argv, "servers and logs between hosts", pages=False)


def _gateways(plan: Plan) -> list[Program]:
    """The gateway's processes; several share one port, over which the kernel spreads connections."""
    argv = (str(plan.python), "-m", "apps.gateway.server", "--port", str(plan.gateway_port))
    names = ["gateway", *(f"gateway-{number}" for number in range(2, plan.gateway_processes + 1))]
    # Longer than its streams get to end (apps/gateway/server.py).
    return [Program(name, argv, "OpenAI-compatible API", stop_seconds=30) for name in names]


def _worker(plan: Plan, program: str, name: str, queue: str, does: str) -> Program:
    argv = (str(plan.python), *CELERY, "worker", "-n", f"{name}@{plan.node_id}", "-Q", queue)
    # Workers need not know of each other, and looking for neighbours takes a second at each start.
    alone = ("--without-mingle", "--without-gossip")
    slots = ("-P", "prefork", "-c", "1", *alone, "-l", "INFO")
    return Program(program, (*argv, *slots), does, stop_seconds=15, pages=False)


def _redis(home: Home, server: Path) -> Program:
    argv = (str(server), str(home.run / "redis.conf"))
    return Program(
        "redis", argv, "broker, channel layer, caches", first=True, stop_seconds=10, start_seconds=0
    )


def redis_config(home: Home) -> str:
    """Configuration file of the home's own redis: a private socket, no port, nothing is ever evicted."""
    return "\n".join(
        [
            "port 0",
            f"unixsocket {home.sockets() / 'redis.sock'}",
            "unixsocketperm 700",
            f'dir "{_redis_quoted(home.root / "redis")}"',
            # A queue that drops messages when memory runs short loses work: refuse writes instead.
            "maxmemory-policy noeviction",
            "save 60 1",
            # What lies in it are wake-ups and samples: a disk that is full must not stop them.
            "stop-writes-on-bgsave-error no",
            "appendonly no",
            "daemonize no",
            'logfile ""',
            "loglevel notice",
            "",
        ]
    )


def _redis_quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


def supervisor_config(plan: Plan, sockets: Path) -> str:
    """Text of supervisord.conf. Refuses what its format cannot say, rather than writing something else."""
    home = plan.home
    lines = [
        "; Written by `make up`; edits are lost at the next start.",
        "[unix_http_server]",
        f"file={_value(sockets / 'supervisor.sock')}",
        "chmod=0700",
        "",
        "[supervisord]",
        "nodaemon=true",
        f"identifier=inflight-{plan.node_id}",
        f"directory={_value(CHECKOUT)}",
        f"logfile={_value(home.logs / 'supervisord.log')}",
        "logfile_maxbytes=10MB",
        "logfile_backups=3",
        f"childlogdir={_value(home.logs)}",
        f"pidfile={_value(home.run / 'supervisord.pid')}",
        "",
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface",
        "",
    ]
    found = programs(plan)
    # One group: supervisord ends groups one after another, a second for each, at its own end.
    lines += [f"[group:{GROUP}]", f"programs={','.join(program.name for program in found)}", ""]
    for order, program in enumerate(found):
        lines += _section(program, order, home)
    return "\n".join(lines)


def _section(program: Program, order: int, home: Home) -> list[str]:
    return [
        f"[program:{program.name}]",
        f"command={_command(program.argv)}",
        f"directory={_value(CHECKOUT)}",
        *([] if program.pages else ['environment=INFLIGHT_PAGES="0"']),
        f"priority={100 + order}",
        f"autostart={'true' if program.first else 'false'}",
        "autorestart=true",
        f"startsecs={program.start_seconds}",
        # One second more between tries each time: about a minute in all before it is given up.
        "startretries=10",
        "stopsignal=TERM",
        f"stopwaitsecs={program.stop_seconds}",
        "killasgroup=true",
        "redirect_stderr=true",
        # supervisord expands this one value twice.
        f"stdout_logfile={_value(_value(home.logs / f'{program.name}.log'))}",
        "stdout_logfile_maxbytes=20MB",
        "stdout_logfile_backups=3",
        "",
    ]


def _command(argv: Sequence[str]) -> str:
    return _value(shlex.join(argv))


def _value(value: object) -> str:
    """A value as supervisord reads it: `%` is doubled; ` ;` and ` #` begin comments and cannot be quoted."""
    text = str(value)
    if re.search(r"[\r\n]|\s[;#]", text) or text != text.strip():
        raise Problem(
            f"The path {text!r} cannot be written into supervisord's configuration.",
            "Choose a home and a checkout without ` ;`, ` #` and line breaks in their paths.",
        )
    return text.replace("%", "%%")
