"""What applying a set of documents would do, worked out without changing anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from django.utils.translation import gettext as _

from apps.core.exceptions import Finding, InflightError
from apps.engines.domain.build_spec import check_spec
from apps.engines.models import BuildProfile
from apps.engines.profiles import document_findings
from apps.engines.shapes import NONE
from apps.gateway import upstream_urls
from apps.registry.domain.sources import locate
from apps.registry.selectors import allowed_roots, archive_roots, checkpoints_folder
from apps.registry.services import check_name
from apps.serving import changes as profile_changes
from apps.serving import imports as repository_imports
from apps.serving import states as serving_states
from apps.serving.models import BatchingProfile, Deployment
from apps.serving.serialize import deployment_dict
from apps.specs import problems
from apps.specs.current import rows_of, spec_of
from apps.specs.documents import (
    KINDS,
    AlertRuleSpec,
    BatchingProfileSpec,
    BuildProfileSpec,
    CheckpointSpec,
    DeploymentSpec,
    Document,
    ExternalDeploymentSpec,
    GatewayRouteSpec,
    ModelRepositorySpec,
    NodeSpec,
    QualityGateSpec,
    refused,
)
from apps.telemetry.alerts import inputs as alert_inputs

Action = Literal["create", "update", "unchanged"]
# What is done with a deployment once its configuration is saved.
FollowUp = Literal["deploy", "stop"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of a specification, as it is and as the document wants it; null where it is absent."""

    path: str
    before: Any
    after: Any

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {"path": self.path, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """What would happen to the object of one document."""

    document: Document
    row: Any
    action: Action
    changes: tuple[FieldChange, ...] = ()
    follow_up: FollowUp | None = None
    # What a person should know before applying it: what restarts, what does nothing.
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "kind": self.document.kind,
            "name": self.document.name,
            "action": self.action,
            "changes": [change.as_dict() for change in self.changes],
            "follow_up": self.follow_up,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Every object of the documents, what it depends on first."""

    objects: tuple[PlannedObject, ...] = field(default_factory=tuple)

    @property
    def is_empty(self) -> bool:
        """Whether applying would do nothing."""
        return all(item.action == "unchanged" and item.follow_up is None for item in self.objects)

    def count(self, action: Action) -> int:
        """How many objects would be created, updated or left."""
        return sum(item.action == action for item in self.objects)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "objects": [item.as_dict() for item in self.objects],
            "create": self.count("create"),
            "update": self.count("update"),
            "unchanged": self.count("unchanged"),
        }


def make_plan(documents: list[Document], look_at_files: bool = True) -> Plan:
    """Compare documents with the objects that exist.

    `look_at_files` is for people who may configure: whether a path exists is not for everybody to ask.
    Raises InvalidInput with every finding where a document refers to something that is not there, or where its
    object cannot be made as it stands.
    """
    existing = {kind: rows_of(kind) for kind in KINDS}
    findings = list(_findings(documents, existing, look_at_files))
    if findings:
        raise refused(findings)
    order = list(KINDS)
    planned: list[PlannedObject] = []
    depths = _fallback_depths(documents)
    for document in sorted(documents, key=lambda item: (order.index(item.kind), depths.get(item.name, 0))):
        planned.append(_planned(document, existing[document.kind].get(document.name), planned))
    return Plan(tuple(planned))


def _fallback_depths(documents: list[Document]) -> dict[str, int]:
    """How many routes of the documents stand behind each route: those are saved first."""
    given = {item.name: item.spec.fallback for item in documents if isinstance(item.spec, GatewayRouteSpec)}
    depths = {}
    for name in given:
        at, depth = given[name], 0
        while at in given and depth <= len(given):
            at, depth = given[at], depth + 1
        depths[name] = depth
    return depths


def differences(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """Fields in which two specifications differ, in the order of the wanted one."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        if before != after:
            yield FieldChange(path, before, after)
        return
    for key in [*after, *(key for key in before if key not in after)]:
        inner = f"{path}.{key}" if path else str(key)
        yield from differences(before.get(key), after.get(key), inner)


def _wanted(document: Document, row: Any) -> dict[str, Any]:
    """The specification as its row would spell it: of an archive the row keeps name and hash, not where it lay, of a
    repository which model answers."""
    spec = document.spec
    if isinstance(spec, ModelRepositorySpec) and row is not None and spec.source.is_that_of(row.source):
        return spec_of(row)
    wanted = document.spec_as_dict()
    if isinstance(spec, DeploymentSpec) and row is not None and spec.repository and not spec.model:
        # Without a name the model that answered first goes on answering.
        wanted["model"] = row.repository_model
    return wanted


def _planned(document: Document, row: Any, before: list[PlannedObject]) -> PlannedObject:
    wanted = _wanted(document, row)
    changes = tuple(differences(spec_of(row) if row is not None else {}, wanted))
    action: Action = "create" if row is None else "update" if changes else "unchanged"
    follow_up = _follow_up(document, row, action, before) if document.kind == "Deployment" else None
    return PlannedObject(document, row, action, changes, follow_up, _notes(document, row, action))


def _notes(document: Document, row: Any, action: Action) -> tuple[str, ...]:
    """Of a batching profile: what becomes of the deployments that use it, and fields that do nothing."""
    if not isinstance(document.spec, BatchingProfileSpec):
        return ()
    notes: list[str] = []
    values = document.spec.model_dump(mode="json")
    if action == "update":
        try:
            notes += profile_changes.plan_batching_profile("plan", values, row).sentences
        except InflightError as error:
            notes.append(error.sentence)
    idle = profile_changes.idle_fields(BatchingProfile(name=document.name, **values))
    return (*notes, *(f"{field}: {reason}" for field, reason in idle.items()))


def _follow_up(document: Document, row: Any, action: Action, before: list[PlannedObject]) -> FollowUp | None:
    spec = document.spec
    if not isinstance(spec, DeploymentSpec):
        return None
    runs = row is not None and row.desired == Deployment.Desired.RUNNING
    if spec.desired == Deployment.Desired.STOPPED:
        return "stop" if runs else None
    failed = row is not None and row.state == serving_states.FAILED
    stale = action != "unchanged" or not runs or failed or _depends_on_change(spec, before)
    # Equal to its row, yet what runs is older: a profile was edited after the last deploy.
    return "deploy" if stale or deployment_dict(row)["changed"] else None


def _depends_on_change(spec: DeploymentSpec, before: list[PlannedObject]) -> bool:
    used = {("BuildProfile", spec.build), ("BatchingProfile", spec.batching)}
    for item in before:
        build = item.document.spec
        if (item.document.kind, item.document.name) == ("BuildProfile", spec.build) and isinstance(
            build, BuildProfileSpec
        ):
            used |= {("Checkpoint", build.checkpoint), ("QuantizationProfile", build.quantization)}
    return any(
        item.action == "update" and (item.document.kind, item.document.name) in used for item in before
    )


def _findings(
    documents: list[Document], existing: dict[str, dict[str, Any]], look_at_files: bool
) -> Iterator[Finding]:
    known = {
        kind: {*rows, *(item.name for item in documents if item.kind == kind)}
        for kind, rows in existing.items()
    }
    for document in documents:
        for path, kind, name in _references(document):
            if name not in known[kind]:
                yield problems.missing_reference(document, path, kind, name, known[kind])
        yield from _not_possible(document, existing[document.kind].get(document.name), look_at_files)
        if (
            isinstance(document.spec, BuildProfileSpec)
            and document.spec.builder == BuildProfile.Builder.TRTLLM
        ):
            yield from _not_buildable(document, document.spec, documents, existing)


def _not_buildable(
    document: Document,
    spec: BuildProfileSpec,
    documents: list[Document],
    existing: dict[str, dict[str, Any]],
) -> Iterator[Finding]:
    """What the rules of TensorRT-LLM refuse, with what the same documents say about its quantization."""
    quantization: Any = existing["QuantizationProfile"].get(spec.quantization)
    for other in documents:
        if (other.kind, other.name) == ("QuantizationProfile", spec.quantization):
            quantization = other.spec
    for found in document_findings(spec, existing["Checkpoint"].get(spec.checkpoint), quantization):
        yield _at(document, replace(found, where=f"spec.{found.where}"))


def _references(document: Document) -> Iterator[tuple[str, str, str]]:
    spec = document.spec
    if isinstance(spec, BuildProfileSpec):
        yield "spec.checkpoint", "Checkpoint", spec.checkpoint
        if spec.builder == BuildProfile.Builder.TRTLLM and spec.quantization != NONE:
            yield "spec.quantization", "QuantizationProfile", spec.quantization
    if isinstance(spec, QualityGateSpec):
        yield "spec.build", "BuildProfile", spec.build
    if isinstance(spec, DeploymentSpec):
        if spec.build is not None:
            yield "spec.build", "BuildProfile", spec.build
        if spec.repository is not None:
            yield "spec.repository", "ModelRepository", spec.repository
        yield "spec.batching", "BatchingProfile", spec.batching
    if isinstance(spec, GatewayRouteSpec):
        for index, target in enumerate(spec.targets):
            if target.deployment:
                yield f"spec.targets.{index}.deployment", "Deployment", target.deployment
            if target.external:
                yield f"spec.targets.{index}.external", "ExternalDeployment", target.external


def _not_possible(document: Document, row: Any, look_at_files: bool) -> Iterator[Finding]:
    """What the service would refuse, asked before anything is written."""
    spec = document.spec
    if isinstance(spec, NodeSpec):
        yield from _not_of_the_fleet(document, spec, row)
        return
    try:
        check_name(document.name, field="metadata.name")
        # A checkpoint that stays as it is need not be there just now.
        changed = row is None or spec_of(row) != _wanted(document, row)
        if isinstance(spec, CheckpointSpec) and changed and look_at_files:
            locate(
                spec.source, checkpoints_folder(), archive_roots() if spec.source.archive else allowed_roots()
            )
        if isinstance(spec, ModelRepositorySpec):
            repository_imports.check_source(spec.source.model_dump(), row, look_at_files)
        if isinstance(spec, AlertRuleSpec):
            alert_inputs.channels(spec.channels)
        if isinstance(spec, ExternalDeploymentSpec) and changed:
            upstream_urls.check(spec.base_url, field="baseUrl")
    except InflightError as error:
        path = error.field if error.field.startswith("metadata") else f"spec.{error.field}"
        yield _at(document, Finding(error.code, "error", error.sentence, path, error.remedy))
    if isinstance(spec, BuildProfileSpec) and spec.builder == BuildProfile.Builder.LLAMACPP:
        for found in check_spec(str(spec.builder), str(spec.quantization), spec.options):
            yield _at(document, replace(found, where=f"spec.{found.where}"))


def _not_of_the_fleet(document: Document, spec: NodeSpec, row: Any) -> Iterator[Finding]:
    """A node and its slots are found, not made: a document says only what is to hold of them."""
    if row is None:
        sentence = _("no node of this id has joined.")
        remedy = _("Let that host join first, or leave the document out: it is about this one host.")
        yield _at(document, Finding("node_unknown", "error", sentence, "metadata.name", remedy))
        return
    there = sorted(slot.index for slot in row.gpus.all())
    for place, slot in enumerate(spec.slots):
        if slot.index not in there:
            sentence = _("it has no slot %(index)d.") % {"index": slot.index}
            remedy = _("Its slots are %(slots)s.") % {"slots": ", ".join(map(str, there)) or _("none")}
            where = f"spec.slots.{place}.index"
            yield _at(document, Finding("slot_unknown", "error", sentence, where, remedy))


def _at(document: Document, found: Finding) -> Finding:
    """The finding with its document at the beginning of the message."""
    begin = problems.place(document.number, document.where, document.line, document.kind, document.name)
    message = _("%(place)s: %(path)s: %(reason)s") % {
        "place": begin,
        "path": found.where,
        "reason": found.message,
    }
    return replace(found, message=message)
