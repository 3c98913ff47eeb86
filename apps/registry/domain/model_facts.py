"""What is known about a model's weights, in the words of the field: the shapes that reading a checkpoint gives.

Every field is None (or empty) where it cannot be known; never 0 in its place. Counts are whole weights, sizes bytes.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from apps.core.exceptions import Finding


class _Facts(BaseModel):
    # One JSON form: what a row keeps, the API answers and the command prints.
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rope(_Facts):
    """Rotary position embedding.

    `type` is transformers' rope type (default, linear, dynamic, yarn, longrope, llama3, mrope, proportional).
    `factor` stretches `original_max_position_embeddings`; max_position_embeddings of the model is the stretched
    figure already. `local_theta` is the base of layers with a sliding window where it differs.
    """

    type: str
    theta: float | None = None
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    partial_rotary_factor: float | None = None
    local_theta: float | None = None


class MixedWindow(_Facts):
    """Sliding windows on some layers only: how many layers see everything, how many a window of so many tokens."""

    full_layers: int
    windowed_layers: int
    window: int


class Quantization(_Facts):
    """How the linear weights are stored where they are not in the model's dtype.

    `method` is the checkpoint's own word (gptq, awq, fp8, modelopt, compressed-tensors, mxfp4, bitsandbytes, gguf),
    `algorithm` the scheme in TensorRT-LLM's words (W4A16_GPTQ, W4A16_AWQ, FP8, FP8_BLOCK_SCALES, NVFP4...).
    `bits` counts the weight alone; `bits_per_weight` also its scales and zero points. `group_size` is the number of
    weights along the input that share one scale (None: one for a row or a tensor); `block_size` rows and columns of
    a two-dimensional block. `groups` names the fields of ParamGroups that are stored so.
    """

    method: str
    algorithm: str | None = None
    weight_dtype: str | None = None
    bits: float | None = None
    bits_per_weight: float | None = None
    group_size: int | None = None
    block_size: tuple[int, int] | None = None
    zero_points: bool | None = None
    desc_act: bool | None = None
    kv_cache_dtype: str | None = None
    groups: tuple[str, ...] = ()
    modules_to_not_convert: tuple[str, ...] = ()


class Moe(_Facts):
    """Mixture of experts. `dense_layers` are the layers without experts (index from 0)."""

    num_experts: int
    experts_per_token: int | None = None
    moe_intermediate_size: int | None = None
    num_shared_experts: int | None = None
    shared_intermediate_size: int | None = None
    dense_layers: tuple[int, ...] = ()


class Mla(_Facts):
    """Multi-head latent attention: a token's cache is kv_lora_rank + qk_rope_head_dim values in each layer."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int | None = None
    v_head_dim: int | None = None
    q_lora_rank: int | None = None


class LayerParams(_Facts):
    """Weights of one layer by what tensor parallelism and quantization do with them.

    attention: query and output projections. attention_kv: key and value projections (replicated where tp passes the
    KV heads). attention_replicated: projections that every rank keeps whole (MLA's down-projections). mixer: linear
    attention or state-space projections. mlp: dense feed-forward. experts: all routed experts. shared_experts:
    experts of every token. biases, kv_biases, norms, router and other stay in 16 bit.
    """

    attention: int = 0
    attention_kv: int = 0
    attention_replicated: int = 0
    mixer: int = 0
    mlp: int = 0
    experts: int = 0
    shared_experts: int = 0
    router: int = 0
    biases: int = 0
    kv_biases: int = 0
    norms: int = 0
    other: int = 0

    def total(self) -> int:
        """All weights of the layer."""
        return sum(getattr(self, name) for name in LayerParams.model_fields)


class ParamGroups(LayerParams):
    """The same over all layers, with what stands outside of them. lm_head is 0 where it is tied."""

    embedding: int = 0
    lm_head: int = 0

    def total(self) -> int:
        """All weights stored."""
        return sum(getattr(self, name) for name in ParamGroups.model_fields)


class LayerSpec(_Facts):
    """A kind of layer that occurs in the model.

    `kind` is attention | mla | linear | mamba | mlp | cross_attention. `window` is the sliding window (or chunk) in
    tokens, None for all of them. `kv_values_per_token` counts the cached values of one token (0: keeps nothing that
    grows), `state_values` the values of fixed size that a sequence keeps (linear attention, state space).
    """

    kind: str
    window: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    kv_values_per_token: int | None = None
    state_values: int = 0
    params: LayerParams | None = None


class ModelFacts(_Facts):
    """Facts of one checkpoint.

    `architecture` is the class that transformers would load, `family` the model type. `num_kv_heads` is the largest
    of the layers where they differ. `attention_window` is None where every layer sees everything, a number where all
    layers have that window, a MixedWindow otherwise; `layer_windows` says it for each layer. `layer_specs` are the
    kinds of layers that occur, `layer_spec_of` the index into them for each layer.

    `params` counts the weights stored for the language model (tied ones once, without multi-token-prediction layers,
    which `mtp_params` counts); `active_params` those that one token uses; `other_params` those of the file outside
    of the language model (vision and audio towers), where its headers say. `kv_bytes_per_token` is for 16-bit keys
    and values at tp 1 over all layers; `state_bytes_per_sequence` what linear layers keep, at 16 bit.

    `valid_tp` lists the powers of two up to 64 that pass every rule; `tp_reasons` has a sentence for each of the
    others, by str(tp), likewise `valid_pp` and `pp_reasons`. `tp_divides` are the numbers that tp has to divide,
    `row_widths` the input widths of projections that are split by rows, by what they are called.

    `weights_bytes` are those of the tensors on disk, `tensor_types` counts a GGUF's tensors by type and the bytes of
    safetensors by dtype, `file_type` is the weight type that a GGUF names.
    """

    form: str
    family: str | None = None
    architecture: str | None = None
    name: str | None = None
    num_layers: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    vocab_size: int | None = None
    intermediate_size: int | None = None
    max_position_embeddings: int | None = None
    attention_window: int | MixedWindow | None = None
    rope: str | None = None
    quantization: Quantization | None = None
    params: int | None = None
    kv_bytes_per_token: int | None = None
    valid_tp: tuple[int, ...] | None = None
    findings: tuple[Finding, ...] = ()

    dtype: str | None = None
    tied_embeddings: bool | None = None
    rope_parameters: Rope | None = None
    position_embedding: str | None = None
    moe: Moe | None = None
    mla: Mla | None = None
    active_params: int | None = None
    mtp_params: int | None = None
    other_params: int | None = None
    param_groups: ParamGroups | None = None
    layer_specs: tuple[LayerSpec, ...] = ()
    layer_spec_of: tuple[int, ...] = ()
    layer_windows: tuple[int | None, ...] | None = None
    layer_kinds: tuple[str, ...] | None = None
    state_bytes_per_sequence: int | None = None
    tp_divides: dict[str, int] = {}
    row_widths: dict[str, int] = {}
    tp_reasons: dict[str, str] = {}
    valid_pp: tuple[int, ...] | None = None
    pp_reasons: dict[str, str] = {}
    weights_bytes: int | None = None
    file_type: str | None = None
    tensors: int | None = None
    tensor_types: dict[str, int] = {}
    tokenizer: str | None = None
    bos_token: str | None = None
    bos_token_id: int | None = None
    eos_token: str | None = None
    eos_token_ids: tuple[int, ...] = ()
    add_bos: bool | None = None

    def errors(self) -> tuple[Finding, ...]:
        """The findings that refuse the checkpoint."""
        return tuple(finding for finding in self.findings if finding.severity == "error")
