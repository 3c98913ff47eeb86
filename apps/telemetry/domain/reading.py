"""One scrape of one server, in whichever dialects it speaks."""

from __future__ import annotations

from dataclasses import dataclass

from apps.telemetry.domain.dialects import dcgm, llamacpp, triton, trtllm_backend, trtllm_serve, vllm
from apps.telemetry.domain.figures import Figures
from apps.telemetry.domain.prometheus import Exposition

# In this order: what an engine says of itself wins, Triton fills what is left open.
_ENGINES = (llamacpp, trtllm_backend, trtllm_serve, vllm)
DIALECTS = (*_ENGINES, triton, dcgm)

# Families that the readings use; everything else in an exposition is passed over.
WANTED: frozenset[str] = frozenset().union(*(dialect.WANTED for dialect in DIALECTS))

# What Triton says of a python model that takes a request at once and answers later is not what the names say.
_HANDED_OVER = ("request_ms", "queue_ms", "base_requests")
_LATE = (llamacpp, vllm)


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of one scrape at `at` (monotonic seconds). `dialects` names those that were heard.

    `moved_at` is when an iteration counter last changed, as far as readings go back; None where none is told.
    """

    at: float
    figures: Figures
    dialects: tuple[str, ...] = ()
    moved_at: float | None = None


def read(exposition: Exposition, at: float) -> Reading:
    """Take the figures out of one exposition."""
    found = Figures()
    heard = []
    late = False
    for dialect in DIALECTS:
        told = dialect.read(exposition)
        if told is None:
            continue
        heard.append(dialect.__name__.rsplit(".", 1)[-1])
        if dialect is triton and late:
            _drop_hand_over(told, found)
        found.fill(told)
        late = late or dialect in _LATE
    return Reading(at, found, tuple(heard), at if found.progress else None)


def _drop_hand_over(told: Figures, engine: Figures) -> None:
    """Of Triton's figures keep those that an asynchronous python model does not falsify."""
    for name in _HANDED_OVER:
        told.counters.pop(name, None)
    if "requests" in engine.counters:
        # Its own ends count everything once already.
        for name in [name for name in told.counters if name.startswith("ended/")]:
            del told.counters[name]
