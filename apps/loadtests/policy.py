"""Figures of load tests in one place."""

from __future__ import annotations

from apps.engines.policy import LEASE_SECONDS as LEASE_SECONDS
from apps.engines.policy import MAX_RETRIES as MAX_RETRIES
from apps.engines.policy import MESSAGE_LIFE_SECONDS as MESSAGE_LIFE_SECONDS
from apps.engines.policy import RESEND_AFTER_SECONDS as RESEND_AFTER_SECONDS

RUN_LOAD = "workers.run_load"
RUN_QUALITY = "workers.run_quality"
# A queued run that was sent and is not taken for this long says so.
UNCLAIMED_AFTER_SECONDS = 30.0
# Clients that anybody may send against one slot of the target: enough to fill it and its queue, not more.
CLIENTS_A_SLOT = 4
# The most requests under way of an open loop are not known; a rate beyond this needs an administrator.
FREE_RATE = 1000.0
# Live points that a row keeps: the newest ones while it runs, thinned out evenly.
SERIES_POINTS = 300
SERIES_EVERY_SECONDS = 2.0
# After a safe stop the generator may take so long to sum up; then it is ended.
STOP_SECONDS = 60.0
# Added to the longest time that a scenario allows itself.
DEADLINE_MARGIN_SECONDS = 300.0
# How long a study waits for its servers.
PREPARE_SECONDS = 900.0
MOST_ARMS, MOST_REPEATS = 12, 20
# Repeats of a comparison unless told otherwise: six find 10% on a quiet machine (benchmarks/verdict.py).
REPEATS = 6
# Windows of the bundled text that a quality run scores (it has about 30 of 128 tokens), and tokens of an answer.
QUALITY_WINDOWS, QUALITY_ANSWER_TOKENS = 32, 48
MOST_QUALITY_WINDOWS, MOST_QUALITY_ANSWER_TOKENS = 1000, 512
# No quality run takes so long; one that does hangs.
QUALITY_SECONDS = 4 * 3600.0
