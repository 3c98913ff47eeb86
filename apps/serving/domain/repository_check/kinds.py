"""What a model in a repository is: told from its backend, its name and its files."""

from __future__ import annotations

from apps.serving.domain.repository_check.folders import ModelFolder
from apps.serving.domain.repository_check.one_config import ReadConfig

# Names of the TensorRT-LLM templates, whose copies carry a suffix.
_TEMPLATES = ("preprocessing", "postprocessing", "tensorrt_llm_bls", "multimodal_encoders")


def kind_of(read: ReadConfig, folder: ModelFolder) -> str:
    """ensemble | tensorrt_llm | llmapi | preprocessing | postprocessing | tensorrt_llm_bls | multimodal_encoders |
    python | vllm | the backend's or platform's name | unknown."""
    config = read.config
    if config is None:
        return "unknown"
    if config.platform == "ensemble" or config.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        return "ensemble"
    if config.backend == "tensorrtllm":
        return "tensorrt_llm"
    if config.backend != "python":
        return config.backend or config.platform or "unknown"
    if folder.file("model.yaml") is not None:
        return "llmapi"
    name = config.name or folder.name
    for template in _TEMPLATES:
        if name.startswith(template):
            return template
    inputs = {tensor.name for tensor in config.input}
    if {"input_ids", "request_output_len"} <= inputs:
        return "tensorrt_llm"
    if {"QUERY", "REQUEST_OUTPUT_LEN"} <= inputs:
        return "preprocessing"
    return "postprocessing" if {"TOKENS_BATCH", "SEQUENCE_LENGTH"} <= inputs else "python"
