"""Names under which our own /metrics shows samples of the vocabulary."""

from __future__ import annotations

# inflight_ alone is the prefix of the embedded model's own families.
PREFIX = "inflight_telemetry_"
