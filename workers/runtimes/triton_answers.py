"""What tritonserver says, read: figures of its metrics, states of models, refusals; and the shortest request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from apps.streaming.token_source import GenerationRequest, SamplingParams
from apps.streaming.triton_messages import input_of, read_interface, tensors
from workers.runtimes.base import Failure, ModelState
from workers.runtimes.http import Reply

# Those that wait in Triton's own queue are known to Triton alone: strategies static and dynamic. Of TensorRT-LLM the
# active ones, which stand still once the last has ended.
IN_FLIGHT = re.compile(
    r"^(?:inflight_requests_(?:running|waiting)|nv_inference_pending_request_count"
    r"|nv_trt_llm_request_metrics(?=\{[^}]*\"active\"))(?:\{[^}]*\})? ([0-9.eE+-]+)\s*$",
    re.MULTILINE,
)
# What grows while a model works: the embedded model's tokens, TensorRT-LLM's iterations, else whole requests.
PROGRESS = re.compile(
    r"^(?:inflight_(?:generated|prompt)_tokens_total|nv_inference_exec_count"
    r"|nv_trt_llm_general_metrics(?=\{[^}]*iteration))(?:\{[^}]*\})? ([0-9.eE+-]+)\s*$",
    re.MULTILINE,
)
STATES: dict[str, ModelState] = {
    "READY": "ready",
    "LOADING": "loading",
    "UNLOADING": "unloading",
    "UNAVAILABLE": "unavailable",
}
# The shortest request there is; `generate_stream` ends with the first token.
PROBE_PROMPT = "Hi"
_LOAD_FAILED = re.compile(r"^load failed for model '[^']*': version \d+ is at UNAVAILABLE state: ")


def summed(pattern: re.Pattern[str], text: str) -> float | None:
    """Sum of the values of all matching lines; null where there is none."""
    values = pattern.findall(text)
    return sum(float(value) for value in values) if values else None


def whole(value: float | None) -> int | None:
    """The value without its fraction."""
    return int(value) if value is not None else None


def probe_request(about: Mapping[str, Any]) -> dict[str, Any] | None:
    """One token in the model's own names, by its metadata; null where it takes no text."""
    interface = read_interface(
        (
            (each["name"], each.get("datatype", ""), each.get("shape") or ())
            for each in about.get("inputs", ())
        ),
        (each["name"] for each in about.get("outputs", ())),
    )
    if "text_input" not in interface.inputs:
        return None
    most = 1 if input_of("max_tokens", interface) else None
    return tensors(GenerationRequest(PROBE_PROMPT, SamplingParams(max_tokens=most)), interface)


def load_failure(reply: Reply) -> Failure:
    """What a refused load means. A 500 says nothing; the log has the reason."""
    detail = _LOAD_FAILED.sub("", reply.error).removeprefix("Internal: ").strip().rstrip(";").strip()
    first = detail.splitlines()[0] if detail else _("it gave no reason")
    return Failure(
        "load_failed",
        _("Triton could not load the model: %(detail)s") % {"detail": first},
        _("Read the log of this server below; correct what it names, then deploy again."),
    )
