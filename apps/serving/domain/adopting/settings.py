"""A configuration's settings as fields of a batching profile, and a profile's changes back into the configuration.

What a profile has no field for stays in the configuration as it was written. What nobody changed is not written at
all, so a repository that is adopted and not edited is served exactly as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apps.serving.domain import pbtxt
from apps.serving.domain.priority_reach import LEVELS
from apps.serving.domain.trtllm import settings as trtllm

_BY_LEVEL = {level: name for name, level in LEVELS.items()}
# Parameters of the llama.cpp model (docs/llamacpp-model.md) that a profile has fields for.
LLAMACPP = {
    "strategy": "strategy",
    "slots": "max_batch_size",
    "context_per_slot": "max_seq_len",
    "threads": "threads",
    "max_queue_size": "max_queue_size",
}
UNBOUNDED = 100_000
_TRUE = {"True", "true", "TRUE", "1"}


@dataclass(frozen=True, slots=True)
class Mapped:
    """One setting that became a field of the profile."""

    where: str
    value: str
    field: str

    def as_dict(self) -> dict[str, str]:
        """JSON form."""
        return {"where": self.where, "value": self.value, "field": self.field}


@dataclass(slots=True)
class Settings:
    """`values` are fields of a batching profile by name; `mapped` says where each came from."""

    values: dict[str, Any]
    mapped: list[Mapped]

    def take(self, field: str, value: Any, where: str) -> None:
        """One field out of one place."""
        self.values[field] = value
        self.mapped.append(Mapped(where, str(value), field))


def of_model(config: pbtxt.ModelConfig, kind: str) -> Settings:
    """Fields of a profile that say what this configuration says; `kind` as repository_check names it, or llamacpp."""
    found = Settings({}, [])
    if kind == "llamacpp":
        _llamacpp(found, config)
        return found
    found.values["strategy"] = "none"
    if kind in ("tensorrt_llm", "llmapi"):
        found.values["strategy"] = "inflight"
        found.values["engine"] = "llmapi" if kind == "llmapi" else "trtllm"
        _trtllm(found, pbtxt.parameters(config))
    if config.max_batch_size > 0:
        found.take("max_batch_size", config.max_batch_size, "max_batch_size")
    else:
        found.values["max_batch_size"] = 1
    # Triton's own default is no bound; the largest that a profile can say stands for it.
    found.values["max_queue_size"] = UNBOUNDED
    if config.WhichOneof("scheduling_choice") == "dynamic_batching":
        _dynamic(found, config.dynamic_batching, kind)
    return found


def _dynamic(found: Settings, batching: Any, kind: str) -> None:
    where = "dynamic_batching"
    if found.values["strategy"] == "none":
        found.take("strategy", "dynamic", where)
    if batching.max_queue_delay_microseconds:
        found.take(
            "max_queue_delay_microseconds",
            batching.max_queue_delay_microseconds,
            f"{where}.max_queue_delay_microseconds",
        )
    sizes = sorted(set(batching.preferred_batch_size))
    if sizes and kind not in ("tensorrt_llm", "llmapi"):
        found.take("preferred_batch_sizes", sizes, f"{where}.preferred_batch_size")
    if batching.preserve_ordering:
        found.take("preserve_ordering", True, f"{where}.preserve_ordering")
    policy, at = batching.default_queue_policy, f"{where}.default_queue_policy"
    if policy.max_queue_size:
        found.take("max_queue_size", policy.max_queue_size, f"{at}.max_queue_size")
    if policy.default_timeout_microseconds:
        found.take(
            "queue_timeout_microseconds",
            policy.default_timeout_microseconds,
            f"{at}.default_timeout_microseconds",
        )
        found.take("allow_timeout_override", policy.allow_timeout_override, f"{at}.allow_timeout_override")
    if policy.timeout_action == pbtxt.ModelQueuePolicy.DELAY:
        found.take("timeout_action", "delay", f"{at}.timeout_action")
    if batching.priority_levels and batching.priority_levels == len(LEVELS):
        _classes(found, batching, where)


def _classes(found: Settings, batching: Any, where: str) -> None:
    """Three levels are the three classes; any other number is kept as it is written."""
    classes = []
    for level, name in sorted(_BY_LEVEL.items()):
        one: dict[str, Any] = {"name": name}
        if level in batching.priority_queue_policy:
            policy = batching.priority_queue_policy[level]
            if policy.max_queue_size:
                one["max_queue_size"] = policy.max_queue_size
            if policy.default_timeout_microseconds:
                one["queue_timeout_microseconds"] = policy.default_timeout_microseconds
        classes.append(one)
    found.take("priority_classes", classes, f"{where}.priority_levels")
    default = _BY_LEVEL.get(batching.default_priority_level)
    if default:
        found.take("default_priority_class", default, f"{where}.default_priority_level")


def _llamacpp(found: Settings, config: pbtxt.ModelConfig) -> None:
    values = pbtxt.parameters(config)
    for key, field in LLAMACPP.items():
        value = values.get(key, "")
        if key == "strategy":
            found.take(field, value or "inflight", f"parameters[{key}]")
        elif value.isdecimal():
            found.take(field, int(value), f"parameters[{key}]")
    if config.WhichOneof("scheduling_choice") != "dynamic_batching":
        return
    before = dict(found.values)
    _dynamic(found, config.dynamic_batching, "llamacpp")
    # The engine's own size counts; Triton's queue has room for the batch that is being formed beside it.
    found.values |= {key: before[key] for key in ("strategy", "max_queue_size") if key in before}
    if before.get("strategy") == "static":
        found.values.pop("preferred_batch_sizes", None)


def _trtllm(found: Settings, values: Mapping[str, str]) -> None:
    typed: dict[str, Any] = {}
    for key, text in values.items():
        setting = trtllm.PROFILE.get(key)
        value = typed_value(setting, text.strip()) if setting is not None else None
        if setting is not None and value is not None and not trtllm.wrong_value(setting, value):
            typed[key] = value
            found.mapped.append(Mapped(f"parameters[{key}]", text, f"trtllm.{key}"))
    if typed:
        found.values["trtllm"] = typed


def typed_value(setting: trtllm.Setting, text: str) -> Any:
    """A parameter's text as the setting's type; None where it is empty or an unfilled variable."""
    if not text or "${" in text:
        return None
    if setting.form == "bool":
        return text in _TRUE if text in _TRUE | {"False", "false", "FALSE", "0"} else None
    try:
        if setting.form == "int":
            return int(text)
        if setting.form == "fraction":
            return float(text)
    except ValueError:
        return None
    return text


def changed(
    config: pbtxt.ModelConfig, kind: str, profile: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Fields of a profile that say something else than the configuration: what somebody edited.

    `defaults` are the values of a profile in which nothing was set.
    """
    own = {**defaults, **of_model(config, kind).values}
    return {key: value for key, value in profile.items() if key in _WRITERS and own.get(key) != value}


def apply(
    config: pbtxt.ModelConfig, kind: str, profile: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[str]:
    """Write what a profile changes into a configuration; returns the fields that have no place in it."""
    wanted = changed(config, kind, profile, defaults)
    without_place = []
    # The strategy first: it decides whether the others have a place.
    for key in (name for name in _WRITERS if name in wanted):
        value = wanted[key]
        if _has_place(config, key, value):
            _WRITERS[key](config, value)
        else:
            without_place.append(key)
    return without_place


def _has_place(config: pbtxt.ModelConfig, key: str, value: Any) -> bool:
    if key == "trtllm":
        return True
    if key == "max_batch_size":
        # Without a batch dimension the shapes of all tensors would change.
        return bool(config.max_batch_size > 0)
    scheduling = config.WhichOneof("scheduling_choice")
    if key == "strategy":
        return scheduling in (None, "dynamic_batching") and value != "inflight"
    return bool(scheduling == "dynamic_batching")


def _batching(config: pbtxt.ModelConfig) -> Any:
    return config.dynamic_batching


def _strategy(config: pbtxt.ModelConfig, value: str) -> None:
    has = config.WhichOneof("scheduling_choice") == "dynamic_batching"
    if value in ("dynamic", "static"):
        config.dynamic_batching.SetInParent()
    elif value == "none" and has:
        config.ClearField("dynamic_batching")


def _max_batch_size(config: pbtxt.ModelConfig, value: int) -> None:
    config.max_batch_size = value


def _sizes(config: pbtxt.ModelConfig, value: list[int]) -> None:
    del _batching(config).preferred_batch_size[:]
    _batching(config).preferred_batch_size.extend(value)


def _set(name: str) -> Callable[[pbtxt.ModelConfig, Any], None]:
    def write(config: pbtxt.ModelConfig, value: Any) -> None:
        setattr(_batching(config), name, value)

    return write


def _policy(name: str) -> Callable[[pbtxt.ModelConfig, Any], None]:
    def write(config: pbtxt.ModelConfig, value: Any) -> None:
        setattr(_batching(config).default_queue_policy, name, value)

    return write


def _action(config: pbtxt.ModelConfig, value: str) -> None:
    policy = pbtxt.ModelQueuePolicy
    _batching(config).default_queue_policy.timeout_action = (
        policy.DELAY if value == "delay" else policy.REJECT
    )


def _priority_classes(config: pbtxt.ModelConfig, value: list[dict[str, Any]]) -> None:
    batching = _batching(config)
    batching.ClearField("priority_queue_policy")
    batching.priority_levels = len(LEVELS) if value else 0
    if not batching.default_priority_level and value:
        batching.default_priority_level = LEVELS["normal"]
    for one in value:
        policy = batching.priority_queue_policy[LEVELS[one["name"]]]
        policy.CopyFrom(batching.default_queue_policy)
        if one.get("max_queue_size") is not None:
            policy.max_queue_size = one["max_queue_size"]
        if one.get("queue_timeout_microseconds") is not None:
            policy.default_timeout_microseconds = one["queue_timeout_microseconds"]


def _default_class(config: pbtxt.ModelConfig, value: str) -> None:
    if value:
        _batching(config).default_priority_level = LEVELS[value]


def _trtllm_parameters(config: pbtxt.ModelConfig, value: Mapping[str, Any]) -> None:
    for key in trtllm.PROFILE:
        if key in value:
            config.parameters[key].string_value = trtllm.as_text(value[key])
        elif (
            key in config.parameters
            and typed_value(trtllm.PROFILE[key], config.parameters[key].string_value) is not None
        ):
            config.parameters[key].string_value = ""


_WRITERS: dict[str, Callable[[pbtxt.ModelConfig, Any], None]] = {
    "strategy": _strategy,
    "max_batch_size": _max_batch_size,
    "max_queue_delay_microseconds": _set("max_queue_delay_microseconds"),
    "preferred_batch_sizes": _sizes,
    "preserve_ordering": _set("preserve_ordering"),
    "max_queue_size": _policy("max_queue_size"),
    "queue_timeout_microseconds": _policy("default_timeout_microseconds"),
    "allow_timeout_override": _policy("allow_timeout_override"),
    "timeout_action": _action,
    "priority_classes": _priority_classes,
    "default_priority_class": _default_class,
    "trtllm": _trtllm_parameters,
}
