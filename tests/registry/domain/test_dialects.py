"""The same fact in the spellings of many files; what is off, absent or contradictory."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.exceptions import Finding
from apps.registry.domain.model_config import facts_of
from apps.registry.domain.model_facts import MixedWindow, ModelFacts
from tests.support.hugging_face import TINY

LLAMA: dict[str, Any] = {**TINY, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}


def facts(**changes: Any) -> ModelFacts:
    return facts_of({**LLAMA, **changes})


def found(read: ModelFacts, finding: str) -> Finding:
    return next(item for item in read.findings if item.id == finding)


@pytest.mark.parametrize(
    ("config", "kv_heads"),
    [
        ({"model_type": "llama", "num_attention_heads": 32}, 32),
        ({"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": None}, 32),
        ({"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 4}, 4),
        ({"model_type": "unheard_of", "num_attention_heads": 32, "num_kv_heads": 4}, 4),
        ({"model_type": "unheard_of", "num_attention_heads": 32, "num_query_groups": 4}, 4),
        ({"model_type": "unheard_of", "n_head": 32, "multi_query": True}, 1),
        ({"model_type": "gpt_bigcode", "n_head": 48}, 1),
        ({"model_type": "gpt_bigcode", "n_head": 48, "multi_query": False}, 48),
        ({"model_type": "falcon", "num_attention_heads": 71, "multi_query": True}, 1),
        ({"model_type": "falcon", "num_attention_heads": 71, "multi_query": True, "num_kv_heads": 71}, 1),
        ({"model_type": "falcon", "num_attention_heads": 32, "multi_query": False}, 32),
        ({"model_type": "falcon", "num_attention_heads": 128, "new_decoder_architecture": True}, 128),
        (
            {
                "model_type": "falcon",
                "num_attention_heads": 128,
                "new_decoder_architecture": True,
                "num_kv_heads": 8,
                "multi_query": True,
            },
            8,
        ),
        ({"model_type": "RefinedWeb", "n_head": 128, "n_head_kv": 8}, 8),
        ({"model_type": "RefinedWebModel", "n_head": 71, "multi_query": True}, 1),
        ({"model_type": "mpt", "n_heads": 32, "attn_config": {"kv_n_heads": 8}}, 8),
        ({"model_type": "mpt", "n_heads": 32, "attn_config": {"attn_type": "multiquery_attention"}}, 1),
        ({"model_type": "mpt", "n_heads": 32, "attn_config": None}, 32),
        ({"model_type": "dbrx", "n_heads": 48, "attn_config": {"kv_n_heads": 8}}, 8),
        (
            {
                "model_type": "chatglm",
                "num_attention_heads": 32,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
            },
            2,
        ),
        (
            {
                "model_type": "chatglm",
                "num_attention_heads": 32,
                "multi_query_attention": False,
                "multi_query_group_num": 2,
            },
            32,
        ),
    ],
)
def test_key_value_heads(config: dict[str, Any], kv_heads: int) -> None:
    assert facts_of(config).num_kv_heads == kv_heads


def test_key_value_heads_by_layer() -> None:
    read = facts(num_key_value_heads=None, num_key_value_heads_per_layer=[8, 4])
    assert read.num_kv_heads == 8
    assert read.kv_bytes_per_token == 2 * (8 + 4) * 128 * 2
    assert found(facts(num_key_value_heads_per_layer=[8]), "config_field_invalid").severity == "error"


@pytest.mark.parametrize(
    ("config", "head_dim"),
    [
        ({"model_type": "gemma", "hidden_size": 3072, "num_attention_heads": 16}, 256),
        ({"model_type": "gemma", "hidden_size": 3072, "num_attention_heads": 16, "head_dim": None}, 256),
        ({"model_type": "gemma2", "hidden_size": 4608, "num_attention_heads": 32, "head_dim": 128}, 128),
        ({"model_type": "qwen3", "hidden_size": 5120, "num_attention_heads": 64}, 128),
        ({"model_type": "mistral", "hidden_size": 5120, "num_attention_heads": 32, "head_dim": 128}, 128),
        ({"model_type": "qwen", "hidden_size": 4096, "num_attention_heads": 32, "kv_channels": 128}, 128),
        ({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128.0}, 128),
        ({"model_type": "llama", "hidden_size": 5120, "num_attention_heads": 48}, None),
    ],
)
def test_head_dim(config: dict[str, Any], head_dim: int | None) -> None:
    read = facts_of(config)
    assert read.head_dim == head_dim
    if head_dim is None:
        assert found(read, "head_dim_unknown").remedy


@pytest.mark.parametrize("family", ["gemma", "gpt2", "falcon", "bloom", "mpt", "cohere", "starcoder2", "opt"])
def test_families_that_tie_unless_told_otherwise(family: str) -> None:
    assert facts_of({"model_type": family}).tied_embeddings is True
    assert facts_of({"model_type": family, "tie_word_embeddings": False}).tied_embeddings is False


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "gpt_neox", "gptj", "phi3", "deepseek_v3"])
def test_families_that_do_not_tie(family: str) -> None:
    assert facts_of({"model_type": family, "tie_word_embeddings": None}).tied_embeddings is False


class TestNested:
    """The language model inside of a larger one."""

    @pytest.mark.parametrize("name", ["llm_config", "text_config", "language_config"])
    def test_places(self, name: str) -> None:
        read = facts_of({"model_type": "some_vl", name: LLAMA, "vision_config": {"num_attention_heads": 25}})
        assert (read.num_attention_heads, read.family, read.params) == (32, "llama", facts().params)
        assert found(read, "language_model_only").severity == "info"

    def test_thinker(self) -> None:
        read = facts_of({"model_type": "qwen2_5_omni", "thinker_config": {"text_config": LLAMA}})
        assert read.num_attention_heads == 32

    def test_the_language_model_wins_over_the_top(self) -> None:
        both = {
            **LLAMA,
            "num_attention_heads": 8,
            "llm_config": LLAMA,
            "text_config": {"num_attention_heads": 2},
        }
        assert facts_of(both).num_attention_heads == 32

    @pytest.mark.parametrize("empty", [None, {}])
    def test_an_empty_part_is_none(self, empty: object) -> None:
        assert facts(text_config=empty).num_attention_heads == 32

    def test_dtype_vocabulary_and_quantization_of_the_top(self) -> None:
        inner = {name: value for name, value in LLAMA.items() if name not in ("torch_dtype", "vocab_size")}
        quantized = {"quant_method": "fp8"}
        read = facts_of(
            {
                "text_config": inner,
                "dtype": "torch.float16",
                "vocab_size": 96,
                "quantization_config": quantized,
            }
        )
        assert (read.dtype, read.vocab_size) == ("float16", 96)
        assert read.quantization is not None
        assert read.quantization.algorithm == "FP8"

    def test_what_a_class_fills_in(self) -> None:
        read = facts_of(
            {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560}}
        )
        assert (read.num_attention_heads, read.num_kv_heads, read.head_dim, read.vocab_size) == (
            8,
            4,
            256,
            262_208,
        )

    def test_nothing_is_filled_in_at_the_top(self) -> None:
        read = facts_of({"model_type": "llama"})
        assert (read.num_layers, read.hidden_size, read.params, read.kv_bytes_per_token) == (None,) * 4
        assert "num_hidden_layers" in found(read, "config_field_missing").message


class TestRope:
    """Rotary embeddings."""

    @pytest.mark.parametrize(
        ("scaling", "kind"),
        [
            (None, "default"),
            ({"type": "linear", "factor": 4}, "linear"),
            ({"rope_type": "linear", "factor": 4}, "linear"),
            ({"type": "yarn", "rope_type": "yarn", "factor": 4}, "yarn"),
            ({"type": "su", "short_factor": [1], "long_factor": [2]}, "longrope"),
            ({"type": "mrope", "mrope_section": [16, 24, 24]}, "mrope"),
            ({"type": "default", "rope_type": "default", "mrope_section": [16, 24, 24]}, "default"),
            ({"type": "mrope", "rope_type": "default", "mrope_section": [1]}, "mrope"),
            ({"factor": 2.0}, "linear"),
        ],
    )
    def test_types(self, scaling: object, kind: str) -> None:
        read = facts(rope_scaling=scaling)
        assert read.rope == kind
        assert not [item for item in read.findings if item.severity != "info"]

    def test_the_new_dialect_carries_the_base(self) -> None:
        read = facts(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, "factor": 8})
        assert read.rope == "llama3"
        assert read.rope_parameters is not None
        assert (read.rope_parameters.theta, read.rope_parameters.factor) == (5e5, 8)

    def test_bases_by_kind_of_layer(self) -> None:
        by_kind = {
            "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
        read = facts(rope_parameters=by_kind).rope_parameters
        assert read is not None
        assert (read.type, read.theta, read.local_theta) == ("linear", 1e6, 1e4)

    def test_types_that_differ(self) -> None:
        read = facts(rope_scaling={"type": "linear", "rope_type": "yarn", "factor": 4})
        assert read.rope == "yarn"
        assert found(read, "rope_types_differ").severity == "warning"

    def test_a_missing_factor_is_an_error(self) -> None:
        assert found(facts(rope_scaling={"type": "yarn"}), "rope_factor_missing").severity == "error"

    def test_the_context_is_never_multiplied(self) -> None:
        scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
        read = facts(max_position_embeddings=32768, rope_scaling=scaling)
        assert read.max_position_embeddings == 32768
        assert "131072" in found(read, "context_not_stretched").message

    @pytest.mark.parametrize(
        ("config", "position"),
        [
            ({"model_type": "bloom"}, "alibi"),
            ({"model_type": "mpt", "attn_config": {"alibi": True}}, "alibi"),
            ({"model_type": "falcon", "alibi": True}, "alibi"),
            ({"model_type": "gpt2"}, "learned"),
            ({"model_type": "jamba"}, "none"),
        ],
    )
    def test_models_without(self, config: dict[str, Any], position: str) -> None:
        read = facts_of(config)
        assert (read.rope, read.position_embedding) == (None, position)


class TestWindows:
    """Sliding windows and their switches."""

    def of(self, **config: Any) -> int | MixedWindow | None:
        return facts_of({"num_hidden_layers": 4, **config}).attention_window

    def test_switches(self) -> None:
        assert self.of(model_type="qwen3", sliding_window=64) is None
        assert self.of(model_type="qwen2", sliding_window=64, use_sliding_window=None) is None
        assert self.of(model_type="qwen2", sliding_window=64, use_sliding_window=True) is None
        assert (
            self.of(model_type="qwen2", sliding_window=64, use_sliding_window=True, max_window_layers=0) == 64
        )
        assert self.of(model_type="mistral", sliding_window=64) == 64
        assert self.of(model_type="mistral", sliding_window=64, use_sliding_window=False) is None
        assert self.of(model_type="phi3", sliding_window=2047) == 2047
        assert self.of(model_type="mistral") is None

    def test_what_a_switch_turns_off_is_not_read(self) -> None:
        read = facts_of({"model_type": "qwen2", "sliding_window": 0, "use_sliding_window": False})
        assert "sliding" not in " ".join(item.message for item in read.findings)

    @pytest.mark.parametrize("window", [None, 0, -1, "x"])
    def test_on_without_a_size_is_an_error(self, window: object) -> None:
        read = facts_of(
            {
                "model_type": "qwen2",
                "num_hidden_layers": 4,
                "use_sliding_window": True,
                "sliding_window": window,
            }
        )
        assert found(read, "sliding_window_missing").severity == "error"
        assert read.attention_window is None

    def test_kinds_of_layers_are_listed(self) -> None:
        kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
        window = self.of(model_type="gemma3_text", sliding_window=8, layer_types=kinds)
        assert window == MixedWindow(full_layers=1, windowed_layers=3, window=8)
        assert self.of(model_type="qwen3", layer_types=["full_attention"] * 4, sliding_window=8) is None

    def test_a_list_of_the_wrong_length_is_not_used(self) -> None:
        read = facts_of(
            {
                "model_type": "gemma2",
                "num_hidden_layers": 4,
                "sliding_window": 8,
                "layer_types": ["sliding_attention"],
            }
        )
        assert found(read, "layer_types_length").severity == "warning"
        assert read.attention_window == MixedWindow(full_layers=2, windowed_layers=2, window=8)

    def test_chunks(self) -> None:
        chunked = self.of(model_type="llama4_text", attention_chunk_size=8192)
        assert chunked == MixedWindow(full_layers=1, windowed_layers=3, window=8192)
        by_flag = self.of(model_type="llama4_text", attention_chunk_size=64, no_rope_layers=[1, 0, 0, 1])
        assert by_flag == MixedWindow(full_layers=2, windowed_layers=2, window=64)

    def test_shared_caches_take_nothing(self) -> None:
        sizes = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "num_hidden_layers": 4}
        read = facts_of({"model_type": "gemma3n_text", **sizes, "num_kv_shared_layers": 3})
        assert read.kv_bytes_per_token == 2 * 1 * 2 * 256 * 2


class TestExperts:
    """Mixture of experts."""

    def test_dense_layers(self) -> None:
        sizes = {"num_hidden_layers": 6, "num_experts": 8, "moe_intermediate_size": 32}
        of = lambda **more: facts_of({"model_type": "qwen3_moe", **sizes, **more}).moe  # noqa: E731
        for more, dense in (
            ({}, ()),
            ({"mlp_only_layers": [0, 3]}, (0, 3)),
            ({"decoder_sparse_step": 2}, (0, 2, 4)),
        ):
            moe = of(**more)
            assert moe is not None
            assert moe.dense_layers == dense

    def test_llama4_interleaves(self) -> None:
        moe = facts_of(
            {
                "model_type": "llama4_text",
                "num_hidden_layers": 4,
                "num_local_experts": 128,
                "interleave_moe_layer_step": 2,
                "intermediate_size": 8192,
            }
        ).moe
        assert moe is not None
        assert (moe.dense_layers, moe.shared_intermediate_size) == ((0, 2), 8192)

    def test_missing_experts_are_named(self) -> None:
        read = facts(model_type="mixtral", architectures=["MixtralForCausalLM"])
        assert read.params is None
        assert "num_local_experts" in found(read, "config_field_missing").message


def test_an_unknown_family_says_what_it_can() -> None:
    read = facts(model_type="brand_new", architectures=["BrandNewForCausalLM"])
    assert read.kv_bytes_per_token == 2 * 2 * 8 * 128 * 2
    assert (read.params, read.family) == (None, "brand_new")
    assert "brand_new" in found(read, "family_unknown").message


@pytest.mark.parametrize(
    "hint",
    [
        {"attn_type_list": [0, 1]},
        {"mamba_d_state": 16},
        {"layer_types": ["linear_attention", "full_attention"]},
    ],
)
def test_an_unknown_hybrid_does_not_claim_a_cache(hint: dict[str, Any]) -> None:
    assert facts(model_type="brand_new", architectures=[], **hint).kv_bytes_per_token is None


def test_the_class_stands_in_for_a_model_type() -> None:
    unnamed = {name: value for name, value in LLAMA.items() if name != "model_type"}
    assert facts_of(unnamed).params == facts().params


@pytest.mark.parametrize("config", [{"model_type": "t5"}, {**LLAMA, "is_encoder_decoder": True}])
def test_other_kinds_of_models_are_refused(config: dict[str, Any]) -> None:
    assert found(facts_of(config), "unsupported_architecture").severity == "error"


def test_heads_that_cannot_share() -> None:
    assert found(facts(num_key_value_heads=5), "kv_heads_inconsistent").severity == "error"
    assert found(facts(num_key_value_heads=64), "kv_heads_inconsistent").severity == "error"


def test_an_engine_tells_its_checkpoint() -> None:
    inner = {
        "architecture": "LlamaForCausalLM",
        "dtype": "float16",
        "num_hidden_layers": 2,
        "hidden_size": 64,
    }
    engine = {
        "version": "1.2.1",
        "build_config": {"max_batch_size": 8},
        "pretrained_config": {
            **inner,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_size": 32,
            "intermediate_size": 128,
            "vocab_size": 96,
            "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
        },
    }
    read = facts_of(engine)
    assert (read.family, read.head_dim, read.dtype) == ("llama", 32, "float16")
    assert read.quantization is not None
    assert (read.quantization.algorithm, read.quantization.kv_cache_dtype) == ("FP8", "fp8")
