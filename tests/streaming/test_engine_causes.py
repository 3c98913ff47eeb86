"""An engine's words about one request: what the rules know of them is told, and nothing else is touched."""

from __future__ import annotations

from typing import Any

import pytest

from apps.diagnosis.domain.rules import diagnose
from apps.streaming import engine_causes, triton_errors
from apps.streaming.token_source import StreamError

TOO_LONG = "Input length (6973) + max new tokens (4095) must be less than max sequence length (8192)."


@pytest.mark.parametrize(
    ("said", "code", "cause"),
    [
        (TOO_LONG, "invalid_request", "request_exceeds_max_seq_len"),
        (
            f"Executor failed process requestId 7 due to the following error: {TOO_LONG}",
            "invalid_request",
            "request_exceeds_max_seq_len",
        ),
        (
            f'Traceback (most recent call last):\n  File "model.py", line 3\nValueError: {TOO_LONG}',
            "invalid_request",
            "request_exceeds_max_seq_len",
        ),
        (
            "The sum of prompt length (9000), query length (0) should not exceed max_num_tokens (8192)",
            "invalid_request",
            "request_exceeds_max_seq_len",
        ),
        (
            "Runtime dimension does not satisfy any optimization profile.",
            "invalid_request",
            "optimization_profile",
        ),
        # The engine's own fault: retries and health go on by its code.
        ("an illegal memory access was encountered", "engine_error", "gpu_state_broken"),
        (
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "engine_error",
            "gpu_out_of_memory",
        ),
    ],
)
def test_known_words_get_their_cause(said: str, code: str, cause: str) -> None:
    found = triton_errors.explain("INTERNAL", said)
    assert (found.code, found.cause, found.reason) == (code, cause, cause)
    # The engine's own words stay.
    assert said.splitlines()[-1].rpartition("error: ")[2] in found.sentence
    assert found.remedy


def test_the_room_that_is_left_is_told() -> None:
    assert "at most 1218 new tokens fit" in triton_errors.explain("", TOO_LONG).remedy
    drafts = TOO_LONG.replace("(4095)", "(4095) + draft tokens (18)")
    assert "at most 1200 new tokens fit" in triton_errors.explain("", drafts).remedy
    full = TOO_LONG.replace("6973", "8192")
    assert "fit." not in triton_errors.explain("", full).remedy.removesuffix("must fit.")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "boom",
        "\x00\udcff\x1b[",
        "Input length (",
        "{" * 9000,
        "9" * 6000,
        "max_tokens: 0 is not from 1 to 9.",
    ],
)
def test_unknown_words_leave_the_error_as_it_was(said: str) -> None:
    error = StreamError("engine_error", f"The engine failed: {said}", "Try again.")
    assert engine_causes.with_cause(error, said) is error
    assert error.reason == "engine_error"


def test_a_fault_of_the_rules_leaves_the_error_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(engine_causes, "diagnose", broken)
    found = triton_errors.explain("INTERNAL", TOO_LONG)
    assert (found.code, found.cause) == ("engine_error", "")
    assert found.sentence == f"The engine failed: {TOO_LONG}"


def test_only_a_bounded_part_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(text: str, *more: Any) -> Any:
        read.append(len(text))
        return diagnose(text, *more)

    monkeypatch.setattr(engine_causes, "diagnose", counted)
    found = engine_causes.cause_of("  File x\n" * 100_000 + TOO_LONG)
    assert found is not None
    assert read[0] <= 2 * engine_causes.MOST_LETTERS + 1
