"""Pasted trtllm-build, convert_checkpoint.py or quantize.py lines become a profile, and a list of what changed.

Old tutorials write flags that are gone, flags without their value and programs that never existed; each is named with
what takes its place. Nothing of the line is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.core.exceptions import Finding
from apps.engines.domain.trtllm.build_flags import BY_NAME
from apps.engines.domain.trtllm.command_line import Command, read_commands
from apps.engines.domain.trtllm.conversion_flags import CONVERT, QUANTIZE
from apps.engines.domain.trtllm.flag import Flag, Version, parse_version
from apps.engines.domain.trtllm.gone_flags import GONE
from apps.engines.domain.trtllm.never_existed import refuse_inventions
from apps.engines.domain.trtllm.request import Target, release_of
from apps.engines.domain.trtllm.translated import Change, Translated, merge
from apps.engines.domain.trtllm.translated_profile import profile_of

NEWEST = "1.2.1"
_TABLES: dict[str, dict[str, Flag]] = {
    "build": BY_NAME,
    "convert": CONVERT,
    "quantize": QUANTIZE,
    # Before 0.8 one build.py converted and built; its flags are today's of two programs.
    "legacy": {**CONVERT, **BY_NAME},
}
OURS = {
    "build": {"checkpoint_dir", "output_dir", "output_timing_cache", "input_timing_cache"},
    "convert": {"output_dir", "save_config_only"},
    "quantize": {"output_dir"},
    "legacy": {"output_dir", "checkpoint_dir"},
}
# Flags that only changed their name, by program.
RENAMED: dict[str, dict[str, str]] = {
    "build": {
        "use_gpt_attention_plugin": "gpt_attention_plugin",
        "use_bert_attention_plugin": "bert_attention_plugin",
        "use_gemm_plugin": "gemm_plugin",
        "use_lora_plugin": "lora_plugin",
        "enable_context_fmha": "context_fmha",
        "remove_padding": "remove_input_padding",
        "hf_lora_dir": "lora_dir",
    },
    "convert": {
        "hf_model_dir": "model_dir",
        "ammo_quant_ckpt_path": "quant_ckpt_path",
        "modelopt_quant_ckpt_path": "quant_ckpt_path",
        "storage_type": "dtype",
        "data_type": "dtype",
    },
    "quantize": {
        "hf_model_dir": "model_dir",
        "quant_format": "qformat",
        "export_path": "output_dir",
        "calib_max_length": "calib_max_seq_length",
        "group_size": "awq_block_size",
    },
}
RENAMED["legacy"] = RENAMED["build"] | RENAMED["convert"]
_DTYPES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32"}
_QFORMATS = {
    "fp16": "full_prec",
    "bf16": "full_prec",
    "float16": "full_prec",
    "none": "full_prec",
    "int4": "int4_awq",
    "awq": "int4_awq",
    "sq": "int8_sq",
    "smoothquant": "int8_sq",
    "w4a8": "w4a8_awq",
    "fp4": "nvfp4",
}
_ENABLED = frozenset({"enable", "enabled", "true", "True", "1", "on", "yes"})
_DISABLED = frozenset({"disable", "disabled", "false", "False", "0", "off", "no"})


def translate(text: str, release: str = NEWEST) -> Translated:
    """Read pasted commands. Raises InvalidInput where there is none that is known, or one that never existed."""
    refuse_inventions(text)
    version = release_of(Target(tensorrt_llm=release))
    commands, others = read_commands(text)
    parts = [_one(command, version) for command in commands]
    found = merge(parts)
    for word in others:
        message = f"{word} ... was not read: it makes no build."
        found.findings.append(Finding("not_read", "info", message, "command", "Nothing is to be done."))
    return found


def _one(command: Command, release: Version) -> Translated:
    found = Translated(command.kind)
    for word in command.stray:
        message = f"{word} belongs to no flag."
        found.findings.append(Finding("stray_word", "warning", message, "command", "Remove it."))
    if command.kind == "legacy":
        why = "Before 0.8 each model had a build.py; today it is convert_checkpoint.py and trtllm-build."
        found.changes.append(Change(command.program, "convert_checkpoint.py, trtllm-build", why))
    given = _given(command, found)
    values: dict[str, Any] = {}
    for name, words in given.items():
        _sort(command.kind, name, words, given, release, values, found)
    found.profile = profile_of(command.kind, values, found)
    return found


def _given(command: Command, found: Translated) -> dict[str, list[str]]:
    given: dict[str, list[str]] = {}
    for typed, words in command.flags:
        name = _full_name(command.kind, typed, found)
        if name in given:
            was = " ".join([f"--{name}", *given[name]])
            found.changes.append(Change(was, "", "Given twice; the last one counts."))
        given[name] = words
        for word in words:
            if "$" in word or (word.startswith("<") and word.endswith(">")):
                message = f"--{name} {word}: a placeholder; no shell fills it in here."
                found.findings.append(
                    Finding("placeholder", "warning", message, name, "Write the value itself.")
                )
    return given


def _full_name(kind: str, typed: str, found: Translated) -> str:
    """argparse takes any prefix that only one flag has."""
    table = _TABLES[kind]
    name = typed.replace("-", "_")
    if name != typed and (name in table or name in _gone_table(kind)):
        found.changes.append(Change(f"--{typed}", f"--{name}", "The flag is spelled with underscores."))
    if name in table or name in _gone_table(kind) or name in RENAMED[kind]:
        return name
    longer = {flag.name for known, flag in table.items() if known.startswith(name) and not flag.until}
    if len(longer) == 1:
        (full,) = longer
        found.changes.append(Change(f"--{typed}", f"--{full}", "Written in full."))
        return full
    return name


def _gone_table(kind: str) -> dict[str, str]:
    return GONE["convert"] | GONE["build"] if kind == "legacy" else GONE[kind]


def _sort(
    kind: str,
    name: str,
    words: list[str],
    given: Mapping[str, list[str]],
    release: Version,
    values: dict[str, Any],
    found: Translated,
) -> None:
    flag = _TABLES[kind].get(name)
    written = " ".join([f"--{name}", *words])
    if flag is None or not flag.known_in(release):
        _gone(kind, name, words, written, given, values, found)
    elif flag.name in OURS[kind]:
        found.changes.append(Change(written, "", "Inflight chooses this for each attempt."))
    else:
        _take(flag, words, written, values, found)


def _take(flag: Flag, words: list[str], written: str, values: dict[str, Any], found: Translated) -> None:
    if flag.name == "paged_kv_cache":
        kind = "continuous" if words and words[0] in _DISABLED else "paged"
        found.changes.append(Change(written, f"--kv_cache_type {kind}", "paged_kv_cache is deprecated."))
        values["kv_cache_type"] = kind
        return
    if flag.form == "onoff":
        _take_onoff(flag, words, written, values, found)
        return
    if flag.form == "switch":
        on = not (words and words[0] in _DISABLED)
        if words:
            now = flag.option if on else ""
            found.changes.append(Change(written, now, "The flag takes no value: it is there or not."))
        if on:
            values[flag.name] = True
        return
    if not words and flag.form == "choice" and "auto" in flag.choices:
        found.changes.append(Change(written, f"{flag.option} auto", "The flag takes a value today."))
        values[flag.name] = "auto"
        return
    value = _parsed(flag, words, found)
    if why := flag.problem(value):
        message = f"{written}: {why}."
        found.findings.append(Finding("flag_value", "error", message, flag.name, "Correct the value."))
    if flag.name != written.split()[0].lstrip("-") and flag.aliases:
        found.changes.append(Change(written.split()[0], flag.option, "Another name of the same flag."))
    values[flag.name] = value


def _take_onoff(
    flag: Flag, words: list[str], written: str, values: dict[str, Any], found: Translated
) -> None:
    word = words[0] if words else ""
    # Plugins became enable|disable flags of their own: a type after the old name meant "on".
    off = word in _DISABLED
    value = "disable" if off else "enable"
    if not word:
        why = "The flag takes enable or disable today."
        found.changes.append(Change(written, f"{flag.option} {value}", why))
    elif word not in ("enable", "disable"):
        if word not in _ENABLED | _DISABLED:
            message = f"{written}: enable or disable is expected."
            found.findings.append(Finding("flag_value", "error", message, flag.name, "Correct the value."))
            values[flag.name] = word
            return
        found.changes.append(Change(written, f"{flag.option} {value}", "The flag takes enable or disable."))
    values[flag.name] = value


def _parsed(flag: Flag, words: list[str], found: Translated) -> Any:
    if flag.form == "words":
        return [part for word in words for part in word.split(",") if part]
    text = " ".join(words)
    aliases = _QFORMATS if flag.name == "qformat" else _DTYPES if "float16" in flag.choices else {}
    if flag.choices and text not in flag.choices:
        spelled = aliases.get(text.lower(), text.lower().replace("-", "_"))
        if spelled in flag.choices:
            why = "Spelled as the program takes it."
            found.changes.append(Change(f"{flag.option} {text}", f"{flag.option} {spelled}", why))
            return spelled
    try:
        if flag.form == "int":
            return int(text)
        if flag.form == "float":
            return float(text)
    except ValueError:
        return text
    return text


def _gone(
    kind: str,
    name: str,
    words: list[str],
    written: str,
    given: Mapping[str, list[str]],
    values: dict[str, Any],
    found: Translated,
) -> None:
    if name == "max_output_len" and kind in ("build", "legacy"):
        prompt, answer = number(given.get("max_input_len"), 1024), number(words, 0)
        if not {"max_seq_len", "max_decoder_seq_len"} & given.keys() and answer:
            values["max_seq_len"] = prompt + answer
            why = f"max_seq_len is prompt and answer together: {prompt} + {answer}."
            found.changes.append(Change(written, f"--max_seq_len {prompt + answer}", why))
            return
    if kind == "build" and name in ("tp_size", "pp_size", "cp_size", "world_size") and number(words, 1) > 1:
        message = f"{written} changes nothing in a build: the conversion fixes the ranks."
        remedy = "Set parallel in the profile."
        found.findings.append(Finding("build_flag_does_not_set_tp", "warning", message, name, remedy))
    renamed = RENAMED[kind].get(name)
    if renamed is not None:
        _rename(kind, renamed, words, written, values, found)
        return
    if kind == "legacy" and name == "use_smooth_quant":
        values["smoothquant"] = 0.5
        found.changes.append(Change(written, "--smoothquant 0.5", "The strength is the flag's value today."))
        return
    if kind == "legacy" and name == "world_size":
        values.setdefault("world_size", number(words, 1))
        return
    moved = _moved_to(kind, name)
    if moved is not None:
        value = _parsed(moved, words, found)
        values[f"build.{moved.name}"] = value
        found.changes.append(Change(written, f"trtllm-build {moved.option}", "It moved to trtllm-build."))
        return
    _say_gone(kind, name, written, found)


def _rename(
    kind: str, name: str, words: list[str], written: str, values: dict[str, Any], found: Translated
) -> None:
    flag = _TABLES[kind][name]
    if name in OURS[kind]:
        found.changes.append(Change(written, "", "Inflight chooses this for each attempt."))
        return
    inner = Translated(kind)
    _take(flag, words, written, values, inner)
    found.findings += inner.findings
    now = " ".join(flag.words(values.get(flag.name, "")))
    found.changes.append(Change(written, now, "The flag was renamed."))


def _moved_to(kind: str, name: str) -> Flag | None:
    """The build's flag that took over one of the conversion."""
    instead = GONE["convert"].get(name, "") if kind == "convert" else ""
    return BY_NAME.get(instead.removeprefix("the build's ")) if instead.startswith("the build's ") else None


def _say_gone(kind: str, name: str, written: str, found: Translated) -> None:
    instead = _gone_table(kind).get(name, "")
    if instead:
        text = instead.removeprefix("nothing: ")
        why = f"Gone: {text}." if instead.startswith("nothing") else f"Gone; use {instead}."
        found.changes.append(Change(written, "", why))
        return
    if name in _TABLES[kind]:
        flag = _TABLES[kind][name]
        when = f"until {flag.until}" if flag.until else f"since {flag.since}"
        found.changes.append(Change(written, "", f"Not in this release ({when})."))
        return
    other = next((program for program, table in _OTHERS.items() if name in table), "")
    remedy = f"It is a flag of {other}: paste that command too." if other else "Check its spelling."
    found.findings.append(Finding("unknown_flag", "error", f"No release has {written} here.", name, remedy))


_OTHERS: dict[str, dict[str, Flag]] = {
    "trtllm-build": BY_NAME,
    "convert_checkpoint.py": CONVERT,
    "quantize.py": QUANTIZE,
}


def number(words: list[str] | None, default: int) -> int:
    """The first word as a whole number, or the default."""
    return int(words[0]) if words and words[0].isdecimal() else default


__all__ = ["NEWEST", "Change", "Translated", "parse_version", "translate"]
