"""Our rules against the real server: what they accept it loads, what they refuse it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apps.serving.domain.repository_check.one_config import read_config
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


ABSENT = "tensorrt_llm"
FILES = (
    ACCEPTED
    | REFUSED
    | {
        ABSENT: 'backend: "tensorrtllm" max_batch_size: 8 model_transaction_policy { decoupled: true }\n'
        + ONE
        + CPU
        + QUEUE % "preferred_batch_size: [ 8 ] default_queue_policy { max_queue_size: 64 }"
    }
)


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
    # Completing starts each model's Python once more; every fourth configuration is enough to see that it changes
    # nothing.
    names = list(ACCEPTED)[:: 4 if completes else 1]
    assert refusals(server, names) == {}


def test_what_our_rules_refuse_the_server_refuses(server: RunningServer, completes: bool) -> None:
    assert our_errors(REFUSED).keys() == REFUSED.keys()
    names = list(REFUSED)[:: 2 if completes else 1]
    assert list(refusals(server, names)) == names


def test_a_backend_that_is_not_there_is_all_that_is_wrong(server: RunningServer) -> None:
    assert our_errors({ABSENT: FILES[ABSENT]}) == {}
    assert "unable to find backend library for backend 'tensorrtllm'" in refusal(server, ABSENT)
