"""Classes of requests, and how far one reaches on the way to an engine.

Three classes with fixed numbers, as Triton counts them: 1 is the most urgent. The gateway's keys have the same three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tritonclient.grpc.model_config_pb2 import ModelConfig

LEVELS: dict[str, int] = {"high": 1, "normal": 2, "low": 3}
DEFAULT_LEVEL = LEVELS["normal"]
Where = Literal["engine", "triton", "gateway"]


@dataclass(frozen=True, slots=True)
class Reach:
    """The queue in which a class acts. `sentence` says why, `remedy` what to do about it; empty where all is well."""

    where: Where
    sentence: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """JSON form."""
        return {"where": self.where, "sentence": self.sentence, "remedy": self.remedy}


ENGINE = Reach("engine", "A request's class orders the engine's own waiting queue.")
TRITON = Reach(
    "triton",
    "A request's class orders Triton's queue, in which requests wait for the next batch. Over HTTP Triton drops it; "
    "there the gateway's queue orders them.",
)
NO_CLASSES = Reach(
    "gateway",
    "The batching profile has no priority classes, so Triton's queue serves who came first.",
    "Send requests through the gateway, whose queue orders them by class, or give the profile priority classes.",
)


def of_strategy(strategy: str, classes: bool) -> Reach:
    """How far a class reaches with the embedded llama.cpp model; `classes`: the profile has priority classes."""
    if strategy not in ("static", "dynamic"):
        return ENGINE
    return TRITON if classes else NO_CLASSES


ENSEMBLE = Reach(
    "gateway",
    "The ensemble drops a request's class: Triton does not hand it on to the steps.",
    "Send requests through the gateway; its queue orders them by class before the ensemble sees them.",
)


def of_trtllm(kind: str, answering_model: str) -> Reach:
    """How far a class reaches with TensorRT-LLM: `kind` is trtllm or llmapi, `answering_model` of the former."""
    if kind == "trtllm" and answering_model == "ensemble":
        return ENSEMBLE
    what = "The model tensorrt_llm_bls" if kind == "trtllm" else "The PyTorch backend's model"
    return Reach(
        "gateway",
        f"{what} takes requests out of Triton's queue at once, and reads no class.",
        "Send requests through the gateway; its queue orders them by class.",
    )


def of_config(config: ModelConfig) -> Reach:
    """How far a class reaches with somebody's own model."""
    if config.platform == "ensemble":
        return ENSEMBLE
    if config.backend in ("tensorrtllm", "vllm"):
        return Reach(
            "gateway",
            f"The {config.backend} backend takes requests out of Triton's queue at once, and reads no class.",
            "Send requests through the gateway; its queue orders them by class.",
        )
    if (
        config.WhichOneof("scheduling_choice") == "dynamic_batching"
        and config.dynamic_batching.priority_levels
    ):
        return TRITON
    return Reach(
        "gateway",
        "The model's queue in Triton has no priority levels, so a request's class does nothing there.",
        "Send requests through the gateway, or give dynamic_batching priority_levels and a default_priority_level.",
    )
