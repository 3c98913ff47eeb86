"""The table of faults, in the order in which they are made."""

from __future__ import annotations

from tests.chaos.control_plane import (
    flush_redis,
    kill,
    lock_database,
    repeat_tasks,
    restart_postgres,
    stop,
)
from tests.chaos.outcome import DEAD_SERVER_SECONDS, LOST_NODE_SECONDS, Fault
from tests.chaos.servers import kill_server, kill_stub, stop_server, stop_stub, take_ports
from tests.chaos.surroundings import cut_off_node, full_disk, join_second_host, move_clock, slow_readers

WEB, CONTROL, TELEMETRY, REDIS = "controlplane.asgi", "ctl@", "run_telemetry", "redis-server"
BEAT = "celery -A controlplane.beat"
OTHER_WORKERS = ("gpu0@", "load@")
SECONDS = "5 s"

FAULTS: tuple[Fault, ...] = (
    Fault(
        "web, control worker, beat and telemetry killed at once",
        kill(WEB, CONTROL, BEAT, TELEMETRY),
        short=True,
    ),
    Fault("web killed (SIGKILL)", kill(WEB)),
    Fault("control worker killed (SIGKILL)", kill(CONTROL)),
    Fault("GPU and load workers killed (SIGKILL)", kill(*OTHER_WORKERS)),
    Fault("beat killed (SIGKILL)", kill(BEAT)),
    Fault("telemetry killed (SIGKILL)", kill(TELEMETRY)),
    Fault("redis killed (SIGKILL)", kill(REDIS), short=True),
    Fault(f"web stopped for {SECONDS} (SIGSTOP)", stop(WEB)),
    Fault(f"control worker stopped for {SECONDS} (SIGSTOP)", stop(CONTROL)),
    Fault(f"GPU and load workers stopped for {SECONDS} (SIGSTOP)", stop(*OTHER_WORKERS)),
    Fault(f"beat stopped for {SECONDS} (SIGSTOP)", stop(BEAT)),
    Fault(f"telemetry stopped for {SECONDS} (SIGSTOP)", stop(TELEMETRY)),
    Fault(f"redis stopped for {SECONDS} (SIGSTOP)", stop(REDIS)),
    Fault("redis flushed (FLUSHALL)", flush_redis),
    Fault("database locked for 3 s", lock_database),
    Fault("the same tasks 100 times", repeat_tasks),
    Fault("wall clock three hours ahead, then behind", move_clock, needs="clock"),
    Fault("disk full while a change is deployed", full_disk),
    Fault("four slow consumers", slow_readers),
    Fault(
        "tritonserver killed (SIGKILL)",
        kill_server,
        loses=True,
        noticed_within=DEAD_SERVER_SECONDS,
        short=True,
    ),
    Fault("the model's process killed (SIGKILL)", kill_stub, loses=True, noticed_within=DEAD_SERVER_SECONDS),
    Fault("tritonserver stopped (SIGSTOP)", stop_server, loses=True),
    Fault("the model's process stopped (SIGSTOP)", stop_stub, loses=True),
    Fault("ports taken by another program", take_ports, loses=True, noticed_within=DEAD_SERVER_SECONDS),
    Fault("PostgreSQL restarted", restart_postgres, needs="postgres"),
    Fault(
        "a host cut off from database and redis",
        cut_off_node,
        noticed_within=LOST_NODE_SECONDS,
        needs="postgres",
        prepares=join_second_host,
    ),
)
