"""What the model measures, collected cheaply by the engine's thread and published as Triton metrics by another.

Every update of a Triton metric is a round trip to the server of some 25 microseconds, so the engine's thread only
counts and appends; `MetricsPublisher` carries the values over a few times a second.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["counter", "gauge", "histogram"]
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
GAP_SECONDS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0)
BATCH_SIZES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0)
FINISH_REASONS = ("stop", "length", "cancelled", "error", "rejected")
PUBLISH_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family; all carry the labels model and version."""

    name: str
    kind: Kind
    description: str
    buckets: tuple[float, ...] = ()


FAMILIES: tuple[Family, ...] = (
    Family("inflight_ttft_seconds", "histogram", "From arrival to the first token", SECONDS),
    Family("inflight_itl_seconds", "histogram", "Between two tokens of one answer", GAP_SECONDS),
    Family("inflight_e2e_seconds", "histogram", "From arrival to the end of the answer", SECONDS),
    Family("inflight_queue_seconds", "histogram", "From arrival to a slot", SECONDS),
    Family("inflight_batch_size", "histogram", "Sequences decoded in one engine step", BATCH_SIZES),
    Family("inflight_prompt_tokens_total", "counter", "Prompt tokens of admitted requests"),
    Family("inflight_prompt_tokens_cached_total", "counter", "Of these, those that a slot still held"),
    Family("inflight_generated_tokens_total", "counter", "Tokens generated"),
    Family("inflight_requests_finished_total", "counter", "Requests ended, by reason"),
    Family("inflight_requests_running", "gauge", "Requests in a slot"),
    Family("inflight_requests_waiting", "gauge", "Requests waiting for a slot"),
    Family("inflight_slots", "gauge", "Requests that may run at once"),
    Family("inflight_slots_busy", "gauge", "Slots that serve a request"),
    Family("inflight_kv_tokens_used", "gauge", "Cached tokens of running requests"),
    Family("inflight_kv_tokens_capacity", "gauge", "Tokens that the cache of all slots holds"),
)


@dataclass(slots=True)
class Measures:
    """Figures since the start. Written by the engine's thread (`waiting` and `rejected` by others too)."""

    slots: int
    kv_tokens_capacity: int
    waiting: int = 0
    running: int = 0
    slots_busy: int = 0
    kv_tokens_used: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated: int = 0
    ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISH_REASONS, 0))
    observations: deque[tuple[str, float]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admitted(self, prompt_tokens: int, cached_tokens: int, queue_seconds: float) -> None:
        """A request got a slot."""
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        self.observations.append(("inflight_queue_seconds", queue_seconds))

    def first_token(self, seconds: float) -> None:
        """A request's first token, so long after its arrival."""
        self.observations.append(("inflight_ttft_seconds", seconds))

    def gap(self, seconds: float) -> None:
        """A later token, so long after the one before."""
        self.observations.append(("inflight_itl_seconds", seconds))

    def stepped(self, sequences: int) -> None:
        """One decode of so many sequences."""
        self.observations.append(("inflight_batch_size", float(sequences)))

    def finished(self, reason: str, seconds: float | None = None) -> None:
        """A request ended; `seconds` since its arrival count only for answers that came to their end."""
        with self._lock:
            self.ended[reason] += 1
        if seconds is not None and reason in ("stop", "length"):
            self.observations.append(("inflight_e2e_seconds", seconds))

    def gauges(self) -> Mapping[str, float]:
        """Current values by family."""
        return {
            "inflight_requests_running": self.running,
            "inflight_requests_waiting": self.waiting,
            "inflight_slots": self.slots,
            "inflight_slots_busy": self.slots_busy,
            "inflight_kv_tokens_used": self.kv_tokens_used,
            "inflight_kv_tokens_capacity": self.kv_tokens_capacity,
        }

    def counters(self) -> Mapping[tuple[str, str], int]:
        """Totals by family and reason ("" where there is none)."""
        totals = {
            ("inflight_prompt_tokens_total", ""): self.prompt_tokens,
            ("inflight_prompt_tokens_cached_total", ""): self.cached_tokens,
            ("inflight_generated_tokens_total", ""): self.generated,
        }
        return totals | {
            ("inflight_requests_finished_total", reason): self.ended[reason] for reason in self.ended
        }


class MetricsPublisher:
    """Carries Measures over to Triton. `make(family, labels)` creates one metric with increment, set and observe."""

    def __init__(
        self,
        measures: Measures,
        make: Callable[[Family, dict[str, str]], Any],
        labels: dict[str, str],
        log: Callable[[str], None] = print,
    ) -> None:
        self._measures = measures
        self._log = log
        self._plain = {
            family.name: make(family, labels)
            for family in FAMILIES
            if family.name != "inflight_requests_finished_total"
        }
        ended = next(family for family in FAMILIES if family.name == "inflight_requests_finished_total")
        self._ended = {reason: make(ended, labels | {"reason": reason}) for reason in FINISH_REASONS}
        self._sent: dict[Any, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llamacpp-metrics", daemon=True)

    def start(self) -> None:
        """Publish the first values and start the thread."""
        self.publish()
        self._thread.start()

    def stop(self) -> None:
        """Publish once more and join."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        said = ""
        while True:
            stopping = self._stop.wait(PUBLISH_SECONDS)
            try:
                self.publish()
            except Exception as error:
                # The server may be busy leaving; answers must go on, and the reason is worth one line.
                if said != (said := repr(error)):
                    self._log(f"metrics could not be published: {said}")
            if stopping:
                return

    def publish(self) -> None:
        """Send what changed since the last time.

        Gauges are read first and sent last: whoever reads that nothing runs finds everything before it counted.
        """
        gauges = self._measures.gauges()
        observations = self._measures.observations
        while observations:
            name, value = observations.popleft()
            self._plain[name].observe(value)
        for (name, reason), total in self._measures.counters().items():
            grown = total - self._sent.get((name, reason), 0)
            if grown > 0:
                (self._ended[reason] if reason else self._plain[name]).increment(grown)
                self._sent[name, reason] = total
        for name, value in gauges.items():
            if self._sent.get(name) != value:
                self._plain[name].set(value)
                self._sent[name] = value
