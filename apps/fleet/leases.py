"""Leases on slots: taken in one transaction that serialises on the slot, renewed and released by their holder."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models, transaction
from django.utils.translation import gettext as _

from apps.core import audit, clock
from apps.core.exceptions import InvalidInput
from apps.fleet.models import Gpu, GpuLease
from apps.fleet.policy import default_share
from apps.fleet.selectors import free_share, open_leases


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
    wanted = _checked_share(gpu, purpose, share)
    kind = audit.kind_of(holder)
    with transaction.atomic():
        # Serialises takers on PostgreSQL; on SQLite the IMMEDIATE transaction has done it.
        Gpu.objects.select_for_update().get(pk=gpu.pk)
        mine = GpuLease.objects.filter(
            gpu=gpu, holder_kind=kind, holder_id=holder.pk, released_at__isnull=True
        ).first()
        if mine is not None and mine.attempt > attempt:
            return None
        if mine is not None and mine.attempt == attempt and open_leases(gpu).filter(pk=mine.pk).exists():
            mine.expires_at = _end(seconds)
            mine.save(update_fields=["expires_at"])
            return mine
        if mine is not None:
            release_lease(mine)
        if free_share(gpu) < wanted:
            return None
        return GpuLease.objects.create(
            gpu=gpu,
            purpose=purpose,
            holder_kind=kind,
            holder_id=holder.pk,
            attempt=attempt,
            share=wanted,
            expires_at=_end(seconds),
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
    now = clock.now()
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
        GpuLease.objects.filter(pk=lease.pk, released_at__isnull=True).update(released_at=clock.now())
    )


def release_leases_of(holder: models.Model, attempt: int | None = None) -> int:
    """Give back all leases of a holder (of one attempt, if named); returns how many."""
    held = _held(holder)
    if attempt is not None:
        held = held.filter(attempt=attempt)
    return held.update(released_at=clock.now())


def release_expired() -> int:
    """Close leases that have run out; returns how many. They stopped counting when they ran out."""
    return GpuLease.objects.filter(released_at__isnull=True, expires_at__lte=clock.now()).update(
        released_at=clock.now()
    )


def _held(holder: models.Model) -> models.QuerySet[GpuLease]:
    return GpuLease.objects.filter(
        holder_kind=audit.kind_of(holder), holder_id=holder.pk, released_at__isnull=True
    )


def _end(seconds: float | None) -> datetime | None:
    return None if seconds is None else clock.now() + timedelta(seconds=seconds)
