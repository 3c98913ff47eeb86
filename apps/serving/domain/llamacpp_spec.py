"""The embedded model's repository as a person writes it in YAML: an engine file, a device and batching settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.core.exceptions import InvalidInput
from apps.serving.domain import batching
from apps.serving.domain.repository import LlamaCppModel

_DEFAULTS = {
    "strategy": "inflight",
    "max_batch_size": 16,
    "max_queue_delay_microseconds": 0,
    "max_seq_len": 1024,
    "max_queue_size": 256,
    "threads": 0,
}
_KEYS = ("recipe", "name", "model", "device", "batching")
_BATCHING = (*_DEFAULTS, *(key for key in batching.LATER_KEYS if key != "trtllm"))


def parse(values: Mapping[str, Any]) -> LlamaCppModel:
    """The model of a specification whose recipe is llamacpp. Raises InvalidInput naming the field."""
    given = values.get("batching") or {}
    if not isinstance(given, Mapping):
        raise _refused("batching", "it is no mapping", f"Write any of {', '.join(_BATCHING)}.")
    for where, keys, known in (("", values, _KEYS), ("batching.", given, _BATCHING)):
        for key in keys:
            if key not in known:
                raise _refused(
                    f"{where}{key}", "there is no such field", f"The fields are {', '.join(known)}."
                )
    model, device, name = values.get("model"), values.get("device", "cpu"), values.get("name", "model")
    if not isinstance(model, str) or not model:
        raise _refused("model", "the engine's file is missing", "Name a file that ends with .gguf.")
    if device not in ("cpu", "gpu"):
        raise _refused("device", f"{device!r} is no device", "Write cpu or gpu.")
    return LlamaCppModel(str(name), model, device, batching.facts({**_DEFAULTS, **given}))


def _refused(field: str, why: str, remedy: str) -> InvalidInput:
    return InvalidInput("specification_refused", f"{field}: {why}.", field=field, remedy=remedy)
