"""A build of the same for another node: what the button "rebuild for this node" does."""

from __future__ import annotations

from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import NotPossibleNow
from apps.engines import requests
from apps.engines.builds import start_build, start_spec
from apps.engines.frozen import Choice, chosen, consider
from apps.engines.models import Build, BuildProfile, Engine
from apps.fleet.models import Node


def rebuild_for_node(actor: audit.Actor, engine: Engine, node: Node) -> Build:
    """Start a build of the engine's own profile with a toolchain of the node; the profile stays as it is.

    Where that engine is being built or ready already, its build is returned, as start_build does. Raises
    NotPossibleNow where the profile is gone or no toolchain of the node can build it, and what start_build raises.
    """
    require(actor, Action.OPERATE)
    last = engine.builds.filter(profile__isnull=False).order_by("-number").first()
    profile = last.profile if last is not None else None
    if profile is None:
        raise NotPossibleNow(
            "no_profile",
            _("No build profile is known that makes this engine."),
            remedy=_("Make a build profile of its checkpoint and build that."),
        )
    if profile.builder != BuildProfile.Builder.TRTLLM:
        return start_build(actor, profile)
    choice = _choice(profile, node)
    spec = requests.spec_of(profile, sm=choice.sm, versions=choice.versions)
    target = spec.request.target.model_copy(update={"gpu": "", "toolchain": choice.row.name})
    asked = spec.model_copy(update={"request": spec.request.model_copy(update={"target": target})})
    return start_spec(actor, chosen(asked, choice), profile)


def _choice(profile: BuildProfile, node: Node) -> Choice:
    """A toolchain of the node, whatever GPU, release or toolchain the profile names for its usual place."""
    request = requests.request_of(profile)
    free = request.model_copy(
        update={"target": request.target.model_copy(update={"gpu": "", "toolchain": ""})}
    )
    reasons = []
    for row in node.toolchains.all():
        found = consider(row, free)
        if isinstance(found, Choice):
            return found
        reasons.append(f"{row.name}: {found}")
    raise NotPossibleNow(
        "no_toolchain_fits",
        _("Nothing on %(node)s can build it. %(reasons)s")
        % {"node": node, "reasons": " ".join(reasons) or _("It has no TensorRT-LLM toolchain.")},
        field="node",
        remedy=_("Add a toolchain to the node and probe it again, or build where one is."),
    )
