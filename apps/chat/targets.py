"""What a conversation talks to: a deployment, or an external deployment of the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from apps.chat import external
from apps.chat.models import Conversation
from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.gateway import selectors as gateway
from apps.gateway.models import ExternalDeployment
from apps.serving import selectors as serving
from apps.serving.models import Deployment
from apps.streaming import served

Target = Deployment | ExternalDeployment


def named(deployment: str | None, elsewhere: str | None) -> Target:
    """The deployment or external deployment of a name; exactly one is given. Raises InvalidInput or NotFound."""
    if bool(deployment) == bool(elsewhere):
        raise InvalidInput(
            "one_engine",
            _("One engine must be named: a deployment or an external deployment."),
            field="deployment",
            remedy=_("Give either `deployment` or `external`."),
        )
    return serving.deployment(deployment) if deployment else gateway.external(elsewhere or "")


def own(conversation: Conversation) -> Deployment:
    """The deployment of a conversation. Raises NotPossibleNow for an external one, of which nothing is known."""
    if conversation.deployment is None:
        raise NotPossibleNow(
            "external_deployment",
            _("%(name)s is an external server: what it reads and how it runs nobody here knows.")
            % {"name": conversation.engine_name},
            field="deployment",
            remedy=_("Ask a deployment of this installation."),
        )
    return conversation.deployment


def params_of(target: Target) -> frozenset[str]:
    """Names of the sampling parameters that it takes."""
    if isinstance(target, ExternalDeployment):
        return frozenset(external.PARAMS)
    return served.of(target.pk).capabilities.params | {"priority"}


def columns_of(target: Target) -> Mapping[str, Any]:
    """The columns of a conversation with it."""
    if isinstance(target, ExternalDeployment):
        return {"external": target}
    return {"deployment": target}
