"""Byte amounts as people write them, and as sentences show them."""

from __future__ import annotations

import re

from apps.core.exceptions import InvalidInput

_UNITS = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "kib": 2**10,
    "m": 2**20,
    "mib": 2**20,
    "g": 2**30,
    "gib": 2**30,
    "t": 2**40,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_AMOUNT = re.compile(r"\s*(\d{1,18})(?:\.(\d{1,9}))?\s*([A-Za-z]{0,3})\s*", re.ASCII)
MAX_BYTES = 2**50
GIB, MIB = 2**30, 2**20


def parse_bytes(text: str | int, field: str = "gpu_memory") -> int:
    """Whole bytes of `80GiB`, `24 GB`, `79.1G` (powers of 1024) or a plain number. Raises InvalidInput."""
    found = _AMOUNT.fullmatch(str(text)) if not isinstance(text, bool) else None
    unit = _UNITS.get(found[3].lower()) if found else None
    if found is None or unit is None:
        raise InvalidInput(
            "bytes_unreadable",
            f"{str(text)[:40]!r} is no amount of memory.",
            field=field,
            remedy="Write a number with a unit, such as 80GiB, 24GB or 512MiB.",
        )
    fraction = found[2] or ""
    tenths: int = 10 ** len(fraction)
    amount = (int(found[1]) * tenths + int(fraction or 0)) * unit // tenths
    if not 0 < amount <= MAX_BYTES:
        raise InvalidInput(
            "bytes_out_of_range",
            f"{str(text)[:40]} of memory makes no sense.",
            field=field,
            remedy="Give the memory of one GPU: between 1 byte and 1 PiB.",
        )
    return amount


def shown(amount: int) -> str:
    """Bytes as GiB or MiB for a sentence or a formula: 14.96 GiB, 416.0 MiB."""
    if abs(amount) >= GIB:
        return f"{amount / GIB:.2f} GiB"
    return f"{amount / MIB:.1f} MiB" if abs(amount) >= MIB else f"{amount:,} B"
