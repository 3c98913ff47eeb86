"""States of a checkpoint. What lies on the disk is inspected by the service that registers it, headers only.

What must be fetched (a hub's repository, an archive) waits as `registered` until the load worker takes it.
"""

from __future__ import annotations

from apps.core.states import Move, StateMachine, moves

REGISTERED, READY, REFUSED, MISSING = "registered", "ready", "refused", "missing"
DOWNLOADING, UNPACKING, INSPECTING = "downloading", "unpacking", "inspecting"
FAILED, CANCELLED = "failed", "cancelled"
# A worker holds a lease on the row.
HELD = (DOWNLOADING, UNPACKING, INSPECTING)

CHECKPOINT = StateMachine(
    name="checkpoint",
    initial=REGISTERED,
    moves=(
        *moves("web", [REGISTERED], [READY, REFUSED, CANCELLED]),
        *moves("web", [REFUSED, MISSING, READY, FAILED, CANCELLED], [REGISTERED]),
        *moves("load", [REGISTERED], [DOWNLOADING, UNPACKING]),
        *moves("load", [DOWNLOADING, UNPACKING], [INSPECTING]),
        *moves("load", HELD, [REFUSED, FAILED, CANCELLED]),
        Move(INSPECTING, READY, "load"),
        *moves(
            "sweep", HELD, [REGISTERED]
        ),  # the lease ran out or the machine was to blame: again, some times
        Move(READY, MISSING, "sweep"),
    ),
    terminal=frozenset(),
    active=frozenset({REGISTERED, *HELD}),
    tones={
        REGISTERED: "busy",
        DOWNLOADING: "busy",
        UNPACKING: "busy",
        INSPECTING: "busy",
        READY: "ok",
        REFUSED: "bad",
        FAILED: "bad",
        CANCELLED: "warn",
        MISSING: "warn",
    },
)
