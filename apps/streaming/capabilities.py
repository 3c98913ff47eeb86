"""What the engine of a deployment takes and tells, as data: for the playground's form, and before anything is sent.

Read from the tensors that the models of each kind declare, so that a parameter is offered where, and only where, a
request with it would be run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.serving.domain import repository
from apps.serving.domain.acting import EngineKind
from apps.serving.domain.trtllm import tensors as trtllm
from apps.serving.models import Deployment
from apps.serving.trtllm_files import RELEASE, engine_kind, of_profile, specification
from apps.streaming.triton_messages import ModelInterface, input_of

# The model that calls the steps itself; the ensemble reads no accumulate_tokens.
BLS = "tensorrt_llm_bls"
# Sampling parameters by the names of apps.chat and of the gateway, with the tensor that carries each.
PARAMS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_tokens": "min_tokens",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "bad_words": "bad_words",
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`params` are the sampling parameters that act, by name.

    `counts_tokens`: the engine says how many ids a message brought. `tokenizes`: it tells the ids of a prompt.
    `accumulated`: its model is configured to send the whole text so far with each message. `context_tokens` is what
    prompt and answer may have together, null where nobody knows.
    """

    kind: EngineKind
    params: frozenset[str]
    counts_tokens: bool
    tokenizes: bool
    context_tokens: int | None = None
    accumulated: bool = False


def of(deployment: Deployment) -> Capabilities:
    """Of the revision that serves, else of what the deployment is configured to."""
    revision = deployment.active_revision
    snapshot = revision.batching if revision is not None else {"max_seq_len": deployment.batching.max_seq_len}
    build = deployment.build_profile
    kind = engine_kind(build)
    interface = interface_of(kind, build.tensorrt_llm if build is not None else "")
    length = snapshot.get("max_seq_len")
    return Capabilities(
        kind=kind,
        params=params_of(interface),
        counts_tokens=interface.is_ours,
        tokenizes=interface.is_ours or kind == "trtllm",
        context_tokens=length if isinstance(length, int) else None,
        accumulated=kind == "llmapi" or (kind == "trtllm" and _accumulates(deployment, snapshot)),
    )


def _accumulates(deployment: Deployment, snapshot: Mapping[str, Any]) -> bool:
    """Whether a request meets the BLS model and its accumulate_tokens is on."""
    revision = deployment.active_revision
    placement = revision.placement if revision is not None else deployment.placement
    spec = specification(snapshot, of_profile(deployment.build_profile, "trtllm", "-"), placement=placement)
    return spec.accumulate_tokens and getattr(spec, "answers", "ensemble") == BLS


def params_of(interface: ModelInterface) -> frozenset[str]:
    """The parameters that a model with this interface takes. Stop words end the text here where it has no input."""
    found = {name for name, tensor in PARAMS.items() if input_of(tensor, interface)}
    found.add("stop_words")
    if "top_log_probs" in interface.outputs:
        found.add("logprobs")
    return frozenset(found)


def interface_of(kind: EngineKind, release: str = "") -> ModelInterface:
    """What the model that answers declares; `release` of TensorRT-LLM, empty for the one that is rendered for."""
    if kind == "llamacpp":
        inputs = {tensor.name: tensor.type for tensor in repository.INPUTS}
        return ModelInterface(inputs, frozenset(tensor.name for tensor in repository.OUTPUTS))
    version = _version(release or RELEASE)
    table, outputs = (
        (trtllm.LLMAPI_INPUTS, trtllm.LLMAPI_OUTPUTS)
        if kind == "llmapi"
        else (trtllm.ENSEMBLE_INPUTS, trtllm.TEXT_OUTPUT)
    )
    inputs = {tensor.name: tensor.type for tensor in table if tensor.is_of(version)}
    return ModelInterface(inputs, frozenset(tensor.name for tensor in outputs if tensor.is_of(version)))


def _version(release: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (1, 0)
