"""Figures of fetching in one place."""

from __future__ import annotations

LEASE_SECONDS = 40.0
# A waiting row that was not sent for this long is sent again.
RESEND_AFTER_SECONDS = 10.0
# A message that waits longer than this has been sent again, and is dropped.
MESSAGE_LIFE_SECONDS = 25.0
# A row that was sent and is not taken for this long says so.
UNCLAIMED_AFTER_SECONDS = 30.0
# Failures of network and machine are tried again this often without any byte gained; a gain begins the count anew.
MAX_RETRIES = 4
RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS = 5.0, 300.0
# Left free on the disk beside what is fetched, so that databases and logs can still be written.
DISK_MARGIN_BYTES = 1_000_000_000
PROGRESS_EVERY_SECONDS = 1.0
# Files in flight at once; one stream seldom fills a line.
PARALLEL_FILES = 4
# A hundred gigabytes at half a megabyte a second.
DEADLINE_SECONDS = 60 * 3600.0

# Archives: entries, bytes unpacked for each byte packed (beyond the first 100 MB), and what an upload may have.
MAX_ENTRIES = 10_000
MAX_RATIO = 50
RATIO_FREE_BYTES = 100_000_000
MAX_UNPACKED_BYTES = 2_000_000_000_000
UNPACK_MEMORY_BYTES = 4_000_000_000

FETCH = "workers.fetch_checkpoint"
# Half-fetched folders that no row names are removed after this long.
LEFTOVER_SECONDS = 7 * 86_400.0
