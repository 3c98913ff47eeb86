"""States of a deployment, a revision and an instance."""

from __future__ import annotations

from apps.core.states import Move, StateMachine, moves

# Deployment: what it is as a whole, derived from its instances by the control worker.
STOPPED, WAITING, STARTING, READY, DEGRADED, ASLEEP, FAILED, STOPPING = (
    "stopped",
    "waiting",
    "starting",
    "ready",
    "degraded",
    "asleep",
    "failed",
    "stopping",
)

DEPLOYMENT = StateMachine(
    name="deployment",
    initial=STOPPED,
    moves=(
        *moves("web", [STOPPED, FAILED], [WAITING, STARTING]),  # waiting: its engine is not built yet
        *moves("sweep", [WAITING], [STARTING, FAILED]),
        *moves("ctl", [STARTING], [READY, DEGRADED, FAILED]),
        *moves("ctl", [READY], [STARTING, DEGRADED, FAILED]),
        *moves("ctl", [DEGRADED], [READY, STARTING, FAILED]),
        *moves("ctl", [FAILED], [READY, DEGRADED]),
        *moves("ctl", [STARTING, READY, DEGRADED], [ASLEEP]),  # scaled to no server; a request wakes it
        *moves("ctl", [ASLEEP], [STARTING, READY, DEGRADED, FAILED]),
        *moves("web", [WAITING, STARTING, READY, DEGRADED, ASLEEP, FAILED], [STOPPING]),
        *moves("web", [WAITING, ASLEEP, FAILED], [STOPPED]),
        Move(STOPPING, STOPPED, "ctl"),
        *moves("web", [STOPPING], [STARTING, WAITING]),
    ),
    terminal=frozenset(),
    active=frozenset({WAITING, STARTING, STOPPING}),
    tones={
        STOPPED: "idle",
        WAITING: "busy",
        STARTING: "busy",
        READY: "ok",
        DEGRADED: "warn",
        ASLEEP: "idle",
        FAILED: "bad",
        STOPPING: "busy",
    },
)

# Revision: an immutable snapshot of the configuration.
PENDING, ACTIVE, SUPERSEDED = "pending", "active", "superseded"

REVISION = StateMachine(
    name="revision",
    initial=PENDING,
    moves=(
        *moves("ctl", [PENDING], [ACTIVE, FAILED, SUPERSEDED]),
        *moves("ctl", [ACTIVE], [SUPERSEDED]),
        *moves("web", [PENDING, ACTIVE], [SUPERSEDED]),  # called off; scaled, servers carried over
        *moves("web", [PENDING], [ACTIVE]),
        *moves("sweep", [PENDING], [FAILED]),  # the canary's judge
        *moves("web", [FAILED, SUPERSEDED], [PENDING]),  # roll back, retry
    ),
    terminal=frozenset(),
    active=frozenset({PENDING}),
    tones={PENDING: "busy", ACTIVE: "ok", SUPERSEDED: "idle", FAILED: "bad"},
)

# Instance: one Triton process. The control worker of its node is the only writer after placement.
PLACED, SPAWNED, LOADING, SERVING, DRAINING, GONE, UNREACHABLE = (
    "placed",
    "spawned",
    "loading",
    "serving",
    "draining",
    "gone",
    "unreachable",
)

INSTANCE = StateMachine(
    name="instance",
    initial=PLACED,
    moves=(
        *moves("ctl", [PLACED], [SPAWNED, FAILED, GONE]),
        *moves("ctl", [SPAWNED], [LOADING, FAILED, DRAINING]),
        *moves("ctl", [LOADING], [SERVING, FAILED, DRAINING]),
        *moves("ctl", [SERVING], [DRAINING, FAILED]),
        *moves("sweep", [SPAWNED, LOADING, SERVING, DRAINING], [UNREACHABLE]),
        *moves("ctl", [UNREACHABLE], [LOADING, SERVING, DRAINING, FAILED, GONE]),
        *moves("ctl", [DRAINING], [GONE, FAILED]),
        *moves("ctl", [FAILED], [GONE]),
    ),
    terminal=frozenset({GONE}),
    active=frozenset({PLACED, SPAWNED, LOADING, DRAINING}),
    tones={
        PLACED: "idle",
        SPAWNED: "busy",
        LOADING: "busy",
        SERVING: "ok",
        DRAINING: "busy",
        UNREACHABLE: "warn",
        FAILED: "bad",
        GONE: "idle",
    },
)
# States in which a process may exist.
INSTANCE_LIVE = frozenset({SPAWNED, LOADING, SERVING, DRAINING, UNREACHABLE})
