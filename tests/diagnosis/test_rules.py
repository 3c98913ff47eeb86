"""What logs say about the cause. Lines are those that the programs print."""

from __future__ import annotations

import re

import pytest

from apps.diagnosis.domain.rule import Kind
from apps.diagnosis.domain.rules import MAX_EVIDENCE, MAX_LINES, diagnose
from apps.diagnosis.domain.table import RULES

SHM = (
    "failed to load 'm' version 1: Internal: Unable to initialize shared memory key "
    "'triton_python_backend_shm_region_3' to requested size (67108864 bytes). Error: "
)
LINES: list[tuple[str, Kind, str, dict[str, object]]] = [
    (SHM + "No space left on device", "server", "dev_shm_full", {"bytes_per_instance": 67108864}),
    (SHM + "No such file or directory", "server", "dev_shm_missing", {}),
    ("OSError: [Errno 28] No space left on device: 'model.gguf'", "build", "disk_full", {}),
    ("sqlite3.OperationalError: database or disk is full", "server", "disk_full", {}),
    (
        "[TRT] [W] Requested amount of GPU memory (24793579520 bytes) could not be allocated.",
        "build",
        "gpu_out_of_memory",
        {"bytes": 24793579520},
    ),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "server", "host_out_of_memory", {}),
    ("numpy._core._exceptions._ArrayMemoryError\nMemoryError", "build", "host_out_of_memory", {}),
    (
        "E1130 failed to start HTTP service: Socket '127.0.0.1:8000' already in use",
        "server",
        "port_in_use",
        {},
    ),
    ("bind: Address already in use", "server", "port_in_use", {}),
    (
        "[json.exception.parse_error.101] parse error at line 1, column 1: syntax error",
        "server",
        "engine_config_json_unreadable",
        {},
    ),
    (
        "E gguf_init_from_file: failed to open GGUF file '/e/model.gguf' (No such file or directory)",
        "server",
        "engine_missing",
        {"path": "/e/model.gguf"},
    ),
    (
        "E gguf_init_from_reader: invalid magic characters: '??$!', expected 'GGUF'",
        "build",
        "gguf_not_a_gguf",
        {"magic": "??$!"},
    ),
    (
        "E llama_model_load: error loading model: tensor 'blk.16.ffn_down.weight' data is not within the file "
        "bounds, model is corrupted or incomplete",
        "build",
        "gguf_truncated",
        {"tensor": "blk.16.ffn_down.weight"},
    ),
    (
        "error loading model architecture: unknown model architecture: 'qwen9'",
        "build",
        "unsupported_architecture",
        {"architecture": "qwen9"},
    ),
    ("error loading model: missing tensor 'output.weight'", "build", "gguf_tensors_do_not_fit", {}),
    (
        "tritonserver: error while loading shared libraries: libcudart-a1b2.so.12: cannot open shared object file",
        "server",
        "library_missing",
        {"library": "libcudart-a1b2.so.12"},
    ),
    (
        "ModuleNotFoundError: No module named 'xllamacpp'",
        "build",
        "python_package_missing",
        {"module": "xllamacpp"},
    ),
    ("PermissionError: [Errno 13] Permission denied: '/data/m.gguf'", "build", "permission_denied", {}),
    ("Segmentation fault (core dumped)", "server", "crashed", {}),
    ("ggml.c:42: GGML_ASSERT(n > 0) failed", "build", "crashed", {"assertion": "n > 0"}),
]


@pytest.mark.parametrize(
    ("line", "kind", "id", "facts"), LINES, ids=[f"{x[2]}-{i}" for i, x in enumerate(LINES)]
)
def test_lines(line: str, kind: Kind, id: str, facts: dict[str, object]) -> None:
    text = f"starting\n{line}\nended"
    verdict = diagnose(text, kind, 1)
    assert verdict.status == "failed"
    found = verdict.diagnosis
    assert found is not None
    assert found.id == id
    assert found.evidence[0].line >= 2
    assert facts.items() <= found.facts.items()
    assert found.remedies
    assert verdict.as_dict()["diagnosis"]["evidence"][0]["text"] in text


@pytest.mark.parametrize(
    ("code", "id"),
    [
        (-9, "killed"),
        (137, "killed"),
        (-11, "crashed"),
        (-6, "crashed"),
        (-4, "cpu_instruction_missing"),
        (1, None),
    ],
)
def test_exit_codes_without_a_line(code: int, id: str | None) -> None:
    found = diagnose("nothing to see", "build", code).diagnosis
    assert (found and found.id) == id


def test_exit_code_0_is_a_success_whatever_the_log_says() -> None:
    text = "[TRT] [E] 2: OutOfMemory\nRequested amount of GPU memory (5 bytes) could not be allocated."
    assert diagnose(text, "build", 0).as_dict() == {"status": "succeeded", "diagnosis": None}


def test_without_an_exit_code_a_clean_log_is_unknown() -> None:
    assert diagnose("all well", "server").status == "unknown"
    assert diagnose("bind: Address already in use", "server").status == "failed"


def test_the_root_comes_before_its_consequences() -> None:
    text = "Segmentation fault\nwrite: No space left on device\nKilled"
    found = diagnose(text, "build", -9).diagnosis
    assert found is not None
    assert (found.id, found.evidence[0].line) == ("disk_full", 2)


def test_a_server_rule_is_not_asked_about_a_build() -> None:
    assert diagnose("bind: Address already in use", "build", 1).diagnosis is None


def test_evidence_and_input_are_bounded() -> None:
    text = "x\n" * (MAX_LINES + 10) + "No space left on device\n" * 50
    found = diagnose(text, "build", 1).diagnosis
    assert found is not None
    assert len(found.evidence) == MAX_EVIDENCE
    assert found.evidence[0].line == MAX_LINES + 11
    assert diagnose("y" * 5_000_000, "build", 1).diagnosis is None
    found = diagnose("Killed\n", "build", 137, before=7).diagnosis
    assert found is not None
    assert found.evidence[0].line == 8


def test_rules_are_sound() -> None:
    assert len({rule.title for rule in RULES}) > 60
    for rule in RULES:
        assert re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", rule.id)
        assert rule.title.endswith(".")
        assert rule.remedies
        assert all(remedy.endswith(".") for remedy in rule.remedies)
