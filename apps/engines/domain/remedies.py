"""What to change in a build profile after a failure: remedies as data, worked out for one profile.

A line of REMEDIES names a diagnosis, a field of the profile, how its new value follows, and what the button says.
`field` is a column of the profile (`tp`, `quantization`) or a path into its options (`options.build.max_batch_size`).
The new value is an expression over the old one, its default and the facts of the diagnosis:

    half, double            the old value (or the default) halved or doubled, down to `least` or up to `most`
    set                     `value`, whatever it was
    remove                  the option is left out
    smaller_tp              the largest tp of `valid_tp` below the old one
    larger_tp               the smallest tp of `valid_tp` above the old one
    narrower                the next narrower weight type of llama.cpp
    fact                    the value of the diagnosis' fact `value`

A remedy whose expression gives nothing new is not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Expression = Literal["half", "double", "set", "remove", "smaller_tp", "larger_tp", "narrower", "fact"]
NOTHING = object()
# Weight types that llama.cpp's builder writes, widest first.
WIDTHS = ("BF16", "F16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")


@dataclass(frozen=True, slots=True)
class Remedy:
    """One line of the table. `builders` are those whose profiles have the field."""

    diagnosis: str
    field: str
    expression: Expression
    label: str
    value: Any = None
    default: int | None = None
    least: int = 1
    most: int = 64
    builder: str = "trtllm"


@dataclass(frozen=True, slots=True)
class Change:
    """A remedy for one profile: `old` and `new` as they stand in it, null for an option that is not set."""

    id: str
    field: str
    old: Any
    new: Any
    label: str

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {"id": self.id, "field": self.field, "old": self.old, "new": self.new, "label": self.label}


@dataclass(frozen=True, slots=True)
class Situation:
    """What a remedy may look at: the profile's fields, the diagnosis' facts, and the tp that the model allows."""

    fields: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    valid_tp: Sequence[int] = ()


BATCH, TOKENS, LENGTH = (
    f"options.build.{name}" for name in ("max_batch_size", "max_num_tokens", "max_seq_len")
)
# Defaults of trtllm-build (reference 2.1).
BATCH_DEFAULT, TOKENS_DEFAULT = 2048, 8192


def _smaller_limits(diagnosis: str) -> tuple[Remedy, ...]:
    return (
        Remedy(diagnosis, BATCH, "half", "Halve the largest batch", default=BATCH_DEFAULT),
        Remedy(
            diagnosis, TOKENS, "half", "Halve the tokens of an iteration", default=TOKENS_DEFAULT, least=256
        ),
    )


REMEDIES: tuple[Remedy, ...] = (
    *_smaller_limits("gpu_out_of_memory"),
    Remedy("gpu_out_of_memory", "tp", "larger_tp", "Spread it over more GPUs"),
    *_smaller_limits("plugin_workspace_too_small"),
    *_smaller_limits("gpu_oom_runtime_buffers"),
    Remedy(
        "gpu_out_of_memory_in_python", "options.convert.load_model_on_cpu", "set", "Convert on the CPU", True
    ),
    Remedy("host_out_of_memory", "options.build.workers", "set", "Build one rank at a time", 1, default=1),
    Remedy("killed", "options.build.workers", "set", "Build one rank at a time", 1, default=1),
    Remedy("fp8_unsupported_gpu", "quantization_profile", "set", "Keep 16-bit weights", None),
    Remedy("quantization_unsupported_gpu", "quantization_profile", "set", "Keep 16-bit weights", None),
    Remedy(
        "fp8_fmha_not_in_this_release",
        "options.build.use_fp8_context_fmha",
        "set",
        "Switch FP8 attention off",
        "disable",
    ),
    Remedy(
        "plugin_dtype", "options.build.gemm_plugin", "set", "Let the GEMM plugin follow the model", "auto"
    ),
    Remedy(
        "plugin_dtype", "options.build.gpt_attention_plugin", "set", "Let attention follow the model", "auto"
    ),
    Remedy(
        "multiple_profiles_with_opt_num_tokens",
        "options.build.opt_num_tokens",
        "remove",
        "Leave opt_num_tokens out",
    ),
    Remedy(
        "multiple_profiles_with_opt_num_tokens",
        "options.build.multiple_profiles",
        "remove",
        "Leave multiple_profiles out",
    ),
    Remedy("streamingllm_removed", "options.build.streamingllm", "remove", "Leave streamingllm out"),
    Remedy("parallel_sizes", "tp", "smaller_tp", "Use a tp that divides the heads"),
    Remedy("too_few_gpus", "tp", "smaller_tp", "Use fewer GPUs"),
    Remedy("unknown_flag", LENGTH, "fact", "Give the length of a whole sequence", "rewrite.max_seq_len"),
    Remedy("unknown_flag", "options.build.{flag}", "remove", "Leave {flag} out"),
    Remedy("unknown_flag", "options.convert.{flag}", "remove", "Leave {flag} out"),
    Remedy("host_out_of_memory", "quantization", "narrower", "Use narrower weights", builder="llamacpp"),
    Remedy("killed", "quantization", "narrower", "Use narrower weights", builder="llamacpp"),
    Remedy("disk_full", "quantization", "narrower", "Use narrower weights", builder="llamacpp"),
)


def changes(diagnosis: str, builder: str, situation: Situation) -> list[Change]:
    """What may be changed after this diagnosis, each with its old and its new value; at most one a field."""
    found: dict[str, Change] = {}
    for remedy in REMEDIES:
        if remedy.diagnosis != diagnosis or remedy.builder != builder:
            continue
        flag = str(situation.facts.get("flag", "")).lstrip("-").replace("-", "_")
        path, label = remedy.field.format(flag=flag), remedy.label.format(flag=flag)
        old = value_at(situation.fields, path)
        new = _EXPRESSIONS[remedy.expression](remedy, old, situation)
        if new is not NOTHING and new != old and path not in found:
            kept = None if old is NOTHING else old
            found[path] = Change(path, path, kept, new, label)
    return list(found.values())


def changed(fields: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """What save_build_profile wants to be told: the one field, with its options whole where it lies in them."""
    head, *inner = change.field.split(".")
    if not inner:
        return {head: change.new}
    return {head: _put(fields.get(head) or {}, inner, change.new)}


def value_at(fields: Mapping[str, Any], path: str) -> Any:
    """Value of a field or option, NOTHING where it is not set."""
    found: Any = fields
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return NOTHING
        found = found[part]
    return found


def _put(value: Mapping[str, Any], path: Sequence[str], new: Any) -> dict[str, Any]:
    head, *rest = path
    if rest:
        return {**value, head: _put(value.get(head) or {}, rest, new)}
    kept = {key: inner for key, inner in value.items() if key != head}
    return kept if new is None else {**kept, head: new}


def _scaled(factor: float) -> Callable[[Remedy, Any, Situation], Any]:
    def scale(remedy: Remedy, old: Any, situation: Situation) -> Any:
        value = remedy.default if old is NOTHING or old is None else old
        if not isinstance(value, int) or isinstance(value, bool):
            return NOTHING
        new = int(value * factor)
        return max(remedy.least, new) if factor < 1 else min(remedy.most, new)

    return scale


def _set(remedy: Remedy, old: Any, situation: Situation) -> Any:
    if remedy.default is not None and old in (NOTHING, None, remedy.default):
        return NOTHING
    return NOTHING if old is NOTHING and remedy.value is None else remedy.value


def _remove(remedy: Remedy, old: Any, situation: Situation) -> Any:
    return NOTHING if old is NOTHING else None


def _tp(larger: bool) -> Callable[[Remedy, Any, Situation], Any]:
    def choose(remedy: Remedy, old: Any, situation: Situation) -> Any:
        now = old if isinstance(old, int) else 1
        fitting = [size for size in situation.valid_tp if (size > now if larger else size < now)]
        return (min(fitting) if larger else max(fitting)) if fitting else NOTHING

    return choose


def _narrower(remedy: Remedy, old: Any, situation: Situation) -> Any:
    at = WIDTHS.index(old) if old in WIDTHS else len(WIDTHS)
    # BF16 and F16 are equally wide.
    after = WIDTHS[max(at + 1, 2) :]
    return after[0] if after else NOTHING


def _fact(remedy: Remedy, old: Any, situation: Situation) -> Any:
    return value_at(situation.facts, str(remedy.value))


_EXPRESSIONS: dict[Expression, Callable[[Remedy, Any, Situation], Any]] = {
    "half": _scaled(0.5),
    "double": _scaled(2),
    "set": _set,
    "remove": _remove,
    "smaller_tp": _tp(False),
    "larger_tp": _tp(True),
    "narrower": _narrower,
    "fact": _fact,
}
