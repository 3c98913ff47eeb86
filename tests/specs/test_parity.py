"""Each action of a service with its doors: page, REST operation and command, or the reason why there is none."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from django.core.management import get_commands, load_command_class
from django.urls import NoReverseMatch, reverse

from apps.specs.api import api
from apps.specs.management.command import ObjectCommand

APPS = Path(__file__).parents[2] / "apps"


@dataclass(frozen=True, slots=True)
class Doors:
    """Where an action is reached. A text in brackets is the reason why that door is missing."""

    page: str
    api: str
    command: str


BY_YAML = "apply"
PRIVATE = "(conversations belong to the person who chats)"
STREAM = "(an answer streams: the socket of the playground is its door)"

DOORS: dict[str, Doors] = {
    "registry.register_checkpoint": Doors("registry:new", "register_checkpoint", "checkpoint register"),
    "registry.change_source": Doors(
        "admin:registry_checkpoint_change", "change_checkpoint_source", "checkpoint change"
    ),
    "registry.inspect_again": Doors("registry:inspect", "inspect_checkpoint", "checkpoint inspect"),
    "registry.delete_checkpoint": Doors("registry:delete", "delete_checkpoint", "checkpoint delete"),
    "registry.cancel_fetch": Doors("registry:cancel", "cancel_checkpoint", "checkpoint cancel"),
    "registry.retry_fetch": Doors("registry:retry", "retry_checkpoint", "checkpoint retry"),
    "registry.keep_upload": Doors(
        "registry:new", "upload_archive", "(the command names an archive that is on the node)"
    ),
    "registry.save_hub_access": Doors("registry:access", "change_hub_access", "hub_access set"),
    "engines.save_build_profile": Doors("admin:engines_buildprofile_add", "create_build_profile", BY_YAML),
    "engines.delete_build_profile": Doors(
        "admin:engines_buildprofile_delete", "delete_build_profile", "build_profile delete"
    ),
    "engines.save_quantization_profile": Doors(
        "admin:engines_quantizationprofile_add", "create_quantization_profile", BY_YAML
    ),
    "engines.delete_quantization_profile": Doors(
        "admin:engines_quantizationprofile_delete",
        "delete_quantization_profile",
        "quantization_profile delete",
    ),
    "engines.start_build": Doors("engines:new", "start_build", "build start"),
    "engines.cancel_build": Doors("engines:cancel", "cancel_build", "build cancel"),
    "engines.retry_build": Doors("engines:retry", "retry_build", "build retry"),
    "engines.delete_engine": Doors("engines:delete_engine", "delete_engine", "engine delete"),
    "engines.apply_remedy": Doors("engines:apply_remedy", "apply_remedy", "build remedy"),
    "engines.rebuild_for_node": Doors("engines:rebuild", "rebuild_engine", "engine rebuild"),
    "engines.import_engine": Doors("engines:import", "import_engine", "engine import"),
    "engines.clean_up": Doors("engines:clean_up", "clean_up", "retention clean"),
    "engines.set_pinned": Doors("engines:pin", "set_pinned", "retention pin"),
    "engines.save_retention_policy": Doors("engines:policy", "save_retention_policy", "retention policy"),
    "serving.save_batching_profile": Doors(
        "admin:serving_batchingprofile_add", "create_batching_profile", BY_YAML
    ),
    "serving.roll_back_batching_profile": Doors(
        "admin:serving_batchingprofile_roll_back", "roll_back_batching_profile", "batching_profile rollback"
    ),
    "serving.delete_batching_profile": Doors(
        "admin:serving_batchingprofile_delete", "delete_batching_profile", "batching_profile delete"
    ),
    "serving.save_deployment": Doors("serving:new", "create_deployment", BY_YAML),
    "serving.delete_deployment": Doors("serving:delete", "delete_deployment", "deployment delete"),
    "serving.deploy": Doors("serving:deploy", "deploy", "deployment deploy"),
    "serving.stop": Doors("serving:stop", "stop_deployment", "deployment stop"),
    "serving.roll_back": Doors("serving:roll_back", "roll_back", "deployment rollback"),
    "serving.pause_rollout": Doors("serving:pause_rollout", "pause_rollout", "deployment pause"),
    "serving.resume_rollout": Doors("serving:resume_rollout", "resume_rollout", "deployment resume"),
    "serving.promote_rollout": Doors("serving:promote_rollout", "promote_rollout", "deployment promote"),
    "serving.wake_deployment": Doors("serving:wake", "wake_deployment", "deployment wake"),
    "serving.restart_instance": Doors("serving:restart", "restart_instance", "instance restart"),
    "serving.import_repository": Doors(
        "repositories:new", "import_model_repository", "model_repository import"
    ),
    "serving.check_again": Doors("repositories:check", "check_model_repository", "model_repository check"),
    "serving.adopt_repository": Doors(
        "repositories:repository", "adopt_model_repository", "model_repository adopt"
    ),
    "serving.delete_repository": Doors(
        "repositories:delete", "delete_model_repository", "model_repository delete"
    ),
    "serving.profile_of_line": Doors(
        "repositories:line", "create_profile_of_line", "model_repository from_line"
    ),
    "fleet.set_price": Doors("fleet:price", "set_slot_price", "node price"),
    "fleet.probe_toolchains": Doors("fleet:probe", "probe_node", "node probe"),
    "fleet.create_join_token": Doors("fleet:join", "create_join_token", "join_token create"),
    "fleet.redeem_join_token": Doors(
        "(the host that joins calls it)", "join", "(make worker, on the host that joins)"
    ),
    "fleet.revoke_join_token": Doors("fleet:revoke_join", "revoke_join_token", "join_token revoke"),
    "fleet.set_cordoned": Doors("fleet:cordon", "cordon_node", "node cordon"),
    "fleet.start_maintenance": Doors("fleet:maintenance", "start_maintenance", "node maintenance"),
    "fleet.end_maintenance": Doors("fleet:resume", "end_maintenance", "node resume"),
    "fleet.set_labels": Doors("fleet:labels", "set_node_labels", "node label"),
    "fleet.set_policy": Doors("fleet:policy", "set_node_policy", "node policy"),
    "fleet.forget_node": Doors("fleet:forget", "forget_node", "node forget"),
    "chat.create_conversation": Doors("chat:new", "create_conversation", "chat"),
    "chat.ask": Doors("chat:conversation", STREAM, "chat"),
    "chat.regenerate": Doors("chat:conversation", STREAM, "(manage.py chat asks once)"),
    "chat.edit": Doors("chat:conversation", STREAM, "(manage.py chat asks once)"),
    "chat.show_branch": Doors("chat:conversation", "show_branch", PRIVATE),
    "chat.stop_turn": Doors("chat:conversation", "stop_turn", "(Ctrl-C in manage.py chat)"),
    "chat.rename_conversation": Doors("chat:rename", "rename_conversation", PRIVATE),
    "chat.delete_conversation": Doors("chat:delete", "delete_conversation", PRIVATE),
    "chat.create_comparison": Doors("chat:new_comparison", "create_comparison", "comparison create"),
    "chat.repeat_comparison": Doors("chat:repeat_comparison", "repeat_comparison", "comparison repeat"),
    "chat.rename_comparison": Doors("chat:rename_comparison", "rename_comparison", "comparison rename"),
    "chat.delete_comparison": Doors("chat:delete_comparison", "delete_comparison", "comparison delete"),
    "chat.share": Doors("chat:share", "share_conversation", "comparison share"),
    "chat.revoke_link": Doors("chat:revoke", "revoke_shared_link", "comparison revoke"),
    "chat.save_prompt_set": Doors("chat:save_prompt_set", "create_prompt_set", BY_YAML),
    "chat.delete_prompt_set": Doors("chat:delete_prompt_set", "delete_prompt_set", "prompt_set delete"),
    "accounts.create_token": Doors("admin:accounts_apitoken_add", "create_token", "token create"),
    "accounts.revoke_token": Doors("admin:accounts_apitoken_do", "revoke_token", "token revoke"),
    "accounts.set_roles": Doors("admin:auth_user_change", "set_roles", "account roles"),
    "accounts.delete_person": Doors("admin:auth_user_delete", "delete_user", "account delete"),
    "accounts.save_person": Doors(
        "admin:auth_user_add",
        "(an account is made where its password is set: in the admin)",
        "(an account is made where its password is set: in the admin)",
    ),
    "gateway.create_key": Doors("gateway:new_key", "create_gateway_key", "gateway_key create"),
    "gateway.change_key": Doors("gateway:edit_key", "change_gateway_key", "gateway_key change"),
    "gateway.revoke_key": Doors("gateway:revoke_key", "revoke_gateway_key", "gateway_key revoke"),
    "gateway.save_route": Doors("gateway:new_route", "create_gateway_route", BY_YAML),
    "gateway.delete_route": Doors("gateway:delete_route", "delete_gateway_route", "gateway_route delete"),
    "gateway.save_external": Doors("gateway:new_external", "create_external_deployment", BY_YAML),
    "gateway.set_external_secret": Doors(
        "gateway:external", "set_external_secret", "external_deployment secret"
    ),
    "gateway.delete_external": Doors(
        "gateway:delete_external", "delete_external_deployment", "external_deployment delete"
    ),
    "gateway.cancel_request": Doors("gateway:cancel", "cancel_gateway_request", "gateway_request cancel"),
    "gateway.save_adaptive": Doors("serving:adaptive", "set_adaptive", "adaptive set"),
    "control.apply_advice": Doors("serving:apply_advice", "apply_advice", "advice apply"),
    "telemetry.save_alert_rule": Doors("alerts:new_rule", "create_alert_rule", "alert_rule enable"),
    "telemetry.delete_alert_rule": Doors("alerts:delete_rule", "delete_alert_rule", "alert_rule delete"),
    "telemetry.acknowledge": Doors("alerts:acknowledge", "acknowledge_alert", "alert ack"),
    "telemetry.unacknowledge": Doors("alerts:unacknowledge", "unacknowledge_alert", "alert unack"),
    "telemetry.create_silence": Doors("alerts:silences", "create_silence", "silence create"),
    "telemetry.end_silence": Doors("alerts:end_silence", "end_silence", "silence end"),
    "telemetry.save_channel": Doors("alerts:channels", "create_channel", "notification_channel create"),
    "telemetry.delete_channel": Doors(
        "alerts:delete_channel", "delete_channel", "notification_channel delete"
    ),
    "telemetry.test_channel": Doors("alerts:test_channel", "test_channel", "notification_channel test"),
    "loadtests.save_load_test": Doors("loadtests:new", "create_load_test", BY_YAML),
    "loadtests.delete_load_test": Doors("loadtests:delete_test", "delete_load_test", "load_test delete"),
    "loadtests.start_run": Doors("loadtests:start", "start_load_test", "load_test run"),
    "loadtests.start_scenario": Doors("loadtests:new", "start_load_run", "load_run start"),
    "loadtests.repeat_run": Doors("loadtests:repeat", "repeat_load_run", "load_run repeat"),
    "loadtests.stop_run": Doors("loadtests:stop", "stop_load_run", "load_run stop"),
    "loadtests.delete_run": Doors("loadtests:delete_run", "delete_load_run", "load_run delete"),
    "loadtests.start_comparison": Doors("loadtests:new_study", "start_comparison", "study compare"),
    "loadtests.start_batching_study": Doors("loadtests:new_study", "start_batching_study", "study batching"),
    "loadtests.cancel_study": Doors("loadtests:cancel_study", "cancel_study", "study cancel"),
    "loadtests.delete_study": Doors("loadtests:delete_study", "delete_study", "study delete"),
    "loadtests.start_quality_run": Doors("loadtests:new_quality_run", "start_quality_run", "quality start"),
    "loadtests.start_answer_run": Doors("loadtests:new_quality_run", "start_answer_run", "quality answers"),
    "loadtests.cancel_quality_run": Doors(
        "loadtests:cancel_quality_run", "cancel_quality_run", "quality cancel"
    ),
    "loadtests.repeat_quality_run": Doors(
        "loadtests:repeat_quality_run", "repeat_quality_run", "quality repeat"
    ),
    "loadtests.delete_quality_run": Doors(
        "loadtests:delete_quality_run", "delete_quality_run", "quality delete"
    ),
    "loadtests.save_quality_gate": Doors("loadtests:new_quality_gate", "create_quality_gate", BY_YAML),
    "loadtests.delete_quality_gate": Doors(
        "loadtests:delete_quality_gate", "delete_quality_gate", "quality gate_delete"
    ),
    "loadtests.waive_quality_gate": Doors(
        "loadtests:waive_quality_gate", "waive_quality_gate", "quality waive"
    ),
    "loadtests.end_quality_waiver": Doors(
        "loadtests:end_quality_waiver", "end_quality_waiver", "quality end_waiver"
    ),
    "loadtests.start_tuning": Doors("loadtests:new_tuning", "start_tuning", "tuning start"),
    "loadtests.cancel_tuning": Doors("loadtests:cancel_tuning", "cancel_tuning", "tuning cancel"),
    "loadtests.apply_tuning": Doors("loadtests:apply_tuning", "apply_tuning", "tuning apply"),
    "loadtests.delete_tuning": Doors("loadtests:delete_tuning", "delete_tuning", "tuning delete"),
    "loadtests.set_production": Doors("loadtests:production", "set_production", "load_test production"),
    "loadtests.set_background_load": Doors("chat:conversation", "set_background_load", "load_run background"),
    "loadtests.keep_background_load": Doors(
        "chat:conversation", "keep_background_load", "(load_run background says how long at once)"
    ),
    "specs.plan": Doors("(what would change is shown by each form's preview)", "plan_specs", "plan"),
    "specs.apply": Doors("(each form saves one object)", "apply_specs", "apply"),
    "specs.export": Doors("(pages show the objects themselves)", "export_specs", "export"),
}

# Functions of services that no person calls: who does instead.
INTERNAL: dict[str, str] = {
    "accounts.authenticate_token": "the API, for every request with a token",
    "accounts.digest_of": "the other functions here",
    "accounts.record_password": "the admin's form that sets a password",
    "accounts.refuse_losing_last_administrator": "the other functions here",
    "registry.check_name": "every service that takes a name",
    "registry.begin_inspection": "load worker",
    "registry.claim_fetch": "load worker",
    "registry.end_cancelled_fetch": "load worker",
    "registry.fail_fetch": "load worker",
    "registry.finish_fetch": "load worker",
    "registry.record_fetch": "load worker",
    "registry.record_fetch_child": "load worker",
    "registry.renew_fetch": "load worker",
    "registry.requeue_fetch": "load worker and sweep",
    "engines.claim_build": "GPU worker",
    "engines.end_cancelled": "GPU worker",
    "engines.fail_build": "GPU worker",
    "engines.finish_build": "GPU worker",
    "engines.record_child": "GPU worker",
    "engines.record_plan": "GPU worker",
    "engines.record_progress": "GPU worker",
    "engines.record_stage": "GPU worker",
    "engines.renew_build": "GPU worker",
    "engines.requeue_build": "GPU worker and sweep",
    "fleet.beat": "heartbeat thread of the control worker",
    "fleet.echo": "reconcile task",
    "fleet.record_facts": "control worker, each minute",
    "fleet.record_toolchains": "control worker, after it has probed",
    "fleet.register_node": "control worker at its start, manage.py join",
    "fleet.release_expired": "sweep",
    "fleet.release_lease": "workers",
    "fleet.release_leases_of": "workers",
    "fleet.renew_lease": "workers",
    "fleet.saw_node": "heartbeat thread of the control worker",
    "fleet.take_lease": "workers",
    "fleet.take_leases": "placement, on the node that leads",
    "telemetry.install_shipped_rules": "manage.py ensure_alert_rules, which prepare runs",
    "serving.start_waiting": "the signal of a finished build, and the sweep",
}


def public_functions() -> set[str]:
    """`app.function` of every function that an app's services offer."""
    found = set()
    for file in sorted(APPS.glob("*/services.py")):
        app = file.parent.name
        module = importlib.import_module(f"apps.{app}.services")
        found |= {f"{app}.{name}" for name in _names(module) if inspect.isfunction(getattr(module, name))}
    return found


def _names(module: ModuleType) -> list[str]:
    exported = getattr(module, "__all__", None)
    if exported is not None:
        return list(exported)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def test_every_function_of_a_service_is_in_the_table() -> None:
    functions = public_functions()
    assert functions - set(DOORS) - set(INTERNAL) == set()
    assert (set(DOORS) | set(INTERNAL)) - functions == set()
    assert set(DOORS) & set(INTERNAL) == set()


def _resolves(name: str) -> bool:
    for arguments in ([], [1], ["x"], ["x", 1], ["x", "y"], [1, "x"], [1, 1]):
        try:
            reverse(name, args=arguments)
        except NoReverseMatch:
            continue
        return True
    return False


@pytest.mark.parametrize("action", DOORS)
def test_the_page_is_there(action: str) -> None:
    door = DOORS[action].page
    assert door.startswith("(") or _resolves(door), door


@pytest.fixture(scope="module")
def operations() -> set[str]:
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    return {operation["operationId"] for path in paths.values() for operation in path.values()}


@pytest.mark.parametrize("action", DOORS)
def test_the_operation_is_there(action: str, operations: set[str]) -> None:
    door = DOORS[action].api
    assert door.startswith("(") or door in operations, door


@pytest.mark.parametrize("action", DOORS)
def test_the_command_is_there(action: str) -> None:
    door = DOORS[action].command
    if door.startswith("("):
        return
    name, _, verb = door.partition(" ")
    command = load_command_class(get_commands()[name], name)
    if verb:
        assert isinstance(command, ObjectCommand)
        assert verb in {item.name for item in command.verbs}


def test_every_operation_is_named_once_and_changes_are_in_the_table(operations: set[str]) -> None:
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    changing = {
        operation["operationId"]
        for path in paths.values()
        for method, operation in path.items()
        if method != "get"
    }
    # Doors of the same action: a profile is saved by creating and by changing it, a node cordoned and uncordoned.
    twins = {
        "change_build_profile",
        "change_quantization_profile",
        "change_batching_profile",
        "change_deployment",
        "change_gateway_route",
        "change_external_deployment",
        "change_alert_rule",
        "change_channel",
        "uncordon_node",
        "change_load_test",
        "change_prompt_set",
        "share_comparison",
        "change_quality_gate",
    }
    # Questions whose input is too large for an address.
    asking = {"plan_memory", "translate_command", "look_at_engine", "plan_batching_profile"}
    assert changing - twins - asking == {
        doors.api for doors in DOORS.values() if not doors.api.startswith("(")
    } - {"export_specs"}
    assert len(operations) == sum(len(path) for path in paths.values())


def test_every_command_on_objects_is_in_the_table() -> None:
    listed = {doors.command for doors in DOORS.values()}
    for name, app in get_commands().items():
        command = load_command_class(app, name) if app == "apps.specs" else None
        if isinstance(command, ObjectCommand):
            verbs = {f"{name} {verb.name}" for verb in command.verbs}
            assert verbs - listed <= {
                f"{name} list",
                "batching_profile versions",
                "alert_rule disable",
                "advice show",
                "adaptive show",
                "adaptive off",
                "node uncordon",
                "deployment endpoints",
                "deployment scaling",
                "hub_access show",
                "load_run beside",
                "load_run compare",
                "load_run capacity",
                "study show",
                "tuning show",
                "comparison run",
                "comparison export",
                "prompt_set show",
                "quality show",
                "quality gates",
                "quality check",
                "model_repository plan",
                "build remedies",
                "build compare",
                "engine check",
                "engine look",
                "retention plan",
                "retention unpin",
            }
