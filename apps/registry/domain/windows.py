"""Which layers see only a window of the tokens before, by the switches that the families have."""

from __future__ import annotations

from apps.registry.domain.config_view import MOST_LAYERS, MOST_TOKENS, Config
from apps.registry.domain.families.base import Family
from apps.registry.domain.model_facts import MixedWindow

SLIDING = frozenset({"sliding_attention", "sliding", "local", "local_attention"})
CHUNKED = frozenset({"chunked_attention"})
# Qwen2Config: the first of the windowed layers where the file does not say.
MAX_WINDOW_LAYERS = 28


def layer_windows(family: Family, kinds: list[str] | None) -> tuple[int | None, ...] | int | None:
    """The window of each layer; one number (or None) for all where the number of layers is not known."""
    config = family.config
    chunk = config.whole("attention_chunk_size", most=MOST_TOKENS)
    window = _window(family)
    if kinds is None:
        return window
    attending = [kind in ("attention", "mla") for kind in kinds]
    listed = _listed(family, window, chunk, len(kinds))
    if listed is None:
        listed = _by_rule(family, window, chunk, len(kinds))
    return tuple(found if attends else None for found, attends in zip(listed, attending, strict=True))


def summary(windows: tuple[int | None, ...] | int | None, attending: int) -> int | MixedWindow | None:
    """The window of a model: one number where all its attention layers have it, else how many layers do."""
    if windows is None or isinstance(windows, int):
        return windows
    found = [window for window in windows if window is not None]
    if not found:
        return None
    if len(found) == attending and len(set(found)) == 1:
        return found[0]
    return MixedWindow(full_layers=attending - len(found), windowed_layers=len(found), window=max(found))


def _window(family: Family) -> int | None:
    """The window where it is switched on; what a switch turns off is not even read."""
    config = family.config
    switch = config.flag("use_sliding_window")
    if switch is False or (family.window_flag and not switch):
        return None
    window = config.whole(*family.window_names, most=MOST_TOKENS)
    if switch and window is None and not isinstance(config.get("layer_types"), list):
        config.say(
            "sliding_window_missing",
            "error",
            f"{config.where}use_sliding_window is true, but sliding_window is "
            f"{'null' if config.get('sliding_window') is None else 'no positive number'}.",
            "sliding_window",
            "State sliding_window in tokens, or switch use_sliding_window off.",
        )
    return window


def _listed(family: Family, window: int | None, chunk: int | None, layers: int) -> list[int | None] | None:
    """By the kinds of layers that the file lists."""
    config = family.config
    words = config.words("layer_types")
    if words is None or not SLIDING | CHUNKED & set(words):
        return None
    if len(words) != layers:
        config.say(
            "layer_types_length",
            "warning",
            f"{config.where}layer_types has {len(words)} entries for {layers} layers; it is not used.",
            "layer_types",
            "Give one for each layer.",
        )
        return None
    if window is None and SLIDING & set(words):
        # The list says which layers, the switch of older files does not count beside it.
        window = config.whole("sliding_window", most=MOST_TOKENS)
        if window is None:
            config.say(
                "sliding_window_missing",
                "error",
                f"{config.where}layer_types names sliding layers, but there is no sliding_window.",
                "sliding_window",
                "State sliding_window in tokens.",
            )
    return [window if word in SLIDING else chunk if word in CHUNKED else None for word in words]


def _by_rule(family: Family, window: int | None, chunk: int | None, layers: int) -> list[int | None]:
    config = family.config
    if chunk is not None:
        return _chunked(config, chunk, layers)
    if window is None:
        return [None] * layers
    if family.window_flag:
        first = config.whole("max_window_layers", most=MOST_LAYERS * 16, least=0)
        first = MAX_WINDOW_LAYERS if first is None else first
        return [window if layer >= first else None for layer in range(layers)]
    period = _period(family)
    return [window if period is None or (layer + 1) % period else None for layer in range(layers)]


def _period(family: Family) -> int | None:
    config = family.config
    for name in ("sliding_window_pattern", "_sliding_window_pattern"):
        pattern = config.get(name)
        if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
            return len(pattern)
        if pattern is not None and not isinstance(pattern, str):
            return config.whole(name, most=MOST_LAYERS)
    return family.window_period


def _chunked(config: Config, chunk: int, layers: int) -> list[int | None]:
    """Llama 4: layers with rotary embedding attend in chunks, every fourth has none and sees everything."""
    flags = config.get("no_rope_layers")
    if isinstance(flags, list) and len(flags) == layers:
        return [chunk if flag else None for flag in flags]
    every = config.whole("no_rope_layer_interval", most=MOST_LAYERS) or 4
    return [chunk if (layer + 1) % every else None for layer in range(layers)]
