"""The facts panel of a checkpoint: groups of key-values, and over how many GPUs it may be split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from apps.dashboard import formats
from apps.dashboard.facts import KeyValue, source
from apps.registry.answers import stored_as
from apps.registry.models import Checkpoint

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """A heading and what stands below it."""

    title: str
    rows: list[KeyValue]


@dataclass(frozen=True, slots=True)
class Split:
    """A number of GPUs: whether tensor and pipeline parallelism may use it, and why not."""

    gpus: int
    tensor: str | None
    pipeline: str | None


def groups(row: Checkpoint) -> list[Group]:
    """What is known of a checkpoint; a group without anything known is left out."""
    found: Facts = row.facts
    made = [
        Group(_("Model"), _model(found)),
        Group(_("Attention"), _attention(found)),
        Group(_("Weights"), _weights(found)),
        Group(_("Text"), _text(found, bool(row.chat_template))),
        Group(_("Files"), _files(row)),
    ]
    return [group for group in made if group.rows]


def splits(row: Checkpoint) -> list[Split]:
    """The powers of two up to 64; empty where the rules cannot be applied."""
    found: Facts = row.facts
    tensor, pipeline = found.get("valid_tp"), found.get("valid_pp")
    if not isinstance(tensor, list) or not isinstance(pipeline, list):
        return []
    no_tensor, no_pipeline = found.get("tp_reasons", {}), found.get("pp_reasons", {})
    sizes = {*tensor, *pipeline, *map(int, no_tensor), *map(int, no_pipeline)}
    return [Split(size, no_tensor.get(str(size)), no_pipeline.get(str(size))) for size in sorted(sizes)]


def _known(rows: list[KeyValue]) -> list[KeyValue]:
    return [row for row in rows if row[1] not in (None, "")]


def _model(found: Facts) -> list[KeyValue]:
    moe = found.get("moe") or {}
    active = found.get("active_params") if moe else None
    return _known(
        [
            (_("Family"), found.get("family")),
            (_("Class"), found.get("architecture"), found.get("architecture") or ""),
            (_("Parameters"), _count(found.get("params")), _raw(found.get("params"))),
            (_("Used by one token"), _count(active), _raw(active)),
            (_("For multi-token prediction"), _count(found.get("mtp_params"))),
            (_("Vision and other towers"), _count(found.get("other_params"))),
            (_("Layers"), _layers(found)),
            (_("Hidden size"), _plain(found.get("hidden_size"))),
            (_("Feed-forward width"), _plain(found.get("intermediate_size"))),
            (_("Experts"), _experts(moe)),
            (_("Vocabulary"), _unit(found.get("vocab_size"), _("tokens"))),
        ]
    )


def _attention(found: Facts) -> list[KeyValue]:
    mla = found.get("mla") or {}
    latent = None
    if mla:
        latent = _("%(rank)s values and %(rope)s rotary ones, for all heads") % {
            "rank": _plain(mla.get("kv_lora_rank")),
            "rope": _plain(mla.get("qk_rope_head_dim")),
        }
    per_token = found.get("kv_bytes_per_token")
    return _known(
        [
            (_("Heads"), _plain(found.get("num_attention_heads"))),
            (_("KV heads"), _plain(found.get("num_kv_heads")) if not mla else None),
            (_("Head size"), _plain(found.get("head_dim"))),
            (_("Latent"), latent),
            (_("Context length"), _unit(found.get("max_position_embeddings"), _("tokens"))),
            (_("Window"), _window(found)),
            (_("Positions"), _positions(found)),
            (_("KV cache per token"), _unit(per_token, "B"), _raw(per_token)),
            (_("State per sequence"), _bytes(found.get("state_bytes_per_sequence"))),
        ]
    )


def _weights(found: Facts) -> list[KeyValue]:
    quantization = found.get("quantization") or {}
    bits = quantization.get("bits_per_weight")
    block = quantization.get("block_size")
    group = quantization.get("group_size")
    tied = found.get("tied_embeddings")
    return _known(
        [
            (_("Stored as"), stored_as(found)),
            (_("Model's dtype"), found.get("dtype")),
            (_("Quantised by"), quantization.get("method")),
            (_("Bits per weight"), f"{bits:.4g}" if bits else None),
            (_("Group"), _unit(group, _("weights"))),
            (_("Block"), f"{block[0]} x {block[1]}" if block else None),
            (_("KV cache dtype"), quantization.get("kv_cache_dtype")),
            (_("Bytes of weights"), _bytes(found.get("weights_bytes")), _raw(found.get("weights_bytes"))),
            (_("Tensors"), _plain(found.get("tensors"))),
            (_("Embeddings"), None if tied is None else _("tied") if tied else _("not tied")),
        ]
    )


def _text(found: Facts, template: bool) -> list[KeyValue]:
    ends = found.get("eos_token_ids") or []
    numbers = ", ".join(map(str, ends))
    rows = _known(
        [
            (_("Tokenizer"), found.get("tokenizer")),
            (_("First token"), _token(found.get("bos_token"), found.get("bos_token_id"))),
            (_("Last token"), _token(found.get("eos_token"), numbers)),
        ]
    )
    return [*rows, (_("Chat template"), _("yes") if template else _("no"))] if found else rows


def _files(row: Checkpoint) -> list[KeyValue]:
    return _known(
        [
            (_("Size"), _bytes(row.size_bytes), _raw(row.size_bytes)),
            (_("Source"), source(row.source), source(row.source)),
            (_("Commit"), row.commit[:12], row.commit),
            (_("Path"), row.path, row.path),
            (_("SHA-256"), row.sha256, row.sha256),
        ]
    )


def _layers(found: Facts) -> str | None:
    kinds = found.get("layer_kinds") or []
    names = {
        "attention": _("attention"),
        "mla": _("latent attention"),
        "linear": _("linear attention"),
        "mamba": _("state space"),
        "mlp": _("feed-forward"),
        "cross_attention": _("cross-attention"),
    }
    counted = {name: kinds.count(kind) for kind, name in names.items() if kind in kinds}
    total = _plain(found.get("num_layers"))
    if len(counted) < 2:
        return total
    return f"{total} ({', '.join(f'{count} {name}' for name, count in counted.items())})"


def _experts(moe: Facts) -> str | None:
    if not moe:
        return None
    used, width = moe.get("experts_per_token"), _plain(moe.get("moe_intermediate_size"))
    parts = [str(moe["num_experts"])]
    if used:
        parts.append(_("%(used)s used") % {"used": used})
    if width:
        parts.append(_("each %(width)s wide") % {"width": width})
    if moe.get("shared_intermediate_size"):
        parts.append(_("shared: %(width)s wide") % {"width": _plain(moe["shared_intermediate_size"])})
    return ", ".join(parts)


def _window(found: Facts) -> str | None:
    window = found.get("attention_window")
    if isinstance(window, Mapping):
        return _("%(window)s tokens on %(some)s layers, everything on %(full)s") % {
            "window": _plain(window["window"]),
            "some": window["windowed_layers"],
            "full": window["full_layers"],
        }
    return _unit(window, _("tokens"))


def _positions(found: Facts) -> str | None:
    rope = found.get("rope_parameters") or {}
    if not rope:
        return found.get("position_embedding")
    parts = [f"RoPE {rope.get('type')}"]
    if rope.get("theta"):
        parts.append(_("base %(theta)s") % {"theta": formats.grouped(rope["theta"])})
    if rope.get("factor"):
        parts.append(_("factor %(factor)s") % {"factor": f"{rope['factor']:g}"})
    if rope.get("original_max_position_embeddings"):
        original = _plain(rope["original_max_position_embeddings"])
        parts.append(_("from %(original)s tokens") % {"original": original})
    return ", ".join(parts)


def _token(text: str | None, number: object) -> str | None:
    shown = "" if number in (None, "") else f"{number}"
    return " ".join(part for part in (text or "", f"({shown})" if shown else "") if part) or None


def _plain(value: float | None) -> str | None:
    return None if value is None else formats.grouped(value)


def _unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{formats.grouped(value)} {unit}"


def _count(value: float | None) -> str | None:
    return None if not value else f"{formats.count(value)} ({formats.grouped(value)})"


def _bytes(value: float | None) -> str | None:
    return None if value is None else str(formats.filesize(value))


def _raw(value: float | None) -> str:
    return "" if value is None else str(value)
