"""Figures of builds in one place (DESIGN.md 5)."""

from __future__ import annotations

LEASE_SECONDS = 40.0
RENEW_EVERY_SECONDS = 5.0
# A worker that could not renew for this long ends its own tree; by the monotonic clock, before the lease runs out.
GIVE_UP_AFTER_SECONDS = 30.0
# A queued build that was not sent for this long is sent again.
RESEND_AFTER_SECONDS = 10.0
# A message that waits longer than this has been sent again, and is dropped.
MESSAGE_LIFE_SECONDS = 25.0
# A build that was sent and is not taken for this long says so: its slot's worker does not run or is deaf.
UNCLAIMED_AFTER_SECONDS = 30.0
# Infrastructure failures are retried this often; configuration failures never.
MAX_RETRIES = 2
# Progress is written at most this often.
PROGRESS_EVERY_SECONDS = 0.5
RUN_BUILD = "workers.run_build"
