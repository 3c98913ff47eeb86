"""Plan, apply and export: configuration as code, through the services of the apps that own the objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, may, require
from apps.chat import services as chat
from apps.chat.compared_models import PromptSet
from apps.core.exceptions import InflightError, InvalidInput
from apps.engines import services as engines
from apps.engines.models import BuildProfile, QuantizationProfile
from apps.fleet import services as fleet
from apps.fleet.models import Node
from apps.gateway import services as gateway
from apps.gateway.models import ExternalDeployment, GatewayRoute
from apps.loadtests import services as loadtests
from apps.loadtests.models import LoadTest, QualityGate
from apps.registry import services as registry
from apps.registry.models import Checkpoint
from apps.serving import services as serving
from apps.serving.inputs import what_is_served
from apps.serving.models import Deployment
from apps.specs.current import exported, spec_of
from apps.specs.documents import (
    API_VERSION,
    KINDS,
    AlertRuleSpec,
    BatchingProfileSpec,
    BuildProfileSpec,
    CheckpointSpec,
    DeploymentSpec,
    Document,
    ExternalDeploymentSpec,
    GatewayRouteSpec,
    LoadTestSpec,
    ModelRepositorySpec,
    NodeSpec,
    PromptSetSpec,
    QualityGateSpec,
    QuantizationProfileSpec,
    parse_documents,
)
from apps.specs.planning import Plan, PlannedObject, make_plan
from apps.telemetry import services as telemetry
from apps.telemetry.alerts.models import AlertRule

# What is read from files, that which may refuse somebody first.
_READ_FIRST = ("ModelRepository", "Checkpoint")
# A person, or the name of a part of the system ("cli").
Actor = User | str


@dataclass(frozen=True, slots=True)
class Done:
    """What was done with the object of one document. `error` is set where its deployment could not be started."""

    planned: PlannedObject
    sentence: str
    error: InflightError | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            **self.planned.as_dict(),
            "sentence": self.sentence,
            "error": self.error.as_dict() if self.error else None,
        }


def plan(actor: Actor, text: str, where: str) -> Plan:
    """What applying the documents would change. Raises InvalidInput with every finding; changes nothing."""
    require(actor, Action.VIEW)
    may_configure = isinstance(actor, str) or may(actor, Action.CONFIGURE)
    return make_plan(parse_documents(text, where), look_at_files=may_configure)


def apply(actor: Actor, text: str, where: str) -> list[Done]:
    """Make the objects as the documents describe them, what is depended on first. Twice changes nothing.

    A deployment that shall run and has failed is deployed again.

    Everything is checked before the first write. Model repositories and checkpoints are brought in first (that reads
    files, so it holds no transaction); all other configuration is saved together or not at all; then deployments are
    started or stopped. A deployment that cannot start now is reported in its `Done` and does not undo its
    configuration.
    """
    require(actor, Action.CONFIGURE)
    wanted = make_plan(parse_documents(text, where))
    if any(item.follow_up for item in wanted.objects):
        require(actor, Action.OPERATE)
    for kind in _READ_FIRST:
        for item in wanted.objects:
            if item.document.kind == kind:
                _save(actor, item)
    with transaction.atomic():
        for item in wanted.objects:
            if item.document.kind not in _READ_FIRST:
                _save(actor, item)
    return [_follow_up(actor, item) for item in wanted.objects]


def export(actor: Actor, kinds: Iterable[str] = ()) -> str:
    """Every object of these kinds (default: all) as YAML documents; applying them again changes nothing."""
    require(actor, Action.VIEW)
    chosen = list(kinds) or list(KINDS)
    for kind in chosen:
        if kind not in KINDS:
            raise InvalidInput(
                "unknown_kind",
                _("There is no kind %(kind)s.") % {"kind": kind},
                field="kind",
                remedy=_("The kinds are %(kinds)s.") % {"kinds": ", ".join(KINDS)},
            )
    documents = [
        {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec_of(row)}
        for kind in KINDS
        if kind in chosen
        for name, row in exported(kind).items()
    ]
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=100)


def _save(actor: Actor, item: PlannedObject) -> None:
    if item.action == "unchanged":
        return
    try:
        _SAVERS[item.document.kind](actor, item.document, item.row)
    except InvalidInput as error:
        raise _placed(error, item.document) from error


def _placed(error: InvalidInput, document: Document) -> InvalidInput:
    """The same refusal, naming the document that it is about."""
    sentence = _("%(kind)s %(name)s: %(sentence)s") % {
        "kind": document.kind,
        "name": document.name,
        "sentence": error.sentence,
    }
    return InvalidInput(
        error.code,
        sentence,
        field=error.field,
        remedy=error.remedy,
        facts=error.facts,
        findings=error.findings,
    )


def _save_node(actor: Actor, document: Document, row: Node) -> None:
    """Only what differs: labels, prices and the policy need different roles."""
    assert isinstance(document.spec, NodeSpec)  # noqa: S101
    wanted, known = document.spec_as_dict(), spec_of(row)
    if wanted["labels"] != known["labels"]:
        fleet.set_labels(actor, row, wanted["labels"])
    if wanted["policy"] != known["policy"]:
        fleet.set_policy(actor, row, document.spec.policy.chosen())
    prices = {each.index: each.price_per_hour for each in document.spec.slots}
    for slot in row.gpus.all():
        price = prices.get(slot.index)
        if price != (None if slot.price_per_hour is None else float(slot.price_per_hour)):
            fleet.set_price(actor, slot, price)


def _save_checkpoint(actor: Actor, document: Document, row: Checkpoint | None) -> None:
    assert isinstance(document.spec, CheckpointSpec)  # noqa: S101 - by the table of savers
    source = document.spec.source.as_dict()
    if row is None:
        registry.register_checkpoint(actor, document.name, source)
    else:
        registry.change_source(actor, row, source)


def _save_quantization_profile(actor: Actor, document: Document, row: QuantizationProfile | None) -> None:
    assert isinstance(document.spec, QuantizationProfileSpec)  # noqa: S101
    data = document.spec.model_dump(mode="json")
    engines.save_quantization_profile(actor, _with_name(data, document, row), row)


def _save_build_profile(actor: Actor, document: Document, row: BuildProfile | None) -> None:
    assert isinstance(document.spec, BuildProfileSpec)  # noqa: S101
    data = document.spec.model_dump(mode="json")
    engines.save_build_profile(actor, _with_name(data, document, row), row)


def _save_batching_profile(actor: Actor, document: Document, row: Any) -> None:
    assert isinstance(document.spec, BatchingProfileSpec)  # noqa: S101
    data = document.spec.model_dump(mode="json")
    serving.save_batching_profile(actor, _with_name(data, document, row), row)


def _save_model_repository(actor: Actor, document: Document, row: Any) -> None:
    assert isinstance(document.spec, ModelRepositorySpec)  # noqa: S101
    serving.import_repository(actor, document.name, document.spec.source.model_dump(mode="json"))


def _save_deployment(actor: Actor, document: Document, row: Deployment | None) -> None:
    assert isinstance(document.spec, DeploymentSpec)  # noqa: S101
    data = document.spec.model_dump(mode="json", exclude={"desired", "build", "repository", "model"})
    spec = document.spec
    data |= what_is_served(spec.build, spec.repository, spec.model)
    serving.save_deployment(actor, _with_name(data, document, row), row)


def _save_external_deployment(actor: Actor, document: Document, row: ExternalDeployment | None) -> None:
    assert isinstance(document.spec, ExternalDeploymentSpec)  # noqa: S101
    data = document.spec.model_dump(mode="json")
    gateway.save_external(actor, _with_name(data, document, row), row)


def _save_gateway_route(actor: Actor, document: Document, row: GatewayRoute | None) -> None:
    assert isinstance(document.spec, GatewayRouteSpec)  # noqa: S101
    data = document.spec.model_dump(mode="json", exclude={"targets"})
    data["targets"] = [target.as_dict() for target in document.spec.targets]
    gateway.save_route(actor, _with_name(data, document, row), row)


def _save_alert_rule(actor: Actor, document: Document, row: AlertRule | None) -> None:
    assert isinstance(document.spec, AlertRuleSpec)  # noqa: S101
    data = document.spec.model_dump(mode="json")
    telemetry.save_alert_rule(actor, _with_name(data, document, row), row)


def _with_name(data: dict[str, Any], document: Document, row: object) -> Mapping[str, Any]:
    return data if row is not None else {"name": document.name, **data}


def _save_load_test(actor: Actor, document: Document, row: LoadTest | None) -> None:
    assert isinstance(document.spec, LoadTestSpec)  # noqa: S101
    data = {"scenario": document.spec.model_dump(mode="json")}
    loadtests.save_load_test(actor, _with_name(data, document, row), row)


def _save_quality_gate(actor: Actor, document: Document, row: QualityGate | None) -> None:
    assert isinstance(document.spec, QualityGateSpec)  # noqa: S101
    data = {key: getattr(document.spec, key) for key in QualityGateSpec.model_fields if key != "build"}
    loadtests.save_quality_gate(
        actor, _with_name({**data, "build_profile": document.spec.build}, document, row), row
    )


def _save_prompt_set(actor: Actor, document: Document, row: PromptSet | None) -> None:
    assert isinstance(document.spec, PromptSetSpec)  # noqa: S101
    chat.save_prompt_set(actor, _with_name(document.spec.model_dump(), document, row), row)


_SAVERS: dict[str, Callable[[Actor, Document, Any], None]] = {
    "Node": _save_node,
    "Checkpoint": _save_checkpoint,
    "QuantizationProfile": _save_quantization_profile,
    "BuildProfile": _save_build_profile,
    "BatchingProfile": _save_batching_profile,
    "ModelRepository": _save_model_repository,
    "Deployment": _save_deployment,
    "ExternalDeployment": _save_external_deployment,
    "GatewayRoute": _save_gateway_route,
    "AlertRule": _save_alert_rule,
    "LoadTest": _save_load_test,
    "PromptSet": _save_prompt_set,
    "QualityGate": _save_quality_gate,
}


def _follow_up(actor: Actor, item: PlannedObject) -> Done:
    words = {"create": _("created"), "update": _("changed"), "unchanged": _("unchanged")}
    sentence = words[item.action]
    if item.follow_up is None:
        return Done(item, _checkpoint_words(item, sentence))
    deployment = Deployment.objects.get(name=item.document.name)
    try:
        if item.follow_up == "stop":
            serving.stop(actor, deployment)
            return Done(item, _("%(action)s; stopping") % {"action": sentence})
        serving.deploy(actor, deployment)
    except InflightError as error:
        problem = _("%(action)s, but not started: %(reason)s") % {
            "action": sentence,
            "reason": error.sentence,
        }
        return Done(item, problem, error)
    state = deployment.sentence or _("it is %(state)s now") % {"state": deployment.state}
    return Done(item, _("%(action)s and deployed: %(state)s") % {"action": sentence, "state": state})


def _checkpoint_words(item: PlannedObject, sentence: str) -> str:
    if item.document.kind != "Checkpoint" or item.action == "unchanged":
        return sentence
    row = Checkpoint.objects.get(name=item.document.name)
    return f"{sentence}: {row.sentence}" if row.sentence else sentence
