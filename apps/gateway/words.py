"""What limits mean, in sentences: "this key can ...". The figures come from the very counters that decide."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.gateway.domain.facts import Limits, Priority
from apps.gateway.domain.windows import Admitted, Ask, Denied, LocalLimits, Scope

# How long a load is tried, in simulated time and in requests: a page waits for it.
SIMULATED_SECONDS = 1800
MOST_REQUESTS = 5_000


@dataclass(frozen=True, slots=True)
class Load:
    """What an application does: `clients` that each ask one after the other, with requests of this size and time."""

    clients: int = 1
    prompt_tokens: int = 500
    answer_tokens: int = 200
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Simulated:
    """What came of a load: answered requests a minute once it has settled, and what stood in the way."""

    per_minute: float
    first_refusal: float | None
    limit: str
    longest_wait: float | None
    never: bool = False


def sentences(limits: Limits, priority: Priority, routes: list[str] | None) -> list[str]:
    """What a key with these limits can do."""
    found = [_models(routes)]
    if limits.requests_per_minute is not None:
        found.append(
            ngettext(
                "It can send %(n)s request in any 60 seconds; the next one is refused (429) with the time to wait.",
                "It can send %(n)s requests in any 60 seconds, also all at once; the next one is refused (429) with "
                "the time to wait.",
                limits.requests_per_minute,
            )
            % {"n": _number(limits.requests_per_minute)}
        )
    if limits.tokens_per_minute is not None:
        found.append(
            _(
                "It can use %(n)s tokens in any 60 seconds, prompt and answer together. While a request runs, its "
                "prompt and its max_tokens count; when it ends, what it really used."
            )
            % {"n": _number(limits.tokens_per_minute)}
        )
    if limits.concurrent_requests is not None:
        found.append(
            ngettext(
                "%(n)s of its requests runs or waits at a time; one more is refused (429).",
                "%(n)s of its requests run or wait at a time; one more is refused (429).",
                limits.concurrent_requests,
            )
            % {"n": _number(limits.concurrent_requests)}
        )
    if limits.max_tokens is not None:
        found.append(
            _("An answer has at most %(n)s tokens; a request for more is refused (400).")
            % {"n": _number(limits.max_tokens)}
        )
    if limits == Limits(max_tokens=limits.max_tokens):
        found.append(
            _("It has no limit of its own on requests and tokens; only the slots of a model bound it.")
        )
    return [*found, _class(priority)]


def _models(routes: list[str] | None) -> str:
    if routes is None:
        return _("This key can use every model, also those that come later.")
    return _("This key can use %(models)s.") % {"models": ", ".join(routes)}


def _class(priority: Priority) -> str:
    return {
        Priority.HIGH: _(
            "Where requests wait, its own go before those of normal and low keys, and are shed last."
        ),
        Priority.NORMAL: _(
            "Where requests wait, its own go after those of high keys and before those of low ones."
        ),
        Priority.LOW: _(
            "Where requests wait, its own go last and are shed first; one turn in sixteen is theirs for sure."
        ),
    }[priority]


def simulate(limits: Limits, load: Load) -> Simulated:
    """Run a load against the counters on a simulated clock. A refused client waits as told, then asks again."""
    tokens = load.prompt_tokens + load.answer_tokens
    if limits.tokens_per_minute is not None and load.prompt_tokens > limits.tokens_per_minute:
        return Simulated(0.0, 0.0, "tokens_per_minute", None, never=True)
    if limits.max_tokens is not None and load.answer_tokens > limits.max_tokens:
        return Simulated(0.0, 0.0, "max_tokens", None, never=True)
    scope = Scope("k", limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests)
    return _Simulation(scope, load, tokens).run()


class _Simulation:
    """Clients in a loop; times are seconds from the beginning."""

    def __init__(self, scope: Scope, load: Load, tokens: int) -> None:
        self._now = 0.0
        self._counters = LocalLimits(lambda: self._now)
        self._scope, self._load, self._tokens = scope, load, tokens
        self._ends: list[tuple[float, Ask, Admitted]] = []
        self._answered: list[float] = []
        self._refusal: float | None = None
        self._limit = ""
        self._longest: float | None = None

    def run(self) -> Simulated:
        ready = [0.0] * self._load.clients
        step = max(self._load.seconds, 0.05)
        for number in range(MOST_REQUESTS):
            client = min(range(len(ready)), key=ready.__getitem__)
            if ready[client] >= SIMULATED_SECONDS:
                break
            self._now = ready[client]
            self._end_those_that_are_over()
            ask = Ask(str(number), self._tokens, (self._scope,))
            found = self._counters.admit(ask)
            if isinstance(found, Denied):
                ready[client] += self._refused(found)
            else:
                ready[client] += step
                self._answered.append(self._now)
                self._ends.append((ready[client], ask, found))
        return self._result()

    def _end_those_that_are_over(self) -> None:
        over = [item for item in self._ends if item[0] <= self._now]
        self._ends = [item for item in self._ends if item[0] > self._now]
        for _end, ask, admitted in over:
            self._counters.release(ask, admitted, self._tokens)
        for _end, ask, _admitted in self._ends:
            self._counters.renew(ask)

    def _refused(self, denied: Denied) -> float:
        if self._refusal is None:
            self._refusal, self._limit = self._now, denied.limit
        self._longest = max(self._longest or 0.0, denied.wait_seconds)
        return max(1.0, denied.wait_seconds)

    def _result(self) -> Simulated:
        until = min(self._now, float(SIMULATED_SECONDS))
        # The first two minutes see the beginning, when everything is still unused.
        begin = min(120.0, until / 2)
        settled = [at for at in self._answered if at >= begin]
        minutes = max((until - begin) / 60, 1 / 60)
        return Simulated(len(settled) / minutes, self._refusal, self._limit, self._longest)


def outcome(limits: Limits, load: Load) -> list[str]:
    """A load and what comes of it, in sentences."""
    found = simulate(limits, load)
    said = _("A request of %(tokens)s tokens (%(prompt)s prompt, %(answer)s answer)") % {
        "tokens": _number(load.prompt_tokens + load.answer_tokens),
        "prompt": _number(load.prompt_tokens),
        "answer": _number(load.answer_tokens),
    }
    if found.never:
        return [
            _("%(request)s is always refused: %(why)s") % {"request": said, "why": _why(limits, found.limit)}
        ]
    clients = ngettext(
        "%(n)s client that asks one after the other gets about %(rate)s answers a minute.",
        "%(n)s clients that each ask one after the other get about %(rate)s answers a minute together.",
        load.clients,
    ) % {"n": _number(load.clients), "rate": _number(round(found.per_minute))}
    taking = _("%(request)s, taking %(seconds)s s:") % {"request": said, "seconds": f"{load.seconds:g}"}
    if found.first_refusal is None:
        return [f"{taking} {clients}", _("No limit of the key is reached.")]
    reached = _(
        "After %(after)s s the limit of %(why)s is reached; a refused client is told to wait up to %(wait)s s."
    ) % {
        "after": f"{found.first_refusal:.0f}",
        "why": _why(limits, found.limit),
        "wait": f"{found.longest_wait or 0:.0f}",
    }
    return [f"{taking} {clients}", reached]


def _why(limits: Limits, limit: str) -> str:
    most = _number(getattr(limits, limit) or 0)
    return {
        "requests_per_minute": _("%(n)s requests a minute") % {"n": most},
        "tokens_per_minute": _("%(n)s tokens a minute") % {"n": most},
        "concurrent_requests": _("%(n)s requests at once") % {"n": most},
        "max_tokens": _("an answer may have %(n)s tokens") % {"n": most},
    }[limit]


def _number(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")
