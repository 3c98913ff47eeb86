"""The five models of the engine recipe: preprocessing, tensorrt_llm, postprocessing, ensemble, tensorrt_llm_bls.

Source: the templates of 0.19 to 1.x. Every parameter is written, with its default where nothing is set, so that the
backend guesses nothing and no variable stays open.
"""

from __future__ import annotations

from apps.serving.domain import blocks
from apps.serving.domain.repository_check.trtllm_parameters import TENSORRT_LLM
from apps.serving.domain.trtllm import settings, tensors
from apps.serving.domain.trtllm.spec import RepositorySpec
from apps.serving.domain.trtllm.tensors import Tensor

WORKER = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"
ENSEMBLE = "ensemble"
# Ensemble tensors between the steps begin so; the others are inputs and outputs of the ensemble.
_INNER = "_"
_PREPROCESSING_INPUTS = {
    "QUERY": "text_input",
    "DECODER_QUERY": "decoder_text_input",
    "REQUEST_OUTPUT_LEN": "max_tokens",
    "BAD_WORDS_DICT": "bad_words",
    "STOP_WORDS_DICT": "stop_words",
    "EMBEDDING_BIAS_WORDS": "embedding_bias_words",
    "EMBEDDING_BIAS_WEIGHTS": "embedding_bias_weights",
    "END_ID": "end_id",
    "PAD_ID": "pad_id",
    "PROMPT_TABLE_EXTRA_ID": "prompt_table_extra_id",
}
_PREPARED = {
    "INPUT_ID": "input_ids",
    "REQUEST_INPUT_LEN": "input_lengths",
    "DECODER_INPUT_ID": "decoder_input_ids",
    "REQUEST_DECODER_INPUT_LEN": "decoder_input_lengths",
    "REQUEST_OUTPUT_LEN": "request_output_len",
    "STOP_WORDS_IDS": "stop_words_list",
    "BAD_WORDS_IDS": "bad_words_list",
    "EMBEDDING_BIAS": "embedding_bias",
    "OUT_END_ID": "end_id",
    "OUT_PAD_ID": "pad_id",
    "OUT_PROMPT_TABLE_EXTRA_IDS": "prompt_table_extra_ids",
}
# Inputs of the engine that the ensemble hands on under another name; all others of both go by their own.
_HANDED_ON = {
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "len_penalty": "length_penalty",
    "streaming": "stream",
}


def models(spec: RepositorySpec) -> tuple[blocks.Model, ...]:
    """Those that the repository holds, callers last."""
    made = {
        "preprocessing": _preprocessing,
        "tensorrt_llm": _engine,
        "postprocessing": _postprocessing,
        ENSEMBLE: _ensemble,
        "tensorrt_llm_bls": _bls,
    }
    return tuple(made[name](spec) for name in spec.written)


def name_of(spec: RepositorySpec, model: str) -> str:
    """The name of one of the models in this repository."""
    return spec.name_of(model)


def engine_parameters(spec: RepositorySpec) -> dict[str, str]:
    """Every parameter that the C++ backend reads; empty where nothing is set and it has no default."""
    chosen = {**spec.settings, **spec.placement}
    chosen |= {"gpt_model_type": "inflight_fused_batching", "gpt_model_path": spec.model}
    chosen.setdefault("tokenizer_dir", spec.tokenizer or spec.model)
    chosen.setdefault("executor_worker_path", WORKER)
    if "max_tokens_in_paged_kv_cache" in chosen:
        # Both would bound the cache, the smaller one.
        chosen.setdefault("kv_cache_free_gpu_mem_fraction", "")
    return {
        item.key: settings.as_text(chosen.get(item.key, item.default or ""))
        for item in TENSORRT_LLM
        if item.key in settings.PROFILE or item.key in settings.PLACED or item.key in _FIXED
    }


_FIXED = frozenset(item.key for item in settings.FIXED)


def _queue(spec: RepositorySpec) -> blocks.DynamicBatching:
    return blocks.DynamicBatching(
        max_queue_delay_microseconds=spec.queue.max_queue_delay_microseconds,
        default_queue_policy=blocks.QueuePolicy(max_queue_size=spec.queue.max_queue_size),
    )


def _inputs(spec: RepositorySpec, table: tuple[Tensor, ...]) -> tuple[blocks.Input, ...]:
    return tuple(item.as_input(spec.types) for item in table if item.is_of(spec.release))


def _outputs(spec: RepositorySpec, table: tuple[Tensor, ...]) -> tuple[blocks.Output, ...]:
    return tuple(item.as_output(spec.types) for item in table if item.is_of(spec.release))


def _model(
    spec: RepositorySpec,
    name: str,
    tables: tuple[tuple[Tensor, ...], tuple[Tensor, ...]],
    parameters: dict[str, str],
    count: int,
    *,
    backend: str = "python",
    decoupled: bool = False,
    queue: blocks.DynamicBatching | None = None,
) -> blocks.Model:
    return blocks.Model(
        name_of(spec, name),
        backend=backend,
        max_batch_size=spec.max_batch_size,
        input=_inputs(spec, tables[0]),
        output=_outputs(spec, tables[1]),
        dynamic_batching=queue,
        instance_group=(blocks.InstanceGroup("KIND_CPU", count),),
        model_transaction_policy=blocks.TransactionPolicy(True) if decoupled else None,
        version_policy=blocks.VersionPolicy(latest=blocks.Latest(1)),
        parameters=parameters,
    )


def _preprocessing(spec: RepositorySpec) -> blocks.Model:
    parameters = {
        "tokenizer_dir": spec.tokenizer or spec.model,
        "add_special_tokens": settings.as_text(spec.add_special_tokens),
        # Releases before 0.17 look the first one up without a default, later ones the second.
        "visual_model_path": "",
        "multimodal_model_path": "",
        "gpt_model_path": spec.model,
        "max_num_images": "1",
    }
    tables = (tensors.PREPROCESSING_INPUTS, tensors.PREPROCESSING_OUTPUTS)
    count = spec.instances.preprocessing
    return _model(spec, "preprocessing", tables, parameters, count, queue=_queue(spec))


def _engine(spec: RepositorySpec) -> blocks.Model:
    tables = (tensors.ENGINE_INPUTS, tensors.ENGINE_OUTPUTS)
    return _model(
        spec,
        "tensorrt_llm",
        tables,
        engine_parameters(spec),
        spec.instances.engine,
        backend="tensorrtllm",
        decoupled=spec.decoupled,
        queue=_queue(spec),
    )


def _postprocessing(spec: RepositorySpec) -> blocks.Model:
    parameters = {
        "tokenizer_dir": spec.tokenizer or spec.model,
        "skip_special_tokens": settings.as_text(spec.skip_special_tokens),
    }
    tables = (tensors.POSTPROCESSING_INPUTS, tensors.POSTPROCESSING_OUTPUTS)
    return _model(spec, "postprocessing", tables, parameters, spec.instances.postprocessing)


def _bls(spec: RepositorySpec) -> blocks.Model:
    parameters = {
        "accumulate_tokens": settings.as_text(spec.accumulate_tokens),
        "tensorrt_llm_model_name": name_of(spec, "tensorrt_llm"),
        "tensorrt_llm_draft_model_name": "",
        "multimodal_encoders_name": "",
    }
    tables = (tensors.BLS_INPUTS, (*tensors.TEXT_OUTPUT, *tensors.ANSWER_FIGURES))
    # Each request takes an instance until its answer ends.
    count = spec.instances.bls or spec.max_batch_size
    return _model(spec, "tensorrt_llm_bls", tables, parameters, count, decoupled=spec.decoupled)


def _ensemble(spec: RepositorySpec) -> blocks.Model:
    return blocks.Model(
        name_of(spec, ENSEMBLE),
        platform="ensemble",
        max_batch_size=spec.max_batch_size,
        input=_inputs(spec, tensors.ENSEMBLE_INPUTS),
        output=_outputs(spec, (*tensors.TEXT_OUTPUT, *tensors.ANSWER_FIGURES)),
        ensemble_scheduling=blocks.Ensemble(_steps(spec)),
        version_policy=blocks.VersionPolicy(latest=blocks.Latest(1)),
    )


def _steps(spec: RepositorySpec) -> tuple[blocks.Step, ...]:
    prepared = {name: f"{_INNER}{name}" for name in _PREPARED}
    answers = {item.name: item.name for item in tensors.ANSWER_FIGURES if item.is_of(spec.release)}
    return (
        blocks.Step(name_of(spec, "preprocessing"), _PREPROCESSING_INPUTS, prepared),
        blocks.Step(
            name_of(spec, "tensorrt_llm"),
            _engine_inputs(spec),
            {"output_ids": "_TOKENS_BATCH", "sequence_length": "_SEQUENCE_LENGTH", **answers},
        ),
        blocks.Step(
            name_of(spec, "postprocessing"),
            {"TOKENS_BATCH": "_TOKENS_BATCH", "SEQUENCE_LENGTH": "_SEQUENCE_LENGTH"},
            {"OUTPUT": "text_output"},
        ),
    )


def _engine_inputs(spec: RepositorySpec) -> dict[str, str]:
    given = {item.name for item in tensors.ENSEMBLE_INPUTS if item.is_of(spec.release)}
    made = {engine: f"{_INNER}{name}" for name, engine in _PREPARED.items()}
    found = {}
    for item in tensors.ENGINE_INPUTS:
        source = _HANDED_ON.get(item.name, item.name)
        if item.name in made:
            found[item.name] = made[item.name]
        elif item.is_of(spec.release) and source in given:
            found[item.name] = source
    return found
