"""Commands on objects: the same services, JSON for programs, one line for people, roles of the acting account."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command, get_commands
from django.core.management.base import CommandError

from apps.accounts.services import authenticate_token
from apps.core.models import AuditEntry
from apps.engines.models import BuildProfile
from apps.serving.models import Deployment
from tests import objects
from tests.people import person

pytestmark = pytest.mark.django_db


def run(line: str) -> str:
    command, *arguments = line.split()
    out = io.StringIO()
    call_command(command, *arguments, stdout=out)
    return out.getvalue()


def told(line: str) -> Any:
    return json.loads(run(f"{line} --json"))


def refused(line: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(line)
    assert caught.value.returncode == 1
    return str(caught.value)


def test_checkpoints() -> None:
    objects.gguf_file("tiny")
    assert told("checkpoint register tiny --demo tiny")["state"] == "ready"
    assert AuditEntry.objects.get(verb="checkpoint.registered").actor_label == "cli"
    path = objects.gguf_file("tiny")
    assert told(f"checkpoint change tiny --path {path}")["source"] == {"path": str(path)}
    assert run("checkpoint inspect tiny") == "tiny: ready.\n"
    assert "tiny  ready  gguf" in run("checkpoint list")
    assert "There is no checkpoint none-such." in refused("checkpoint inspect none-such")
    waiting = told("checkpoint register hub --huggingface a/b --revision v1 --file *.gguf")
    assert (waiting["state"], waiting["source"]) == (
        "registered",
        {"huggingface": {"repo": "a/b", "revision": "v1", "files": ["*.gguf"]}},
    )
    assert told("checkpoint cancel hub")["state"] == "cancelled"
    assert told("checkpoint retry hub --file x.gguf")["source"]["huggingface"]["files"] == ["x.gguf"]
    assert "nothing is left to fetch" in refused("checkpoint retry hub")
    assert told("checkpoint delete hub --files") == {"deleted": "hub"}
    assert told("checkpoint delete tiny") == {"deleted": "tiny"}


def test_builds_and_engines() -> None:
    objects.build_profile()
    assert run("build start f16") == "Build #1 of f16: queued.\n"
    assert told("build list --state queued")["items"][0]["number"] == 1
    assert told("build cancel 1")["state"] == "cancelled"
    assert "There is nothing to cancel." in refused("build cancel 1")
    assert told("build retry 1")["number"] == 2
    assert "There is no build #9." in refused("build retry 9")
    made = objects.engine(BuildProfile.objects.get())
    assert made.fingerprint in run("engine list")
    assert told(f"engine delete {made.fingerprint[:10]}")["state"] == "deleted"
    run("build cancel 2")
    assert "f16" in run("build_profile list")
    assert told("build_profile delete f16") == {"deleted": "f16"}


def test_deployments_and_instances() -> None:
    row = objects.deployment()
    assert "Waits for build #1" in run("deployment deploy demo")
    assert told("deployment stop demo")["state"] == "stopped"
    objects.engine(row.build_profile)
    assert told("deployment deploy demo")["target_revision"] == 1
    old = objects.revision(row, number=2, state="superseded")
    assert told("deployment rollback demo 2")["target_revision"] == 2
    assert "demo has no revision 9." in refused("deployment rollback demo 9")
    live = objects.instance(old)
    assert told("instance list --deployment demo")["items"][0]["uid"] == live.uid
    assert told(f"instance restart {live.uid}")["stop_requested_at"] is not None
    assert "Stop it first" in refused("deployment delete demo")
    assert "demo  starting  running" in run("deployment list")
    live.delete()
    Deployment.objects.update(state="stopped")
    assert told("deployment delete demo") == {"deleted": "demo"}
    assert "inflight-16  inflight" in run("batching_profile list")
    assert run("batching_profile delete inflight-16") == "inflight-16 was deleted.\n"


def test_nodes_tokens_and_accounts() -> None:
    objects.node()
    assert told("node cordon n1")["cordoned"] is True
    assert run("node uncordon n1") == "n1.local gets new work again.\n"
    assert "n1.local" in run("node list")
    assert told("node probe n1")["toolchains"] == []
    user = person("viewer")
    made = told("token create viewer ci --days 2")
    found = authenticate_token(made["token"])
    assert found is not None
    assert found.owner == user
    assert run("token create viewer other").splitlines()[-1].startswith("ifl_")
    assert told("token list --owner viewer")["count"] == 2
    assert told(f"token revoke {made['id']}")["state"] == "revoked"
    assert "There is no token 999." in refused("token revoke 999")
    assert told("account roles viewer operator code-author")["roles"] == ["code-author", "operator"]
    assert "There is no role king." in refused("account roles viewer king")
    assert told("account list")["items"] == [
        {
            "username": "viewer",
            "roles": ["code-author", "operator"],
            "actions": ["author-code", "chat", "configure", "operate", "view"],
        }
    ]
    person("administrator")
    assert told("account delete viewer") == {"deleted": "viewer"}


@pytest.mark.parametrize(
    "line",
    [
        "build start f16",
        "checkpoint inspect tiny",
        "deployment deploy demo",
        "deployment delete demo",
        "batching_profile delete inflight-16",
        "node cordon n1",
        "token list",
        "token create administrator ci",
        "account list",
        "account roles viewer administrator",
        "account delete administrator",
    ],
)
def test_the_acting_account_has_its_own_roles(line: str) -> None:
    person("viewer")
    person("administrator")
    objects.deployment()
    objects.node()
    assert "This needs the role" in refused(f"{line} --user viewer")
    assert "There is no account nobody." in refused(f"{line} --user nobody")


def test_an_account_without_a_role_lists_nothing() -> None:
    person()
    for command in ("checkpoint", "build", "engine", "deployment", "instance", "node"):
        assert "This needs the role viewer." in refused(f"{command} list --user nobody")


def test_json_errors_have_the_shape_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    with pytest.raises(SystemExit) as caught:
        call_command("build", "start", "none-such", "--json", stdout=out)
    assert caught.value.code == 1
    body = json.loads(out.getvalue())
    assert set(body) == {"code", "message", "field", "remedy", "facts", "findings"}
    assert body["code"] == "build_profile_unknown"


def test_wrong_usage_is_told_by_the_parser() -> None:
    for line in ("build", "build start", "build cancel x", "checkpoint register a", "deployment fly"):
        with pytest.raises(CommandError):
            run(line)


def test_no_command_of_ours_hides_another() -> None:
    ours = {name for name, app in get_commands().items() if app == "apps.specs"}
    assert {"plan", "apply", "export", "build", "deployment", "checkpoint"} <= ours
