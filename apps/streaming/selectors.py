"""Which server answers a request. Reads the database, changes nothing."""

from __future__ import annotations

import itertools

from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.serving import selectors as serving
from apps.serving.models import Deployment
from apps.streaming.token_source import Endpoint

_turn = itertools.count()


def pick_endpoint(deployment: Deployment) -> Endpoint:
    """An instance that may be given a new request, each in turn. Raises NotPossibleNow where none serves."""
    return as_source_endpoint(pick_instance(deployment))


def pick_instance(deployment: Deployment) -> serving.Endpoint:
    """The same with the instance's id and revision."""
    candidates = serving.endpoints(deployment)
    if not candidates:
        raise NotPossibleNow(
            "nothing_serving",
            _("No instance of %(name)s is serving; its state is: %(state)s.")
            % {"name": deployment.name, "state": deployment.sentence or deployment.state},
            field="deployment",
            remedy=_("Deploy it, or wait until it is ready; its page says what it is doing."),
        )
    return candidates[next(_turn) % len(candidates)]


def as_source_endpoint(found: serving.Endpoint) -> Endpoint:
    """Serving's address of an instance as a token source takes it."""
    return Endpoint(found.http_url, found.grpc_url, found.model)
