"""Where to begin: what is known of batching before anything is measured, as a cost of each configuration.

Rules of thumb, no figures of the engine: in-flight before dynamic before static before none; about as many slots as
requests will be under way (Little's law over the scenario's load); few instances on one slot; short delays; a large
share for the KV cache; prompts in pieces. The tuner begins with what costs least and lies apart, then believes what
it measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.domain.tuner_space import Config, Parameter, Space, key_of

# Of a token where the scenario's SLO names no time, seconds: what most serving engines stay below.
USUAL_TPOT = 0.05
STRATEGIES = {"inflight": 0.0, "dynamic": 0.8, "static": 1.2, "none": 2.5}
# How much it is worth to lie apart from what was chosen already, in the unit of the costs.
APART = 1.5


def under_way(scenario: Scenario) -> float:
    """About how many requests will be under way at once: clients, or arrivals x tokens x time of a token."""
    if scenario.load.mode == "closed":
        return float(max(scenario.load.concurrency))
    bound = scenario.slo.tpot_ms
    token = bound / 1000 if bound is not None else USUAL_TPOT
    rate = max(scenario.load.rate) if scenario.load.mode == "open" else 1.0
    return max(1.0, rate * scenario.prompts.output.expected * token)


def cost(config: Mapping[str, Any], wanted: float) -> float:
    """How unlikely a configuration is to be the best; about one unit for each thing that is usually wrong."""
    found = STRATEGIES.get(str(config.get("strategy", "inflight")), 1.0)
    replicas = int(config.get("replicas") or 1)
    batch = config.get("max_batch_size")
    if batch:
        found += 0.7 * abs(math.log2(float(batch) * replicas / wanted))
    found += 0.8 * math.log2(replicas)
    found += 0.1 * math.log2(1 + float(config.get("max_queue_delay_microseconds") or 0) / 5000)
    share = config.get("trtllm.kv_cache_free_gpu_mem_fraction")
    if share is not None:
        found += 2.0 * abs(0.9 - float(share))
    if config.get("trtllm.enable_chunked_context") is False:
        found += 0.3
    return found


def begin_with(space: Space, present: Config | None, wanted: float, count: int) -> list[Config]:
    """The present configuration, then the cheapest ones that lie apart from those before. At most `count`."""
    chosen: list[Config] = [present] if present is not None else []
    pool = space.listed() or _about(space, present, wanted)
    costs = {key_of(config): cost(config, wanted) for config in pool}
    while len(chosen) < count and pool:
        taken = {key_of(config) for config in chosen}
        left = [config for config in pool if key_of(config) not in taken]
        if not left:
            break
        chosen.append(min(left, key=lambda each: costs[key_of(each)] - APART * _apart(space, each, chosen)))
    return chosen


def _apart(space: Space, config: Config, others: Sequence[Config]) -> float:
    return min((distance(space, config, other) for other in others), default=0.0)


def distance(space: Space, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """0 for the same, 1 for opposite ends in one parameter; root of the sum of squares over all of them."""
    return math.sqrt(sum(_part(each, one[each.name], other[each.name]) ** 2 for each in space.parameters))


def _part(parameter: Parameter, one: Any, other: Any) -> float:
    if one == other:
        return 0.0
    if not parameter.ordered or len(parameter.values) < 2:
        return 1.0
    return abs(parameter.index(one) - parameter.index(other)) / (len(parameter.values) - 1)


def _about(space: Space, present: Config | None, wanted: float) -> list[Config]:
    """Of a space too large to list: one parameter after the other at its cheapest, and what lies around."""
    config = dict(present or {each.name: each.values[0] for each in space.parameters})
    for parameter in space.parameters:
        choices = [space.same({**config, parameter.name: value}) for value in parameter.values]
        config = min(choices, key=lambda each: cost(each, wanted))
    found = [config, *space.neighbours(config)]
    return found + [near for each in found[1:] for near in space.neighbours(each)][:500]
