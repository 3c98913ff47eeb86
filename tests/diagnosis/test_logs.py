"""Logs of real reports, variants of each kind of failure, and healthy logs that must raise no alarm."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from apps.diagnosis.domain.anchors import anchors
from apps.diagnosis.domain.circumstances import BadCircumstance, read_circumstances
from apps.diagnosis.domain.rule import Kind
from apps.diagnosis.domain.rules import diagnose
from apps.diagnosis.domain.table import RULES

LOGS = Path(__file__).parents[1] / "data" / "logs"
CASES: list[tuple[str, Kind, int | None, str | None, dict[str, object]]] = [
    ("gpu-oom-resizephysical", "build", None, "gpu_out_of_memory", {"bytes": 24793579520}),
    ("skip-tactic-is-not-a-failure", "build", 0, None, {}),
    (
        "fp8-on-a100-with-misleading-tail",
        "build",
        1,
        "fp8_unsupported_gpu",
        {"min_compute_capability": "8.9"},
    ),
    ("max-output-len-was-removed", "build", 2, "unknown_flag", {"flag": "--max_output_len"}),
    (
        "old-stack-meets-llama3-rope",
        "build",
        1,
        "transformers_too_old_for_rope_type",
        {"rope_type": "llama3"},
    ),
    ("calibration-data-offline.a", "build", 1, "calibration_dataset_unreachable", {}),
    ("calibration-data-offline.b", "build", 1, "calibration_dataset_path_needs_cnn_dailymail", {}),
    ("build-flags-do-not-set-tp", "server", None, "mpi_world_size", {}),
    (
        "engine-from-another-tensorrt",
        "server",
        None,
        "tensorrt_version_mismatch",
        {"runtime_tag": 228, "engine_tag": 237, "engine_is": "newer"},
    ),
    (
        "oom-at-load-not-the-kv-cache",
        "server",
        None,
        "gpu_oom_runtime_buffers",
        {"reduce": "engine max_batch_size", "max_batch_size": 2048},
    ),
    ("json-parse-error-101-is-a-missing-file", "server", None, "engine_config_json_unreadable", {}),
    ("no-space-left-means-dev-shm.a", "server", None, "dev_shm_full", {"bytes_per_instance": 67108864}),
    ("no-space-left-means-dev-shm.b", "server", None, "dev_shm_missing", {}),
    (
        "request-over-sequence-budget",
        "server",
        None,
        "request_exceeds_max_seq_len",
        {"input": 6973, "max_new": 4095, "limit": 8192, "max_new_allowed": 1218},
    ),
    ("prompt-limit-is-max-num-tokens", "server", None, None, {}),
]


def text_of(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "kind", "code", "id", "facts"), CASES, ids=[case[0] for case in CASES])
def test_reports(name: str, kind: Kind, code: int | None, id: str | None, facts: dict[str, object]) -> None:
    found = diagnose(text_of(name), kind, code).diagnosis
    assert (found and found.id) == id
    assert found is None or facts.items() <= found.facts.items()


def test_the_root_line_is_shown_and_not_the_tail() -> None:
    found = diagnose(text_of("fp8-on-a100-with-misleading-tail"), "build", 1).diagnosis
    assert found is not None
    assert found.evidence[0].line == 5


def test_limits_of_a_server() -> None:
    seen = diagnose(text_of("prompt-limit-is-max-num-tokens"), "server").as_dict()
    assert seen["diagnosis"] is None
    assert (seen["max_prompt_tokens"], seen["max_sequence_tokens"], seen["limited_by"]) == (
        8192,
        32768,
        "max_num_tokens",
    )


def known_of(name: str) -> Any:
    """What lies beside a report's log."""
    endings = {
        "command": "cmd",
        "engine": "engine_config.json",
        "params": "params.json",
        "model": "config.pbtxt",
        "files": "files.txt",
    }
    texts = {key: LOGS / f"{name}.{ending}" for key, ending in endings.items()}
    return read_circumstances(**{key: path.read_text() for key, path in texts.items() if path.is_file()})


@pytest.mark.parametrize(
    ("name", "kind", "facts"),
    [
        ("max-output-len-was-removed", "build", {"rewrite": {"max_input_len": 2048, "max_seq_len": 4096}}),
        ("build-flags-do-not-set-tp", "server", {"right_world_size": 1, "launched": 16}),
        ("oom-at-load-not-the-kv-cache", "server", {"one_logits_buffer_bytes": 1245708288}),
        (
            "json-parse-error-101-is-a-missing-file",
            "server",
            {"path": "/home/user/engines/llama-7b/config.json"},
        ),
    ],
)
def test_what_lies_beside_a_log_is_used(name: str, kind: Kind, facts: dict[str, Any]) -> None:
    found = diagnose(text_of(name), kind, 1, known_of(name)).diagnosis
    assert found is not None
    assert facts.items() <= found.facts.items()


def test_facts_of_other_circumstances() -> None:
    def facts(name: str, kind: Kind, **texts: str) -> dict[str, Any]:
        found = diagnose(text_of(name), kind, 1, read_circumstances(**texts)).diagnosis
        assert found is not None
        return found.facts

    world = "build-flags-do-not-set-tp"
    engine = json.dumps({"pretrained_config": {"mapping": {"tp_size": 4, "pp_size": 2}}})
    assert facts(world, "server", command="mpirun -n 2 tritonserver", engine=engine).items() >= {
        ("right_world_size", 8),
        ("launched", 2),
    }
    ranks = "config.json\nrank0.engine\nrank1.engine\n"
    assert facts(world, "server", files=ranks)["right_world_size"] == 2
    assert "right_world_size" not in facts(world, "server")
    flag = facts("max-output-len-was-removed", "build", command="trtllm-build \\\n --max_output_len=100")
    assert flag["rewrite"] == {"max_seq_len": 1024 + 2048}
    assert "rewrite" not in facts("max-output-len-was-removed", "build")
    config = json.dumps({"pretrained_config": {"vocab_size": 32000}, "build_config": {"max_batch_size": 8}})
    assert facts("oom-at-load-not-the-kv-cache", "server", engine=config)["one_logits_buffer_bytes"] == (
        2048 * 32000 * 4
    )


@pytest.mark.parametrize(
    ("field", "text"),
    [("command", "a 'b"), ("engine", "{"), ("engine", "[]"), ("params", "7"), ("model", "name: {")],
)
def test_broken_circumstances_name_their_field(field: str, text: str) -> None:
    with pytest.raises(BadCircumstance) as caught:
        read_circumstances(**{field: text})
    assert caught.value.field == field


def test_what_was_skipped_and_then_killed_is_the_hosts_memory() -> None:
    text = text_of("skip-tactic-is-not-a-failure").rsplit("\n", 6)[0]
    shell = "bash: line 3: 4711 Killed   trtllm-build"
    for tail, code in (("Killed", 137), ("[1,0]<stderr>:Killed", None), (shell, 137)):
        found = diagnose(f"{text}\n{tail}\n", "build", code).diagnosis
        assert found is not None
        assert found.id == "host_out_of_memory", tail


@pytest.mark.parametrize("code", [None, 1])
@pytest.mark.parametrize("name", sorted(path.stem for path in LOGS.glob("healthy-*.log")))
def test_healthy_logs_raise_no_alarm(name: str, code: int | None) -> None:
    for kind in ("build", "server", "request"):
        found = diagnose(text_of(name), kind, code).diagnosis
        assert found is None, found


# For each cause three lines or more as other versions, ranks, paths and numbers would have them.
VARIANTS: dict[str, dict[str, Any]] = json.loads((LOGS / "variants.json").read_text(encoding="utf-8"))


# As a line comes out of one rank under mpirun, a coloured terminal, a collector of logs.
PREFIXES = (
    "", "[1,3]<stderr>:", "[1,0]<stdout>: ", "\x1b[31m", "rank1: ", "2026-11-30T10:00:00Z worker-7 "
)  # fmt: skip


def test_each_cause_has_variants() -> None:
    assert {rule.id for rule in RULES} == set(VARIANTS)
    assert len(VARIANTS) > 65
    assert all(len(set(variant["lines"])) >= 3 for variant in VARIANTS.values())


@pytest.mark.parametrize("id", VARIANTS)
def test_variants(id: str) -> None:
    for line in VARIANTS[id]["lines"]:
        for prefix in PREFIXES:
            text = f"[TRT-LLM] [I] begins\n{prefix}{line}\nRuntimeError: Executor worker returned error\n"
            found = diagnose(text, VARIANTS[id]["kind"], 1).diagnosis
            assert found is not None, prefix + line
            assert (found.id, found.evidence[0].line) == (id, 2), prefix + line


def test_the_earliest_cause_of_any_rank_wins() -> None:
    text = "\n".join(
        [
            "[1,0]<stderr>:[TensorRT-LLM][INFO] Loaded engine size: 15 MiB",
            "[1,1]<stderr>:[TensorRT-LLM][ERROR] Version tag does not match. Note: Current Version: 1, "
            "Serialized Engine Version: 2",
            "[1,0]<stderr>:E1 ERROR: Failed to deserialize cuda engine",
            "[1,0]<stderr>:bind: Address already in use",
            "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
        ]
    )
    found = diagnose(text, "server", 1).diagnosis
    assert found is not None
    assert (found.id, found.evidence[0].line) == ("tensorrt_version_mismatch", 2)


def test_a_refused_request_does_not_explain_the_end_of_a_server() -> None:
    text = "Exceeds maximum queue size for model 'm'\nterminate called after throwing 'std::bad_alloc'"
    found = diagnose(text, "server", 134).diagnosis
    assert found is not None
    assert found.id == "host_out_of_memory"
    alone = diagnose(text.splitlines()[0], "request")
    assert alone.diagnosis is not None
    assert (alone.status, alone.diagnosis.id, alone.diagnosis.fatal) == ("failed", "queue_full", False)


def test_memory_before_and_after_the_kv_cache() -> None:
    oom = "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(p, n, s): out of memory"
    for cache in (
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 54.49 GiB for max tokens in paged KV cache (446400).",
        "[TensorRT-LLM][INFO] Allocate 58602029056 bytes for k/v cache.",
    ):
        found = diagnose(f"{cache}\n{oom}", "server").diagnosis
        assert found is not None
        assert found.id == "gpu_out_of_memory", cache
    found = diagnose(oom, "server").diagnosis
    assert found is not None
    assert found.id == "gpu_oom_runtime_buffers"


def test_no_literal_of_a_report_stands_in_a_pattern() -> None:
    for rule in RULES:
        for pattern in rule.patterns:
            assert not re.search(r"\d{4,}|/home|/app|/engines|7b|13b", pattern.pattern), pattern.pattern
            assert anchors(pattern), pattern.pattern


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*arguments: str) -> dict[str, Any]:
        call_command("diagnose", *arguments, "--json")
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    log = str(LOGS / "max-output-len-was-removed.log")
    assert (
        told(log, "--kind", "build", "--exit-code", "2")["diagnosis"]["facts"]["flag"] == "--max_output_len"
    )
    assert told(log, "--exit-code", "0") == {"status": "succeeded", "diagnosis": None}
    with pytest.raises(SystemExit) as caught:
        told("/nowhere/at-all.log")
    assert caught.value.code == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["id"] == "log_unreadable"
    # Its exit code and command lie beside it.
    assert told(log)["diagnosis"]["facts"]["rewrite"] == {"max_input_len": 2048, "max_seq_len": 4096}
    with pytest.raises(SystemExit):
        told(log, "--engine", str(LOGS / "max-output-len-was-removed.cmd"))
    assert json.loads(capsys.readouterr().out)["findings"][0]["where"] == "engine"
    call_command("diagnose", log)
    assert "unknown_flag" in capsys.readouterr().out
