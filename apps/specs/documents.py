"""The documents of configuration as code: `apiVersion: inflight/v1` and one shape for each kind.

Unknown fields are refused. Field names are the API's own in camelCase (`maxBatchSize`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from apps.chat.prompt_sets import PromptSetFields
from apps.core.exceptions import Finding, InvalidInput
from apps.core.names import NAME_PATTERN
from apps.engines.shapes import (
    BuildProfileFields,
    CalibrationFields,
    ParallelFields,
    QuantizationProfileFields,
    TargetFields,
    of_builder,
)
from apps.fleet.domain.host_policy import HostPolicy
from apps.fleet.shapes import MOST_SLOTS, NodeFields, SlotFields
from apps.gateway.shapes import ExternalFields, RouteFields, Target
from apps.loadtests.shapes import LoadTestFields, QualityGateFields
from apps.registry.shapes import CheckpointFields
from apps.serving.autoscale_policy import MOST_ENTRIES, Scaling, ScalingTarget, ScheduleEntry
from apps.serving.models import Deployment
from apps.serving.policies import MOST_STEPS, CanaryStep, Rollout, Slo
from apps.serving.repository_shapes import ModelRepositoryFields, RepositorySource
from apps.serving.shapes import BatchingProfileFields, DeploymentFields
from apps.specs import problems
from apps.specs.yaml_reader import RawDocument, read_documents
from apps.telemetry.alerts.inputs import STATES
from apps.telemetry.alerts.shapes import AlertRuleFields
from apps.telemetry.domain.alerting import conditions

API_VERSION = "inflight/v1"
# As fleet.join_tokens takes them.
NODE_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$"
_CAMEL = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=False)


class HostPolicySpec(HostPolicy):
    """`policy` of a Node."""

    model_config = _CAMEL


class SlotSpec(SlotFields):
    """One of a Node's `slots`."""

    model_config = _CAMEL


class NodeSpec(NodeFields):
    """`spec` of a Node: a host that has joined."""

    model_config = _CAMEL

    policy: HostPolicySpec = Field(default_factory=lambda: HostPolicySpec.model_validate({}))
    slots: list[SlotSpec] = Field(default_factory=list, max_length=MOST_SLOTS)  # type: ignore[assignment]


class CheckpointSpec(CheckpointFields):
    """`spec` of a Checkpoint."""

    model_config = _CAMEL


class CalibrationSpec(CalibrationFields):
    """`calibration` of a QuantizationProfile."""

    model_config = _CAMEL


class QuantizationProfileSpec(QuantizationProfileFields):
    """`spec` of a QuantizationProfile."""

    model_config = _CAMEL

    calibration: CalibrationSpec = Field(default_factory=CalibrationSpec)


class ParallelSpec(ParallelFields):
    """`parallel` of a BuildProfile."""

    model_config = _CAMEL


class BuildTargetSpec(TargetFields):
    """`target` of a BuildProfile."""

    model_config = _CAMEL


class BuildProfileSpec(BuildProfileFields):
    """`spec` of a BuildProfile."""

    model_config = _CAMEL

    parallel: ParallelSpec = Field(default_factory=ParallelSpec)
    target: BuildTargetSpec = Field(default_factory=BuildTargetSpec)


class BatchingProfileSpec(BatchingProfileFields):
    """`spec` of a BatchingProfile."""

    model_config = _CAMEL


class RepositorySourceSpec(RepositorySource):
    """`source` of a ModelRepository."""

    model_config = _CAMEL


class ModelRepositorySpec(ModelRepositoryFields):
    """`spec` of a ModelRepository."""

    model_config = _CAMEL

    source: RepositorySourceSpec


class SloSpec(Slo):
    """`slo` of a Deployment."""

    model_config = _CAMEL

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if value is not None}


class CanaryStepSpec(CanaryStep):
    """One step of `rollout.canary`."""

    model_config = _CAMEL


class RolloutSpec(Rollout):
    """`rollout` of a Deployment."""

    model_config = _CAMEL

    canary: list[CanaryStepSpec] = Field(default_factory=list, max_length=MOST_STEPS)  # type: ignore[assignment]


class ScalingTargetSpec(ScalingTarget):
    """One of `scaling.targets`; names of metrics stay as they are."""

    model_config = _CAMEL


class ScheduleEntrySpec(ScheduleEntry):
    """One of `scaling.schedule`."""

    model_config = _CAMEL

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if value is not None}


class ScalingSpec(Scaling):
    """`scaling` of a Deployment."""

    model_config = _CAMEL

    targets: list[ScalingTargetSpec] = Field(default_factory=list, max_length=5)  # type: ignore[assignment]
    schedule: list[ScheduleEntrySpec] = Field(default_factory=list, max_length=MOST_ENTRIES)  # type: ignore[assignment]

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if value is not None}


class DeploymentSpec(DeploymentFields):
    """`spec` of a Deployment; `desired` says whether it runs."""

    model_config = _CAMEL

    slo: SloSpec = Field(default_factory=SloSpec)
    rollout: RolloutSpec = Field(default_factory=RolloutSpec)
    scaling: ScalingSpec = Field(default_factory=ScalingSpec)

    desired: Deployment.Desired = Field(Deployment.Desired.RUNNING, strict=False)


class ExternalDeploymentSpec(ExternalFields):
    """`spec` of an ExternalDeployment; its secret is never in a document."""

    model_config = _CAMEL


class TargetSpec(Target):
    """One target of a GatewayRoute."""

    model_config = _CAMEL

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if value is not None}


class GatewayRouteSpec(RouteFields):
    """`spec` of a GatewayRoute."""

    model_config = _CAMEL

    targets: list[TargetSpec] = Field(default_factory=list, max_length=32)  # type: ignore[assignment]


class AlertRuleSpec(AlertRuleFields):
    """`spec` of an AlertRule; its condition is spelled in camelCase too."""

    model_config = _CAMEL

    @model_validator(mode="after")
    def _whole_condition(self) -> AlertRuleSpec:
        """The condition with its defaults, so that two spellings of the same compare equal."""
        try:
            parsed = conditions.parse(self.condition, str(self.target), STATES)
        except InvalidInput as error:
            raise ValueError(f"{error.sentence} {error.remedy}".strip()) from error
        self.condition = conditions.plain(parsed, camel=True)
        return self


class LoadTestSpec(LoadTestFields):
    """`spec` of a LoadTest: its scenario."""

    model_config = _CAMEL


class QualityGateSpec(QualityGateFields):
    """`spec` of a QualityGate."""

    model_config = _CAMEL

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if value is not None}


class PromptSetSpec(PromptSetFields):
    """`spec` of a PromptSet."""

    model_config = _CAMEL


AnySpec = (
    NodeSpec
    | CheckpointSpec
    | QuantizationProfileSpec
    | BuildProfileSpec
    | BatchingProfileSpec
    | ModelRepositorySpec
    | DeploymentSpec
    | ExternalDeploymentSpec
    | GatewayRouteSpec
    | AlertRuleSpec
    | LoadTestSpec
    | PromptSetSpec
    | QualityGateSpec
)
# In the order in which they depend on each other.
KINDS: dict[str, type[AnySpec]] = {
    "Node": NodeSpec,
    "Checkpoint": CheckpointSpec,
    "QuantizationProfile": QuantizationProfileSpec,
    "BuildProfile": BuildProfileSpec,
    "QualityGate": QualityGateSpec,
    "BatchingProfile": BatchingProfileSpec,
    "ModelRepository": ModelRepositorySpec,
    "Deployment": DeploymentSpec,
    "ExternalDeployment": ExternalDeploymentSpec,
    "GatewayRoute": GatewayRouteSpec,
    "AlertRule": AlertRuleSpec,
    "LoadTest": LoadTestSpec,
    "PromptSet": PromptSetSpec,
}


class Metadata(BaseModel):
    """What every document carries besides its specification."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=NAME_PATTERN)]


class NodeMetadata(Metadata):
    """A node's name is the id with which it joined."""

    name: Annotated[str, Field(pattern=NODE_ID_PATTERN)]


class _Envelope(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=False)

    api_version: Any = Field(alias="apiVersion")
    kind: Any
    metadata: Metadata
    spec: Any


class _NodeEnvelope(_Envelope):
    metadata: NodeMetadata


@dataclass(frozen=True, slots=True)
class Document:
    """A document that passed every check of its own; what it refers to may still be missing."""

    number: int
    line: int
    where: str
    kind: str
    name: str
    spec: AnySpec

    def spec_as_dict(self) -> dict[str, Any]:
        """The whole specification, defaults filled in, as the file would spell it."""
        return as_spec_dict(self.spec)


def as_spec_dict(spec: AnySpec) -> dict[str, Any]:
    """A specification as plain values in the file's spelling."""
    dumped: dict[str, Any] = spec.model_dump(mode="json", by_alias=True)
    if isinstance(spec, CheckpointSpec):
        dumped["source"] = spec.source.as_dict()
    return of_builder(dumped) if isinstance(spec, BuildProfileSpec) else dumped


def parse_documents(text: str, where: str) -> list[Document]:
    """Read and check the documents of a YAML text, in the order of the file.

    Raises InvalidInput whose findings name file, document, kind, name, line and path of every fault.
    """
    documents: list[Document] = []
    findings: list[Finding] = []
    for raw in read_documents(text, where):
        parsed = _parse(raw, where)
        if isinstance(parsed, Document):
            documents.append(parsed)
        else:
            findings += parsed
    findings += _repeated(documents)
    if findings:
        raise refused(findings)
    return documents


def refused(findings: list[Finding]) -> InvalidInput:
    """One error that carries every finding; its sentence is the first one's."""
    return InvalidInput(
        "specification_refused",
        findings[0].message,
        field=findings[0].where,
        remedy=findings[0].remedy,
        findings=tuple(findings),
    )


def _parse(raw: RawDocument, where: str) -> Document | list[Finding]:
    if not isinstance(raw.value, dict):
        return [problems.not_a_mapping(raw, where)]
    kind = raw.value.get("kind")
    findings = problems.header(raw, where, API_VERSION, list(KINDS))
    if findings:
        return findings
    model = KINDS[str(kind)]
    form = _NodeEnvelope if kind == "Node" else _Envelope
    envelope, spec = None, None
    try:
        envelope = form.model_validate(raw.value)
    except ValidationError as error:
        findings += problems.from_pydantic(error, raw, where, form, ())
    if "spec" in raw.value:
        try:
            spec = model.model_validate({} if raw.value["spec"] is None else raw.value["spec"])
        except ValidationError as error:
            findings += problems.from_pydantic(error, raw, where, model, ("spec",))
    if findings or envelope is None or spec is None:
        return findings
    return Document(raw.number, raw.line_of(()), where, str(kind), envelope.metadata.name, spec)


def _repeated(documents: list[Document]) -> list[Finding]:
    seen: dict[tuple[str, str], Document] = {}
    findings = []
    for document in documents:
        first = seen.setdefault((document.kind, document.name), document)
        if first is not document:
            findings.append(problems.repeated(document.where, document, first))
    return findings
