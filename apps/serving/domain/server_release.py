"""Releases of Triton, and what its model configuration knows since or until one of them.

Source: the release notes from 24.10 to 26.08, and the embedded 24.10 itself (tests/serving/server_rules).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import ModelConfig

from apps.core.exceptions import Finding

# Year and month, as in the names of the containers.
Release = tuple[int, int]
EMBEDDED: Release = (24, 10)
# The release whose source the rules were read in.
REFERENCE: Release = (26, 7)


@dataclass(frozen=True, slots=True)
class Span:
    """When a rule holds: from `since` on (null: always did), before `until` (null: still does)."""

    since: Release | None = None
    until: Release | None = None

    def holds(self, release: Release | None) -> bool:
        """Whether it holds for a release; one that is not known is taken for the reference's."""
        at = release or REFERENCE
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@dataclass(frozen=True, slots=True)
class Word:
    """A field or word of the configuration that not every release knows."""

    where: str
    span: Span
    remedy: str


MAX_INFLIGHT = Word(
    "ensemble_scheduling.max_inflight_requests", Span(since=(25, 11)), "Remove it, or use 25.11 or newer."
)
MODEL_METRICS = Word("model_metrics", Span(since=(24, 11)), "Remove it, or use 24.11 or newer.")
# 24.10 takes them for platforms and misses the backend; the reference's list, of 26.07, has them no more.
TENSORFLOW = Word("platform", Span(until=(26, 1)), "Convert the model to ONNX.")
TENSORFLOW_PLATFORMS = frozenset({"tensorflow_graphdef", "tensorflow_savedmodel"})
WORDS = (MAX_INFLIGHT, MODEL_METRICS, TENSORFLOW)


def of_version(version: str) -> Release | None:
    """The release of a server version, as (24, 10) of "2.51.0"; None for what is no version of one that we know.

    Releases of 2025 skipped a number once, so those from 2.54 to 2.62 may be taken for one month too old.
    """
    parts = version.split(".")
    if len(parts) < 2 or parts[0] != "2" or not parts[1].isdigit():
        return None
    minor = int(parts[1])
    if minor >= 65:
        return (26, minor - 64)
    if minor >= 63:
        return (25, minor - 52)
    return (25, minor - 53) if minor >= 54 else (24, minor - 41) if minor >= 42 else None


def findings(config: ModelConfig, release: Release | None) -> Iterator[Finding]:
    """What this release of the server does not know, as errors."""
    used = []
    if config.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        used += [MAX_INFLIGHT] if config.ensemble_scheduling.max_inflight_requests else []
    used += [MODEL_METRICS] if config.HasField("model_metrics") else []
    used += [TENSORFLOW] if config.platform in TENSORFLOW_PLATFORMS else []
    for word in used:
        if not word.span.holds(release):
            year, month = release or REFERENCE
            message = f"Triton {year}.{month:02} does not know {word.where} as it is used here."
            yield Finding("not_in_this_release", "error", message, word.where, word.remedy)
