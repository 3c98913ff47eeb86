"""What people do with load tests. Callers reach everything here as `loadtests.services`."""

from __future__ import annotations

from apps.loadtests.background import keep_background_load, set_background_load
from apps.loadtests.runs import (
    delete_load_test,
    delete_run,
    repeat_run,
    save_load_test,
    set_production,
    start_run,
    start_scenario,
    stop_run,
)
from apps.loadtests.studies import cancel_study, delete_study, start_batching_study, start_comparison
from apps.loadtests.tuning import apply_tuning, cancel_tuning, delete_tuning, start_tuning

__all__ = [
    "apply_tuning",
    "cancel_study",
    "cancel_tuning",
    "delete_load_test",
    "delete_run",
    "delete_study",
    "keep_background_load",
    "delete_tuning",
    "repeat_run",
    "save_load_test",
    "set_background_load",
    "set_production",
    "start_batching_study",
    "start_comparison",
    "start_run",
    "start_scenario",
    "start_tuning",
    "stop_run",
]
