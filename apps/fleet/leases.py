"""Leases on slots: taken in one transaction that serialises on the slot, renewed and released by their holder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import models, transaction
from django.utils.translation import gettext as _

from apps.core import audit, database_time
from apps.core.exceptions import InvalidInput
from apps.fleet.models import Gpu, GpuLease
from apps.fleet.policy import default_share
from apps.fleet.selectors import free_share


def take_lease(
    gpu: Gpu,
    purpose: str,
    holder: models.Model,
    share: int | None = None,
    attempt: int = 1,
    seconds: float | None = None,
) -> GpuLease | None:
    """Claim `share` hundredths of a slot (default: policy.default_share) for `holder`, or None where no room is left.

    `seconds` is the life of the lease (None: until released). A holder has one lease on a slot: asked again with
    the same attempt it gets the same lease with a new end, with a newer attempt its old lease is closed first, with
    an older attempt it gets None. Raises InvalidInput for a share outside 1 to the slot's total.
    """
    taken = take_leases([gpu], purpose, holder, [share], attempt, seconds)
    return taken[0] if taken is not None else None


def take_leases(
    gpus: Sequence[Gpu],
    purpose: str,
    holder: models.Model,
    shares: Sequence[int | None] | None = None,
    attempt: int = 1,
    seconds: float | None = None,
) -> list[GpuLease] | None:
    """Claim a share of each of several slots, or of none: None where one of them has no room.

    Slots are locked in the order of their ids, so that two takers of the same ones never wait for each other.
    """
    asked = dict(zip((gpu.pk for gpu in gpus), shares or [None] * len(gpus), strict=True))
    wanted = {gpu.pk: _checked_share(gpu, purpose, asked[gpu.pk]) for gpu in gpus}
    with transaction.atomic():
        # Serialises takers on PostgreSQL; on SQLite the IMMEDIATE transaction has done it.
        locked = list(Gpu.objects.select_for_update().filter(pk__in=wanted).order_by("pk"))
        now = database_time.now()
        found = [_take(gpu, purpose, holder, wanted[gpu.pk], attempt, seconds, now) for gpu in locked]
        got = [lease for lease in found if lease is not None]
        if len(got) < len(wanted):
            transaction.set_rollback(True)
            return None
    order = [gpu.pk for gpu in gpus]
    return sorted(got, key=lambda lease: order.index(lease.gpu_id))


def _take(
    gpu: Gpu,
    purpose: str,
    holder: models.Model,
    share: int,
    attempt: int,
    seconds: float | None,
    now: datetime,
) -> GpuLease | None:
    kind = audit.kind_of(holder)
    ends = None if seconds is None else now + timedelta(seconds=seconds)
    mine = GpuLease.objects.filter(
        gpu=gpu, holder_kind=kind, holder_id=holder.pk, released_at__isnull=True
    ).first()
    if mine is not None and mine.attempt > attempt:
        return None
    if mine is not None and mine.attempt == attempt and (mine.expires_at is None or mine.expires_at > now):
        mine.expires_at = ends
        mine.save(update_fields=["expires_at"])
        return mine
    if mine is not None:
        release_lease(mine)
    if free_share(gpu, now) < share:
        return None
    return GpuLease.objects.create(
        gpu=gpu,
        purpose=purpose,
        holder_kind=kind,
        holder_id=holder.pk,
        attempt=attempt,
        share=share,
        expires_at=ends,
    )


def _checked_share(gpu: Gpu, purpose: str, share: int | None) -> int:
    wanted = default_share(gpu, purpose) if share is None else share
    if not 1 <= wanted <= gpu.total_share:
        raise InvalidInput(
            "share_out_of_range",
            _("A share of %(share)s does not exist on a slot of %(total)s.")
            % {"share": wanted, "total": gpu.total_share},
            field="share",
            remedy=_("Ask for 1 to %(total)s hundredths.") % {"total": gpu.total_share},
        )
    return wanted


def renew_lease(holder: models.Model, attempt: int, seconds: float) -> bool:
    """Set a new end for the holder's lease of this attempt. False where it has run out or was released."""
    now = database_time.now()
    return bool(
        _held(holder)
        .filter(attempt=attempt, expires_at__gt=now)
        .update(expires_at=now + timedelta(seconds=seconds))
    )


def leased_gpus(holder: models.Model, attempt: int) -> list[Gpu]:
    """GPUs (no CPU slots) that the holder's attempt has leases on, by index."""
    leases = _held(holder).filter(attempt=attempt, gpu__device=Gpu.Device.GPU).select_related("gpu")
    return sorted((lease.gpu for lease in leases), key=lambda gpu: gpu.index)


def release_lease(lease: GpuLease) -> bool:
    """Give one lease back. False where it already was."""
    return bool(
        GpuLease.objects.filter(pk=lease.pk, released_at__isnull=True).update(released_at=database_time.now())
    )


def release_leases_of(holder: models.Model, attempt: int | None = None) -> int:
    """Give back all leases of a holder (of one attempt, if named); returns how many."""
    held = _held(holder)
    if attempt is not None:
        held = held.filter(attempt=attempt)
    return held.update(released_at=database_time.now())


def release_expired() -> int:
    """Close leases that have run out; returns how many. They stopped counting when they ran out."""
    return GpuLease.objects.filter(released_at__isnull=True, expires_at__lte=database_time.now()).update(
        released_at=database_time.now()
    )


def _held(holder: models.Model) -> models.QuerySet[GpuLease]:
    return GpuLease.objects.filter(
        holder_kind=audit.kind_of(holder), holder_id=holder.pk, released_at__isnull=True
    )
