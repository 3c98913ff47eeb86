"""Which server answers a request. Reads the database, changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.serving import selectors as serving
from apps.serving.models import Deployment
from apps.streaming import served
from apps.streaming.token_source import Endpoint

_turn = itertools.count()
# The golden ratio's fraction: its multiples fill the unit interval evenly, so that shares hold in short runs too.
_EVENLY = 0.6180339887498949


def pick_endpoint(deployment: Deployment) -> Endpoint:
    """An instance that may be given a new request, by its share of them. Raises NotPossibleNow where none serves."""
    return as_source_endpoint(pick_instance(deployment))


def pick_instance(deployment: Deployment) -> serving.Endpoint:
    """The same with the instance's id and revision."""
    candidates = served.of(deployment.pk).endpoints
    if not candidates:
        raise NotPossibleNow(
            "nothing_serving",
            _("No instance of %(name)s is serving; its state is: %(state)s.")
            % {"name": deployment.name, "state": deployment.sentence or deployment.state},
            field="deployment",
            remedy=_("Deploy it, or wait until it is ready; its page says what it is doing."),
        )
    return _in_turn(candidates, next(_turn))


def _in_turn(candidates: Sequence[tuple[serving.Endpoint, float]], turn: int) -> serving.Endpoint:
    """Who comes at this turn: one after the other where all have the same share, else by the shares."""
    if len({weight for _found, weight in candidates}) == 1:
        return candidates[turn % len(candidates)][0]
    at = (turn * _EVENLY) % 1.0 * sum(weight for _found, weight in candidates)
    for found, weight in candidates:
        at -= weight
        if at < 0:
            return found
    return candidates[-1][0]


def as_source_endpoint(found: serving.Endpoint) -> Endpoint:
    """Serving's address of an instance as a token source takes it."""
    return Endpoint(found.http_url, found.grpc_url, found.model)
