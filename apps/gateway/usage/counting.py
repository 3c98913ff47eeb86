"""Adding requests up: one set of counts for each hour, key and route."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from http import HTTPStatus

from apps.gateway.domain.facts import RequestRecord

# Upper bounds of the TTFT histogram in ms; each has a column ttft_<bound>, and ttft_more is beyond them.
TTFT_BOUNDS = (50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600)
TTFT_COLUMNS = (*(f"ttft_{bound}" for bound in TTFT_BOUNDS), "ttft_more")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a request is counted. `key_id` 0: no key was known; `route` empty: no such route."""

    hour: datetime
    key_id: int
    route: str
    key_name: str

    @classmethod
    def of(cls, record: RequestRecord) -> Place:
        """The place of a record, by the hour in which the request began."""
        hour = datetime.fromtimestamp(record.at, UTC).replace(minute=0, second=0, microsecond=0)
        # A client may send any text as the model: only what was a route is a place of its own.
        known = record.key_id is not None and record.status != HTTPStatus.NOT_FOUND
        return cls(hour, record.key_id or 0, record.route[:63] if known else "", record.key_name[:100])


@dataclass(slots=True)
class Counts:
    """Sums of one place; the names are the columns of UsageHour. Tokens that nobody told count as none."""

    requests: int = 0
    errors: int = 0
    refused: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    queue_ms: int = 0
    ttft_ms: int = 0
    ttft_count: int = 0
    ttft_50: int = 0
    ttft_100: int = 0
    ttft_200: int = 0
    ttft_400: int = 0
    ttft_800: int = 0
    ttft_1600: int = 0
    ttft_3200: int = 0
    ttft_6400: int = 0
    ttft_12800: int = 0
    ttft_25600: int = 0
    ttft_more: int = 0

    def add(self, record: RequestRecord) -> None:
        """Count one request."""
        self.requests += 1
        self.errors += record.outcome in ("error", "interrupted")
        self.refused += record.outcome == "refused"
        self.cancelled += record.outcome == "cancelled"
        self.prompt_tokens += record.prompt_tokens or 0
        self.completion_tokens += record.completion_tokens or 0
        self.cached_tokens += record.cached_tokens or 0
        self.queue_ms += round((record.queue_seconds or 0.0) * 1000)
        if record.ttft_seconds is not None:
            milliseconds = record.ttft_seconds * 1000
            self.ttft_ms += round(milliseconds)
            self.ttft_count += 1
            column = next(
                (f"ttft_{bound}" for bound in TTFT_BOUNDS if milliseconds <= bound), TTFT_COLUMNS[-1]
            )
            setattr(self, column, getattr(self, column) + 1)

    def changes(self) -> dict[str, int]:
        """Column -> how much it grows, without those that do not."""
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name))}
