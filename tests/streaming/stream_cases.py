"""What engines send and what a person must read: the public stream cases and more of their kinds, for each upstream.

A step is {"outputs": {name: value}, "final": bool}, {"error": text}, or nothing at all for a message without outputs.
Values of text_output may be bytes: engines cut characters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

CASES = Path(__file__).resolve().parents[1] / "data/cases"
Kind = Literal["ours", "ensemble", "bls", "llmapi"]
SAMPLING = ("temperature", "top_k", "top_p", "frequency_penalty", "presence_penalty")
COMMON = {
    "text_input": "BYTES",
    "max_tokens": "INT32",
    "stream": "BOOL",
    "temperature": "FP32",
    "top_k": "INT32",
    "top_p": "FP32",
    "seed": "UINT64",
    "stop_words": "BYTES",
    "exclude_input_in_output": "BOOL",
}
INPUTS: dict[Kind, dict[str, str]] = {
    "ours": COMMON,
    "ensemble": COMMON,
    "bls": {**COMMON, "num_draft_tokens": "INT32"},
    "llmapi": {
        "text_input": "BYTES",
        "streaming": "BOOL",
        "sampling_param_max_tokens": "INT32",
        "sampling_param_temperature": "FP32",
        "sampling_param_top_k": "INT32",
        "sampling_param_top_p": "FP32",
        "sampling_param_seed": "UINT64",
        "sampling_param_stop": "BYTES",
        "sampling_param_exclude_input_from_output": "BOOL",
        "return_finish_reason": "BOOL",
    },
}
OUTPUTS: dict[Kind, tuple[str, ...]] = {
    "ours": ("text_output", "token_count", "finish_reason", "completion_tokens"),
    "ensemble": ("text_output",),
    "bls": ("text_output",),
    "llmapi": ("text_output", "finish_reason"),
}


@dataclass(frozen=True)
class StreamCase:
    """`accumulated`: the model's configuration says so. `says`: a part of the sentence of a failed answer."""

    name: str
    kind: Kind
    steps: tuple[dict[str, Any], ...]
    text: str
    state: Literal["done", "failed"] = "done"
    says: str = ""
    accumulated: bool = False
    tokens: int | None = None
    more: dict[str, Any] = field(default_factory=dict)


def _load(case: str, name: str) -> Any:
    return json.loads((CASES / case / name).read_text(encoding="utf-8"))


def _step(text: str | bytes, final: bool = False, **outputs: Any) -> dict[str, Any]:
    return {"outputs": {"text_output": text, **outputs}, "final": final}


LAST: dict[str, Any] = {"outputs": {}, "final": True}


def _characters() -> list[StreamCase]:
    """59: each token's bytes as they are, from engines that send deltas and from one that sends the whole so far."""
    case = "59-characters-cut-over-tokens"
    found = []
    for name, wanted in _load(case, "expected.json").items():
        pieces = [bytes.fromhex(token["hex"]) for token in _load(case, f"input.{name}.json")]
        whole = [b"".join(pieces[: at + 1]) for at in range(len(pieces))]
        found += [
            StreamCase(f"59-{name}", "ensemble", (*map(_step, pieces), LAST), wanted["text"]),
            StreamCase(f"59-{name}-bls", "bls", (*map(_step, pieces), LAST), wanted["text"]),
        ]
        if name != "invalid":
            # Where nothing is carried over, two bytes that can never be a character may read as one U+FFFD.
            steps = (*map(_step, whole), LAST)
            found.append(StreamCase(f"59-{name}-llmapi", "llmapi", steps, wanted["text"]))
    counted = [_step(part, token_count=1) for part in ("Good", " ", "", "\N{WAVING HAND SIGN}")]
    last = _step("!", True, token_count=1, finish_reason="stop", completion_tokens=5)
    found.append(StreamCase("59-counted", "ours", (*counted, last), "Good \N{WAVING HAND SIGN}!", tokens=5))
    return found


def _spaces() -> list[StreamCase]:
    """61: a model that decodes all ids each time; the gain of each message is what a person gets."""
    case = "61-spaces-lost-per-token"
    wanted = _load(case, "expected.json")["text"]
    whole, so_far = [], ""
    for token in _load(case, "input.json"):
        piece = token["piece"]
        so_far += "\n" if piece == "<0x0A>" else piece.replace("\u2581", " ")
        whole.append(so_far.removeprefix(" "))
    steps = (*map(_step, whole), LAST)
    return [
        StreamCase("61-bls", "bls", steps, wanted, accumulated=True),
        StreamCase("61-llmapi", "llmapi", steps, wanted),
    ]


def _ends() -> list[StreamCase]:
    """63, and more ways in which answers end."""
    case = "63-final-message-has-no-outputs"
    plain, broken = (tuple(_load(case, name)) for name in ("input.json", "input.error.json"))
    traced = {"error": "Traceback (most recent call last): ... c10 error"}
    return [
        *(StreamCase(f"63-final-{kind}", kind, plain, "Hello") for kind in ("ensemble", "bls")),
        StreamCase("63-error-bls", "bls", broken, "Hel", "failed", "c10 error"),
        StreamCase("63-error-llmapi", "llmapi", (_step("Hel"), traced, LAST), "Hel", "failed", "c10 error"),
        StreamCase(
            "63-error-ours", "ours", (_step("Hel", token_count=1), traced), "Hel", "failed", "c10 error"
        ),
        StreamCase("63-error-first", "ensemble", (traced,), "", "failed", "c10 error"),
        StreamCase("final-with-text", "ensemble", (_step("Hel"), _step("lo", True)), "Hello"),
        StreamCase("nothing", "bls", (LAST,), ""),
        StreamCase(
            "marker", "ensemble", (_step("Paris.<|im"), _step("_end|>"), _step("\n<|im_start|>")), "Paris."
        ),
        StreamCase("marker-llmapi", "llmapi", (_step("Paris."), _step("Paris.</s>"), LAST), "Paris."),
        StreamCase("half-a-marker", "ensemble", (_step("a <|im"), LAST), "a <|im"),
    ]


def _echoes() -> list[StreamCase]:
    """A prompt that is repeated; `{prompt}` and `{bare}` stand for it with and without its special tokens."""
    return [
        StreamCase("echo", "ensemble", (_step("{prompt}"), _step("Paris"), LAST), "Paris"),
        StreamCase("echo-bare-llmapi", "llmapi", (_step("{bare}Pa"), _step("{bare}Paris"), LAST), "Paris"),
        StreamCase("no-echo", "ensemble", (_step("user"), _step(" friendly"), LAST), "user friendly"),
    ]


ALL: tuple[StreamCase, ...] = (*_characters(), *_spaces(), *_ends(), *_echoes())


def filled(case: StreamCase, prompt: str) -> list[dict[str, Any]]:
    """The steps with the prompt where they repeat it."""
    bare = prompt
    for token in ("<|im_start|>", "<|im_end|>"):
        bare = bare.replace(token, "")

    def value(found: Any) -> Any:
        return found.replace("{prompt}", prompt).replace("{bare}", bare) if isinstance(found, str) else found

    return [
        {**step, "outputs": {name: value(one) for name, one in step["outputs"].items()}}
        if "outputs" in step
        else step
        for step in case.steps
    ]


def chunks(case: StreamCase, prompt: str) -> list[Any]:
    """What an OpenAI-style server sends of a case: `delta` for more text, `message` for the whole so far."""
    accumulated = case.accumulated or case.kind == "llmapi"
    found: list[Any] = []
    for step in filled(case, prompt):
        if "error" in step:
            return [*found, {"error": {"message": step["error"], "type": "server_error"}}]
        text = step["outputs"].get("text_output")
        reason = "stop" if step["final"] else None
        if isinstance(text, bytes):
            found.append(_cut_chunk(text, "message" if accumulated else "delta", reason))
            continue
        part = {} if text is None else {"content": text}
        name = "message" if accumulated and text is not None else "delta"
        found.append({"choices": [{"index": 0, name: part, "finish_reason": reason}]})
    if not any(isinstance(one, dict) and one["choices"][0]["finish_reason"] for one in found):
        found.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {} if case.tokens is None else {"completion_tokens": case.tokens}
    return [*found, {"choices": [], "usage": usage}, b"data: [DONE]\n\n"]


def _cut_chunk(text: bytes, name: str, reason: str | None) -> bytes:
    """A chunk whose text is bytes that need not be UTF-8 by themselves."""
    quoted = b"".join(b"\\" + bytes([one]) if one in b'"\\' else bytes([one]) for one in text)
    quoted = quoted.replace(b"\n", b"\\n")
    told = json.dumps(reason).encode()
    return b'data: {"choices":[{"index":0,"%b":{"content":"%b"},"finish_reason":%b}]}\n\n' % (
        name.encode(),
        quoted,
        told,
    )
