"""`manage.py deployment deploy|stop|rollback|pause|...|wake|scaling|list`; `apply` changes them."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.serving import autoscale, selectors, services
from apps.serving.models import Deployment
from apps.serving.serialize import deployment_dict, rollout_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _shown(row: Deployment) -> Outcome:
    line = _("%(name)s: %(state)s. %(sentence)s") % {
        "name": row.name,
        "state": row.state,
        "sentence": row.sentence,
    }
    return deployment_dict(selectors.deployment(row.name)), [line.strip()]


def _deploy(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.deploy(actor, selectors.deployment(options["name"])))


def _stop(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.stop(actor, selectors.deployment(options["name"])))


def _roll_back(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = selectors.deployment(options["name"])
    return _shown(services.roll_back(actor, row, selectors.revision(row, options["revision"])))


def _rollback_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("revision", type=int, help=_("number of an earlier revision"))


def _pause(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.pause_rollout(actor, selectors.deployment(options["name"])))


def _resume(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.resume_rollout(actor, selectors.deployment(options["name"])))


def _promote(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.promote_rollout(actor, selectors.deployment(options["name"])))


def _endpoints(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    found = rollout_dict(selectors.deployment(options["name"]))
    lines = [
        f"{each['http_url']} {each['grpc_url']} {each['weight']:g} {each['uid']}" for each in found["traffic"]
    ]
    return found, lines


def _wake(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(services.wake_deployment(actor, selectors.deployment(options["name"])))


def _scaling(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    rows = autoscale.decisions(selectors.deployment(options["name"]))[: options["last"]]
    columns = {
        "at": _("AT"),
        "before": _("BEFORE"),
        "after": _("AFTER"),
        "reason": _("REASON"),
        "sentence": _("WHY"),
    }
    return listed([autoscale.decision_dict(row) for row in rows], columns)


def _scaling_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("--last", type=int, default=20, help=_("how many decisions, the newest first"))


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_deployment(actor, selectors.deployment(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "state": _("STATE"),
        "desired": _("DESIRED"),
        "build_profile": _("BUILD"),
        "batching": _("BATCHING"),
        "active_revision": _("REVISION"),
        "replicas_serving": _("SERVING"),
        "replicas_wanted": _("WANTED"),
    }
    return listed([deployment_dict(row) for row in selectors.deployments()], columns)


class Command(ObjectCommand):
    """Engines served under a public name."""

    help = "Deploy, stop, roll back, delete and list deployments; make and change them with apply."
    verbs = (
        Verb("deploy", _l("make it run as it is configured"), _deploy, argument("name")),
        Verb("stop", _l("stop it: requests in flight finish"), _stop, argument("name")),
        Verb("rollback", _l("run an earlier revision again"), _roll_back, _rollback_arguments),
        Verb("pause", _l("hold its roll-out where it is"), _pause, argument("name")),
        Verb("resume", _l("go on with a paused roll-out"), _resume, argument("name")),
        Verb("promote", _l("leave out the rest of the canary's steps"), _promote, argument("name")),
        Verb(
            "endpoints", _l("where it serves now, with shares of new requests"), _endpoints, argument("name")
        ),
        Verb("wake", _l("start the servers of one that sleeps"), _wake, argument("name")),
        Verb("scaling", _l("why it has as many servers as it has"), _scaling, _scaling_arguments),
        Verb("delete", _l("delete a stopped deployment with its history"), _delete, argument("name")),
        Verb("list", _l("list deployments"), _list),
    )
