"""Limits of key and route as the admission asks for them, and what a client is told that is over one."""

from __future__ import annotations

from django.utils.translation import gettext as _

from apps.gateway.access.refusals import Refused
from apps.gateway.domain.facts import KeyFacts, Limits, Route
from apps.gateway.domain.windows import Denied, Scope


def allowed_max_tokens(key: KeyFacts, route: Route) -> int | None:
    """The most tokens that one answer may have by the limits of key and route; None: no limit."""
    known = [most for most in (key.limits.max_tokens, route.limits.max_tokens) if most is not None]
    return min(known, default=None)


def check_length(key: KeyFacts, route: Route, prompt_tokens: int, max_tokens: int) -> None:
    """Refuse (400) what could never be admitted, however long it waited."""
    most = allowed_max_tokens(key, route)
    if most is not None and max_tokens > most:
        raise Refused(
            400,
            "max_tokens_over_limit",
            _("max_tokens is %(asked)d; this key may ask %(model)s for %(most)d at most.")
            % {"asked": max_tokens, "model": route.name, "most": most},
            limit_name="max_tokens",
        )
    for word, limits in (("key", key.limits), ("route", route.limits)):
        if limits.tokens_per_minute is not None and prompt_tokens > limits.tokens_per_minute:
            raise Refused(
                400,
                "prompt_over_limit",
                _("The prompt has %(asked)d tokens; the limit is %(most)d tokens a minute.")
                % {"asked": prompt_tokens, "most": limits.tokens_per_minute},
                limit_name=f"{word}.tokens_per_minute",
            )


def limited(limits: Limits) -> bool:
    """Whether anything of it is counted."""
    rates = (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests)
    return any(limit is not None for limit in rates)


def scope_of(name: str, limits: Limits) -> Scope:
    """Limits as windows.py counts them."""
    return Scope(name, limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests)


def over_limit(denied: Denied, scopes: tuple[Scope, ...]) -> Refused:
    """What a client is told whose limit is reached (429)."""
    of_key = scopes[denied.scope].name.startswith("k:")
    sentences = {
        "requests_per_minute": _("The limit of %(most)d requests a minute of this %(whose)s is reached."),
        "tokens_per_minute": _("The limit of %(most)d tokens a minute of this %(whose)s is reached."),
        "concurrent_requests": _("The limit of %(most)d requests at once of this %(whose)s is reached."),
    }
    whose = _("key") if of_key else _("model")
    return Refused(
        429,
        "rate_limit_exceeded",
        sentences[denied.limit] % {"most": denied.most, "whose": whose},
        limit_name=f"{'key' if of_key else 'route'}.{denied.limit}",
        retry_after_seconds=denied.wait_seconds,
    )


def route_gone(route: str) -> Refused:
    """The route was deleted, or leads elsewhere, while a request waited."""
    return Refused(
        503,
        "not_ready",
        _("%(model)s was changed while the request waited. Send it again.") % {"model": route},
        retry_after_seconds=1.0,
    )
