"""What people do with a node beside cordoning it: maintenance, labels, host policy, forgetting."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.exceptions import InvalidInput
from apps.dashboard import pages
from apps.dashboard.access import person
from apps.dashboard.pages import action
from apps.fleet import selectors, services
from apps.fleet.domain.host_policy import PURPOSES


@action(Action.OPERATE)
def maintenance(request: HttpRequest, node_id: str) -> HttpResponse:
    """Empty a node."""
    given = request.POST
    minutes = given.get("minutes", "10").strip()
    seconds: object = int(minutes) * 60 if minutes.isascii() and minutes.isdigit() else minutes
    row = services.start_maintenance(
        person(request), selectors.node(node_id), given.get("reason", ""), seconds
    )
    text = _("%(node)s is in maintenance; its servers move away.") % {"node": row}
    return pages.done(request, text, to=_page(node_id))


@action(Action.OPERATE)
def resume(request: HttpRequest, node_id: str) -> HttpResponse:
    """Let work come to a node in maintenance again."""
    row = services.end_maintenance(person(request), selectors.node(node_id))
    return pages.done(request, _("%(node)s takes work again.") % {"node": row}, to=_page(node_id))


@action(Action.CONFIGURE)
def labels(request: HttpRequest, node_id: str) -> HttpResponse:
    """Say what a node is; one key=value a line."""
    found = dict(_label(line.strip()) for line in request.POST.get("labels", "").splitlines() if line.strip())
    row = services.set_labels(person(request), selectors.node(node_id), found)
    return pages.done(request, _("The labels of %(node)s are kept.") % {"node": row}, to=_page(node_id))


def _label(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not separator:
        raise InvalidInput(
            "label_unreadable",
            _("“%(text)s” is no label.") % {"text": line[:80]},
            field="labels",
            remedy=_("Write key=value, one a line."),
        )
    return key.strip(), value.strip()


@action(Action.ADMINISTER)
def policy(request: HttpRequest, node_id: str) -> HttpResponse:
    """Say what Inflight may do with the host."""
    given = request.POST
    wanted = {
        "purposes": [purpose for purpose in PURPOSES if purpose in given.getlist("purposes")],
        "share_gpus": "share_gpus" in given,
        "allow_old_triton": "allow_old_triton" in given,
        "mps_pipe_directory": given.get("mps_pipe_directory", "").strip(),
    }
    row = services.set_policy(person(request), selectors.node(node_id), wanted)
    return pages.done(request, _("The policy of %(node)s is kept.") % {"node": row}, to=_page(node_id))


@action(Action.ADMINISTER)
def forget(request: HttpRequest, node_id: str) -> HttpResponse:
    """Remove a node that will not come back."""
    row = selectors.node(node_id)
    name = str(row)
    services.forget_node(person(request), row)
    text = _("%(node)s is forgotten.") % {"node": name}
    return pages.done(request, text, to=reverse("fleet:fleet"), stay=False)


def _page(node_id: str) -> str:
    return reverse("fleet:node", args=[node_id])
