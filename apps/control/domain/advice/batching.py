"""Rules about batching: sizes, delays, slots and queues."""

from __future__ import annotations

import math

from apps.control.domain.advice.figures import Distribution, Figures
from apps.control.domain.advice.message import message as _
from apps.control.domain.advice.outcome import Change, Evidence, Outcome, Rule, Subject

IN_BATCHES = ("static", "dynamic")
# Executions of which a distribution must consist before it is believed.
LEAST_EXECUTIONS = 50
# Requests of a range below which nothing is said about capacity.
LEAST_REQUESTS = 20
# How long a request may wait before nobody waits for it, in seconds.
PATIENCE_SECONDS = 10.0
_MOST_BATCH = 256


def _executions(figures: Figures) -> Distribution | None:
    """Distribution of what Triton's batcher handed over at once."""
    found = figures.distributions.get("triton_batch_size")
    return found if found is not None and found.total >= LEAST_EXECUTIONS else None


def preferred_sizes(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """Preferred sizes that never form."""
    sizes = [size for size in subject.batching.get("preferred_batch_sizes") or () if isinstance(size, int)]
    if subject.strategy not in IN_BATCHES or not sizes:
        return rule.not_here(_("No preferred sizes are set for Triton's batcher."))
    formed = _executions(figures)
    if formed is None:
        return rule.cannot_say(
            _(
                "Fewer than %(least)s executions by Triton were counted.",
                least=str(LEAST_EXECUTIONS),
            )
        )
    share = formed.share_at([float(size) for size in sizes]) or 0.0
    if share >= 0.05:
        return rule.fine()
    usual = formed.commonest()
    return rule.advise(
        _(
            "Of %(total)s executions %(share)s had a preferred size (%(sizes)s); most had "
            "%(size)s. Requests are held back for sizes that do not come.",
            total=f"{formed.total:.0f}",
            share=f"{share:.1%}",
            sizes=", ".join(map(str, sizes)),
            size=_size(usual),
        ),
        _("Remove the preferred sizes: Triton then sends what is queued when the delay is over."),
        Evidence(_("Executions with a preferred size"), share, "share"),
        Evidence(_("Executions"), formed.total),
        change=Change("preferred_batch_sizes", sizes, []),
    )


def delay(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A delay that only adds latency."""
    wait = subject.whole("max_queue_delay_microseconds")
    if subject.strategy != "dynamic":
        return rule.not_here(_("Only Triton's dynamic batcher holds requests back."))
    if not wait:
        return rule.not_here(_("No delay is set."))
    formed = _executions(figures)
    if formed is None:
        return rule.cannot_say(
            _(
                "Fewer than %(least)s executions by Triton were counted.",
                least=str(LEAST_EXECUTIONS),
            )
        )
    alone = formed.share_up_to(1.0) or 0.0
    if alone < 0.9:
        return rule.fine()
    queued = figures.mean("queue_mean_ms")
    evidence = [
        Evidence(_("Executions of one request"), alone, "share"),
        Evidence(_("Delay that is set"), wait / 1000, "ms"),
    ]
    if queued is not None:
        evidence.append(Evidence(_("Mean time in the queue"), queued, "ms", "queue_mean_ms"))
    return rule.advise(
        _(
            "%(alone)s of %(total)s executions hold a single request: the delay of %(delay)s "
            "ms is waited and nothing joins.",
            alone=f"{alone:.0%}",
            total=f"{formed.total:.0f}",
            delay=f"{wait / 1000:g}",
        ),
        _("Set the delay to 0; set it again when more arrives than one request per delay."),
        *evidence,
        change=Change("max_queue_delay_microseconds", wait, 0),
    )


def batch_never_full(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A maximum batch size that is never reached."""
    most = subject.whole("max_batch_size")
    if subject.strategy == "none" or most is None or most < 4:
        return rule.not_here(_("There are too few slots for any to be spare."))
    peak = figures.peak("requests_running")
    requests = figures.amount("requests_per_second")
    if requests is None or requests < LEAST_REQUESTS:
        return rule.cannot_say(
            _(
                "Fewer than %(least)s requests ended in this range.",
                least=str(LEAST_REQUESTS),
            )
        )
    if figures.seconds < 600:
        return rule.cannot_say(_("Ten minutes are needed to say that something never happens."))
    if peak is None or peak > most * subject.replicas / 2:
        return rule.fine()
    each = peak / subject.replicas
    wanted = max(2, 2 ** math.ceil(math.log2(max(1.0, each) * 1.25)))
    if wanted >= most:
        return rule.fine()
    return rule.advise(
        _(
            "At most %(peak)s requests ran at once; there are %(slots)s slots, each with "
            "its part of the KV cache.",
            peak=f"{peak:.0f}",
            slots=f"{most * subject.replicas}",
        ),
        _(
            "Lower the maximum batch size to %(wanted)s: memory is free for longer sequences "
            "or other deployments. More requests at once would then wait.",
            wanted=str(wanted),
        ),
        Evidence(_("Highest number running"), peak, "", "requests_running"),
        Evidence(_("Slots"), most * subject.replicas),
        Evidence(_("Requests in this range"), requests),
        change=Change("max_batch_size", most, wanted),
        weight="info",
    )


def batch_always_full(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A maximum batch size that is always full while others wait."""
    most = subject.whole("max_batch_size")
    if subject.strategy == "none" or most is None:
        return rule.not_here(_("One request runs at a time."))
    limit = most * subject.replicas
    # The mean, not the time at the limit: between two requests a slot is free for a moment.
    running, waiting = figures.mean("requests_running"), figures.mean("requests_waiting")
    if running is None or waiting is None:
        return rule.cannot_say(_("The engine does not tell how many requests run and wait."))
    full = running / limit
    if full < 0.8 or waiting < 1:
        return rule.fine()
    evidence = [
        Evidence(_("Slots busy, mean"), full, "share", "requests_running"),
        Evidence(_("Waiting, mean"), waiting, "", "requests_waiting"),
    ]
    sentence = _(
        "The %(limit)s slots were %(full)s busy, and %(waiting)s requests waited on average.",
        limit=str(limit),
        full=f"{full:.0%}",
        waiting=f"{waiting:.1f}",
    )
    use = figures.peak("kv_use")
    if use is not None:
        evidence.append(Evidence(_("KV use, highest"), use, "share", "kv_use"))
    # The embedded engine reserves its KV cache by slot, so its use does not speak against more of them.
    if use is not None and use > 0.85 and subject.builder != "llamacpp":
        return rule.advise(
            _("%(sentence)s The KV cache has no room for more of them.", sentence=sentence),
            _("Add a replica, or give the KV cache more memory."),
            *evidence,
        )
    wanted = min(2 * most, _MOST_BATCH)
    if wanted == most:
        return rule.advise(sentence, _("Add a replica: this is the largest batch size."), *evidence)
    return rule.advise(
        sentence,
        _(
            "Raise the maximum batch size to %(wanted)s. Each answer gets slower, all of "
            "them together faster; the KV cache grows with it.",
            wanted=str(wanted),
        ),
        *evidence,
        change=Change("max_batch_size", most, wanted),
    )


def none_while_waiting(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """No batching while requests wait."""
    if subject.strategy != "none":
        return rule.not_here(_("Requests are batched."))
    waits = figures.share("requests_waiting", lambda waiting: waiting >= 1)
    if waits is None:
        return rule.cannot_say(_("The engine does not tell how many requests wait."))
    if waits < 0.3:
        return rule.fine()
    return rule.advise(
        _("Requests waited in %(waits)s of the time while one at a time ran.", waits=f"{waits:.0%}"),
        _("Choose in-flight batching: each request joins at the next token."),
        Evidence(_("Time in which requests waited"), waits, "share", "requests_waiting"),
        Evidence(_("Waiting, mean"), figures.mean("requests_waiting") or 0.0, "", "requests_waiting"),
        change=Change("strategy", "none", "inflight"),
    )


def queue_grows(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A queue that grows under a limit which lets it: more waits than anybody waits for."""
    limit = subject.whole("max_queue_size")
    if not limit:
        return rule.not_here(_("No request may wait."))
    first, second = figures.halves("requests_waiting")
    rate = figures.mean("requests_per_second")
    if first is None or second is None or rate is None:
        return rule.cannot_say(_("The engine does not tell how many requests wait and end."))
    if second < first * 1.5 + 2:
        return rule.fine()
    wait = second / rate if rate > 0 else math.inf
    if wait < PATIENCE_SECONDS:
        return rule.fine()
    slots = (subject.slots or 1) * subject.replicas
    wanted = max(slots, math.ceil(rate * PATIENCE_SECONDS))
    sentence = _(
        "Waiting requests grew from %(first)s to %(second)s while %(rate)s a second "
        "ended: the last in the queue waits %(wait)s.",
        first=f"{first:.1f}",
        second=f"{second:.1f}",
        rate=f"{rate:.2f}",
        wait=(_("without end") if math.isinf(wait) else _("some %(wait)s s", wait=f"{wait:.0f}")),
    )
    evidence = (
        Evidence(_("Waiting, first half"), first, "", "requests_waiting"),
        Evidence(_("Waiting, second half"), second, "", "requests_waiting"),
        Evidence(_("Ended"), rate, "1/s", "requests_per_second"),
        Evidence(_("Limit of waiting requests"), limit),
    )
    if wanted >= limit:
        return rule.advise(sentence, _("Add a replica, or admit less at the gateway."), *evidence)
    return rule.advise(
        sentence,
        _(
            "Lower the limit of waiting requests to %(wanted)s, what is served within "
            "%(patience)s s, so that the rest is refused at once and may go "
            "elsewhere; or add a replica.",
            wanted=str(wanted),
            patience=f"{PATIENCE_SECONDS:.0f}",
        ),
        *evidence,
        change=Change("max_queue_size", limit, wanted),
    )


def refused_while_idle(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """Requests that are refused although slots are free most of the time: bursts against a short queue."""
    limit = subject.whole("max_queue_size")
    rejected, rate = figures.amount("requests_rejected_per_second"), figures.amount("requests_per_second")
    if limit is None or rejected is None or rate is None:
        return rule.cannot_say(_("The engine does not tell how many requests it refuses."))
    slots = (subject.slots or 1) * subject.replicas
    idle = figures.share("requests_running", lambda running: running < slots)
    if idle is None:
        return rule.cannot_say(_("The engine does not tell how many requests run."))
    if rejected < 1 or rejected < 0.01 * (rate + rejected) or idle < 0.5:
        return rule.fine()
    wanted = max(2 * limit, slots)
    return rule.advise(
        _(
            "%(rejected)s requests were refused, yet slots were free in %(idle)s of the "
            "time: they come in bursts.",
            rejected=f"{rejected:.0f}",
            idle=f"{idle:.0%}",
        ),
        _("Raise the limit of waiting requests to %(wanted)s.", wanted=str(wanted)),
        Evidence(_("Refused in this range"), rejected, "", "requests_rejected_per_second"),
        Evidence(_("Time with a free slot"), idle, "share", "requests_running"),
        change=Change("max_queue_size", limit, wanted),
    )


def _size(value: float | None) -> str:
    return _("no size that stands out") if value is None else f"{value:.0f}"


_RUNNING = ("requests_running",)
RULES: tuple[Rule, ...] = (
    Rule("preferred_sizes_never_form", _("Preferred sizes form"), preferred_sizes),
    Rule("delay_only_adds_latency", _("The queue delay pays"), delay),
    Rule("batch_size_never_reached", _("Slots are used"), batch_never_full, _RUNNING),
    Rule(
        "batch_size_always_full",
        _("Slots suffice"),
        batch_always_full,
        ("requests_running", "requests_waiting"),
    ),
    Rule(
        "no_batching_while_waiting", _("Requests share the engine"), none_while_waiting, ("requests_waiting",)
    ),
    Rule("queue_grows_under_limit", _("The queue is short enough"), queue_grows, ("requests_waiting",)),
    Rule("refused_while_idle", _("The queue is long enough"), refused_while_idle),
)
