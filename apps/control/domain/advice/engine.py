"""Rules about the engine: KV cache, reuse, processor and GPU, long prompts, figures that stand still."""

from __future__ import annotations

import math

from apps.control.domain.advice.batching import LEAST_REQUESTS
from apps.control.domain.advice.figures import Figures
from apps.control.domain.advice.message import message as _
from apps.control.domain.advice.outcome import Change, Evidence, Outcome, Rule, Subject

# Below this a sequence would be refused that anybody sends.
_LEAST_SEQ_LEN = 256


def kv_too_small(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A KV cache that is full while requests wait or are put aside."""
    full = figures.share("kv_use", lambda use: use >= 0.95)
    waiting = figures.mean("requests_waiting")
    if full is None:
        return rule.cannot_say(_("The engine does not tell how full its KV cache is."))
    paused = figures.peak("requests_paused") or 0.0
    if full < 0.2 or ((waiting or 0.0) < 0.5 and paused < 1):
        return rule.fine()
    evidence = [Evidence(_("Time with KV use above 95%"), full, "share", "kv_use")]
    if waiting is not None:
        evidence.append(Evidence(_("Waiting, mean"), waiting, "", "requests_waiting"))
    if paused:
        evidence.append(Evidence(_("Put aside at once, most"), paused, "", "requests_paused"))
    return rule.advise(
        _(
            "The KV cache was full in %(full)s of the time while requests waited or were put aside.",
            full=f"{full:.0%}",
        ),
        _(
            "Give the KV cache more memory (a larger share, 8-bit KV, weights of fewer "
            "bits), shorten sequences, or add a replica."
        ),
        *evidence,
    )


def kv_idle(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A KV cache that is hardly used."""
    length, peak = subject.whole("max_seq_len"), figures.peak("kv_use")
    requests = figures.amount("requests_per_second")
    if peak is None or requests is None:
        return rule.cannot_say(_("The engine does not tell how full its KV cache is."))
    if requests < LEAST_REQUESTS or figures.seconds < 600:
        return rule.cannot_say(
            _("Ten minutes with at least %(least)s requests are needed.", least=str(LEAST_REQUESTS))
        )
    if peak > 0.2:
        return rule.fine()
    evidence = [
        Evidence(_("KV use, highest"), peak, "share", "kv_use"),
        Evidence(_("Requests in this range"), requests),
    ]
    sentence = _("At most %(peak)s of the KV cache was used.", peak=f"{peak:.0%}")
    longest = _longest_sequence(figures)
    if subject.builder != "llamacpp" or length is None or longest is None:
        return rule.advise(
            sentence, _("Lower its share of memory where something else needs it."), *evidence, weight="info"
        )
    # Twice what was seen, in steps of 256 tokens: the embedded engine reserves this for each slot.
    wanted = max(_LEAST_SEQ_LEN, math.ceil(2 * longest / 256) * 256)
    if wanted >= length:
        return rule.fine()
    return rule.advise(
        _(
            "%(sentence)s The longest sequences held about %(longest)s tokens; %(length)s "
            "are reserved for each slot.",
            sentence=sentence,
            longest=f"{longest:.0f}",
            length=str(length),
        ),
        _(
            "Lower the maximum sequence length to %(wanted)s tokens. Longer prompts and "
            "answers would be refused.",
            wanted=str(wanted),
        ),
        *evidence,
        Evidence(_("Longest sequence, about"), longest, "tokens"),
        change=Change("max_seq_len", length, wanted),
        weight="info",
    )


def _longest_sequence(figures: Figures) -> float | None:
    """Tokens of the longest sequences: of prompts and answers where they are told, else by KV tokens per request."""
    prompt, answer = (figures.distributions.get(name) for name in ("prompt_tokens", "generated_tokens"))
    if prompt is not None and answer is not None and prompt.total and answer.total:
        ends = prompt.highest(), answer.highest()
        if ends[0] is not None and ends[1] is not None:
            return ends[0] + ends[1]
    found = [
        used / running
        for sample in figures.samples
        if (used := sample.get("kv_tokens_used")) and (running := sample.get("requests_running"))
    ]
    return max(found, default=None)


def reuse_without_hits(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """Reuse of the KV cache that is on and finds nothing."""
    if subject.reuse is None:
        return rule.cannot_say(_("Whether the engine reuses its KV cache is not known."))
    if not subject.reuse:
        return rule.not_here(_("The engine does not reuse its KV cache."))
    share, requests = figures.mean("cached_prompt_share"), figures.amount("requests_per_second")
    if share is None or requests is None or requests < LEAST_REQUESTS:
        return rule.cannot_say(
            _("Fewer than %(least)s requests ended, or hits are not told.", least=str(LEAST_REQUESTS))
        )
    if share >= 0.02:
        return rule.fine()
    prompts = figures.mean("prompt_tokens_per_second") or 0.0
    return rule.advise(
        _(
            "%(share)s of prompt tokens came from the cache in %(requests)s requests.",
            share=f"{share:.1%}",
            requests=f"{requests:.0f}",
        ),
        _(
            "Put what prompts share (system prompt, documents) at their beginning and what "
            "changes (dates, names) at the end, and send a conversation to the same server; "
            "else reuse only costs memory."
        ),
        Evidence(_("Prompt tokens from cache"), share, "share", "cached_prompt_share"),
        Evidence(_("Prompt tokens"), prompts, "1/s", "prompt_tokens_per_second"),
        weight="info",
    )


def reuse_across_replicas(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """Much comes from the cache, and several servers each hold their own."""
    if subject.replicas < 2:
        return rule.not_here(_("There is one server, so every prompt meets the same cache."))
    share = figures.mean("cached_prompt_share")
    if share is None:
        return rule.cannot_say(_("Hits are not told."))
    if share < 0.3:
        return rule.fine()
    return rule.advise(
        _(
            "%(share)s of prompt tokens come from the cache, and %(replicas)s servers each hold their own.",
            share=f"{share:.0%}",
            replicas=str(subject.replicas),
        ),
        _("Let the route choose servers by prefix: the same beginning then meets the cache that holds it."),
        Evidence(_("Prompt tokens from cache"), share, "share", "cached_prompt_share"),
        Evidence(_("Servers"), subject.replicas),
        weight="info",
    )


def cpu_bound(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A processor that is busy while the GPU waits: tokenising and the like."""
    if subject.device != "gpu":
        return rule.not_here(_("The engine itself runs on the processor."))
    busy = [s for s in figures.samples if (s.get("requests_running") or 0) >= 1]
    within = Figures(figures.since, figures.until, tuple(busy))
    cpu, gpu = within.mean("cpu_use"), within.mean("gpu_use")
    host = within.mean("host_cpu_use")
    if cpu is None or gpu is None:
        return rule.cannot_say(_("Use of processor and GPU is not told for this server."))
    if len(busy) < 30:
        return rule.cannot_say(_("Requests ran for less than half a minute."))
    if max(cpu, host or 0.0) < 0.8 or gpu > 0.6:
        return rule.fine()
    return rule.advise(
        _(
            "While requests ran, the processor was %(cpu)s busy and the GPU %(gpu)s: tokens "
            "are made from text, or text from tokens, more slowly than the GPU needs them.",
            cpu=f"{max(cpu, host or 0.0):.0%}",
            gpu=f"{gpu:.0%}",
        ),
        _(
            "Give the host more cores, use a fast tokenizer, and more instances of the "
            "preprocessing and postprocessing models; keep other work off the host."
        ),
        Evidence(_("Processor, servers"), cpu, "share", "cpu_use"),
        Evidence(_("GPU"), gpu, "share", "gpu_use"),
    )


def gpu_idle(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """A GPU that idles while requests wait."""
    if subject.device != "gpu":
        return rule.not_here(_("The engine runs on the processor."))
    waits = [s for s in figures.samples if (s.get("requests_waiting") or 0) >= 1]
    gpu = Figures(figures.since, figures.until, tuple(waits)).mean("gpu_use")
    if figures.mean("gpu_use") is None:
        return rule.cannot_say(_("Use of the GPU is not told."))
    if len(waits) < 30 or gpu is None or gpu > 0.3:
        return rule.fine()
    use = figures.mean("kv_use")
    evidence = [
        Evidence(_("GPU while requests waited"), gpu, "share", "gpu_use"),
        Evidence(_("Seconds in which requests waited"), len(waits), "s", "requests_waiting"),
    ]
    if use is not None:
        evidence.append(Evidence(_("KV use, mean"), use, "share", "kv_use"))
    return rule.advise(
        _(
            "Requests waited for %(waits)s s while the GPU was %(gpu)s busy: something "
            "before it holds them back.",
            waits=f"{len(waits)}",
            gpu=f"{gpu:.0%}",
        ),
        _("Look at the maximum batch size, the KV cache, a queue delay, and the processor, in this order."),
        *evidence,
    )


def long_prompts(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """Long prompts that stop everybody's tokens, without chunked context."""
    if subject.chunked_context:
        return rule.not_here(_("Prompts are processed in chunks."))
    prompts = figures.values("prompt_tokens_per_second")
    if not prompts or figures.mean("itl_p99_ms") is None:
        return rule.cannot_say(_("Prompt tokens and inter-token latency are not told."))
    level = max(prompts) / 2
    if level < 100:
        return rule.fine()
    during = figures.mean(
        "itl_p99_ms", lambda sample: (sample.get("prompt_tokens_per_second") or 0.0) >= level
    )
    calm = figures.mean(
        "itl_p99_ms", lambda sample: (sample.get("prompt_tokens_per_second") or 0.0) < level / 4
    )
    if during is None or calm is None or calm <= 0:
        return rule.cannot_say(_("There were no times with and without long prompts to compare."))
    if during < 3 * calm or during < 100:
        return rule.fine()
    evidence = (
        Evidence(_("ITL p99 while prompts are processed"), during, "ms", "itl_p99_ms"),
        Evidence(_("ITL p99 otherwise"), calm, "ms", "itl_p99_ms"),
        Evidence(_("Prompt tokens, highest"), max(prompts), "1/s", "prompt_tokens_per_second"),
    )
    known = _("is off") if subject.chunked_context is False else _("is not known to be on")
    change = None
    if "enable_chunked_context" in subject.batching:
        change = Change("enable_chunked_context", False, True)
    return rule.advise(
        _(
            "Answers stall %(times)s times longer between tokens while long prompts are "
            "processed, and chunked context %(known)s.",
            times=f"{during / calm:.1f}",
            known=known,
        ),
        _(
            "Switch chunked context on (TensorRT-LLM: enable_chunked_context, with paged "
            "context attention in the engine); without it, keep long prompts on a deployment "
            "of their own."
        ),
        *evidence,
        change=change,
    )


def stands_still(rule: Rule, subject: Subject, figures: Figures) -> Outcome:
    """Figures of the engine that do not change although requests are active."""
    stale = figures.values("engine_stale")
    if not stale:
        return rule.not_here(_("The engine's figures are always current."))
    stuck = [
        sample
        for sample in figures.samples
        if (sample.get("engine_stale") or 0) >= 1 and (sample.get("requests_active") or 0) >= 1
    ]
    share = len(stuck) / len(figures.samples)
    if len(stuck) < 30 or share < 0.2:
        return rule.fine()
    return rule.advise(
        _("The engine took no step for %(stuck)s s although requests were active.", stuck=f"{len(stuck)}"),
        _("See the server's log on the tab Instances; restart the server if it hangs."),
        Evidence(_("Seconds without a step"), len(stuck), "s", "engine_stale"),
        Evidence(_("Share of this range"), share, "share"),
    )


RULES: tuple[Rule, ...] = (
    Rule("kv_cache_too_small", _("The KV cache is large enough"), kv_too_small, ("kv_use",)),
    Rule("kv_cache_idle", _("The KV cache is used"), kv_idle, ("kv_use",)),
    Rule("reuse_without_hits", _("Reuse finds something"), reuse_without_hits),
    Rule("reuse_across_replicas", _("Prompts meet their cache"), reuse_across_replicas),
    Rule("cpu_bound", _("The processor keeps up"), cpu_bound),
    Rule("gpu_idle_while_waiting", _("The GPU is kept busy"), gpu_idle),
    Rule("long_prompts_starve_decode", _("Long prompts stall nobody"), long_prompts),
    Rule("engine_stands_still", _("The engine goes on"), stands_still),
)
