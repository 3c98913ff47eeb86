"""llama.cpp in process: one model, one context with a KV cache of `slots` sequences, decoded step by step.

`Runtime` is what the engine needs of it; tests give another one. Only the engine's thread may decode or touch
the cache; tokenising is safe from any thread.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import llamacpp_abi as abi
import numpy as np
import numpy.typing as npt
from llamacpp_errors import EngineFailure, EngineLoadError
from llamacpp_settings import KV_CACHE_TYPES, Settings

Logits = npt.NDArray[np.float32]
GGUF_MAGIC = b"GGUF"
# What llama.cpp says of the memory that it takes; apps/engines/domain/memory/measured.py reads these lines.
SIZES = (b" buffer size ", b"llama_kv_cache: size ")


@dataclass(frozen=True, slots=True)
class Entry:
    """One token of a step: at `position` of sequence `sequence`; `wants_logits` for the next token's choice."""

    token: int
    position: int
    sequence: int
    wants_logits: bool


class Runtime(Protocol):
    """What the engine needs. Sequences are numbered from 0 to slots - 1."""

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""

    def tokenize(self, text: str, special: bool = True) -> list[int]:
        """Ids of a prompt, the template's markers as their tokens.

        `special` puts one BOS first where the model wants one.
        """

    def piece(self, token: int) -> bytes:
        """Bytes of a token; empty for control tokens, so that no marker is ever shown."""

    def decode(self, entries: Sequence[Entry]) -> list[Logits]:
        """One step. Returns a row of logits (valid until the next step) for each entry that wants one, in order.

        Raises EngineFailure.
        """

    def forget(self, sequence: int, start: int) -> int:
        """Drop a sequence's cache from position `start` on; returns how many positions are really left.

        Recurrent states and sliding windows cannot be cut: then nothing is left.
        """

    def copy(self, source: int, target: int) -> None:
        """Make the cache of `target` equal to that of `source`."""

    def close(self) -> None:
        """Free everything."""


class LlamaRuntime:
    """The real one. Raises EngineLoadError, with llama.cpp's own words, when the file cannot be served."""

    def __init__(self, settings: Settings) -> None:
        check_file(settings.gguf_path)
        self._said: deque[str] = deque(maxlen=12)
        self._library = abi.open_library()
        # Kept on self: ctypes does not hold a callback that C keeps.
        self._log = abi.LogCallback(self._hear)
        self._library.llama_log_set(self._log, None)
        self._library.llama_backend_init()
        self._model: int | None = self._load(settings)
        self._context: int | None = self._open_context(settings)
        self._memory = self._library.llama_get_memory(self._context)
        self._vocabulary = self._library.llama_model_get_vocab(self._model)
        self._size = int(self._library.llama_vocab_n_tokens(self._vocabulary))
        self._check_bytes(settings.gguf_path)
        self._end_ids = frozenset(
            token for token in range(self._size) if self._library.llama_vocab_is_eog(self._vocabulary, token)
        )
        self._bos = int(self._library.llama_vocab_bos(self._vocabulary))
        self._add_bos = bool(self._library.llama_vocab_get_add_bos(self._vocabulary)) and self._bos >= 0
        self._pieces: dict[int, bytes] = {}
        self._prepare_batch(step_tokens(settings))
        self._in_a_thread(self._warm_up)

    @staticmethod
    def _in_a_thread(work: Callable[[], None]) -> None:
        """Run `work` in a thread of its own and raise what it raises.

        OpenMP gives every thread that computes a pool of its own, which lives as long as that thread does. With the
        pool of the loading thread beside the engine's there are more threads than cores, and libgomp then sleeps at
        each barrier in place of spinning: half of the speed was lost to that.
        """
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="llamacpp-load") as pool:
            pool.submit(work).result()

    @property
    def vocabulary_size(self) -> int:
        return self._size

    @property
    def end_ids(self) -> frozenset[int]:
        return self._end_ids

    def tokenize(self, text: str, special: bool = True) -> list[int]:
        data = text.encode()
        # A token has at least one byte, but for a prefix space and markers that some vocabularies add.
        room = len(data) + 16
        ids = (ctypes.c_int32 * room)()
        count = self._library.llama_tokenize(self._vocabulary, data, len(data), ids, room, False, True)
        if count < 0:
            raise EngineFailure(f"The prompt's {len(data):,} bytes cannot be tokenised.")
        tokens = list(ids[:count])
        if special and self._add_bos and tokens[:1] != [self._bos]:
            tokens.insert(0, self._bos)
        return tokens

    def piece(self, token: int) -> bytes:
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._read_piece(token)
        return known

    def _read_piece(self, token: int) -> bytes:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            size = self._library.llama_token_to_piece(self._vocabulary, token, buffer, room, 0, False)
            if size >= 0:
                return buffer.raw[:size]
            room = -size

    def decode(self, entries: Sequence[Entry]) -> list[Logits]:
        count = len(entries)
        self._tokens[:count] = [entry.token for entry in entries]
        self._positions[:count] = [entry.position for entry in entries]
        self._sequences[:count] = [entry.sequence for entry in entries]
        self._wants[:count] = [entry.wants_logits for entry in entries]
        self._batch.n_tokens = count
        code = self._library.llama_decode(self._context, self._batch)
        # On a GPU the step may still run; waiting here leaves Python's lock to the other threads.
        self._library.llama_synchronize(self._context)
        if code != 0:
            raise EngineFailure(
                f"llama.cpp could not decode a step of {count} tokens (code {code}). {self._words()}"
            )
        return [self._row(index) for index, entry in enumerate(entries) if entry.wants_logits]

    def _row(self, index: int) -> Logits:
        address = self._library.llama_get_logits_ith(self._context, index)
        if not address:
            raise EngineFailure(f"llama.cpp gave no logits for token {index} of a step. {self._words()}")
        memory = memoryview((ctypes.c_float * self._size).from_address(address))
        row: Logits = np.frombuffer(memory, dtype=np.float32)
        return row

    def forget(self, sequence: int, start: int) -> int:
        if start > 0 and self._library.llama_memory_seq_rm(self._memory, sequence, start, -1):
            return start
        self._library.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return 0

    def copy(self, source: int, target: int) -> None:
        self._library.llama_memory_seq_rm(self._memory, target, -1, -1)
        self._library.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def close(self) -> None:
        if self._context:
            self._library.llama_free(self._context)
            self._context = None
        if self._model:
            self._library.llama_model_free(self._model)
            self._model = None
        # Nothing of llama.cpp may call into Python from here on.
        self._library.llama_log_set(abi.LogCallback(), None)

    def _load(self, settings: Settings) -> int:
        params = self._library.llama_model_default_params()
        params.n_gpu_layers = settings.gpu_layers if settings.gpu_layers >= 0 else 1_000_000
        model = self._library.llama_model_load_from_file(settings.gguf_path.encode(), params)
        if not model:
            raise EngineLoadError(f"llama.cpp cannot load {settings.gguf_path}. {self._words()}")
        if self._library.llama_model_has_encoder(model) or not self._library.llama_model_has_decoder(model):
            raise EngineLoadError(f"{settings.gguf_path} is no decoder-only model; only those are served.")
        return int(model)

    def _open_context(self, settings: Settings) -> int:
        params = self._library.llama_context_default_params()
        params.n_ctx = settings.kv_capacity_tokens
        params.n_seq_max = settings.slots
        params.n_batch = params.n_ubatch = step_tokens(settings)
        params.n_outputs_max = settings.slots
        params.n_threads = params.n_threads_batch = settings.threads
        params.type_k = params.type_v = KV_CACHE_TYPES[settings.kv_cache_type]
        params.flash_attn_type = (
            abi.FLASH_ATTENTION_ON if settings.flash_attention else abi.FLASH_ATTENTION_OFF
        )
        context = self._library.llama_init_from_model(self._model, params)
        if not context:
            raise EngineLoadError(
                f"llama.cpp cannot reserve {settings.slots} slots of {settings.context_per_slot} tokens; "
                f"lower slots or context_per_slot. {self._words()}"
            )
        per_sequence = int(self._library.llama_n_ctx_seq(context))
        if per_sequence < settings.context_per_slot:
            raise EngineLoadError(
                f"llama.cpp reserved {per_sequence} tokens for a slot instead of {settings.context_per_slot}."
            )
        return int(context)

    def _check_bytes(self, path: str) -> None:
        """A sentencepiece vocabulary must have a token for every byte: llama.cpp aborts at the first it lacks."""
        if self._library.llama_vocab_type(self._vocabulary) != abi.SENTENCEPIECE:
            return
        text = self._library.llama_vocab_get_text
        known = {text(self._vocabulary, token) for token in range(self._size)}
        if any(b"<0x%02X>" % byte not in known and bytes([byte]) not in known for byte in range(256)):
            raise EngineLoadError(
                f"The vocabulary of {path} has no token for some bytes; not every text can be read."
            )

    def _prepare_batch(self, most: int) -> None:
        self._tokens = np.zeros(most, dtype=np.int32)
        self._positions = np.zeros(most, dtype=np.int32)
        self._counts = np.ones(most, dtype=np.int32)
        self._sequences = np.zeros(most, dtype=np.int32)
        self._wants = np.zeros(most, dtype=np.int8)
        first = self._sequences.ctypes.data
        self._sequence_pointers = np.arange(first, first + 4 * most, 4, dtype=np.uint64)
        self._batch = abi.Batch(
            n_tokens=0,
            token=self._tokens.ctypes.data,
            embd=None,
            pos=self._positions.ctypes.data,
            n_seq_id=self._counts.ctypes.data,
            seq_id=self._sequence_pointers.ctypes.data,
            logits=self._wants.ctypes.data,
        )

    def _warm_up(self) -> None:
        """Decode one token: pages of the file come into memory, and an engine that cannot decode fails here."""
        token = self._bos if self._bos >= 0 else 0
        try:
            rows = self.decode([Entry(token, 0, 0, True)])
        except EngineFailure as error:
            raise EngineLoadError(f"The engine loads but cannot decode: {error}") from error
        if not np.isfinite(rows[0]).all():
            raise EngineLoadError(
                "The engine's first logits are not finite numbers; its weights are damaged."
            )
        self._library.llama_memory_clear(self._memory, True)

    def _hear(self, level: int, text: bytes | None, _: Any) -> None:
        if level in (abi.LOG_WARNING, abi.LOG_ERROR) and text:
            line = text.decode(errors="replace").strip()
            self._said.append(line)
            print(f"llama.cpp: {line}", file=sys.stderr, flush=True)
        elif level == abi.LOG_INFO and text and any(part in text for part in SIZES):
            print(f"llama.cpp: {text.decode(errors='replace').strip()}", file=sys.stderr, flush=True)

    def _words(self) -> str:
        """The last warnings and errors of llama.cpp, for a person to read."""
        words = " ".join(line for line in self._said if line)
        return f"llama.cpp says: {words}" if words else "llama.cpp gave no reason."


def step_tokens(settings: Settings) -> int:
    """The most tokens of one step: the prompt share and one token for each running sequence."""
    return settings.prefill_tokens_per_step + settings.slots


def check_file(path: str) -> None:
    """Refuse what is no GGUF file before llama.cpp reads it. Raises EngineLoadError."""
    try:
        with open(path, "rb") as handle:
            magic = handle.read(len(GGUF_MAGIC))
    except OSError as error:
        raise EngineLoadError(
            f"The engine {path} cannot be read: {os.strerror(error.errno or 0)}."
        ) from error
    if magic != GGUF_MAGIC:
        raise EngineLoadError(f"The engine {path} is no GGUF file (it begins with {magic!r}).")
