"""Every state machine as a Mermaid diagram, for docs/states.md."""

from __future__ import annotations

from apps.chat.states import TURN
from apps.core.states import StateMachine
from apps.engines.states import BUILD, ENGINE
from apps.fleet.states import NODE
from apps.loadtests.states import LOADRUN, QUALITYRUN, STUDY
from apps.loadtests.tuning_states import TRIAL, TUNING
from apps.registry.states import CHECKPOINT
from apps.serving.states import DEPLOYMENT, INSTANCE, REVISION
from apps.telemetry.alerts.states import ALERT, NOTIFICATION

MACHINES: tuple[StateMachine, ...] = (
    CHECKPOINT,
    BUILD,
    ENGINE,
    NODE,
    DEPLOYMENT,
    REVISION,
    INSTANCE,
    TURN,
    ALERT,
    NOTIFICATION,
    LOADRUN,
    STUDY,
    TUNING,
    TRIAL,
    QUALITYRUN,
)
HEAD = """# States

Written by `manage.py export_states` from each app's `states.py`; a test compares the two. Beside an arrow stands who
makes the move: `web` a service that a person's action calls, `ctl` the node's control worker, `gpu` a GPU worker,
`sweep` the periodic sweep, `telemetry` the telemetry process. Every move is one conditional UPDATE of
`apps/core/transitions.py`, with an audit row.
"""


def document() -> str:
    """The whole of docs/states.md."""
    return HEAD + "".join(_section(machine) for machine in MACHINES)


def _section(machine: StateMachine) -> str:
    active, terminal = (", ".join(sorted(states)) or "none" for states in (machine.active, machine.terminal))
    facts = f"Work goes on in: {active}. Final: {terminal}."
    return f"\n## {machine.name}\n\n{facts}\n\n```mermaid\n{machine.diagram()}\n```\n"
