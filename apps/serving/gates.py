"""What may keep an engine from being deployed or promoted. Apps above register their gates; serving knows none."""

from __future__ import annotations

from collections.abc import Callable

from apps.core.exceptions import Finding, NotPossibleNow
from apps.engines.models import Engine
from apps.serving.models import Deployment

# (deployment, engine) -> why it may not; None where it may.
Gate = Callable[[Deployment, Engine], Finding | None]
_gates: dict[str, Gate] = {}


def register(name: str, gate: Gate) -> None:
    """Add a gate; called from AppConfig.ready. The same name twice replaces it."""
    _gates[name] = gate


def refusal(deployment: Deployment, engine: Engine | None) -> Finding | None:
    """The first gate's reason against an engine; None where all let it pass, or nothing of ours is served.

    What serves already is not promoted: the engine of the active revision may be scaled, restarted and moved.
    """
    active = deployment.active_revision
    if engine is None or (active is not None and active.engine_id == engine.pk):
        return None
    return next((found for gate in _gates.values() if (found := gate(deployment, engine)) is not None), None)


def check(deployment: Deployment, engine: Engine | None) -> None:
    """Raise NotPossibleNow where a gate does not let the engine pass."""
    found = refusal(deployment, engine)
    if found is not None:
        raise NotPossibleNow(found.id, found.message, field=found.where, remedy=found.remedy)
