"""Our rules against the real server: what they accept it loads, what they refuse it refuses."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from apps.serving.domain import batching, blocks, pbtxt, repository, server_release
from apps.serving.domain.block_messages import compose
from apps.serving.domain.repository_check.one_config import read_config
from apps.serving.domain.trtllm import spec
from apps.serving.domain.trtllm.render import configuration
from benchmarks.serving import RunningServer, ServerProblem, find_installation, serve_folder
from tests.support.triton import TritonInstallation

pytestmark = [pytest.mark.triton, pytest.mark.timeout(180)]

CODE = """
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
ONE = 'input { name: "a" data_type: TYPE_INT32 dims: 1 } output { name: "b" data_type: TYPE_INT32 dims: 1 }\n'
CPU = "instance_group { count: 1 kind: KIND_CPU }\n"
HEAD = f'backend: "python"\n{ONE}'
QUEUE = "dynamic_batching { %s }\n"
ENSEMBLE = (
    'platform: "ensemble" max_batch_size: 4\n' + ONE + 'ensemble_scheduling { step { model_name: "batching" '
    'model_version: -1 input_map { key: "a" value: "a" } output_map { key: "b" value: "b" } } }\n'
)

ACCEPTED: dict[str, str] = {
    "plain": HEAD + CPU,
    "batching": HEAD + CPU + "max_batch_size: 4\n",
    "named": 'name: "named"\n' + HEAD + CPU,
    "queue": HEAD
    + CPU
    + "max_batch_size: 8\n"
    + QUEUE % "preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100",
    "queue_without_batch": HEAD + CPU + QUEUE % "max_queue_delay_microseconds: 100",
    "priorities": HEAD
    + CPU
    + "max_batch_size: 4\n"
    + QUEUE
    % (
        "priority_levels: 2 default_priority_level: 2 priority_queue_policy { key: 1 value { max_queue_size: 4 } } "
        "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 allow_timeout_override: true }"
    ),
    "ordering": HEAD
    + CPU
    + "max_batch_size: 4\n"
    + QUEUE % "preserve_ordering: true priority_levels: 1 default_priority_level: 1",
    "policies_without_levels": HEAD
    + CPU
    + "max_batch_size: 4\n"
    + QUEUE % "priority_queue_policy { key: 3 value { } }",
    "decoupled": HEAD + CPU + "model_transaction_policy { decoupled: true }\n",
    "two_instances": HEAD + "instance_group { count: 2 kind: KIND_CPU }\n",
    "kind_model": HEAD + "instance_group { count: 1 kind: KIND_MODEL }\n",
    "auto": HEAD + "instance_group { count: 1 kind: KIND_AUTO }\n",
    "zero_count": HEAD + "instance_group { count: 0 kind: KIND_CPU }\n",
    "no_group": HEAD,
    "parameters": HEAD + CPU + 'parameters { key: "x" value { string_value: "y" } }\n',
    "latest": HEAD + CPU + "version_policy { latest { num_versions: 1 } }\n",
    "all_versions": HEAD + CPU + "version_policy { all { } }\n",
    "specific": HEAD + CPU + "version_policy { specific { versions: [ 1 ] } }\n",
    "scalar": 'backend: "python" max_batch_size: 2\n'
    'input { name: "a" data_type: TYPE_INT32 dims: 1 reshape { shape: [ ] } }\n'
    'output { name: "b" data_type: TYPE_INT32 dims: -1 }\n' + CPU,
    "optional": 'backend: "python" max_batch_size: 2\n'
    'input { name: "a" data_type: TYPE_STRING dims: -1 optional: true allow_ragged_batch: true }\n'
    'output { name: "b" data_type: TYPE_STRING dims: -1 }\n' + CPU,
    "cache": HEAD + CPU + "response_cache { enable: true }\n",
    "sequences": HEAD + CPU + "max_batch_size: 2\n" + 'sequence_batching { control_input { name: "START" '
    "control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }\n",
    "tags": HEAD + CPU + 'metric_tags { key: "team" value: "a" }\n',
    "guessed_backend": ONE + CPU,
    "ensemble": ENSEMBLE,
}
REFUSED: dict[str, str] = {
    "wrong_name": 'name: "other"\n' + HEAD + CPU,
    "unknown_platform": 'platform: "nonsense"\n' + ONE + CPU,
    "negative_batch": HEAD + CPU + "max_batch_size: -1\n",
    "preferred_over": HEAD + CPU + "max_batch_size: 4\n" + QUEUE % "preferred_batch_size: [ 8 ]",
    "preferred_zero": HEAD + CPU + "max_batch_size: 4\n" + QUEUE % "preferred_batch_size: [ 0 ]",
    "preferred_without_batch": HEAD + CPU + QUEUE % "preferred_batch_size: [ 1 ]",
    "no_default_level": HEAD + CPU + "max_batch_size: 4\n" + QUEUE % "priority_levels: 2",
    "default_level_over": HEAD
    + CPU
    + "max_batch_size: 4\n"
    + QUEUE % "priority_levels: 2 default_priority_level: 3",
    "level_over": HEAD
    + CPU
    + "max_batch_size: 4\n"
    + QUEUE % "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } }",
    "ordering_levels": HEAD
    + CPU
    + "max_batch_size: 4\n"
    + QUEUE % "preserve_ordering: true priority_levels: 2 default_priority_level: 1",
    "ordering_delay": HEAD
    + CPU
    + "max_batch_size: 4\n"
    + QUEUE
    % "preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }",
    "cpu_gpus": HEAD + "instance_group { count: 1 kind: KIND_CPU gpus: [ 0 ] }\n",
    "model_gpus": HEAD + "instance_group { count: 1 kind: KIND_MODEL gpus: [ 0 ] }\n",
    "profile": HEAD + 'instance_group { count: 1 kind: KIND_CPU profile: "x" }\n',
    "no_type": 'backend: "python" input { name: "a" dims: 1 }\noutput { name: "b" data_type: TYPE_INT32 dims: 1 }\n'
    + CPU,
    "no_dims": 'backend: "python" input { name: "a" data_type: TYPE_INT32 }\n'
    'output { name: "b" data_type: TYPE_INT32 dims: 1 }\n' + CPU,
    "zero_dim": 'backend: "python" input { name: "a" data_type: TYPE_INT32 dims: 0 }\n'
    'output { name: "b" data_type: TYPE_INT32 dims: 1 }\n' + CPU,
    "no_tensor_name": 'backend: "python" input { data_type: TYPE_INT32 dims: 1 }\n'
    'output { name: "b" data_type: TYPE_INT32 dims: 1 }\n' + CPU,
    "reshape_size": 'backend: "python" input { name: "a" data_type: TYPE_INT32 dims: 4 reshape { shape: [ 3 ] } }\n'
    'output { name: "b" data_type: TYPE_INT32 dims: 1 }\n' + CPU,
    "reshape_scalar": 'backend: "python" input { name: "a" data_type: TYPE_INT32 dims: 1 reshape { shape: [ ] } }\n'
    'output { name: "b" data_type: TYPE_INT32 dims: 1 }\n' + CPU,
    "shape_tensor": 'backend: "python" input { name: "a" data_type: TYPE_INT32 dims: 1 is_shape_tensor: true }\n'
    'output { name: "b" data_type: TYPE_INT32 dims: 1 }\n' + CPU,
    "format": 'backend: "python" input { name: "a" data_type: TYPE_INT32 dims: 1 format: FORMAT_NHWC }\n'
    'output { name: "b" data_type: TYPE_INT32 dims: 1 }\n' + CPU,
    "cache_decoupled": HEAD
    + CPU
    + "response_cache { enable: true } model_transaction_policy { decoupled: true }\n",
    "cache_sequences": HEAD
    + CPU
    + "max_batch_size: 2 response_cache { enable: true } sequence_batching { }\n",
    "latest_none": HEAD + CPU + "version_policy { latest { } }\n",
    "unknown_field": HEAD + CPU + "decoupled: true\n",
    "lower_kind": HEAD + "instance_group { kind: kind_cpu }\n",
    "twice": HEAD + CPU + "max_batch_size: 1 max_batch_size: 2\n",
    "two_schedulers": HEAD + CPU + "dynamic_batching { } sequence_batching { }\n",
    "variable": HEAD + CPU + "max_batch_size: ${triton_max_batch_size}\n",
    "priority_list": HEAD + CPU + QUEUE % "priority_levels { level: 2 }",
    "control_values": HEAD
    + CPU
    + 'sequence_batching { control_input { name: "S" control { kind: CONTROL_SEQUENCE_START } } }\n',
    "ensemble_group": ENSEMBLE + CPU,
    "ensemble_backend": ENSEMBLE + 'backend: "python"\n',
    "ensemble_without_steps": 'platform: "ensemble"\n' + ONE,
    "ensemble_scheduling": HEAD
    + 'ensemble_scheduling { step { model_name: "plain" input_map { key: "a" value: "a" } '
    'output_map { key: "b" value: "b" } } }\n',
    "ensemble_incomplete": 'platform: "ensemble"\n'
    + ONE
    + 'ensemble_scheduling { step { model_name: "plain" } }\n',
}


# Configurations whose backend this server does not have: what it says tells whether it took everything else.
ABSENT = 'backend: "tensorrtllm"\n' + ONE + CPU + "max_batch_size: 4\n"
START = 'control_input { name: "S" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } '
SEQUENCES = ABSENT + "sequence_batching { " + START + "%s }\n"
GROUP = 'backend: "tensorrtllm"\n' + ONE + "instance_group { kind: KIND_CPU count: 1 %s }\n"
WARMUP = ABSENT + 'model_warmup { name: "w" batch_size: %s inputs { key: "a" value { %s } } }\n'
ZEROS = "data_type: TYPE_INT32 dims: 1 zero_data: true"
PARSED: dict[str, str] = {
    "tensorrt_llm": ABSENT
    + QUEUE % "preferred_batch_size: [ 4 ] default_queue_policy { max_queue_size: 64 }",
    "limiter": GROUP % 'rate_limiter { resources { name: "R" count: 2 } priority: 2 }',
    "limiter_global": GROUP % 'rate_limiter { resources { name: "G" global: true count: 2 } }',
    "host_policy": GROUP % 'host_policy: "nowhere"',
    "passive": GROUP % "passive: true",
    "direct": SEQUENCES % "direct { max_queue_delay_microseconds: 5 minimum_slot_utilization: 0.5 }",
    "oldest": SEQUENCES % "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2 ] }",
    "iterative": SEQUENCES % "iterative_sequence: true max_sequence_idle_microseconds: 5",
    "correlation": SEQUENCES
    % 'control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }',
    "state": SEQUENCES % 'state { input_name: "i" output_name: "o" data_type: TYPE_INT32 dims: 1 }',
    "warmup": WARMUP % ("1", ZEROS),
    "optimization": ABSENT
    + "optimization { priority: PRIORITY_MAX cuda { graphs: true } eager_batching: true }\n",
    "specific_some": ABSENT + "version_policy { specific { versions: [ 1, 7 ] } }\n",
    "tensorflow": 'platform: "tensorflow_graphdef"\n' + ONE + CPU,
}
REFUSED_BLOCKS: dict[str, str] = {
    "oldest_over": SEQUENCES % "oldest { preferred_batch_size: [ 8 ] }",
    "oldest_zero": SEQUENCES % "oldest { preferred_batch_size: [ 0 ] }",
    "direct_over": SEQUENCES % "direct { minimum_slot_utilization: 1.5 }",
    "control_twice": SEQUENCES
    % 'control_input { name: "T" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }',
    "control_name_twice": SEQUENCES
    % 'control_input { name: "S" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } }',
    "correlation_type": SEQUENCES
    % 'control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } }',
    "correlation_values": SEQUENCES
    % 'control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 '
    "int32_false_true: [ 0, 1 ] } }",
    "specific_none": ABSENT + "version_policy { specific { } }\n",
    "level_delay": ABSENT
    + QUEUE
    % (
        "preserve_ordering: true priority_levels: 1 default_priority_level: 1 priority_queue_policy "
        "{ key: 1 value { timeout_action: DELAY default_timeout_microseconds: 5 } }"
    ),
    # Newer servers know these two.
    "inflight_limit": ENSEMBLE.replace(
        "ensemble_scheduling {", "ensemble_scheduling { max_inflight_requests: 4"
    ),
    "model_metrics": ABSENT + "model_metrics { metric_control { metric_identifier { family: "
    '"nv_inference_first_response_histogram_ms" } histogram_options { buckets: [ 1, 2 ] } } }\n',
}
# Instances and warm-ups come after the backend was found, so these need one that is there. A warm-up over
# max_batch_size is not among them: 24.10 refuses it or dies of it.
REFUSED_LATER: dict[str, str] = {
    "profile_digits": GROUP % 'profile: "1"',
    "warmup_type": WARMUP % ("1", "data_type: TYPE_FP32 dims: 1 zero_data: true"),
    "warmup_dims": WARMUP % ("1", "data_type: TYPE_INT32 dims: -1 zero_data: true"),
}
REFUSED_LATER = {name: text.replace("tensorrtllm", "python") for name, text in REFUSED_LATER.items()}


def embedded() -> dict[str, str]:
    """The embedded model as profiles with classes and timeouts render it, on a backend that is not there."""
    common = {"max_batch_size": 4, "max_seq_len": 256, "max_queue_size": 8, "threads": 0}
    common |= {"max_queue_delay_microseconds": 100, "queue_timeout_microseconds": 500}
    classes = [{"name": "high", "max_queue_size": 2}, {"name": "low", "queue_timeout_microseconds": 900}]
    found: dict[str, str] = {}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("static", {"priority_classes": classes, "timeout_action": "delay"}),
        (
            "dynamic",
            {"priority_classes": classes, "default_priority_class": "low", "preferred_batch_sizes": [2]},
        ),
        ("dynamic", {"preserve_ordering": True, "timeout_action": "delay", "allow_timeout_override": False}),
    ]
    for strategy, more in kinds:
        facts = batching.facts({**common, "strategy": strategy, **more})
        model = repository.LlamaCppModel(f"embedded_{len(found)}", "/engines/x.gguf", "cpu", facts)
        text = pbtxt.render(repository.model_config(model))
        found[model.name] = text.replace('backend: "python"', 'backend: "tensorrtllm"')
    return found


PARSED |= embedded()


def generated() -> dict[str, str]:
    """Configurations put together at random, always the same ones: some good, some not."""
    pick = random.Random(20)
    found = {}
    for index in range(24):
        most = pick.choice([0, 2, 4])
        levels = pick.choice([0, 0, 1, 3])
        policy = blocks.QueuePolicy(
            pick.choice(["REJECT", "DELAY"]), pick.choice([0, 5]), pick.random() < 0.5, 4
        )
        batching = blocks.DynamicBatching(
            tuple(pick.sample([1, 2, 4, 6], pick.choice([0, 0, 1]))),
            pick.choice([0, 100]),
            pick.random() < 0.3,
            levels,
            pick.choice([0, 1, 2]) if levels else 0,
            policy if pick.random() < 0.5 else None,
            {pick.choice([1, 2]): policy} if pick.random() < 0.4 else {},
        )
        model = blocks.Model(
            f"generated_{index}",
            backend="tensorrtllm",
            max_batch_size=most,
            input=(blocks.Input("a", "TYPE_INT32", (pick.choice([1, -1, 4]),)),),
            output=(blocks.Output("b", "TYPE_FP32", (1,)),),
            dynamic_batching=batching if pick.random() < 0.8 else None,
            instance_group=(blocks.InstanceGroup("KIND_CPU"),),
            version_policy=pick.choice(
                [None, blocks.VersionPolicy(latest=blocks.Latest(pick.choice([0, 1, 1, 1])))]
            ),
        )
        found[model.name] = pbtxt.render(compose(model))
    return found


GENERATED = generated()


def rendered() -> dict[str, str]:
    """What we render for TensorRT-LLM, of two releases, by model; with suffix _w on a backend that is there."""
    found: dict[str, str] = {}
    common = {"recipe": "engine", "model": "/engines/x", "max_batch_size": 4, "instances": {"bls": 1}}
    for suffix, release in (("_a", "0.19"), ("_b", "1.2"), ("_w", "1.2")):
        wanted = spec.parse(common | {"version": release, "suffix": suffix})
        found |= {path.split("/")[0]: text for path, text in configuration(wanted).items()}
    for name in [name for name in found if name.endswith("_w")]:
        found[name] = found[name].replace('backend: "tensorrtllm"', 'backend: "python"')
    wanted = spec.parse({"recipe": "checkpoint", "model": "/checkpoints/x", "suffix": "_c"})
    return found | {"tensorrt_llm_c": configuration(wanted)["tensorrt_llm_c/config.pbtxt"]}


RENDERED = rendered()
FILES = ACCEPTED | REFUSED | PARSED | REFUSED_BLOCKS | REFUSED_LATER | GENERATED | RENDERED


def fill(root: Path) -> None:
    for name, text in FILES.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(text)
        (root / name / "1/model.py").write_text(CODE)


@pytest.fixture(scope="module", params=[False, True], ids=["as written", "auto-complete"])
def completes(request: pytest.FixtureRequest) -> bool:
    """Whether the server completes configurations, as it does unless it is told not to."""
    return bool(request.param)


@pytest.fixture(scope="module")
def server(completes: bool, triton_installation: TritonInstallation) -> Iterator[RunningServer]:
    """One server over every configuration, started as we do and as most people do."""
    without = ("--disable-auto-complete-config",) if completes else ()
    with serve_folder(find_installation(triton_installation.values), fill, without) as running:
        yield running


def refusals(server: RunningServer, names: Iterable[str]) -> dict[str, str]:
    """What the server says of those that it does not load."""
    with ThreadPoolExecutor(4) as pool:
        said = pool.map(lambda name: (name, refusal(server, name)), names)
        return {name: text for name, text in said if text}


def refusal(server: RunningServer, name: str) -> str:
    try:
        server.control(f"/v2/repository/models/{name}/load")
    except ServerProblem as problem:
        return str(problem)
    return ""


def our_errors(names: dict[str, str]) -> dict[str, list[str]]:
    found = {name: [remark.id for remark in read_config(text, name).errors()] for name, text in names.items()}
    return {name: ids for name, ids in found.items() if ids}


def test_what_our_rules_accept_the_server_loads(server: RunningServer, completes: bool) -> None:
    assert our_errors(ACCEPTED) == {}
    # Completing starts each model's Python once more; every seventh configuration is enough to see that it changes
    # nothing.
    names = list(ACCEPTED)[:: 7 if completes else 1]
    assert refusals(server, names) == {}


def test_what_our_rules_refuse_the_server_refuses(server: RunningServer, completes: bool) -> None:
    assert our_errors(REFUSED).keys() == REFUSED.keys()
    names = list(REFUSED)[:: 2 if completes else 1]
    assert list(refusals(server, names)) == names


def errors_here(names: Iterable[str]) -> set[str]:
    """Those that our rules refuse for the release of the embedded server."""
    parsed = {name: pbtxt.findings(pbtxt.parse(FILES[name]), name, server_release.EMBEDDED) for name in names}
    return {name for name, found in parsed.items() if any(item.severity == "error" for item in found)}


def test_blocks_are_parsed_to_the_point_where_the_backend_is_missing(server: RunningServer) -> None:
    assert errors_here(PARSED) == set()
    said = refusals(server, PARSED)
    assert {name for name, text in said.items() if "unable to find backend library" in text} == set(PARSED)


def test_blocks_that_our_rules_refuse_the_server_refuses(server: RunningServer, completes: bool) -> None:
    names = [*REFUSED_BLOCKS, *(() if completes else REFUSED_LATER)]
    assert errors_here(names) == set(names)
    said = refusals(server, names)
    assert set(said) == set(names)
    assert not [name for name in REFUSED_BLOCKS if "unable to find backend library" in said[name]]


def test_our_rules_and_the_server_agree_about_generated_configurations(server: RunningServer) -> None:
    said = refusals(server, GENERATED)
    taken = {name for name, text in said.items() if "unable to find backend library" in text}
    assert set(said) - taken == errors_here(GENERATED)
    # Both kinds are among them.
    assert 5 <= len(taken) <= len(GENERATED) - 5


def test_what_we_render_for_tensorrt_llm_is_parsed(server: RunningServer, completes: bool) -> None:
    assert our_errors(RENDERED) == {}
    engines = ["tensorrt_llm_a", "tensorrt_llm_b"]
    for text in refusals(server, engines).values():
        assert "unable to find backend library for backend 'tensorrtllm'" in text
    if not completes:
        # Loading the ensemble loads its steps: the server itself checks names, types and shapes of the wiring.
        assert refusals(server, ["ensemble_w"]) == {}
        assert refusals(server, ["tensorrt_llm_bls_w", "tensorrt_llm_c"]) == {}
