"""The objects as they are, in the spelling of the documents: what `plan` compares with and `export` writes."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from pydantic.alias_generators import to_camel

from apps.chat.compared_models import PromptSet
from apps.engines.models import BuildProfile, QuantizationProfile
from apps.engines.serialize import build_profile_values, quantization_profile_values
from apps.fleet.inputs import policy_of
from apps.fleet.models import Node
from apps.gateway.models import ExternalDeployment, GatewayRoute
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.models import LoadTest, QualityGate
from apps.loadtests.serialize import quality_gate_dict
from apps.registry.models import Checkpoint
from apps.serving.models import BatchingProfile, Deployment, ModelRepository
from apps.specs.documents import (
    AlertRuleSpec,
    AnySpec,
    BatchingProfileSpec,
    BuildProfileSpec,
    CheckpointSpec,
    DeploymentSpec,
    ExternalDeploymentSpec,
    GatewayRouteSpec,
    LoadTestSpec,
    ModelRepositorySpec,
    NodeSpec,
    PromptSetSpec,
    QualityGateSpec,
    QuantizationProfileSpec,
    as_spec_dict,
)
from apps.telemetry.alerts.models import AlertRule

NamedRow = (
    Node
    | Checkpoint
    | QuantizationProfile
    | BuildProfile
    | BatchingProfile
    | ModelRepository
    | Deployment
    | ExternalDeployment
    | GatewayRoute
    | AlertRule
    | LoadTest
    | PromptSet
    | QualityGate
)


def rows_of(kind: str) -> dict[str, Any]:
    """Every row of a kind by its name, in the order of the names."""
    if kind == "Node":
        return {row.node_id: row for row in Node.objects.prefetch_related("gpus").order_by("node_id")}
    querysets: dict[str, Any] = {
        "Checkpoint": Checkpoint.objects.all(),
        "QuantizationProfile": QuantizationProfile.objects.all(),
        "BuildProfile": BuildProfile.objects.select_related("checkpoint", "quantization_profile"),
        "BatchingProfile": BatchingProfile.objects.all(),
        "ModelRepository": ModelRepository.objects.all(),
        "Deployment": Deployment.objects.select_related("build_profile", "repository", "batching"),
        "ExternalDeployment": ExternalDeployment.objects.all(),
        "GatewayRoute": GatewayRoute.objects.all(),
        "AlertRule": AlertRule.objects.prefetch_related("channels"),
        "LoadTest": LoadTest.objects.all(),
        "PromptSet": PromptSet.objects.all(),
        "QualityGate": QualityGate.objects.select_related("build_profile"),
    }
    return {row.name: row for row in querysets[kind].order_by("name")}


def exported(kind: str) -> dict[str, Any]:
    """The rows of a kind that are worth a document: not the nodes of which nobody has said anything."""
    rows = rows_of(kind)
    if kind != "Node":
        return rows
    plain = as_spec_dict(NodeSpec.model_validate({}))
    return {name: row for name, row in rows.items() if spec_of(row) != plain}


def spec_of(row: Model) -> dict[str, Any]:
    """The specification that describes a row exactly."""
    return as_spec_dict(_spec(row))


def _spec(row: Model) -> AnySpec:
    if isinstance(row, Node):
        return _node_spec(row)
    if isinstance(row, Checkpoint):
        return CheckpointSpec.model_validate({"source": row.source})
    if isinstance(row, BuildProfile):
        return BuildProfileSpec.model_validate(_camel(build_profile_values(row)))
    if isinstance(row, QuantizationProfile):
        return QuantizationProfileSpec.model_validate(_camel(quantization_profile_values(row)))
    if isinstance(row, ExternalDeployment | GatewayRoute):
        return _gateway_spec(row)
    if isinstance(row, LoadTest):
        return LoadTestSpec.model_validate(Scenario.model_validate(row.scenario).model_dump(by_alias=True))
    if isinstance(row, QualityGate):
        values = quality_gate_dict(row)
        return QualityGateSpec.model_validate(
            {to_camel(key): value for key, value in values.items() if key != "name"}
        )
    if isinstance(row, PromptSet):
        return PromptSetSpec(description=row.description, prompts=row.prompts)
    if isinstance(row, AlertRule):
        return _alert_rule_spec(row)
    if isinstance(row, ModelRepository):
        return ModelRepositorySpec.model_validate({"source": row.source})
    if isinstance(row, BatchingProfile):
        names = BatchingProfileSpec.model_fields
        return BatchingProfileSpec.model_validate(
            {str(info.alias): getattr(row, name) for name, info in names.items()}
        )
    assert isinstance(row, Deployment)  # noqa: S101 - the kinds end here
    return DeploymentSpec.model_validate(
        {
            "build": row.build_profile.name if row.build_profile else None,
            "repository": row.repository.name if row.repository else None,
            "model": row.repository_model or None,
            "batching": row.batching.name,
            "replicas": row.replicas,
            "placement": row.placement or {"device": "any"},
            "slo": {to_camel(key): value for key, value in row.slo.items()},
            "rollout": {to_camel(key): value for key, value in row.rollout.items()},
            "scaling": _deep_camel(row.scaling),
            "desired": row.desired,
        }
    )


def _node_spec(row: Node) -> NodeSpec:
    prices = {slot.index: slot.price_per_hour for slot in row.gpus.all()}
    return NodeSpec.model_validate(
        {
            "labels": row.labels,
            "policy": _camel(policy_of(row.policy).chosen()),
            "slots": [
                {"index": index, "pricePerHour": float(price)}
                for index, price in prices.items()
                if price is not None
            ],
        }
    )


def _deep_camel(value: Any) -> Any:
    """Names at every depth as documents spell them."""
    if isinstance(value, dict):
        return {to_camel(key): _deep_camel(inner) for key, inner in value.items()}
    return [_deep_camel(inner) for inner in value] if isinstance(value, list) else value


def _camel(values: dict[str, Any]) -> dict[str, Any]:
    """Field names as documents spell them; names of flags and options stay."""
    inner = {"parallel", "target", "calibration"}
    return {to_camel(key): _camel(value) if key in inner else value for key, value in values.items()}


def _gateway_spec(row: ExternalDeployment | GatewayRoute) -> AnySpec:
    model = ExternalDeploymentSpec if isinstance(row, ExternalDeployment) else GatewayRouteSpec
    values = {str(info.alias): getattr(row, name) for name, info in model.model_fields.items()}
    if isinstance(row, GatewayRoute):
        values["targets"] = [
            {to_camel(name): value for name, value in target.items()} for target in row.targets
        ]
    return model.model_validate(values)


def _alert_rule_spec(row: AlertRule) -> AnySpec:
    values = {
        str(info.alias): getattr(row, name)
        for name, info in AlertRuleSpec.model_fields.items()
        if name != "channels"
    }
    return AlertRuleSpec.model_validate({**values, "channels": [each.name for each in row.channels.all()]})
