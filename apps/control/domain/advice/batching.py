"""Rules about batching: sizes, delays, slots and queues."""

from __future__ import annotations

import math

from apps.control.domain.advice.figures import Distribution, Figures
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
        return rule.not_here("No preferred sizes are set for Triton's batcher.")
    formed = _executions(figures)
    if formed is None:
        return rule.cannot_say(f"Fewer than {LEAST_EXECUTIONS} executions by Triton were counted.")
    share = formed.share_at([float(size) for size in sizes]) or 0.0
    if share >= 0.05:
        return rule.fine()
    usual = formed.commonest()
    return rule.advise(
        f"Of {formed.total:.0f} executions {share:.1%} had a preferred size ({', '.join(map(str, sizes))}); most had "
        f"{_size(usual)}. Requests are held back for sizes that do not come.",
        "Remove the preferred sizes: Triton then sends what is queued when the delay is over.",
        Evidence("Executions with a preferred size", share, "share"),
        Evidence("Executions", formed.total),
        change=Change("preferred_batch_sizes", sizes, []),
    )


def delay(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A delay that only adds latency."""
    wait = subject.whole("max_queue_delay_microseconds")
    if subject.strategy != "dynamic":
        return rule.not_here("Only Triton's dynamic batcher holds requests back.")
    if not wait:
        return rule.not_here("No delay is set.")
    formed = _executions(figures)
    if formed is None:
        return rule.cannot_say(f"Fewer than {LEAST_EXECUTIONS} executions by Triton were counted.")
    alone = formed.share_up_to(1.0) or 0.0
    if alone < 0.9:
        return rule.fine()
    queued = figures.mean("queue_mean_ms")
    evidence = [
        Evidence("Executions of one request", alone, "share"),
        Evidence("Delay that is set", wait / 1000, "ms"),
    ]
    if queued is not None:
        evidence.append(Evidence("Mean time in the queue", queued, "ms", "queue_mean_ms"))
    return rule.advise(
        f"{alone:.0%} of {formed.total:.0f} executions hold a single request: the delay of {wait / 1000:g} ms is "
        "waited and nothing joins.",
        "Set the delay to 0; set it again when more arrives than one request per delay.",
        *evidence,
        change=Change("max_queue_delay_microseconds", wait, 0),
    )


def batch_never_full(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A maximum batch size that is never reached."""
    most = subject.whole("max_batch_size")
    if subject.strategy == "none" or most is None or most < 4:
        return rule.not_here("There are too few slots for any to be spare.")
    peak = figures.peak("requests_running")
    requests = figures.amount("requests_per_second")
    if requests is None or requests < LEAST_REQUESTS:
        return rule.cannot_say(f"Fewer than {LEAST_REQUESTS} requests ended in this range.")
    if figures.seconds < 600:
        return rule.cannot_say("Ten minutes are needed to say that something never happens.")
    if peak is None or peak > most * subject.replicas / 2:
        return rule.fine()
    each = peak / subject.replicas
    wanted = max(2, 2 ** math.ceil(math.log2(max(1.0, each) * 1.25)))
    if wanted >= most:
        return rule.fine()
    return rule.advise(
        f"At most {peak:.0f} requests ran at once; there are {most * subject.replicas} slots, each with its part "
        "of the KV cache.",
        f"Lower the maximum batch size to {wanted}: memory is free for longer sequences or other deployments. "
        "More requests at once would then wait.",
        Evidence("Highest number running", peak, "", "requests_running"),
        Evidence("Slots", most * subject.replicas),
        Evidence("Requests in this range", requests),
        change=Change("max_batch_size", most, wanted),
        weight="info",
    )


def batch_always_full(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A maximum batch size that is always full while others wait."""
    most = subject.whole("max_batch_size")
    if subject.strategy == "none" or most is None:
        return rule.not_here("One request runs at a time.")
    limit = most * subject.replicas
    # The mean, not the time at the limit: between two requests a slot is free for a moment.
    running, waiting = figures.mean("requests_running"), figures.mean("requests_waiting")
    if running is None or waiting is None:
        return rule.cannot_say("The engine does not tell how many requests run and wait.")
    full = running / limit
    if full < 0.8 or waiting < 1:
        return rule.fine()
    evidence = [
        Evidence("Slots busy, mean", full, "share", "requests_running"),
        Evidence("Waiting, mean", waiting, "", "requests_waiting"),
    ]
    sentence = f"The {limit} slots were {full:.0%} busy, and {waiting:.1f} requests waited on average."
    use = figures.peak("kv_use")
    if use is not None:
        evidence.append(Evidence("KV use, highest", use, "share", "kv_use"))
    # The embedded engine reserves its KV cache by slot, so its use does not speak against more of them.
    if use is not None and use > 0.85 and subject.builder != "llamacpp":
        return rule.advise(
            f"{sentence} The KV cache has no room for more of them.",
            "Add a replica, or give the KV cache more memory.",
            *evidence,
        )
    wanted = min(2 * most, _MOST_BATCH)
    if wanted == most:
        return rule.advise(sentence, "Add a replica: this is the largest batch size.", *evidence)
    return rule.advise(
        sentence,
        f"Raise the maximum batch size to {wanted}. Each answer gets slower, all of them together faster; the KV "
        "cache grows with it.",
        *evidence,
        change=Change("max_batch_size", most, wanted),
    )


def none_while_waiting(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """No batching while requests wait."""
    if subject.strategy != "none":
        return rule.not_here("Requests are batched.")
    waits = figures.share("requests_waiting", lambda waiting: waiting >= 1)
    if waits is None:
        return rule.cannot_say("The engine does not tell how many requests wait.")
    if waits < 0.3:
        return rule.fine()
    return rule.advise(
        f"Requests waited in {waits:.0%} of the time while one at a time ran.",
        "Choose in-flight batching: each request joins at the next token.",
        Evidence("Time in which requests waited", waits, "share", "requests_waiting"),
        Evidence("Waiting, mean", figures.mean("requests_waiting") or 0.0, "", "requests_waiting"),
        change=Change("strategy", "none", "inflight"),
    )


def queue_grows(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A queue that grows under a limit which lets it: more waits than anybody waits for."""
    limit = subject.whole("max_queue_size")
    if not limit:
        return rule.not_here("No request may wait.")
    first, second = figures.halves("requests_waiting")
    rate = figures.mean("requests_per_second")
    if first is None or second is None or rate is None:
        return rule.cannot_say("The engine does not tell how many requests wait and end.")
    if second < first * 1.5 + 2:
        return rule.fine()
    wait = second / rate if rate > 0 else math.inf
    if wait < PATIENCE_SECONDS:
        return rule.fine()
    slots = (subject.slots or 1) * subject.replicas
    wanted = max(slots, math.ceil(rate * PATIENCE_SECONDS))
    sentence = (
        f"Waiting requests grew from {first:.1f} to {second:.1f} while {rate:.2f} a second ended: the last in the "
        f"queue waits {'without end' if math.isinf(wait) else f'some {wait:.0f} s'}."
    )
    evidence = (
        Evidence("Waiting, first half", first, "", "requests_waiting"),
        Evidence("Waiting, second half", second, "", "requests_waiting"),
        Evidence("Ended", rate, "1/s", "requests_per_second"),
        Evidence("Limit of waiting requests", limit),
    )
    if wanted >= limit:
        return rule.advise(sentence, "Add a replica, or admit less at the gateway.", *evidence)
    return rule.advise(
        sentence,
        f"Lower the limit of waiting requests to {wanted}, what is served within {PATIENCE_SECONDS:.0f} s, so that "
        "the rest is refused at once and may go elsewhere; or add a replica.",
        *evidence,
        change=Change("max_queue_size", limit, wanted),
    )


def refused_while_idle(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """Requests that are refused although slots are free most of the time: bursts against a short queue."""
    limit = subject.whole("max_queue_size")
    rejected, rate = figures.amount("requests_rejected_per_second"), figures.amount("requests_per_second")
    if limit is None or rejected is None or rate is None:
        return rule.cannot_say("The engine does not tell how many requests it refuses.")
    slots = (subject.slots or 1) * subject.replicas
    idle = figures.share("requests_running", lambda running: running < slots)
    if idle is None:
        return rule.cannot_say("The engine does not tell how many requests run.")
    if rejected < 1 or rejected < 0.01 * (rate + rejected) or idle < 0.5:
        return rule.fine()
    wanted = max(2 * limit, slots)
    return rule.advise(
        f"{rejected:.0f} requests were refused, yet slots were free in {idle:.0%} of the time: they come in bursts.",
        f"Raise the limit of waiting requests to {wanted}.",
        Evidence("Refused in this range", rejected, "", "requests_rejected_per_second"),
        Evidence("Time with a free slot", idle, "share", "requests_running"),
        change=Change("max_queue_size", limit, wanted),
    )


def _size(value: float | None) -> str:
    return "no size that stands out" if value is None else f"{value:.0f}"


_RUNNING = ("requests_running",)
RULES: tuple[Rule, ...] = (
    Rule("preferred_sizes_never_form", "Preferred sizes form", preferred_sizes),
    Rule("delay_only_adds_latency", "The queue delay pays", delay),
    Rule("batch_size_never_reached", "Slots are used", batch_never_full, _RUNNING),
    Rule(
        "batch_size_always_full", "Slots suffice", batch_always_full, ("requests_running", "requests_waiting")
    ),
    Rule("no_batching_while_waiting", "Requests share the engine", none_while_waiting, ("requests_waiting",)),
    Rule("queue_grows_under_limit", "The queue is short enough", queue_grows, ("requests_waiting",)),
    Rule("refused_while_idle", "The queue is long enough", refused_while_idle),
)
