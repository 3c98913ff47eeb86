"""Telemetry's part of the sweep: somebody must say that telemetry says nothing.

The telemetry process evaluates all alerts; where it is dead it cannot tell. So the periodic sweep, which runs in
another process, looks at that one thing and sends what is due.
"""

from __future__ import annotations

from apps.telemetry.alerts import evaluation, notifying

_stand_in = evaluation.Evaluator(only_silence=True, actor="sweep")


def sweep() -> None:
    """Raise the alert that telemetry is silent where it is, and tell of it."""
    if evaluation.runs_elsewhere():
        return
    _stand_in.tick()
    notifying.plan_and_send()
