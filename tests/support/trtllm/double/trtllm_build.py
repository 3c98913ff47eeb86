"""Stands in for trtllm-build 1.x."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from acting import STAMP, Act, write_config, write_ranks

from tests.support.trtllm.flags import build_parser

VERSION = "1.2.1"


def main() -> None:
    options = build_parser().parse_args()
    act = Act("trtllm-build")
    print(f"[TensorRT-LLM] TensorRT-LLM version: {VERSION}", flush=True)
    folder, source = Path(options.output_dir), Path(options.checkpoint_dir or "")
    checkpoint = json.loads((source / "config.json").read_text())
    ranks = int(checkpoint["mapping"]["world_size"])
    weights = [source / f"rank{rank}.safetensors" for rank in range(ranks)]
    absent = [path.name for path in weights if not path.is_file()]
    if absent:
        raise RuntimeError(f"Required but not provided tensors:{{{absent}}}")
    folder.mkdir(parents=True, exist_ok=True)
    act.say("Set bert_attention_plugin to auto.")
    act.say("Set gpt_attention_plugin to auto.")
    if options.paged_kv_cache:
        act.say("Option --paged_kv_cache is deprecated, use --kv_cache_type=paged/disabled instead.", "W")
    if not Path(options.output_timing_cache).is_absolute():
        act.say("the timing cache is relative", "W")
    children = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        for _worker in range(options.workers if options.workers > 1 else 0)
    ]
    for rank in range(ranks):
        _rank(act, rank, ranks, folder)
    for child in children:
        child.kill()
        child.wait()
    act.fail("disk_full")
    if act.how != "exit_0_without_output":
        write_ranks(folder, ".engine", ranks, act, b"engine bytes " * 100)
        write_config(folder, _config(options, checkpoint, act), act)
    Path(options.output_timing_cache).write_bytes(b"timings")
    act.say("Total time of building all engines: 00:00:01")


def _rank(act: Act, rank: int, ranks: int, folder: Path) -> None:
    act.say("Invalid timing cache, using freshly created one", "W")
    act.say("Total time of constructing network from module object 0.5 seconds")
    act.say("Total optimization profiles added: 1")
    act.say("Total time to initialize the weights in network Unnamed Network 0: 00:00:00")
    act.say("Build TensorRT engine Unnamed Network 0")
    act.say("Detected 13 inputs and 1 output network tensors.", part="TRT")
    act.work(0.5 / ranks)
    if rank == ranks - 1:
        act.fail("oom", "assertion", "killed", "crash", "hang", "hang_deaf")
    act.say("Skipping tactic 9 due to insufficient memory on requested size of 157500", "W", "TRT")
    act.work(0.5 / ranks)
    act.say("Engine generation completed in 1.5 seconds.", part="TRT")
    act.say("Total time of building Unnamed Network 0: 00:00:01")
    print(f"{STAMP} [TRT] [I] Build phase peak memory: 23000 MB, children: 0 MB", flush=True)
    act.say(f"Serializing engine to {folder}/rank{rank}.engine...")
    act.say("Engine serialized. Total time: 00:00:00")


def _config(options: Any, checkpoint: dict[str, Any], act: Act) -> dict[str, Any]:
    limits = {
        "max_batch_size": options.max_batch_size,
        "max_input_len": options.max_input_len,
        "max_seq_len": options.max_seq_len or checkpoint["max_position_embeddings"],
        "max_num_tokens": options.max_num_tokens,
        "max_beam_width": options.max_beam_width,
    }
    if act.how == "other_limits":
        limits["max_batch_size"] = 1
    if act.how == "other_world":
        checkpoint["mapping"]["world_size"] += 1
    if act.how == "other_dtype":
        checkpoint["dtype"] = "float32"
    plugins = {"gpt_attention_plugin": options.gpt_attention_plugin or "auto", "tokens_per_block": 32}
    return {
        "version": VERSION,
        "pretrained_config": checkpoint,
        "build_config": {**limits, "kv_cache_type": "PAGED", "plugin_config": plugins},
    }


if __name__ == "__main__":
    main()
