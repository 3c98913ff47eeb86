"""The one vocabulary of metrics: every key of a sample, its unit, where it comes from and what it cannot say.

Absent is null, never 0. Charts, alerts, comparisons and the API use these names and no others.
`docs/telemetry.md` holds the table, written by `manage.py export_vocabulary`.
"""

from __future__ import annotations

from typing import Literal

from apps.telemetry.domain.key import Area, Key, Kind
from apps.telemetry.domain.vocabulary_device import DEVICE_KEYS
from apps.telemetry.domain.vocabulary_engine import ENGINE_KEYS

__all__ = ["BY_NAME", "HISTOGRAMS", "KEYS", "NAMES", "Area", "HistogramName", "Key", "Kind"]

KEYS: tuple[Key, ...] = (*ENGINE_KEYS, *DEVICE_KEYS)
BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}
NAMES: tuple[str, ...] = tuple(BY_NAME)

# Distributions that are kept as histograms, by name: (unit, title).
HistogramName = Literal[
    "ttft",
    "itl",
    "tpot",
    "e2e",
    "queue",
    "batch_size",
    "triton_batch_size",
    "prompt_tokens",
    "generated_tokens",
]
HISTOGRAMS: dict[str, tuple[str, str]] = {
    "ttft": ("ms", "Time to first token"),
    "itl": ("ms", "Between two tokens"),
    "tpot": ("ms", "Time per output token of an answer"),
    "e2e": ("ms", "End to end"),
    "queue": ("ms", "Time in the queue"),
    "batch_size": ("1", "Sequences in one engine step"),
    "triton_batch_size": ("1", "Requests in one execution by Triton"),
    "prompt_tokens": ("1", "Prompt tokens of a request"),
    "generated_tokens": ("1", "Tokens of an answer"),
}
