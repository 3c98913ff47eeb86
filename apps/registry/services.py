"""All that may be done with checkpoints; the functions lie in the modules named here."""

from __future__ import annotations

from apps.registry.fetching import cancel_fetch, keep_upload, retry_fetch
from apps.registry.hub.access import save_hub_access
from apps.registry.hub.attempts import (
    begin_inspection,
    claim_fetch,
    end_cancelled_fetch,
    fail_fetch,
    finish_fetch,
    record_fetch,
    record_fetch_child,
    renew_fetch,
    requeue_fetch,
)
from apps.registry.registering import (
    change_source,
    check_name,
    delete_checkpoint,
    inspect_again,
    register_checkpoint,
)

__all__ = [
    "begin_inspection",
    "cancel_fetch",
    "change_source",
    "check_name",
    "claim_fetch",
    "delete_checkpoint",
    "end_cancelled_fetch",
    "fail_fetch",
    "finish_fetch",
    "inspect_again",
    "keep_upload",
    "record_fetch",
    "record_fetch_child",
    "register_checkpoint",
    "renew_fetch",
    "requeue_fetch",
    "retry_fetch",
    "save_hub_access",
]
