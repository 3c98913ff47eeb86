"""What happened to a deployment meanwhile: roll-outs, restarts, failures, stops, out of the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import Q
from django.utils.translation import gettext as _

from apps.core.models import AuditEntry
from apps.core.states import Tone
from apps.gateway.adaptive import MOVED as ADAPTED
from apps.serving import states
from apps.serving.models import Deployment, Instance, Revision

# More lines than these would hide the figures; the audit trail has all of them.
MOST = 40
_BEGUN = ("revision.created", "revision.retried", "revision.rolled_back")


@dataclass(frozen=True, slots=True)
class Mark:
    """One moment on the time axis: a few letters for the axis, a sentence for the list."""

    key: int
    at: datetime
    tone: Tone
    label: str
    sentence: str
    who: str

    @property
    def seconds(self) -> float:
        """Epoch seconds."""
        return self.at.timestamp()


def of(deployment: Deployment, since: float, until: float) -> list[Mark]:
    """Marks between two epoch seconds, newest first, at most MOST. Three queries."""
    begin, end = datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC)
    numbers = dict(Revision.objects.filter(deployment=deployment).values_list("pk", "number"))
    servers = dict(
        Instance.objects.filter(deployment=deployment, created_at__lte=end)
        .filter(~Q(state=states.GONE) | Q(state_since__gte=begin))
        .values_list("pk", "uid")
    )
    about = (
        Q(object_type=Revision.kind, object_id__in=[str(key) for key in numbers])
        & (Q(verb__in=_BEGUN) | Q(to_state__in=(states.ACTIVE, states.FAILED)))
        | Q(object_type=Instance.kind, object_id__in=[str(key) for key in servers])
        & (Q(verb="instance.restart") | Q(to_state=states.FAILED))
        | Q(object_type=Deployment.kind, object_id=str(deployment.pk))
        & (Q(to_state=states.STOPPING) | Q(verb=ADAPTED))
    )
    rows = AuditEntry.objects.filter(about, at__gte=begin, at__lte=end).order_by("-at")[:MOST]
    return [_mark(row, numbers, servers) for row in rows]


def _mark(row: AuditEntry, numbers: dict[int, int], servers: dict[int, str]) -> Mark:
    key = int(row.object_id)
    if row.object_type == Revision.kind:
        return _of_revision(row, numbers[key])
    if row.verb == ADAPTED:
        return Mark(row.pk, row.at, "idle", _adapted(row), row.sentence, row.actor_label)
    if row.object_type == Deployment.kind:
        return Mark(row.pk, row.at, "idle", _("stop"), _("The deployment was stopped."), row.actor_label)
    name = servers[key]
    if row.to_state == states.FAILED:
        text = _("Server %(uid)s failed.") % {"uid": name}
        return Mark(row.pk, row.at, "bad", _("failed"), f"{text} {row.sentence}".strip(), row.actor_label)
    text = _("Server %(uid)s was restarted.") % {"uid": name}
    return Mark(row.pk, row.at, "warn", _("restart"), text, row.actor_label)


def _adapted(row: AuditEntry) -> str:
    """The lever and where it went, short enough for the axis."""
    words = {"admitted": _("admits"), "queue": _("queue"), "delay": _("delay")}
    lever = str(row.detail.get("lever"))
    return f"{words.get(lever, lever)} {row.detail.get('after')}"


def _of_revision(row: AuditEntry, number: int) -> Mark:
    label = f"r{number}"
    if row.to_state == states.ACTIVE:
        text = _("Revision %(n)s serves.") % {"n": number}
        return Mark(row.pk, row.at, "ok", label, text, row.actor_label)
    if row.to_state == states.FAILED:
        text = _("The roll-out of revision %(n)s failed.") % {"n": number}
        return Mark(row.pk, row.at, "bad", label, f"{text} {row.sentence}".strip(), row.actor_label)
    text = _("The roll-out of revision %(n)s began.") % {"n": number}
    return Mark(row.pk, row.at, "busy", label, text, row.actor_label)
