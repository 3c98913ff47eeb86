"""Who may see and do what in the admin, and how one gets in."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from apps.engines import states as engine_states
from apps.engines.models import QuantizationProfile
from apps.loadtests.models import LoadTest, QualityGate
from apps.telemetry.alerts.services import install_shipped_rules
from apps.telemetry.models import AlertRule
from tests import objects
from tests.loadtests.rows import scenario
from tests.people import client_of, person

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

CONFIGURED = (
    "registry_checkpoint",
    "engines_buildprofile",
    "engines_quantizationprofile",
    "serving_batchingprofile",
    "serving_deployment",
    "telemetry_alertrule",
    "loadtests_loadtest",
    "loadtests_qualitygate",
)
RECORDS = (
    "engines_build",
    "engines_engine",
    "serving_instance",
    "serving_revision",
    "fleet_node",
    "fleet_gpu",
    "fleet_gpulease",
    "fleet_toolchain",
    "core_auditentry",
    "gateway_gatewaykey",
    "gateway_gatewayroute",
    "gateway_externaldeployment",
    "gateway_usagehour",
    "gateway_requestlog",
    "telemetry_alert",
    "telemetry_silence",
    "telemetry_notificationchannel",
    "telemetry_notification",
    "loadtests_loadrun",
    "loadtests_study",
    "loadtests_tuning",
    "loadtests_productionmark",
    "loadtests_qualityrun",
    "loadtests_qualitywaiver",
)
PEOPLE = ("auth_user", "auth_group", "accounts_apitoken", "registry_hubaccess")


def shipped_rule() -> AlertRule:
    install_shipped_rules("test")
    return AlertRule.objects.order_by("name")[0]


@pytest.fixture
def rows() -> dict[str, int]:
    """One object of each kind: its number by the name of its admin."""
    deployment = objects.deployment()
    revision = objects.revision(deployment)
    node = objects.node()
    made = {
        "registry_checkpoint": revision.engine.checkpoint,
        "engines_buildprofile": deployment.build_profile,
        "engines_quantizationprofile": QuantizationProfile.objects.create(name="fp8"),
        "serving_batchingprofile": deployment.batching,
        "serving_deployment": deployment,
        "telemetry_alertrule": shipped_rule(),
        "loadtests_loadtest": LoadTest.objects.create(
            name="steady", scenario=scenario(deployment.name).model_dump(mode="json")
        ),
        "loadtests_qualitygate": QualityGate.objects.create(
            name="close", build_profile=deployment.build_profile, max_perplexity_ratio=1.05
        ),
        "engines_build": objects.build(deployment.build_profile, engine_states.FAILED),
        "engines_engine": revision.engine,
        "serving_instance": objects.instance(revision),
        "serving_revision": revision,
        "fleet_node": node,
        "fleet_gpu": node.gpus.get(),
    }
    return {name: row.pk for name, row in made.items()}


def statuses(client: Client, rows: dict[str, int], names: tuple[str, ...]) -> dict[str, set[int]]:
    """Answers of lists, add forms and objects."""
    found: dict[str, set[int]] = {"list": set(), "add": set(), "change": set(), "delete": set()}
    for name in names:
        found["list"].add(client.get(reverse(f"admin:{name}_changelist")).status_code)
        found["add"].add(client.get(reverse(f"admin:{name}_add")).status_code)
        if name in rows:
            for page in ("change", "delete"):
                url = reverse(f"admin:{name}_{page}", args=[rows[name]])
                found[page].add(client.get(url).status_code)
    return found


@pytest.mark.parametrize(
    ("role", "configure", "people"),
    [("viewer", 403, 403), ("code-author", 403, 403), ("operator", 200, 403), ("administrator", 200, 200)],
)
def test_what_each_role_reaches(rows: dict[str, int], role: str, configure: int, people: int) -> None:
    client = client_of(person(role))
    assert client.get(reverse("admin:index")).status_code == 200
    expected = {"list": {200}, "add": {configure}, "change": {200}, "delete": {configure}}
    assert statuses(client, rows, CONFIGURED) == expected
    assert statuses(client, rows, RECORDS) == {"list": {200}, "add": {403}, "change": {200}, "delete": {403}}
    for name in PEOPLE:
        assert client.get(reverse(f"admin:{name}_changelist")).status_code == people


def test_a_superuser_reaches_everything_but_never_writes_records(rows: dict[str, int]) -> None:
    boss = User.objects.create_superuser("root", password="x")
    client = client_of(boss)
    assert statuses(client, rows, CONFIGURED) == {
        "list": {200},
        "add": {200},
        "change": {200},
        "delete": {200},
    }
    assert statuses(client, rows, RECORDS) == {"list": {200}, "add": {403}, "change": {200}, "delete": {403}}


def test_every_kind_in_the_admin_is_in_this_table() -> None:
    registered = {f"{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry}
    assert registered == {*CONFIGURED, *RECORDS, *PEOPLE}


def test_viewers_see_fields_without_inputs(rows: dict[str, int]) -> None:
    client = client_of(person("viewer"))
    for name in CONFIGURED:
        page = client.get(reverse(f"admin:{name}_change", args=[rows[name]])).content.decode()
        assert 'name="name"' not in page
        assert "_save" not in page
        assert "hx-post" not in page


def test_viewers_cannot_save_press_or_preview(rows: dict[str, int]) -> None:
    client = client_of(person("viewer"))
    for name in CONFIGURED:
        change = reverse(f"admin:{name}_change", args=[rows[name]])
        assert client.post(change, {"name": "other"}).status_code == 403
        assert client.post(reverse(f"admin:{name}_add"), {"name": "other"}).status_code == 403
        assert client.post(reverse(f"admin:{name}_preview"), {}).status_code == 403
        assert (
            client.post(reverse(f"admin:{name}_delete", args=[rows[name]]), {"post": "yes"}).status_code
            == 403
        )
    for name, action in (
        ("registry_checkpoint", "inspect"),
        ("engines_buildprofile", "build"),
        ("engines_build", "retry"),
        ("engines_engine", "delete_files"),
        ("serving_deployment", "deploy"),
        ("serving_revision", "roll_back"),
        ("serving_instance", "restart"),
        ("fleet_node", "cordon"),
    ):
        assert client.post(reverse(f"admin:{name}_do", args=[rows[name], action])).status_code == 403


def test_buttons_change_nothing_by_a_link(rows: dict[str, int]) -> None:
    client = client_of(person("administrator"))
    url = reverse("admin:serving_deployment_do", args=[rows["serving_deployment"], "deploy"])
    assert client.get(url).status_code == 405
    assert client.post(url.replace("deploy/", "nonsense/")).status_code == 404
    guarded = client_of(User.objects.get(username="administrator"), csrf=True)
    assert guarded.post(url).status_code == 403


def test_people_are_hidden_from_the_navigation_of_others() -> None:
    page = client_of(person("operator")).get(reverse("admin:index")).content.decode()
    assert reverse("admin:serving_deployment_changelist") in page
    assert reverse("admin:auth_user_changelist") not in page
    page = client_of(person("administrator")).get(reverse("admin:index")).content.decode()
    assert reverse("admin:auth_user_changelist") in page


def test_one_sign_in_page() -> None:
    for path in ("/admin/", "/admin/serving/deployment/"):
        way = Client().get(path, follow=True).redirect_chain
        assert way[-1] == (f"/sign-in/?next={path}", 302)
    assert Client().get("/admin/login/?next=/admin/").headers["Location"] == "/sign-in/?next=/admin/"
    inside = client_of(person("viewer"))
    assert inside.get("/admin/login/").headers["Location"] == "/admin/"


def test_an_account_without_a_role_is_refused_and_not_sent_in_circles() -> None:
    user = person()
    user.is_staff = True
    user.save()
    answer = client_of(user).get("/admin/", follow=True)
    assert answer.status_code == 403


def test_only_the_admin_relaxes_the_policy() -> None:
    client = client_of(person("viewer"))
    policy = client.get("/admin/").headers["Content-Security-Policy"]
    assert "script-src 'self' 'unsafe-eval'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    for path in ("/api/v1/docs", "/api/v1/me", "/admin/login/"):
        assert "unsafe-eval" not in client.get(path).headers["Content-Security-Policy"]
