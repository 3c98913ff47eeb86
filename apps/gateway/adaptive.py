"""Adaptive admission: what people set, what the controller moves, and the table with its bounds in it.

apps/control/adaptive.py looks every few seconds and decides; here it is kept, recorded, and given to the gateways. A
move needs no restart of a server: it changes only how many requests a gateway lets through at once and lets wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import InvalidInput
from apps.core.models import AuditEntry
from apps.core.refused import refused_fields
from apps.gateway import table
from apps.gateway.adaptive_models import AdaptiveAdmission
from apps.serving import policies
from apps.serving.models import Deployment

MOVED = "deployment.adapted"
_STRICT = ConfigDict(extra="forbid", strict=True)


class AdaptiveFields(BaseModel):
    """How adaptive admission acts on one deployment. Off unless `enabled`.

    What is promised comes from the deployment's service level where it is null here; without any promise
    nothing moves.
    """

    model_config = _STRICT

    enabled: bool = False
    ttft_ms: float | None = Field(
        None, gt=0, le=3_600_000, description="Promised p90; null: the deployment's."
    )
    itl_ms: float | None = Field(
        None, gt=0, le=3_600_000, description="Promised p90; null: the deployment's."
    )
    least_admitted: int = Field(
        1, ge=1, le=4096, description="Requests at once that each server always gets."
    )
    most_admitted: int | None = Field(None, ge=1, le=4096, description="Null: the slots of the engine.")
    least_queue: int = Field(4, ge=0, le=100_000, description="Requests that may always wait.")
    most_queue: int = Field(512, ge=0, le=100_000)
    window_seconds: int = Field(20, ge=5, le=600, description="Over what time figures are read.")
    hold: int = Field(2, ge=1, le=20, description="Looks in a row that must agree before something moves.")
    settle_seconds: int = Field(
        15, ge=0, le=3600, description="How long a lever rests after it moved, at least the window."
    )

    @model_validator(mode="after")
    def _ordered(self) -> AdaptiveFields:
        if self.most_admitted is not None and self.most_admitted < self.least_admitted:
            raise ValueError("most_admitted is below least_admitted; exchange them")
        if self.most_queue < self.least_queue:
            raise ValueError("most_queue is below least_queue; exchange them")
        return self


def fields_of(row: AdaptiveAdmission | None) -> AdaptiveFields:
    """What is set; the defaults (off) without a row."""
    if row is None:
        return AdaptiveFields()
    return AdaptiveFields(**{**row.settings, "enabled": row.enabled})


def of(deployment: Deployment) -> AdaptiveAdmission | None:
    """The deployment's row, where there is one."""
    return AdaptiveAdmission.objects.filter(deployment=deployment).first()


def moves(deployment: Deployment, most: int = 50) -> list[dict[str, Any]]:
    """The newest moves of its levers: {"at", "lever", "before", "after", "sentence", "figures", ...}."""
    rows = AuditEntry.objects.filter(
        object_type=Deployment.kind, object_id=str(deployment.pk), verb=MOVED
    ).order_by("-at")[:most]
    return [{**row.detail, "at": row.at} for row in rows]


def save_adaptive(actor: User | str, deployment: Deployment, data: Mapping[str, Any]) -> AdaptiveAdmission:
    """Switch adaptive admission on or off and set its bounds; keys that are left out keep their value.

    Switched off, both bounds are gone at once. Raises InvalidInput naming the field.
    """
    require(actor, Action.OPERATE)
    require(actor, Action.CONFIGURE)
    row = of(deployment) or AdaptiveAdmission(deployment=deployment)
    before = fields_of(row if row.pk else None).model_dump(mode="json")
    wanted = _checked({**before, **data})
    slo = policies.slo_of(deployment)
    if wanted.enabled and (wanted.ttft_ms or slo.ttft_ms) is None and (wanted.itl_ms or slo.itl_ms) is None:
        raise InvalidInput(
            "nothing_promised",
            _("Nothing is promised of %(name)s, so there is nothing to steer by.")
            % {"name": deployment.name},
            field="ttft_ms",
            remedy=_("Give ttft_ms or itl_ms here, or a service level to the deployment."),
        )
    after = wanted.model_dump(mode="json")
    changes = {key: [before[key], after[key]] for key in after if before[key] != after[key]}
    if row.pk and not changes:
        return row
    row.enabled = wanted.enabled
    row.settings = {key: value for key, value in after.items() if key != "enabled"}
    # From its widest: what was learnt under other bounds does not count.
    row.admitted = row.queue = None
    row.memory, row.sentence, row.moved_at = {}, "", None
    with transaction.atomic():
        row.save()
        audit.record(actor, "deployment.adaptive", deployment, detail={"changes": changes})
        table.bump()
    return row


def _checked(data: Mapping[str, Any]) -> AdaptiveFields:
    try:
        return AdaptiveFields.model_validate(dict(data))
    except ValidationError as error:
        raise refused_fields(error, _("docs/tuning.md lists the settings of adaptive batching.")) from error


# ---------------------------------------------------------------------- for the controller


def enabled() -> list[AdaptiveAdmission]:
    """Rows that are on, with their deployments."""
    return list(
        AdaptiveAdmission.objects.filter(enabled=True, deployment__desired=Deployment.Desired.RUNNING)
        .select_related("deployment__active_revision")
        .order_by("pk")
    )


def looked(
    row: AdaptiveAdmission,
    *,
    admitted: int | None,
    queue: int | None,
    memory: Mapping[str, Any],
    sentence: str,
    moves: list[Mapping[str, Any]],
) -> bool:
    """Keep what one look decided; each move ({"lever", "before", "after", "sentence", "figures"}) is an audit row.

    False where the settings were changed meanwhile: then nothing is kept.
    """
    moment = clock.now()
    columns: dict[str, Any] = {"memory": dict(memory), "looked_at": moment, "sentence": sentence}
    changed = (admitted, queue) != (row.admitted, row.queue)
    if changed:
        columns |= {"admitted": admitted, "queue": queue}
    if moves:
        columns["moved_at"] = moment
    with transaction.atomic():
        guard = AdaptiveAdmission.objects.filter(pk=row.pk, enabled=True, updated_at=row.updated_at)
        if not guard.update(**columns):
            return False
        for move in moves:
            audit.record(
                "adaptive batching",
                MOVED,
                row.deployment,
                reason=str(move["lever"]),
                sentence=str(move["sentence"]),
                detail=dict(move),
            )
        if changed:
            table.bump()
    return True
