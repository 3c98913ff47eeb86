"""Inputs and outputs of the TensorRT-LLM models, optional ones included, by release.

Source: the templates of 0.19 to 1.x. One tensor a line: name, type, dims without the batch dimension (`scalar` is one
number that the backend sees without a dimension), and `needed` or the releases that have it (`>=0.20`, `<0.20`).
`LOGITS`, `PROMPT_TABLE` and `FEATURES` stand for types that depend on the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from apps.serving.domain import blocks

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Types:
    """Types that depend on the engine."""

    logits: str = "TYPE_FP32"
    prompt_table: str = "TYPE_FP16"
    features: str = "TYPE_FP16"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor. `since` is the first release that has it, `until` the first that has it no more."""

    name: str
    type: str
    dims: tuple[int, ...]
    scalar: bool = False
    needed: bool = False
    since: Version | None = None
    until: Version | None = None

    def is_of(self, version: Version) -> bool:
        """Whether this release has it."""
        return (self.since is None or version >= self.since) and (self.until is None or version < self.until)

    def data_type(self, types: Types) -> str:
        """Its type as the text form spells it."""
        own = {"LOGITS": types.logits, "PROMPT_TABLE": types.prompt_table, "FEATURES": types.features}
        return own.get(self.type, f"TYPE_{self.type}")

    def as_input(self, types: Types) -> blocks.Input:
        """The block. Requests with lists of other lengths still belong into one batch."""
        return blocks.Input(
            self.name,
            self.data_type(types),
            self.dims,
            blocks.Reshape() if self.scalar else None,
            optional=not self.needed,
            allow_ragged_batch=-1 in self.dims,
        )

    def as_output(self, types: Types) -> blocks.Output:
        """The block."""
        return blocks.Output(self.name, self.data_type(types), self.dims)


def _version(text: str) -> Version:
    major, minor = text.split(".")
    return int(major), int(minor)


def _table(text: str) -> tuple[Tensor, ...]:
    found = []
    for line in text.strip().splitlines():
        name, kind, dims, *words = line.split()
        sizes = (1,) if dims == "scalar" else tuple(int(size) for size in dims.split(","))
        since = next((_version(word[2:]) for word in words if word.startswith(">=")), None)
        until = next((_version(word[1:]) for word in words if word.startswith("<")), None)
        found.append(Tensor(name, kind, sizes, dims == "scalar", "needed" in words, since, until))
    return tuple(found)


ENGINE_INPUTS = _table("""
input_ids INT32 -1 needed
encoder_input_features FEATURES -1,-1
encoder_output_lengths INT32 scalar
input_lengths INT32 scalar needed
request_output_len INT32 scalar needed
num_return_sequences INT32 scalar
draft_input_ids INT32 -1
decoder_input_ids INT32 -1
decoder_input_lengths INT32 scalar
draft_logits LOGITS -1,-1
draft_acceptance_threshold FP32 scalar
end_id INT32 scalar
pad_id INT32 scalar
stop_words_list INT32 2,-1
bad_words_list INT32 2,-1
embedding_bias FP32 -1
beam_width INT32 scalar
temperature FP32 scalar
runtime_top_k INT32 scalar
runtime_top_p FP32 scalar
runtime_top_p_min FP32 scalar
runtime_top_p_decay FP32 scalar
runtime_top_p_reset_ids INT32 scalar
len_penalty FP32 scalar
early_stopping BOOL scalar
repetition_penalty FP32 scalar
min_tokens INT32 scalar >=0.20
min_length INT32 scalar <0.20
beam_search_diversity_rate FP32 scalar
presence_penalty FP32 scalar
frequency_penalty FP32 scalar
seed UINT64 scalar >=0.20
random_seed UINT64 scalar <0.20
return_log_probs BOOL scalar
return_context_logits BOOL scalar
return_generation_logits BOOL scalar
return_perf_metrics BOOL scalar
return_num_input_tokens BOOL scalar >=0.20
return_num_output_tokens BOOL scalar >=0.20
exclude_input_in_output BOOL scalar
stop BOOL scalar
streaming BOOL scalar
prompt_embedding_table PROMPT_TABLE -1,-1
prompt_table_extra_ids UINT64 -1
prompt_vocab_size INT32 scalar
cross_attention_mask BOOL -1,-1
skip_cross_attn_blocks BOOL scalar
mrope_rotary_cos_sin FP32 -1
mrope_position_deltas INT64 scalar
lora_task_id UINT64 scalar
lora_weights FP16 -1,-1
lora_config INT32 -1,3
context_phase_params UINT8 -1
retention_token_range_starts INT32 -1
retention_token_range_ends INT32 -1
retention_token_range_priorities INT32 -1
retention_token_range_durations_ms INT32 -1
retention_decode_priority INT32 scalar
retention_decode_duration_ms INT32 scalar
guided_decoding_guide_type STRING scalar
guided_decoding_guide STRING scalar
lookahead_window_size INT32 scalar
lookahead_ngram_size INT32 scalar
lookahead_verification_set_size INT32 scalar
""")
# What each answer carries besides its tokens; the ensemble and the BLS model hand it on.
ANSWER_FIGURES = _table("""
cum_log_probs FP32 -1
output_log_probs FP32 -1,-1
context_logits LOGITS -1,-1
generation_logits LOGITS -1,-1,-1
batch_index INT32 1
sequence_index INT32 1
context_phase_params UINT8 -1
kv_cache_alloc_new_blocks INT32 1
kv_cache_reused_blocks INT32 1
kv_cache_alloc_total_blocks INT32 1
arrival_time_ns INT64 1
first_scheduled_time_ns INT64 1
first_token_time_ns INT64 1
last_token_time_ns INT64 1
acceptance_rate FP32 1
total_accepted_draft_tokens INT32 1
total_draft_tokens INT32 1
num_input_tokens INT32 1 >=0.20
num_output_tokens INT32 1 >=0.20
""")
ENGINE_OUTPUTS = (
    *_table("""
output_ids INT32 -1,-1
sequence_length INT32 -1
"""),
    *ANSWER_FIGURES,
)
PREPROCESSING_INPUTS = _table("""
QUERY STRING 1 needed
DECODER_QUERY STRING 1
IMAGE_BYTES UINT8 -1,-1,-1,-1
IMAGE_URL STRING 1
VIDEO_BYTES UINT8 -1,-1,-1,-1
REQUEST_OUTPUT_LEN INT32 1 needed
BAD_WORDS_DICT STRING -1
STOP_WORDS_DICT STRING -1
EMBEDDING_BIAS_WORDS STRING -1
EMBEDDING_BIAS_WEIGHTS FP32 -1
END_ID INT32 1
PAD_ID INT32 1
PROMPT_TABLE_EXTRA_ID UINT64 1
""")
PREPROCESSING_OUTPUTS = _table("""
INPUT_ID INT32 -1
REQUEST_INPUT_LEN INT32 1
DECODER_INPUT_ID INT32 -1
REQUEST_DECODER_INPUT_LEN INT32 1
BAD_WORDS_IDS INT32 2,-1
STOP_WORDS_IDS INT32 2,-1
EMBEDDING_BIAS FP32 -1
REQUEST_OUTPUT_LEN INT32 1
OUT_END_ID INT32 1
OUT_PAD_ID INT32 1
OUT_PROMPT_TABLE_EXTRA_IDS UINT64 -1
PIXEL_VALUES FP16 -1,-1,-1,-1
ASPECT_RATIO_IDS INT64 -1,-1
ASPECT_RATIO_MASK INT64 -1,-1,-1
CROSS_ATTENTION_MASK INT64 -1,-1,-1
IMAGE_SIZES INT64 -1,2
IS_VIDEO_INPUT BOOL 1
ATTENTION_MASK INT64 -1,-1
IMAGE_GRID_THW INT64 -1,-1
VISION_INPUT_ID INT64 -1,-1
""")
POSTPROCESSING_INPUTS = _table("""
TOKENS_BATCH INT32 -1,-1 needed
SEQUENCE_LENGTH INT32 -1 needed
""")
POSTPROCESSING_OUTPUTS = _table("OUTPUT STRING -1")
TEXT_OUTPUT = _table("text_output STRING -1")
ENSEMBLE_INPUTS = _table("""
text_input STRING 1 needed
decoder_text_input STRING 1
max_tokens INT32 1 needed
num_return_sequences INT32 1
bad_words STRING -1
stop_words STRING -1
exclude_input_in_output BOOL 1
end_id INT32 1
pad_id INT32 1
top_k INT32 1
top_p FP32 1
temperature FP32 1
length_penalty FP32 1
repetition_penalty FP32 1
min_tokens INT32 1 >=0.20
min_length INT32 1 <0.20
presence_penalty FP32 1
frequency_penalty FP32 1
seed UINT64 1 >=0.20
random_seed UINT64 1 <0.20
return_log_probs BOOL 1
return_context_logits BOOL 1
return_generation_logits BOOL 1
return_perf_metrics BOOL 1
beam_width INT32 1
stream BOOL 1
prompt_embedding_table PROMPT_TABLE -1,-1
prompt_table_extra_id UINT64 1
prompt_vocab_size INT32 1
embedding_bias_words STRING -1
embedding_bias_weights FP32 -1
lora_task_id UINT64 1
lora_weights FP16 -1,-1
lora_config INT32 -1,3
guided_decoding_guide_type STRING 1
guided_decoding_guide STRING 1
""")
BLS_INPUTS = (
    *ENSEMBLE_INPUTS,
    *_table("""
image_input FP16 -1,-1,-1,-1
image_bytes_input UINT8 -1,-1,-1,-1
image_url_input STRING 1
video_bytes_input UINT8 -1,-1,-1,-1
num_draft_tokens INT32 1
use_draft_logits BOOL 1
"""),
)
# The llmapi model has no batch dimension: each tensor is given whole.
LLMAPI_INPUTS = _table("""
text_input STRING -1 needed
image_url STRING -1 >=1.1
streaming BOOL 1
sampling_param_best_of INT32 1
sampling_param_temperature FP32 1
sampling_param_top_k INT32 1
sampling_param_top_p FP32 1
sampling_param_frequency_penalty FP32 1
sampling_param_presence_penalty FP32 1
sampling_param_max_tokens INT32 1
sampling_param_stop STRING -1
sampling_param_seed UINT64 1
sampling_param_exclude_input_from_output BOOL 1
sampling_param_return_perf_metrics BOOL 1
sampling_param_logits_post_processor_name STRING 1 >=1.1
return_finish_reason BOOL 1
return_stop_reason BOOL 1
return_cumulative_logprob BOOL 1
stop BOOL 1
lora_id UINT64 1 >=1.1
lora_name STRING 1 >=1.1
lora_path STRING 1 >=1.1
lora_ckpt_source STRING 1 >=1.1
""")
LLMAPI_OUTPUTS = _table("""
text_output STRING -1
finish_reason STRING -1
stop_reason STRING -1
cumulative_logprob FP32 -1
kv_cache_reused_block INT32 1
kv_cache_missed_block INT32 1
kv_cache_hit_rate FP32 1
kv_cache_alloc_new_blocks INT32 1
kv_cache_alloc_total_blocks INT32 1
arrival_time_ns INT64 1
first_scheduled_time_ns INT64 1
first_token_time_ns INT64 1
last_token_time_ns INT64 1
acceptance_rate FP32 1
total_accepted_draft_tokens INT32 1
total_draft_tokens INT32 1
""")
