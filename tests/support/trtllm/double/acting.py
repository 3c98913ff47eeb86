"""What the doubles share: how long they take, how they fail, and the log lines of the real programs.

`TRTLLM_DOUBLE` names a JSON file: {"seconds": of a whole program, "fail": {program or "program:rank": how}}. It is
read when a program starts, so that a test may change it between two stages. Nothing of the product is imported.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

STAMP = "[11/30/2026-12:00:00]"
# How programs fail, in words of the reference's sections 2.3, 3.3 and 8.
FAILURES = frozenset(
    {
        *("oom", "hang", "hang_deaf", "killed", "disk_full", "exit_0_without_output", "missing_rank"),
        *("empty_rank", "unreadable_config", "no_config", "other_world", "other_limits", "other_dtype"),
        *("assertion", "dataset", "soft_oom", "crash"),
    }
)


class Act:
    """One run of a double."""

    def __init__(self, program: str) -> None:
        self.program = program
        path = os.environ.get("TRTLLM_DOUBLE")
        plan = json.loads(Path(path).read_text()) if path else {}
        self.seconds = float(plan.get("seconds", 0.05))
        self.how = str(plan.get("fail", {}).get(program, ""))
        if self.how and self.how.partition(":")[0] not in FAILURES:
            raise SystemExit(f"the test asks {program} to fail as {self.how!r}, which no double can")
        self._note()

    def _note(self) -> None:
        """One line per start, for tests that count them."""
        path = os.environ.get("TRTLLM_DOUBLE")
        if path:
            with Path(path).with_suffix(".calls").open("a") as file:
                file.write(
                    json.dumps({"program": self.program, "argv": sys.argv[1:], "pid": os.getpid()}) + "\n"
                )

    def say(self, text: str, level: str = "I", part: str = "TRT-LLM") -> None:
        """A log line as TensorRT-LLM's own."""
        print(f"{STAMP} [{part}] [{level}] {text}", flush=True)

    def work(self, share: float) -> None:
        """Take this share of the time."""
        time.sleep(self.seconds * share)

    def fail(self, *hows: str, write: Any = None) -> None:
        """Fail here if the test asks for one of these."""
        if self.how in hows:
            getattr(self, f"_{self.how}")()

    def _oom(self) -> NoReturn:
        self.say(
            "[virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory (Requested size was "
            "8388608000 bytes.)",
            "E",
            "TRT",
        )
        sys.exit(1)

    def _assertion(self) -> NoReturn:
        self.say("Engine building failed, please check error log.", "E")
        raise AssertionError("Engine building failed, please check error log.")

    def _killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _crash(self) -> None:
        print("*** Process received signal ***\n*** Signal: Segmentation fault (11) ***", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)

    def _disk_full(self) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _dataset(self) -> NoReturn:
        raise NotImplementedError("Unsupported dataset name or local repo directory: /data/texts.json.")

    def _hang(self) -> None:
        self._leave_a_child()
        time.sleep(600)

    def _hang_deaf(self) -> None:
        """Deaf to SIGTERM, as a process in a CUDA call is, and so is its child in a session of its own."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._leave_a_child()
        time.sleep(600)

    def _leave_a_child(self) -> None:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        self.say("hangs")


def write_ranks(folder: Path, suffix: str, ranks: int, act: Act, content: bytes) -> None:
    """rank0..rank{W-1} with some bytes each; not atomic, as the real writer is not."""
    for rank in range(ranks):
        last = rank == ranks - 1
        if last and act.how == "missing_rank":
            continue
        (folder / f"rank{rank}{suffix}").write_bytes(b"" if last and act.how == "empty_rank" else content)


def write_config(folder: Path, config: dict[str, Any], act: Act) -> None:
    """config.json, the last that the real programs write."""
    text = json.dumps(config, indent=2)
    if act.how == "no_config":
        return
    (folder / "config.json").write_text(text[: len(text) // 2] if act.how == "unreadable_config" else text)


def checkpoint_config(options: Any, quantization: dict[str, Any], act: Act) -> dict[str, Any]:
    """config.json of a TensorRT-LLM checkpoint, from the source's config.json where there is one."""
    try:
        source = json.loads((Path(options.model_dir) / "config.json").read_text())
    except (OSError, TypeError, ValueError):
        source = {}
    dtype = source.get("torch_dtype", "float16") if options.dtype == "auto" else options.dtype
    tp, pp, cp = options.tp_size, options.pp_size, options.cp_size
    if act.how == "other_world":
        tp *= 2
    return {
        "architecture": (source.get("architectures") or ["LlamaForCausalLM"])[0],
        "dtype": "float32" if act.how == "other_dtype" else dtype,
        "logits_dtype": "float32",
        "vocab_size": source.get("vocab_size", 32),
        "hidden_size": source.get("hidden_size", 8),
        "num_hidden_layers": source.get("num_hidden_layers", 1),
        "num_attention_heads": source.get("num_attention_heads", 2),
        "num_key_value_heads": source.get("num_key_value_heads", 2),
        "max_position_embeddings": source.get("max_position_embeddings", 64),
        "mapping": {
            "world_size": tp * pp * cp,
            "tp_size": tp,
            "pp_size": pp,
            "cp_size": cp,
            "gpus_per_node": 8,
        },
        "quantization": quantization,
    }
