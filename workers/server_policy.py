"""Which releases of Triton may run here."""

from __future__ import annotations

from django.utils.translation import gettext as _

from apps.fleet.inputs import policy_of
from apps.fleet.models import Node
from apps.serving.preview import FIRST_ALLOWED_VERSION, version_tuple
from workers.runtimes.base import Failure

LABEL = "allow_old_triton"


def version_refused(version: str, node: Node | None, embedded: bool) -> Failure | None:
    """Why a server of this version may not serve here; null where it may. `embedded`: it is the one out of the wheel.

    Releases below 26.06 (2.70) have published holes. The embedded one is allowed, as every server listens on the
    loopback address only; others need `allow_old_triton` in the node's policy, or a label of that name with "true".
    """
    found = version_tuple(version)
    if found is not None and found >= FIRST_ALLOWED_VERSION:
        return None
    allowed = node is not None and (
        policy_of(node.policy).allow_old_triton or str(node.labels.get(LABEL, "")).lower() == "true"
    )
    if allowed or embedded:
        return None
    return Failure(
        "version_not_allowed",
        _("Triton %(version)s has published security holes and is not allowed on this node.")
        % {"version": version or _("of unknown version")},
        _("Install 26.07 (2.71) or newer, or allow it in the node's policy (%(label)s).") % {"label": LABEL},
    )
