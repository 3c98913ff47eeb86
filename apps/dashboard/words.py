"""Words for states, kinds and audit verbs. The rows keep stable English keys; people read these."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

STATES: dict[str, Promise] = {
    "acknowledged": _("acknowledged"),
    "active": _("active"),
    "asleep": _("asleep"),
    "cancelled": _("cancelled"),
    "clearing": _("clearing up"),
    "degraded": _("degraded"),
    "deleted": _("deleted"),
    "delivered": _("delivered"),
    "done": _("done"),
    "downloading": _("downloading"),
    "draining": _("draining"),
    "error": _("failed"),
    "expired": _("expired"),
    "failed": _("failed"),
    "firing": _("firing"),
    "gone": _("gone"),
    "generating": _("generating"),
    "inspecting": _("inspecting"),
    "interrupted": _("interrupted"),
    "joining": _("joining"),
    "loading": _("loading"),
    "lost": _("lost"),
    "maintenance": _("maintenance"),
    "missing": _("missing"),
    "ok": _("ok"),
    "pending": _("pending"),
    "placed": _("placed"),
    "preparing": _("preparing"),
    "queued": _("queued"),
    "ready": _("ready"),
    "refused": _("refused"),
    "registered": _("waiting"),
    "revoked": _("revoked"),
    "resolved": _("resolved"),
    "running": _("running"),
    "serving": _("serving"),
    "skipped": _("skipped"),
    "spawned": _("spawned"),
    "started": _("started"),
    "starting": _("starting"),
    "stopped": _("stopped"),
    "stopping": _("stopping"),
    "streaming": _("streaming"),
    "succeeded": _("succeeded"),
    "superseded": _("superseded"),
    "suspect": _("suspect"),
    "switched_off": _("switched off"),
    "unpacking": _("unpacking"),
    "unreachable": _("unreachable"),
    "waiting": _("waiting"),
}

KINDS: dict[str, Promise] = {
    "alert": _("alert"),
    "alertrule": _("alert rule"),
    "apitoken": _("API token"),
    "batchingprofile": _("batching profile"),
    "build": _("build"),
    "buildprofile": _("build profile"),
    "checkpoint": _("checkpoint"),
    "conversation": _("conversation"),
    "deployment": _("deployment"),
    "engine": _("engine"),
    "externaldeployment": _("external deployment"),
    "gatewaykey": _("gateway key"),
    "gatewayroute": _("gateway route"),
    "instance": _("instance"),
    "loadrun": _("load run"),
    "loadtest": _("load test"),
    "node": _("node"),
    "notification": _("notification"),
    "notificationchannel": _("notification channel"),
    "qualitygate": _("quality gate"),
    "qualityrun": _("quality run"),
    "qualitywaiver": _("quality waiver"),
    "requestlog": _("request"),
    "revision": _("revision"),
    "silence": _("silence"),
    "study": _("study"),
    "trial": _("trial"),
    "tuning": _("tuning"),
    "turn": _("turn"),
    "user": _("account"),
}


# Verbs of the audit trail that are neither a state nor a plain word already.
VERBS: dict[str, Promise] = {
    "advice_applied": _("changed on advice"),
    "cancel": _("cancel asked for"),
    "changed": _("changed"),
    "created": _("created"),
    "deployed": _("deployed"),
    "ended": _("ended"),
    "inspect": _("inspected again"),
    "not_production": _("no longer marked as production"),
    "production": _("marked as production"),
    "registered": _("registered"),
    "restart": _("restart asked for"),
    "requeued": _("queued again"),
    "reused": _("reused an engine"),
    "rolled_back": _("rolled back"),
    "tested": _("tested"),
    "unacknowledged": _("taken back"),
}


def verb_word(verb: str) -> str:
    """The word of what was done, from the part of an audit verb after its dot."""
    return str(VERBS.get(verb) or STATES.get(verb) or verb.replace("_", " "))


def state_word(state: str) -> str:
    """The word of a state, or the key itself for one that has none yet."""
    return str(STATES.get(state, state))


def kind_word(kind: str) -> str:
    """The word of a kind of object."""
    return str(KINDS.get(kind, kind))
