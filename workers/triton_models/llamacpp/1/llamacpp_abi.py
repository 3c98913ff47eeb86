"""ctypes declarations of the part of llama.h that this model uses, for the release of xllamacpp in the lock.

xllamacpp's own Server class opens an HTTP port, blocks one thread for each request, hides how many sequences one
step decoded and cannot cancel a request that waits. Its extension module exports llama.cpp's C interface, so the
model drives that itself. The price is a struct layout: two structs go by value, and their layout belongs to one
release. `open_library` compares the defaults that the library fills in with the known ones, field by field, before
anything else is called, and refuses a library that differs.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_float,
    c_int32,
    c_uint8,
    c_uint32,
    c_void_p,
)
from pathlib import Path
from typing import Any

from llamacpp_errors import EngineLoadError

PACKAGE = "xllamacpp"
# Turns of libgomp's waiting loop before a thread sleeps.
SPINS = "1000"
# LLAMA_FLASH_ATTN_TYPE_*
FLASH_ATTENTION_OFF, FLASH_ATTENTION_ON = 0, 1
# LLAMA_VOCAB_TYPE_SPM
SENTENCEPIECE = 1
# Levels of ggml_log_level; continued lines have level 5.
LOG_INFO, LOG_WARNING, LOG_ERROR = 2, 3, 4

LogCallback = CFUNCTYPE(None, c_int32, c_char_p, c_void_p)


class ModelParams(Structure):
    """llama_model_params. The tail leaves room for fields that a release may add at the end."""

    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("lazy_mode", c_int32),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("flags", c_uint8 * 6),
        ("tail", c_uint8 * 130),
    )


class ContextParams(Structure):
    """llama_context_params."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("reserved", c_void_p),
        ("flags", c_uint8 * 6),
        ("tail", c_uint8 * 250),
    )


class Batch(Structure):
    """llama_batch."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", c_void_p),
        ("embd", c_void_p),
        ("pos", c_void_p),
        ("n_seq_id", c_void_p),
        ("seq_id", c_void_p),
        ("logits", c_void_p),
    )


# What the library of the locked release fills in, from its own code; flags in the order of its struct.
MODEL_DEFAULTS: dict[str, Any] = {
    "devices": None,
    "tensor_buft_overrides": None,
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "lazy_mode": 1,
    "main_gpu": 0,
    "tensor_split": None,
    "progress_callback": None,
    "progress_callback_user_data": None,
    "kv_overrides": None,
    "flags": (0, 0, 1, 0, 0, 0),
}
CONTEXT_DEFAULTS: dict[str, Any] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_rs_seq": 0,
    "n_outputs_max": 0,
    "n_outputs_max_per_seq": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "ctx_type": 0,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "rope_freq_base": 0.0,
    "rope_freq_scale": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": -1.0,
    "yarn_beta_fast": -1.0,
    "yarn_beta_slow": -1.0,
    "yarn_orig_ctx": 0,
    "defrag_thold": -1.0,
    "cb_eval": None,
    "cb_eval_user_data": None,
    "type_k": 1,
    "type_v": 1,
    "abort_callback": None,
    "abort_callback_data": None,
    "reserved": None,
    "flags": (0, 1, 1, 1, 1, 0),
}

SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (LogCallback, c_void_p)),
    "llama_model_default_params": (ModelParams, ()),
    "llama_context_default_params": (ContextParams, ()),
    "llama_model_load_from_file": (c_void_p, (c_char_p, ModelParams)),
    "llama_model_free": (None, (c_void_p,)),
    "llama_init_from_model": (c_void_p, (c_void_p, ContextParams)),
    "llama_free": (None, (c_void_p,)),
    "llama_n_ctx_seq": (c_uint32, (c_void_p,)),
    "llama_model_has_decoder": (c_bool, (c_void_p,)),
    "llama_model_has_encoder": (c_bool, (c_void_p,)),
    "llama_model_get_vocab": (c_void_p, (c_void_p,)),
    "llama_vocab_n_tokens": (c_int32, (c_void_p,)),
    "llama_vocab_type": (c_int32, (c_void_p,)),
    "llama_vocab_get_text": (c_char_p, (c_void_p, c_int32)),
    "llama_vocab_bos": (c_int32, (c_void_p,)),
    "llama_vocab_get_add_bos": (c_bool, (c_void_p,)),
    "llama_vocab_is_eog": (c_bool, (c_void_p, c_int32)),
    "llama_tokenize": (c_int32, (c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool)),
    "llama_token_to_piece": (c_int32, (c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool)),
    "llama_get_memory": (c_void_p, (c_void_p,)),
    "llama_memory_clear": (None, (c_void_p, c_bool)),
    "llama_memory_seq_rm": (c_bool, (c_void_p, c_int32, c_int32, c_int32)),
    "llama_memory_seq_cp": (None, (c_void_p, c_int32, c_int32, c_int32, c_int32)),
    "llama_synchronize": (None, (c_void_p,)),
    "llama_decode": (c_int32, (c_void_p, Batch)),
    "llama_get_logits_ith": (c_void_p, (c_void_p, c_int32)),
}


def find_library() -> Path:
    """The extension module of the installed xllamacpp. Raises EngineLoadError where there is none."""
    found = importlib.util.find_spec(PACKAGE)
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in sorted(Path(folder).glob(f"{PACKAGE}*.so")):
            return path
    raise EngineLoadError(
        f"The package {PACKAGE} is not installed in the Python that runs this model; install the serving environment."
    )


def open_library(path: Path | None = None) -> Any:
    """Load llama.cpp, declare what is used and check the struct layouts. Raises EngineLoadError."""
    path = path or find_library()
    # OpenMP's threads meet at barriers hundreds of times in a step. By libgomp's default they spin there for
    # milliseconds: where another program wants a core, the thread that spins runs and the one that works waits.
    # Without spinning they sleep at each barrier, which makes a lone request half as fast on an idle machine.
    # Spinning for some ten microseconds keeps the speed of both (figures: docs/llamacpp-model.md).
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    try:
        library: Any = ctypes.CDLL(str(path))
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        # Called for every token: giving Python's lock away for a pointer would hand it to the sending thread.
        quick = ctypes.PyDLL(str(path)).llama_get_logits_ith
        quick.restype, quick.argtypes = SIGNATURES["llama_get_logits_ith"]
        library.llama_get_logits_ith = quick
    except (OSError, AttributeError) as error:
        raise EngineLoadError(f"{path.name} cannot be used as llama.cpp: {error}.") from error
    check_layout("llama_model_params", library.llama_model_default_params(), MODEL_DEFAULTS)
    check_layout("llama_context_params", library.llama_context_default_params(), CONTEXT_DEFAULTS)
    return library


def check_layout(name: str, values: Structure, expected: dict[str, Any]) -> None:
    """Compare a struct of defaults with the known ones; a moved field shows as a wrong value."""
    for field, wanted in expected.items():
        found = getattr(values, field)
        found = tuple(found) if isinstance(wanted, tuple) else found
        if found != wanted:
            raise EngineLoadError(
                f"This release of {PACKAGE} lays out {name} in another way ({field} is {found!r}, not {wanted!r}). "
                "Install the release that requirements/serving-binaries.lock names."
            )
