"""plan, apply and export: in the right order, all or nothing, twice without effect, there and back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError

from apps.core.exceptions import InvalidInput, NotAllowed
from apps.core.models import AuditEntry
from apps.engines.models import Build, BuildProfile
from apps.registry.models import Checkpoint
from apps.serving.models import BatchingProfile, Deployment
from apps.serving.services import deploy, save_batching_profile
from apps.specs import services
from tests import objects
from tests.people import client_of, person
from tests.specs.api import ok, refused, send

pytestmark = pytest.mark.django_db

ALL = """
apiVersion: inflight/v1
kind: Deployment
metadata: {name: demo}
spec: {build: f16, batching: inflight-16}
---
apiVersion: inflight/v1
kind: BatchingProfile
metadata: {name: inflight-16}
spec: {}
---
apiVersion: inflight/v1
kind: BuildProfile
metadata: {name: f16}
spec: {checkpoint: tiny}
---
apiVersion: inflight/v1
kind: Checkpoint
metadata: {name: tiny}
spec: {source: {demo: tiny}}
"""


@pytest.fixture(autouse=True)
def _file() -> None:
    objects.gguf_file("tiny")


def apply(text: str = ALL, actor: Any = "cli") -> list[tuple[str, str, str]]:
    return [
        (item.planned.document.name, item.planned.action, item.sentence)
        for item in services.apply(actor, text, "f.yaml")
    ]


def run(command: str, *arguments: str, stdin: str = "") -> str:
    out = io.StringIO()
    call_command(command, *arguments, stdout=out)
    return out.getvalue()


def test_the_order_in_the_file_does_not_matter() -> None:
    assert apply() == [
        ("tiny", "create", "created"),
        ("f16", "create", "created"),
        ("inflight-16", "create", "created"),
        ("demo", "create", "created and deployed: Waits for build #1 to make its engine."),
    ]
    assert Deployment.objects.get().desired == "running"
    assert Build.objects.get().state == "queued"


def test_a_second_time_changes_nothing() -> None:
    apply()
    rows = AuditEntry.objects.count()
    versions = list(Deployment.objects.values_list("version", flat=True))
    assert {item[1:] for item in apply()} == {("unchanged", "unchanged")}
    assert AuditEntry.objects.count() == rows
    assert list(Deployment.objects.values_list("version", flat=True)) == versions
    assert services.plan("cli", ALL, "f.yaml").is_empty


def test_a_change_is_told_field_by_field_and_deployed() -> None:
    apply()
    text = ALL.replace(
        "metadata: {name: inflight-16}\nspec: {}", "metadata: {name: inflight-16}\nspec: {threads: 2}"
    )
    plan = services.plan("cli", text, "f.yaml").as_dict()
    assert (plan["create"], plan["update"], plan["unchanged"]) == (0, 1, 3)
    assert plan["objects"][2]["changes"] == [{"path": "threads", "before": 0, "after": 2}]
    assert plan["objects"][3]["follow_up"] == "deploy"
    apply(text)
    assert BatchingProfile.objects.get().threads == 2


def test_a_deployment_that_runs_something_older_is_deployed_again() -> None:
    apply()
    objects.engine(BuildProfile.objects.get())
    deployment = deploy("cli", Deployment.objects.get())
    assert services.plan("cli", ALL, "f.yaml").is_empty
    save_batching_profile("cli", {"threads": 3}, BatchingProfile.objects.get())
    exported = services.export("cli")
    (item,) = [item for item in services.plan("cli", exported, "f.yaml").objects if item.follow_up]
    assert (item.action, item.follow_up) == ("unchanged", "deploy")
    services.apply("cli", exported, "f.yaml")
    assert deployment.revisions.count() == 2
    assert services.plan("cli", exported, "f.yaml").is_empty


def test_a_failed_deployment_is_tried_again() -> None:
    apply()
    Deployment.objects.update(state="failed", sentence="The server ended.")
    Build.objects.update(state="failed")
    assert [item.follow_up for item in services.plan("cli", ALL, "f.yaml").objects] == [
        None,
        None,
        None,
        "deploy",
    ]
    assert apply()[3][2] == "unchanged and deployed: Waits for build #2 to make its engine."
    assert services.plan("cli", ALL, "f.yaml").is_empty


def test_desired_stopped_is_not_deployed_and_stops_what_runs() -> None:
    stopped = ALL.replace("batching: inflight-16}", "batching: inflight-16, desired: stopped}")
    assert apply(stopped)[3] == ("demo", "create", "created")
    assert Deployment.objects.get().state == "stopped"
    apply(ALL)
    assert Deployment.objects.get().desired == "running"
    plan = services.plan("cli", stopped, "f.yaml").objects[3]
    assert [change.as_dict() for change in plan.changes] == [
        {"path": "desired", "before": "running", "after": "stopped"}
    ]
    assert apply(stopped)[3] == ("demo", "update", "changed; stopping")
    assert Deployment.objects.get().desired == "stopped"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "build: f16",
            "build: f61",
            "spec.build: there is no BuildProfile f61 in the file or in Inflight. Did you mean f16?",
        ),
        (
            "checkpoint: tiny",
            "checkpoint: none-such",
            "spec.checkpoint: there is no Checkpoint none-such in the file",
        ),
        ("demo: tiny", "demo: none-such", "spec.source.demo: The demo checkpoint none-such is not in"),
        ("demo: tiny", "path: /etc/passwd", "spec.source.path: /etc/passwd lies outside the folders"),
        (
            "checkpoint: tiny}",
            "checkpoint: tiny, options: {x: 1}}",
            "spec.options.x: The llama.cpp builder has no option 'x'.",
        ),
        ("name: demo}", "name: warmup}", "metadata.name: 'warmup' cannot be a name."),
    ],
)
def test_nothing_is_written_where_anything_is_refused(old: str, new: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        apply(ALL.replace(old, new))
    assert sentence in caught.value.findings[0].message
    assert caught.value.findings[0].message.startswith("f.yaml, document ")
    for model in (Checkpoint, BuildProfile, BatchingProfile, Deployment):
        assert not model.objects.exists()
    assert not AuditEntry.objects.exists()


def test_a_refusal_while_saving_takes_the_other_profiles_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise InvalidInput("no", "Refused late.", field="replicas")

    monkeypatch.setattr("apps.serving.services.save_deployment", refuse)
    with pytest.raises(InvalidInput, match=r"Deployment demo: Refused late\."):
        apply()
    assert not BuildProfile.objects.exists()
    assert not BatchingProfile.objects.exists()


def test_a_deployment_that_cannot_start_is_told_and_its_configuration_stays() -> None:
    apply(ALL.replace("batching: inflight-16}", "batching: inflight-16, desired: stopped}"))
    Checkpoint.objects.update(state="refused", sentence="The file is cut off.", remedy="Copy it again.")
    done = services.apply("cli", ALL, "f.yaml")
    assert done[3].error is not None
    assert "The file is cut off." in done[3].sentence
    assert Deployment.objects.get().state == "stopped"
    with pytest.raises(SystemExit) as caught:
        run("apply", "--file", _written(ALL))
    assert caught.value.code == 1


def test_a_checkpoint_may_be_pointed_elsewhere() -> None:
    apply()
    objects.gguf_file("other")
    text = ALL.replace("{demo: tiny}", "{demo: other}")
    apply(text)
    assert Checkpoint.objects.get().source == {"demo": "other"}
    assert services.plan("cli", text, "f.yaml").is_empty


def test_there_and_back_again() -> None:
    apply()
    objects.batching("on", strategy="none")
    objects.batching("1e3")
    slo = {"ttft_ms": 400.0, "window_seconds": 60}
    rollout = {"max_surge": 2, "canary": [{"weight": 10, "seconds": 300}]}
    objects.deployment("gpu", placement={"device": "gpu", "share": 20}, replicas=3, slo=slo, rollout=rollout)
    exported = services.export("cli")
    assert services.plan("cli", exported, "f.yaml").is_empty
    names = [document["metadata"]["name"] for document in yaml.safe_load_all(exported)]
    assert names == ["tiny", "f16", "1e3", "inflight-16", "on", "demo", "gpu"]
    Deployment.objects.all().delete()
    BuildProfile.objects.all().delete()
    BatchingProfile.objects.all().delete()
    Build.objects.all().delete()
    services.apply("cli", exported, "f.yaml")
    assert services.export("cli") == exported


def test_an_empty_installation_exports_nothing() -> None:
    assert services.export("cli") == ""
    assert "x" not in services.export("cli", ["Deployment"])
    with pytest.raises(InvalidInput, match="no kind Nothing"):
        services.export("cli", ["Nothing"])


def test_roles() -> None:
    viewer, operator = person("viewer"), person("operator")
    assert services.plan(viewer, ALL, "f.yaml").count("create") == 4
    # Whether a file exists on the node is not for viewers to ask.
    for path in ("/etc/passwd", "/etc/none-such"):
        text = ALL.replace("{demo: tiny}", f"{{path: {path}}}")
        assert services.plan(viewer, text, "f.yaml").count("create") == 4
        with pytest.raises(InvalidInput):
            services.plan(operator, text, "f.yaml")
    with pytest.raises(NotAllowed):
        apply(actor=viewer)
    with pytest.raises(NotAllowed):
        services.export(person())
    apply(actor=operator)
    assert AuditEntry.objects.filter(verb="deployment.created", actor=operator).exists()


def _written(text: str) -> str:
    path = objects.gguf_file("tiny").with_suffix(".yaml")
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _written(ALL)
    planned = run("plan", "-f", file)
    assert "+ Deployment demo: create" in planned
    assert "    then deploy" in planned
    assert planned.endswith("4 to create, 0 to change, 0 unchanged.\n")
    assert "Deployment demo: created and deployed" in run("apply", "-f", file)
    assert json.loads(run("plan", "-f", file, "--json"))["unchanged"] == 4
    monkeypatch.setattr("sys.stdin", io.StringIO(ALL.replace("spec: {}", "spec: {threads: 1}")))
    assert "    threads: 0 -> 1" in run("plan", "-f", "-")
    output = tmp_path / "out.yaml"
    run("export", "-o", str(output), "--kind", "BatchingProfile")
    assert run("export", "--kind", "BatchingProfile") == output.read_text(encoding="utf-8")
    assert json.loads(run("apply", "-f", str(output), "--json"))["objects"][0]["action"] == "unchanged"


def test_exit_codes_and_the_acting_user() -> None:
    person("viewer")
    file = _written(ALL)
    for arguments, code, words in (
        (["-f", _written(ALL.replace("f16, ", "f17, "))], 1, "there is no BuildProfile f17"),
        (["-f", "/no/such/file.yaml"], 2, "cannot be read: No such file or directory."),
        (["-f", file, "--user", "nobody"], 1, "There is no account nobody."),
    ):
        with pytest.raises(CommandError) as caught:
            run("plan", *arguments)
        assert caught.value.returncode == code
        assert words in str(caught.value)
    with pytest.raises(CommandError, match=r"This needs the role operator\."):
        run("apply", "-f", _written(ALL), "--user", "viewer")
    with pytest.raises(SystemExit) as stopped:
        run("apply", "-f", file, "--user", "viewer", "--json")
    assert stopped.value.code == 1


def test_through_the_api() -> None:
    operator = client_of(person("operator"))
    plan = ok(send(operator, "POST", "/specs/plan", {"documents": ALL}))
    assert (plan["create"], plan["objects"][0]["kind"]) == (4, "Checkpoint")
    applied = ok(send(operator, "POST", "/specs/apply", {"documents": ALL}))
    assert applied["objects"][3]["error"] is None
    exported = send(operator, "GET", "/specs/export?kind=Checkpoint&kind=Deployment")
    assert exported.headers["Content-Type"].startswith("application/yaml")
    assert [item["kind"] for item in yaml.safe_load_all(exported.content)] == ["Checkpoint", "Deployment"]
    body = refused(
        send(operator, "POST", "/specs/plan", {"documents": "a: 1"}),
        422,
        "specification_refused",
        "apiVersion",
    )
    assert body["findings"][0]["message"].startswith("documents, document 1, line 1: apiVersion is missing")
    refused(send(operator, "POST", "/specs/plan", {"documents": "a: ["}), 422, "yaml_syntax")
    refused(send(operator, "GET", "/specs/export?kind=Nothing"), 422, "unknown_kind", "kind")
