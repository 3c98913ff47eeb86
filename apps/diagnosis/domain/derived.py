"""Facts that follow from others: which side is newer, how much is allowed, what to write instead."""

from __future__ import annotations

from collections.abc import Callable

from apps.diagnosis.domain.circumstances import Circumstances, as_number
from apps.diagnosis.domain.rule import Fact

Facts = dict[str, Fact]
# trtllm-build's own default, which held where an old command gave --max_output_len alone.
DEFAULT_INPUT = 1024
# Logits are 32-bit floats.
LOGIT_BYTES = 4
# What stands now where a flag of an older release stood (trtllm-build 0.8 to 1.2).
INSTEAD: dict[str, str] = {
    "--max_output_len": "--max_seq_len, the sum of input and output",
    "--paged_kv_cache": "--kv_cache_type paged, the default",
    "--use_gpt_attention_plugin": "--gpt_attention_plugin",
    "--use_gemm_plugin": "--gemm_plugin",
    "--enable_context_fmha": "--context_fmha enable, the default",
    "--context_fmha_fp32_acc": "enable_context_fmha_fp32_acc of the server",
    "--use_inflight_batching": "the defaults: padding removal, paged cache and attention plugin",
    "--tp_size": "--tp_size of the conversion or quantisation: the checkpoint fixes it",
    "--pp_size": "--pp_size of the conversion or quantisation: the checkpoint fixes it",
    "--cp_size": "--cp_size of the conversion or quantisation: the checkpoint fixes it",
    "--world_size": "--tp_size and --pp_size of the conversion: the checkpoint fixes it",
    "--multi_block_mode": "multi_block_mode of the server",
    "--builder_force_num_profiles": "the environment variable BUILDER_FORCE_NUM_PROFILES",
    "--enable_xqa": "nothing: it is always on",
    "--use_custom_all_reduce": "nothing: it is chosen by itself",
    "--strongly_typed": "nothing: it is always on",
    "--builder_opt": "nothing: it is gone",
    "--use_context_fmha_for_generation": "nothing: it is gone",
    "--lookup_plugin": "nothing: it is gone",
    "--auto_parallel": "nothing: it is gone since 1.0",
}


def _versions(facts: Facts, known: Circumstances) -> Facts:
    for runtime, engine in (("runtime_tag", "engine_tag"), ("runtime_version", "engine_version")):
        here, there = facts.get(runtime), facts.get(engine)
        if here is not None and there is not None and here != there:
            return {"engine_is": "newer" if _numbers(there) > _numbers(here) else "older"}
    return {}


def _numbers(version: Fact) -> tuple[int, ...]:
    return tuple(int(part) for part in str(version).split(".") if part.isdigit())


def _request(facts: Facts, known: Circumstances) -> Facts:
    length, limit = facts.get("input"), facts.get("limit")
    if not isinstance(length, int) or not isinstance(limit, int):
        return {}
    draft = as_number(facts.get("draft")) or 0
    return {"max_new_allowed": max(0, limit - length - draft - 1)}


def _world(facts: Facts, known: Circumstances) -> Facts:
    found: Facts = {}
    tp, pp = facts.get("tp"), facts.get("pp")
    right = known.world_size() or (tp * pp if isinstance(tp, int) and isinstance(pp, int) else None)
    if right is not None:
        found["right_world_size"] = right
    launched = known.launched() or facts.get("mpi_size")
    if "launched" not in facts and launched is not None:
        found["launched"] = launched
    return found


def _flag(facts: Facts, known: Circumstances) -> Facts:
    """What to write instead; for --max_output_len the sum, because renaming it would halve the length."""
    flag = str(facts.get("flag", ""))
    found: Facts = {}
    if flag in INSTEAD:
        found["instead"] = INSTEAD[flag]
    asked = as_number(facts.get("asked")) or known.number("--max_output_len")
    if flag == "--max_output_len" and asked is not None and known.command:
        given = known.number("--max_input_len")
        rewrite = {"max_seq_len": (given or DEFAULT_INPUT) + asked}
        found["rewrite"] = rewrite if given is None else {"max_input_len": given, **rewrite}
    return found


def _buffers(facts: Facts, known: Circumstances) -> Facts:
    """Bytes of one buffer of logits: batch x vocabulary x 4; the server holds several."""
    batch = as_number(facts.get("max_batch_size")) or known.max_batch_size()
    words = known.vocab_size()
    return {"one_logits_buffer_bytes": batch * words * LOGIT_BYTES} if batch and words else {}


def _config_json(facts: Facts, known: Circumstances) -> Facts:
    folder = known.engine_folder()
    return {"path": f"{folder.rstrip('/')}/config.json"} if folder else {}


DERIVED: dict[str, Callable[[Facts, Circumstances], Facts]] = {
    "tensorrt_version_mismatch": _versions,
    "request_exceeds_max_seq_len": _request,
    "mpi_world_size": _world,
    "unknown_flag": _flag,
    "gpu_oom_runtime_buffers": _buffers,
    "engine_config_json_unreadable": _config_json,
}
