"""Which settings a tuner may choose, with the values that are usual; and a configuration as settings of a profile.

Names are the batching profile's own (`max_batch_size`), settings of TensorRT-LLM are `trtllm.KEY`, and three
are no settings of the profile: `replicas`, `build` (names of build profiles: quantisation and build
variants), and `preferred_batch_sizes`, whose values are words (of the batch size: none, half, half_and_full),
because sizes in numbers would not fit every batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apps.core.exceptions import InvalidInput
from apps.loadtests.domain.tuner_space import Config, Parameter
from apps.serving.domain.acting import EngineKind, acts
from apps.serving.domain.trtllm import settings

REPLICAS, BUILD, PREFERRED, TRTLLM = "replicas", "build", "preferred_batch_sizes", "trtllm."
# Values that are usual for each parameter, in their order; None: they depend on the installation (`build`: every
# build of the checkpoint that has an engine, which the app fills in).
USUAL: dict[str, tuple[Any, ...] | None] = {
    "strategy": ("inflight", "dynamic", "static", "none"),
    "max_batch_size": (1, 2, 4, 8, 16, 32, 64),
    "max_queue_delay_microseconds": (0, 1_000, 5_000, 20_000, 100_000),
    PREFERRED: ("none", "half", "half_and_full"),
    "max_queue_size": (8, 32, 256),
    "queue_timeout_microseconds": (0, 1_000_000, 5_000_000),
    "timeout_action": ("reject", "delay"),
    "threads": None,
    REPLICAS: (1, 2),
    BUILD: None,
    "trtllm.kv_cache_free_gpu_mem_fraction": (0.7, 0.8, 0.85, 0.9, 0.95),
    "trtllm.enable_chunked_context": (False, True),
    "trtllm.batch_scheduler_policy": ("guaranteed_no_evict", "max_utilization"),
    "trtllm.max_num_tokens": (2048, 4096, 8192, 16384),
}
# What is tuned where nobody says what.
DEFAULTS: dict[EngineKind, tuple[str, ...]] = {
    "llamacpp": ("strategy", "max_batch_size", "max_queue_delay_microseconds", "max_queue_size"),
    "trtllm": (
        "max_batch_size",
        "trtllm.kv_cache_free_gpu_mem_fraction",
        "trtllm.enable_chunked_context",
        "trtllm.batch_scheduler_policy",
    ),
    "llmapi": (
        "max_batch_size",
        "trtllm.kv_cache_free_gpu_mem_fraction",
        "trtllm.enable_chunked_context",
        "trtllm.batch_scheduler_policy",
        "trtllm.max_num_tokens",
    ),
}
MOST_VALUES = 32


def known(name: str) -> bool:
    """Whether there is such a parameter."""
    return name in USUAL or (name.startswith(TRTLLM) and name.removeprefix(TRTLLM) in settings.PROFILE)


def parameters(
    asked: Mapping[str, Any], kind: EngineKind, present: Mapping[str, Any], batches_to: int
) -> list[Parameter]:
    """The parameters that were asked for, or the usual ones; the present value of each is always among its values.

    `asked` is {name: values, or {"least", "most"} for a ladder of doublings, or null for the usual values}.
    `batches_to` cuts the usual batch sizes. Raises InvalidInput naming the parameter.
    """
    wanted = dict(asked) or dict.fromkeys(DEFAULTS[kind])
    found = []
    for name, given in wanted.items():
        if not known(name):
            raise InvalidInput(
                "parameter_unknown",
                f"{name} cannot be tuned.",
                field=f"parameters.{name}",
                remedy=f"Choose among: {', '.join(USUAL)}, and trtllm.KEY of docs/batching.md.",
            )
        found.append(_parameter(name, given, present.get(name), batches_to))
    return found


def _parameter(name: str, given: Any, present: Any, batches_to: int) -> Parameter:
    values = _values(name, given, batches_to)
    if present is not None and present not in values:
        values = [*values, present]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numbers:
        values.sort()
    if not 1 <= len(values) <= MOST_VALUES:
        raise _refused(name, f"{len(values)} values are too {'few' if not values else 'many'}")
    return Parameter(name, tuple(values), ordered=numbers)


def _values(name: str, given: Any, batches_to: int) -> list[Any]:
    if given is None:
        usual = USUAL.get(name)
        if usual is None:
            raise _refused(name, "it has no usual values; give a list")
        cut = [value for value in usual if name != "max_batch_size" or value <= batches_to]
        return cut or [usual[0]]
    if isinstance(given, Mapping):
        return _ladder(name, given)
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise _refused(name, "a list of values is needed, or least and most")
    if any(not isinstance(value, str | int | float | bool) for value in given):
        raise _refused(name, "its values must be words, numbers, true or false")
    return list(dict.fromkeys(given))


def _ladder(name: str, given: Mapping[str, Any]) -> list[Any]:
    """From least to most by doubling; of numbers with a fraction, five even steps."""
    least, most = given.get("least"), given.get("most")
    plain = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (least, most))
    if set(given) != {"least", "most"} or not plain or least > most:  # type: ignore[operator]
        raise _refused(name, "a range has least and most, two numbers in this order")
    assert isinstance(least, int | float)  # noqa: S101 - looked at above
    assert isinstance(most, int | float)  # noqa: S101
    if isinstance(least, float) or isinstance(most, float):
        return sorted({round(least + (most - least) * step / 4, 6) for step in range(5)})
    found, value = [], int(least)
    while value < most:
        found.append(value)
        value = max(1, value * 2)
    return [*found, int(most)]


def _refused(name: str, why: str) -> InvalidInput:
    return InvalidInput(
        "parameter_values",
        f"{name}: {why}.",
        field=f"parameters.{name}",
        remedy="Write it as [4, 8, 16] or as {least: 1, most: 32}; leave it out for no tuning.",
    )


def present_config(names: Sequence[str], profile: Mapping[str, Any], replicas: int, build: str) -> Config:
    """What a deployment runs now, in the tuner's words. `profile` holds a batching profile's values."""
    chosen = profile.get("trtllm") or {}
    found: Config = {}
    for name in names:
        if name == REPLICAS:
            found[name] = replicas
        elif name == BUILD:
            found[name] = build
        elif name == PREFERRED:
            found[name] = _word(profile.get(PREFERRED) or [], int(profile.get("max_batch_size") or 1))
        elif name.startswith(TRTLLM):
            found[name] = chosen.get(name.removeprefix(TRTLLM), _default(name.removeprefix(TRTLLM)))
        else:
            found[name] = profile.get(name)
    return found


def _default(key: str) -> Any:
    """What the engine takes where a setting is not set, as a value of its form; None where that depends."""
    item = settings.PROFILE[key]
    if item.default is None:
        return None
    if item.form == "bool":
        return item.default == "true"
    try:
        return int(item.default)
    except ValueError:
        pass
    try:
        return float(item.default)
    except ValueError:
        return item.default


def _word(sizes: Sequence[int], most: int) -> str:
    if not sizes:
        return "none"
    return "half_and_full" if most in sizes else "half"


def settings_of(config: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """The batching profile's values of a configuration: `profile` with what the configuration chooses."""
    found = dict(profile)
    for name, value in config.items():
        if name.startswith(TRTLLM):
            found["trtllm"] = {**(found.get("trtllm") or {}), name.removeprefix(TRTLLM): value}
        elif name not in (REPLICAS, BUILD, PREFERRED):
            found[name] = value
    most = int(found.get("max_batch_size") or 1)
    half = max(1, most // 2)
    words = {"none": [], "half": [half], "half_and_full": sorted({half, most})}
    if PREFERRED in config:
        found[PREFERRED] = words[config[PREFERRED]]
    else:
        found[PREFERRED] = [size for size in found.get(PREFERRED) or [] if size <= most]
    return found


def idle(config: Mapping[str, Any], profile: Mapping[str, Any], kind: EngineKind) -> set[str]:
    """Parameters that do nothing in this configuration: what apps.serving.domain.acting says, by the same words."""
    reasons = acts(settings_of(config, profile), kind)
    return {name for name in config if reasons.get(name) is not None}
