"""The next trial of a tuning: proposed on the load worker, because the optimiser takes a second to import."""

from __future__ import annotations

import logging

from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.core.transitions import transition
from apps.loadtests import tuning_states as states
from apps.loadtests import tuning_steps
from apps.loadtests.tuning_models import Tuning

log = logging.getLogger(__name__)


def propose_trial(tuning_id: int) -> bool:
    """Propose and begin a tuning's next trial. False where there was nothing to do."""
    row = Tuning.objects.select_related("deployment", "requested_by").filter(pk=tuning_id).first()
    if row is None:
        return False
    try:
        return tuning_steps.propose(row) is not None
    except InflightError as error:
        end(row, error.code, error.sentence, error.remedy)
    except Exception as error:
        # A fault of ours would come back with every message: the row says it at once.
        log.exception("Tuning #%d: no trial could be proposed.", row.number)
        text = _("The tuner itself failed: %(error)s.") % {"error": f"{type(error).__name__}: {error}"}
        end(row, "internal_error", text, _("Report it with the worker's log under logs/, then try again."))
    return False


def end(row: Tuning, reason: str, sentence: str, remedy: str) -> None:
    """The tuning has failed."""
    transition(
        row,
        states.FAILED,
        actor=tuning_steps.ACTOR,
        sources=[states.RUNNING],
        reason=reason,
        sentence=sentence,
        remedy=remedy,
    )
