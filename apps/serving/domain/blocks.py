"""Typed building blocks of a model configuration, each with the field names of Triton's message of the same name.

`block_messages.compose` makes the protobuf message, `read` the blocks of one; between them nothing is lost.
Enumerations are words as the text form spells them (`KIND_GPU`, `TYPE_INT32`). Source: model_config.proto of 2.73.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"]
TimeoutAction = Literal["REJECT", "DELAY"]
Control = Literal[
    "CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_CORRID"
]


@dataclass(frozen=True, slots=True)
class Reshape:
    """The shape that the backend sees; empty for a scalar."""

    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Input:
    """One input; `dims` are without the batch dimension."""

    name: str
    data_type: str
    dims: tuple[int, ...] = (1,)
    reshape: Reshape | None = None
    optional: bool = False
    allow_ragged_batch: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """One output; `dims` are without the batch dimension."""

    name: str
    data_type: str
    dims: tuple[int, ...] = (1,)
    reshape: Reshape | None = None
    label_filename: str = ""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """One queue: its size (0: any), how long a request may wait in it (microseconds, 0: for ever), and then what.

    A request's own timeout is honoured only where it is allowed and shorter than the default one.
    """

    timeout_action: TimeoutAction = "REJECT"
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """Triton's batcher. `priority_levels` 0: none; 1 is the most urgent. `priority_queue_policy` is by level."""

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy | None = None
    priority_queue_policy: dict[int, QueuePolicy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resource:
    """Something an instance takes while it runs; `everywhere` (Triton: global) for one shared by all devices."""

    name: str
    count: int = 1
    everywhere: bool = field(default=False, metadata={"field": "global"})


@dataclass(frozen=True, slots=True)
class RateLimiter:
    """Acts with `--rate-limit=execution_count` alone. A higher `priority` is scheduled less often; 0 means 1."""

    resources: tuple[Resource, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """`count` instances, on each of `gpus`; `host_policy` names one of the server's `--host-policy`."""

    kind: Kind = "KIND_AUTO"
    count: int = 1
    gpus: tuple[int, ...] = ()
    name: str = ""
    rate_limiter: RateLimiter | None = None
    profile: tuple[str, ...] = ()
    passive: bool = False
    host_policy: str = ""


@dataclass(frozen=True, slots=True)
class TransactionPolicy:
    """`decoupled`: any number of answers for each request, as streaming needs."""

    decoupled: bool = False


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest versions."""

    num_versions: int = 1


@dataclass(frozen=True, slots=True)
class All:
    """Every version."""


@dataclass(frozen=True, slots=True)
class Specific:
    """These versions."""

    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Which versions are served; exactly one is set."""

    latest: Latest | None = None
    all: All | None = None
    specific: Specific | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One model of an ensemble: `input_map` is {its input: ensemble tensor}, `output_map` {its output: tensor}."""

    model_name: str
    input_map: dict[str, str]
    output_map: dict[str, str]
    model_version: int = -1


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The steps. `max_inflight_requests` (0: any) is known from 25.11 on."""

    step: tuple[Step, ...]
    max_inflight_requests: int = 0


@dataclass(frozen=True, slots=True)
class Direct:
    """Each sequence keeps its slot."""

    max_queue_delay_microseconds: int = 0
    minimum_slot_utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest sequences are batched together."""

    max_candidate_sequences: int = 0
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class SequenceControl:
    """What a control tensor says. START, READY and END have one pair of values, CORRID a data type."""

    kind: Control
    int32_false_true: tuple[int, ...] = ()
    fp32_false_true: tuple[float, ...] = ()
    bool_false_true: tuple[bool, ...] = ()
    data_type: str = "TYPE_INVALID"


@dataclass(frozen=True, slots=True)
class ControlInput:
    """One control tensor."""

    name: str
    control: tuple[SequenceControl, ...]


@dataclass(frozen=True, slots=True)
class InitialState:
    """Where an implicit state begins: zeros, or a file in the model's folder `initial_state`."""

    name: str
    data_type: str
    dims: tuple[int, ...]
    zero_data: bool = False
    data_file: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """One implicit state, an output that is the next request's input."""

    input_name: str
    output_name: str
    data_type: str
    dims: tuple[int, ...]
    initial_state: tuple[InitialState, ...] = ()
    use_same_buffer_for_input_output: bool = False
    use_growable_memory: bool = False


@dataclass(frozen=True, slots=True)
class SequenceBatching:
    """The sequence batcher; at most one of `direct` and `oldest`."""

    direct: Direct | None = None
    oldest: Oldest | None = None
    max_sequence_idle_microseconds: int = 0
    control_input: tuple[ControlInput, ...] = ()
    state: tuple[State, ...] = ()
    iterative_sequence: bool = False


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One input of a warm-up: zeros, random values, or a file in the model's folder `warmup`."""

    data_type: str
    dims: tuple[int, ...]
    zero_data: bool = False
    random_data: bool = False
    input_data_file: str = ""


@dataclass(frozen=True, slots=True)
class Warmup:
    """A request that runs before the model is ready; `batch_size` 0 skips it, `count` 0 runs it once."""

    name: str
    batch_size: int
    inputs: dict[str, WarmupInput]
    count: int = 0


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""

    enable: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Graph optimisation of ONNX Runtime and TensorFlow."""

    level: int = 0


@dataclass(frozen=True, slots=True)
class Cuda:
    """CUDA options of the TensorRT backend."""

    graphs: bool = False
    busy_wait_events: bool = False
    output_copy_stream: bool = False


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One execution accelerator with its parameters."""

    name: str
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accelerators:
    """Execution accelerators of ONNX Runtime."""

    gpu_execution_accelerator: tuple[Accelerator, ...] = ()
    cpu_execution_accelerator: tuple[Accelerator, ...] = ()


@dataclass(frozen=True, slots=True)
class Optimization:
    """What a backend may do to run faster."""

    graph: Graph | None = None
    priority: Literal["PRIORITY_DEFAULT", "PRIORITY_MAX", "PRIORITY_MIN"] = "PRIORITY_DEFAULT"
    cuda: Cuda | None = None
    execution_accelerators: Accelerators | None = None
    input_pinned_memory: Switch | None = None
    output_pinned_memory: Switch | None = None
    gather_kernel_buffer_threshold: int = 0
    eager_batching: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """A whole model configuration; at most one of the three schedulers."""

    name: str
    backend: str = ""
    platform: str = ""
    max_batch_size: int = 0
    input: tuple[Input, ...] = ()
    output: tuple[Output, ...] = ()
    dynamic_batching: DynamicBatching | None = None
    sequence_batching: SequenceBatching | None = None
    ensemble_scheduling: Ensemble | None = None
    instance_group: tuple[InstanceGroup, ...] = ()
    model_transaction_policy: TransactionPolicy | None = None
    version_policy: VersionPolicy | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    model_warmup: tuple[Warmup, ...] = ()
    optimization: Optimization | None = None
    default_model_filename: str = ""
    metric_tags: dict[str, str] = field(default_factory=dict)
    response_cache: Switch | None = None
