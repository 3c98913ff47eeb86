"""Checking what people say about nodes: labels and the host's policy. Errors name the field and the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from pydantic import ValidationError

from apps.core.exceptions import InvalidInput
from apps.fleet.domain.host_policy import HostPolicy

# As Kubernetes' label keys and values, so that labels of a cluster can be taken over.
_KEY = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?$")
_VALUE = re.compile(r"^[A-Za-z0-9_.-]{0,63}$")
MOST_LABELS = 64


def check_labels(labels: Any) -> dict[str, str]:
    """Labels as they are kept: {key: value}, both words. Raises InvalidInput."""
    if not isinstance(labels, Mapping):
        raise InvalidInput(
            "labels_form",
            _("The labels are not a mapping."),
            field="labels",
            remedy=_('Write them as {"rack": "a"}.'),
        )
    if len(labels) > MOST_LABELS:
        raise InvalidInput(
            "labels_too_many",
            _("%(count)d labels are too many.") % {"count": len(labels)},
            field="labels",
            remedy=_("Give at most %(most)d.") % {"most": MOST_LABELS},
        )
    for key, value in labels.items():
        if not isinstance(key, str) or not _KEY.match(key):
            raise _refused("labels", str(key), _("A key is up to 63 letters, digits, - _ . or /."))
        if not isinstance(value, str) or not _VALUE.match(value):
            raise _refused(f"labels.{key}", str(value), _("A value is up to 63 letters, digits, - _ or ."))
    return dict(labels)


def _refused(field: str, text: str, remedy: str) -> InvalidInput:
    sentence = _("“%(text)s” is no label.") % {"text": text[:80]}
    return InvalidInput("label_unreadable", sentence, field=field, remedy=remedy)


def check_policy(policy: Any) -> dict[str, object]:
    """A host policy as it is kept: what differs from the defaults. Raises InvalidInput."""
    try:
        return HostPolicy.model_validate(policy).chosen()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            "policy_unreadable",
            _("The policy's %(field)s cannot be used: %(why)s.")
            % {"field": where or _("form"), "why": first["msg"]},
            field=f"policy.{where}" if where else "policy",
            remedy=_(
                "It has purposes (build, serve, test), allow_old_triton, share_gpus, mps_pipe_directory."
            ),
        ) from error


def policy_of(kept: Any) -> HostPolicy:
    """A node's policy. What an older release kept and this one does not know counts as the defaults."""
    try:
        return HostPolicy.model_validate(kept or {})
    except ValidationError:
        return HostPolicy.model_validate({})
