"""What a client is told when it may not go on: which limit, and when to come again."""

from __future__ import annotations

import math


class Refused(Exception):
    """A request that is not admitted.

    `status` 429 for a limit of the client's own, 503 where the route is overloaded, 400 where it can never be
    admitted. `code` and `limit_name` are stable words (`key.requests_per_minute`, `queue`), `retry_after_seconds` a
    whole number for the header, None where waiting does not help.
    """

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        *,
        limit_name: str = "",
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.sentence = sentence
        self.limit_name = limit_name
        self.retry_after_seconds = (
            None if retry_after_seconds is None else max(1, math.ceil(retry_after_seconds))
        )
