"""Questions that take several plans: how many at once, the largest batch, the fewest GPUs, what binds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from apps.core.exceptions import InvalidInput
from apps.engines.domain.memory import kv
from apps.engines.domain.memory.plan import Plan, plan
from apps.engines.domain.memory.request import PlanRequest
from apps.engines.domain.memory.shape import Shape

LENGTHS = ((256, 128), (1024, 256), (2048, 512), (4096, 512), (8192, 1024), (32_768, 1024), (131_072, 1024))
LARGEST_BATCH = 4096
TP_SIZES = (1, 2, 4, 8)
PP_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Sequences of `prompt` + `output` tokens that run at once; `held` is what the pool alone would hold."""

    prompt: int
    output: int
    held: int
    running: int
    possible: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """A way to spread a model over GPUs, and what is then left of each for the cache."""

    tp: int
    pp: int
    free_for_kv: int

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.tp * self.pp


def concurrent(answer: Plan, prompt: int, output: int) -> Concurrency:
    """How many requests of that size run at once under GUARANTEED_NO_EVICT, which reserves prompt and output."""
    request = answer.request
    tokens = prompt + output
    if tokens > request.max_seq_len or prompt > answer.longest_prompt:
        return Concurrency(prompt, output, 0, 0, False)
    held = min(_held(rank.pool, rank.groups, request, tokens, output) for rank in answer.ranks)
    return Concurrency(prompt, output, held, min(held, request.max_batch_size * request.pp), True)


def _held(
    pool: kv.Pool, groups: tuple[kv.WindowGroup, ...], request: PlanRequest, tokens: int, output: int
) -> int:
    """Sequences that one rank's pool holds. Blocks of each window group were fixed when the pool was made."""
    if not groups or not pool.blocks:
        return 0
    block, longest = request.tokens_per_block, request.max_seq_len + request.draft_tokens
    shares = [(min(group.window or longest, longest) or 1) * group.bytes_per_token for group in groups]
    found = []
    for group, share in zip(groups, shares, strict=True):
        blocks = (
            pool.blocks
            if group is groups[0]
            else (pool.blocks * share * groups[0].bytes_per_token // (shares[0] * group.bytes_per_token))
        )
        need = kv.blocks_per_sequence(
            tokens,
            block,
            window=group.window,
            bubble=request.sink_bubble,
            beam=request.beam_width,
            output=output,
        )
        found.append(blocks // max(need, 1))
    return min(found)


def concurrency_table(answer: Plan) -> list[Concurrency]:
    """The usual lengths that the plan allows, and one sequence of the whole length."""
    longest = answer.request.max_seq_len
    rows = [(prompt, output) for prompt, output in LENGTHS if prompt + output < longest]
    output = max(1, longest // 8)
    prompt = min(longest - output, answer.longest_prompt)
    if prompt > 0:
        rows.append((prompt, longest - prompt))
    return [concurrent(answer, prompt, output) for prompt, output in rows]


def largest_batch(shape: Shape, request: PlanRequest) -> int:
    """The largest max_batch_size that fits and whose sequences of max_seq_len the pool holds at once; 0: none."""

    def good(batch: int) -> bool:
        answer = plan(shape, replace(request, max_batch_size=batch))
        return answer.fits and (answer.sequences_at_max_seq_len >= batch or not answer.rank.groups)

    if not good(1):
        return 0
    low, high = 1, LARGEST_BATCH
    if good(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def fewest_gpus(shape: Shape, request: PlanRequest, most: int = 64) -> Spread | None:
    """The smallest tp x pp that fits, tp before pp; None where none of up to `most` GPUs does."""
    tps = [tp for tp in (shape.valid_tp or TP_SIZES) if tp <= most]
    sizes = [(tp, pp) for tp in tps for pp in PP_SIZES if tp * pp <= most]
    for tp, pp in sorted(sizes, key=lambda size: (size[0] * size[1], size[1])):
        try:
            answer = plan(shape, replace(request, tp=tp, pp=pp, ep=1))
        except InvalidInput:
            continue
        if answer.fits and (answer.sequences_at_max_seq_len >= 1 or not answer.rank.groups):
            return Spread(tp, pp, answer.rank.free_for_kv)
    return None


def longest_sequence(shape: Shape, request: PlanRequest) -> int:
    """The largest max_seq_len of which one sequence fits, up to the positions of the model; 0: none."""

    def good(tokens: int) -> bool:
        answer = plan(shape, replace(request, max_seq_len=tokens))
        return answer.fits and (answer.sequences_at_max_seq_len >= 1 or not answer.rank.groups)

    high = shape.max_positions or 131_072
    if good(high):
        return high
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def binding(answer: Plan) -> list[tuple[str, str, str]]:
    """What limits this plan first: (field to change, sentence, remedy), as judged."""
    return [
        (finding.where, finding.message, finding.remedy)
        for finding in answer.findings
        if finding.id in BINDING
    ]


BINDING = frozenset(
    {
        "does_not_fit",
        "fits_narrowly",
        "kv_cache_smaller_than_one_sequence",
        "kv_cache_binds",
        "batch_binds",
        "batch_buffers_large",
        "prompt_limited_by_max_num_tokens",
        "kv_heads_copied",
    }
)
