"""What people do with load tests. Callers reach everything here as `loadtests.services`."""

from __future__ import annotations

from apps.loadtests.background import keep_background_load, set_background_load
from apps.loadtests.quality import (
    cancel_quality_run,
    delete_quality_gate,
    delete_quality_run,
    end_quality_waiver,
    repeat_quality_run,
    save_quality_gate,
    start_answer_run,
    start_quality_run,
    waive_quality_gate,
)
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
    "cancel_quality_run",
    "cancel_study",
    "cancel_tuning",
    "delete_load_test",
    "delete_quality_gate",
    "delete_quality_run",
    "delete_run",
    "delete_study",
    "delete_tuning",
    "end_quality_waiver",
    "keep_background_load",
    "repeat_quality_run",
    "repeat_run",
    "save_load_test",
    "save_quality_gate",
    "set_background_load",
    "set_production",
    "start_answer_run",
    "start_batching_study",
    "start_comparison",
    "start_quality_run",
    "start_run",
    "start_scenario",
    "start_tuning",
    "stop_run",
    "waive_quality_gate",
]
