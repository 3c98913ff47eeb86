"""Stands in for a family's convert_checkpoint.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from acting import Act, checkpoint_config, write_config, write_ranks

from tests.support.trtllm.flags import convert_parser


def main() -> None:
    options = convert_parser().parse_args()
    act = Act("convert_checkpoint.py")
    print("[TensorRT-LLM] TensorRT-LLM version: 1.2.1\n1.2.1", flush=True)
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    algorithm = None
    if options.use_weight_only:
        algorithm = {"int8": "W8A16", "int4": "W4A16"}.get(options.weight_only_precision, "W4A16_GPTQ")
    elif options.smoothquant is not None:
        algorithm = "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"
    cache = "INT8" if options.int8_kv_cache else "FP8" if options.fp8_kv_cache else None
    config = checkpoint_config(options, {"quant_algo": algorithm, "kv_cache_quant_algo": cache}, act)
    write_config(folder, config, act)
    act.work(0.5)
    act.fail("oom", "killed", "crash", "disk_full", "hang", "hang_deaf", "assertion", "dataset")
    ranks = options.tp_size * options.pp_size * options.cp_size
    if act.how != "exit_0_without_output":
        write_ranks(folder, ".safetensors", ranks, act, b"weights " * 100)
    else:
        (folder / "config.json").unlink()
    act.work(0.5)
    print("Weights loaded. Total time: 00:00:01\nTotal time of converting checkpoints: 00:00:01", flush=True)


if __name__ == "__main__":
    main()
