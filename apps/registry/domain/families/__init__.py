"""Which family a configuration is of, and the family's own facts. Plain Python, no Django."""

from __future__ import annotations

from collections.abc import Callable

from apps.registry.domain.config_view import Config
from apps.registry.domain.families import dense, early, experts, hybrid, irregular, state_space
from apps.registry.domain.families.base import Family

Maker = Callable[[Config], Family]

# Model types of configurations (transformers' and those of repositories with code of their own).
FAMILIES: dict[str, Maker] = {
    **dict.fromkeys(
        ("llama", "yi", "Yi", "aquila", "deepseek_coder", "xverse", "smollm", "ministral_llama"), dense.Llama
    ),
    **dict.fromkeys(("mistral", "ministral", "ministral3", "pixtral_text"), dense.Mistral),
    **dict.fromkeys(("qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), dense.Qwen2),
    **dict.fromkeys(("qwen2_5_omni_text", "qwen2_5_omni_talker"), dense.Qwen2),
    **dict.fromkeys(("qwen3", "qwen3_vl_text"), dense.Qwen3),
    "gemma": dense.Gemma,
    "gemma2": dense.Gemma2,
    **dict.fromkeys(("gemma3", "gemma3_text"), dense.Gemma3),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), dense.Gemma3n),
    **dict.fromkeys(("phi3", "phi3_v", "phi4mm"), dense.Phi3),
    "granite": dense.Granite,
    "smollm3": dense.Smollm3,
    "cohere": dense.Cohere,
    **dict.fromkeys(("cohere2", "cohere2_text"), dense.Cohere2),
    "olmo": dense.Olmo,
    **dict.fromkeys(("olmo2", "olmo3"), dense.Olmo2),
    **dict.fromkeys(("stablelm", "stablelm_epoch"), dense.StableLm),
    "internlm": dense.Internlm,
    "internlm2": dense.Internlm2,
    "internlm3": dense.Internlm3,
    "nemotron": dense.Nemotron,
    "arcee": dense.Arcee,
    "starcoder2": dense.Starcoder2,
    "orion": dense.Orion,
    "glm": dense.Glm,
    **dict.fromkeys(("glm4", "glm4v_text"), dense.Glm4),
    "seed_oss": dense.SeedOss,
    "baichuan": dense.Baichuan,
    "exaone": dense.Exaone,
    "exaone4": dense.Exaone4,
    **dict.fromkeys(("mllama", "mllama_text_model"), dense.Mllama),
    "gpt2": early.Gpt2,
    "gpt_bigcode": early.GptBigCode,
    "gpt_neo": early.GptNeo,
    "gptj": early.GptJ,
    "gpt_neox": early.GptNeoX,
    "opt": early.Opt,
    "bloom": early.Bloom,
    "mpt": early.Mpt,
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), early.Falcon),
    **dict.fromkeys(("phi", "phi-msft", "mixformer-sequential"), early.Phi),
    "phi3small": early.Phi3Small,
    "qwen": early.Qwen,
    "chatglm": early.chatglm,
    "mixtral": experts.Mixtral,
    "qwen2_moe": experts.Qwen2Moe,
    **dict.fromkeys(("qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text"), experts.Qwen3Moe),
    "olmoe": experts.Olmoe,
    "phimoe": experts.PhiMoe,
    "granitemoe": experts.GraniteMoe,
    "dbrx": experts.Dbrx,
    "ernie4_5_moe": experts.Ernie45Moe,
    "ernie4_5": dense.Llama,
    **dict.fromkeys(("llama4", "llama4_text"), experts.Llama4),
    "gpt_oss": experts.GptOss,
    "deepseek": experts.DeepSeek,
    "deepseek_v2": experts.DeepSeekV2,
    **dict.fromkeys(("deepseek_v3", "kimi_k2"), experts.DeepSeekV3),
    "deepseek_v32": experts.DeepSeekV32,
    "minicpm3": experts.MiniCpm3,
    **dict.fromkeys(("glm4_moe", "glm4v_moe_text"), experts.Glm4Moe),
    "mamba": state_space.Mamba,
    "falcon_mamba": state_space.FalconMamba,
    "mamba2": state_space.Mamba2,
    "jamba": hybrid.Jamba,
    "bamba": hybrid.Bamba,
    "granitemoehybrid": hybrid.GraniteHybrid,
    "falcon_h1": hybrid.FalconH1,
    "nemotron_h": hybrid.NemotronH,
    "qwen3_next": hybrid.Qwen3Next,
    "lfm2": hybrid.Lfm2,
    "zamba2": hybrid.Zamba2,
    "recurrent_gemma": hybrid.RecurrentGemma,
    **dict.fromkeys(("nemotron-nas", "deci", "nemotron_nas"), irregular.NemotronNas),
}

# Classes for configurations without a model type, and where the type is one that several classes share.
ARCHITECTURES: dict[str, str] = {
    "AquilaForCausalLM": "llama",
    "BaiChuanForCausalLM": "baichuan",
    "BaichuanForCausalLM": "baichuan",
    "BambaForCausalLM": "bamba",
    "BloomForCausalLM": "bloom",
    "BloomModel": "bloom",
    "ChatGLMForConditionalGeneration": "chatglm",
    "ChatGLMModel": "chatglm",
    "Cohere2ForCausalLM": "cohere2",
    "CohereForCausalLM": "cohere",
    "DbrxForCausalLM": "dbrx",
    "DeciLMForCausalLM": "nemotron-nas",
    "DeepseekForCausalLM": "deepseek",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "ExaoneForCausalLM": "exaone",
    "FalconForCausalLM": "falcon",
    "GPT2LMHeadModel": "gpt2",
    "GPTBigCodeForCausalLM": "gpt_bigcode",
    "GPTJForCausalLM": "gptj",
    "GPTNeoForCausalLM": "gpt_neo",
    "GPTNeoXForCausalLM": "gpt_neox",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "GemmaForCausalLM": "gemma",
    "Glm4ForCausalLM": "glm4",
    "GptOssForCausalLM": "gpt_oss",
    "InternLM2ForCausalLM": "internlm2",
    "InternLM3ForCausalLM": "internlm3",
    "InternLMForCausalLM": "internlm",
    "JambaForCausalLM": "jamba",
    "LLaMAForCausalLM": "llama",
    "LlamaForCausalLM": "llama",
    "MPTForCausalLM": "mpt",
    "MptForCausalLM": "mpt",
    "MambaForCausalLM": "mamba",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "NemotronForCausalLM": "nemotron",
    "NemotronHForCausalLM": "nemotron_h",
    "OPTForCausalLM": "opt",
    "Phi3ForCausalLM": "phi3",
    "Phi3SmallForCausalLM": "phi3small",
    "PhiForCausalLM": "phi",
    "PhiMoEForCausalLM": "phimoe",
    "QWenLMHeadModel": "qwen",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "RWForCausalLM": "falcon",
    "StableLMEpochForCausalLM": "stablelm",
    "Starcoder2ForCausalLM": "starcoder2",
    "YiForCausalLM": "llama",
}

# Models that answer in another way than one token after the other, and vision or audio towers alone.
NOT_DECODERS = frozenset(
    (
        "t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "marian", "m2m_100", "nllb-moe", "whisper",
        "bert", "roberta", "xlm-roberta", "distilbert", "albert", "deberta", "deberta-v2", "electra", "modernbert",
        "clip", "siglip", "vit", "wav2vec2", "hubert", "t5gemma", "switch_transformers", "blenderbot", "led",
    )
)  # fmt: skip


def family_of(config: Config) -> tuple[Family, str | None, bool]:
    """The family of a language model's configuration, its model type, and whether it is known."""
    kind = config.text("model_type")
    listed = config.words("architectures") if isinstance(config.get("architectures"), list) else None
    single = config.get("architecture")
    architecture = listed[0] if listed else single if isinstance(single, str) else ""
    if kind is None and config.has("ssm_cfg"):
        kind = "mamba"
    if kind is None or kind not in FAMILIES:
        kind = ARCHITECTURES.get(architecture, kind)
    if kind in FAMILIES:
        return FAMILIES[kind](config), kind, True
    return irregular.Unknown(config), kind, False
