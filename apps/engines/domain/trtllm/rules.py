"""What does not go together in a TensorRT-LLM build: refused with the field, the reason and the remedy, or warned of.

Source: the derivations and checks of trtllm-build 1.x, ModelOpt's limits, and the legacy support matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apps.core.exceptions import Finding
from apps.engines.domain.trtllm import rules_hardware, rules_limits, rules_quantization
from apps.engines.domain.trtllm.asked import error, note, warn
from apps.engines.domain.trtllm.build_flags import BY_NAME
from apps.engines.domain.trtllm.conversion_flags import CONVERT, QUANTIZE, QUANTIZE_OPTIONS
from apps.engines.domain.trtllm.flag import Flag, Version, parse_version
from apps.engines.domain.trtllm.gone_flags import GONE
from apps.engines.domain.trtllm.request import BuildRequest
from apps.registry.domain.model_facts import ModelFacts

# First release without the engine flow.
ENGINES_END: Version = (1, 3, 0)
# Flags that the composer writes itself: a second value would contradict the request.
OURS_BUILD = {"checkpoint_dir", "output_dir", "input_timing_cache", "output_timing_cache"}
OURS_CONVERT = {
    *("model_dir", "output_dir", "dtype", "save_config_only"),
    *("tp_size", "pp_size", "cp_size", "moe_tp_size", "moe_ep_size"),
}
# Flags of the conversion that a quantization profile decides.
OF_QUANTIZATION = {flag.name for flag in CONVERT.values() if flag.group == "quantization"}
PROGRAMS = {"build": "trtllm-build", "convert": "convert_checkpoint.py", "quantize": "quantize.py"}


def check(request: BuildRequest, release: Version, facts: ModelFacts | None, sm: int | None) -> list[Finding]:
    """Every finding about an engine build; `sm` is compute capability times ten, None where it is not known."""
    found = [
        *_flags(request, release),
        *rules_limits.limits(request, facts),
        *rules_limits.attention(request),
        *rules_limits.building(request),
        *rules_quantization.check(request.quantization),
        *rules_quantization.against(request, facts),
        *rules_hardware.parallel(request, facts),
        *rules_hardware.plugins(request, facts),
        *rules_hardware.fusions(request, facts),
    ]
    if sm is not None:
        found += rules_hardware.gpu(request, sm)
    return found


def check_checkpoint(request: BuildRequest, facts: ModelFacts | None, sm: int | None) -> list[Finding]:
    """Every finding about the recipe that compiles nothing."""
    found = [
        error(
            "no_compile",
            f"{section}.{name}",
            f"The checkpoint recipe compiles nothing, so {name} has no meaning.",
            "Remove it; limits of the running engine belong to the batching profile.",
        )
        for section in ("build", "convert")
        for name in getattr(request, section)
    ]
    found += rules_quantization.check(request.quantization)
    found += rules_quantization.pytorch(request, facts, sm)
    found += rules_hardware.parallel(request, facts)
    return found


def check_options(section: str, values: Mapping[str, Any], release: Version) -> list[Finding]:
    """Findings about one section's flags alone: build, convert or quantize."""
    return list(_section(section, values, release, {}))


def _flags(request: BuildRequest, release: Version) -> Iterator[Finding]:
    yield from _section("build", request.build, release, request.build)
    yield from _section("convert", request.convert, release, request.build)
    yield from _section("quantize", request.quantization.options, release, request.build)


def _section(
    section: str, values: Mapping[str, Any], release: Version, build: Mapping[str, Any]
) -> Iterator[Finding]:
    table, ours = _TABLES[section]
    begin = "quantization.options" if section == "quantize" else section
    for name, value in values.items():
        where = f"{begin}.{name}"
        flag = table.get(name)
        if flag is None:
            yield _unknown(name, where, section)
        elif not flag.known_in(release):
            yield _out_of_time(flag, where, release, section, build)
        elif flag.name in ours:
            yield error(
                "flag_is_ours", where, f"{flag.option} is written by Inflight.", _ours_remedy(flag.name)
            )
        elif why := flag.problem(value):
            yield error("flag_value", where, f"{flag.option} is {value!r}: {why}.", "Correct the value.")
        else:
            yield from _taken(flag, where, section, value)


def _taken(flag: Flag, where: str, section: str, value: Any) -> Iterator[Finding]:
    paths = value if flag.form == "words" else [value]
    if flag.form == "path" or flag.name == "lora_dir":
        for path in paths:
            if not str(path).startswith("/") or "/../" in f"{path}/":
                yield error(
                    "path_not_absolute",
                    where,
                    f"{flag.option} {path} would be looked for in the folder of one attempt, which is new each time.",
                    "Write the whole path, beginning with /.",
                )
    if section == "convert" and flag.name in OF_QUANTIZATION:
        yield warn(
            "belongs_to_quantization",
            where,
            f"{flag.option} says how weights are stored, which a quantization profile does.",
            "Make a quantization profile of it, so that rules and the memory plan know.",
        )
    if flag.name == "paged_kv_cache":
        yield warn(
            "flag_deprecated", where, "paged_kv_cache is deprecated.", "Use kv_cache_type paged, the default."
        )
    if flag.name == "gather_generation_logits" and value:
        message = "gather_generation_logits is deprecated: the running engine decides."
        yield warn("flag_deprecated", where, message, "Remove it.")


def _ours_remedy(name: str) -> str:
    if name.endswith("_size"):
        return "Set the ranks of the profile: parallel."
    if name == "save_config_only":
        return "Remove it: nothing could be built from it."
    return "Remove it."


def _unknown(name: str, where: str, section: str) -> Finding:
    instead = GONE[section].get(name, "")
    message = f"{PROGRAMS[section]} has no flag --{name}."
    elsewhere = next(
        (known for known, (table, _) in _TABLES.items() if name in table and known != section), ""
    )
    if not instead and elsewhere:
        return error("unknown_flag", where, message, f"It is one of {PROGRAMS[elsewhere]}: write it there.")
    if instead.startswith("nothing"):
        return error("unknown_flag", where, message, f"Remove it ({instead.removeprefix('nothing: ')}).")
    return error("unknown_flag", where, message, f"Use {instead}." if instead else "Remove it.")


def _out_of_time(flag: Flag, where: str, release: Version, section: str, build: Mapping[str, Any]) -> Finding:
    known = ".".join(map(str, release))
    gone = bool(flag.until) and release >= parse_version(flag.until)
    when = f"removed in {flag.until}" if gone else f"since {flag.since}"
    message = f"{flag.option} is not known to TensorRT-LLM {known} ({when})."
    instead = GONE[section].get(flag.name, "")
    remedy = "Remove it."
    if instead and not instead.startswith("nothing"):
        remedy = f"Use {instead}."
    numbers = {name: value for name, value in build.items() if isinstance(value, int)}
    if flag.name == "max_output_len" and "max_output_len" in numbers:
        total = numbers.get("max_input_len", 1024) + numbers["max_output_len"]
        remedy = f"Write max_seq_len: {total} (prompt and answer together)."
    if flag.name == "max_seq_len" and "max_seq_len" in numbers:
        prompt = numbers.get("max_input_len", 1024)
        answer = max(1, numbers["max_seq_len"] - prompt)
        remedy = f"That release has max_input_len and max_output_len: write {prompt} and {answer}."
    return error("unknown_flag", where, message, remedy)


_TABLES: dict[str, tuple[dict[str, Flag], set[str]]] = {
    "build": (BY_NAME, OURS_BUILD),
    "convert": (CONVERT, OURS_CONVERT),
    "quantize": (QUANTIZE, set(QUANTIZE) - set(QUANTIZE_OPTIONS)),
}
__all__ = ["ENGINES_END", "PROGRAMS", "check", "check_checkpoint", "check_options", "note"]
