"""Stands in for examples/quantization/quantize.py."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from acting import Act, checkpoint_config, write_config, write_ranks

from tests.support.trtllm.flags import quantize_parser

ALGORITHMS = {"fp8": "FP8", "nvfp4": "NVFP4", "int4_awq": "W4A16_AWQ", "w4a8_awq": "W4A8_AWQ"}


def main() -> None:
    options = quantize_parser().parse_args()
    act = Act("quantize.py")
    folder = Path(options.output_dir)
    if os.environ.get("TLLM_LOG_LEVEL") == "DEBUG":
        act.say("Loading calibration dataset")
    act.fail("dataset")
    if act.how == "soft_oom":
        print("Warning: torch.OutOfMemoryError detected, try reducing the batch size...", flush=True)
    batches = max(1, math.ceil(options.calib_size / options.batch_size))
    for batch in range(batches):
        if os.environ.get("TLLM_LOG_LEVEL") == "DEBUG":
            act.say(f"Calibrating batch {batch}", "D")
        act.work(0.8 / batches)
        if batch == batches // 2:
            act.fail("killed", "crash", "hang", "hang_deaf")
    act.say("Quantization done. Total time used: 1.00 s.")
    if act.how == "oom":
        print(
            "Cannot export model to the model_config. The modelopt-optimized model state_dict can be saved.\n"
            "Detailed export error: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 0 has a total capacity "
            "of 79.14 GiB",
            flush=True,
        )
        sys.exit(1)
    act.fail("disk_full")
    if act.how != "exit_0_without_output":
        folder.mkdir(parents=True, exist_ok=True)
        _export(options, folder, act)
    act.work(0.2)
    act.say(f"Quantized model exported to {folder}")
    act.say("Total time used 1.00 s.")


def _export(options: object, folder: Path, act: Act) -> None:
    values = vars(options)
    if values["export_format"] == "hf":
        (folder / "model.safetensors").write_bytes(b"weights " * 100)
        source = json.loads((Path(values["model_dir"]) / "config.json").read_text())
        write_config(folder, {**source, "quantization_config": {"quant_algo": "FP8"}}, act)
        return
    cache = (values["kv_cache_dtype"] or "").upper() or None
    quantization = {"quant_algo": ALGORITHMS.get(values["qformat"]), "kv_cache_quant_algo": cache}
    ranks = values["tp_size"] * values["pp_size"] * values["cp_size"]
    write_ranks(folder, ".safetensors", ranks, act, b"weights " * 100)
    write_config(folder, checkpoint_config(options, quantization, act), act)


if __name__ == "__main__":
    main()
