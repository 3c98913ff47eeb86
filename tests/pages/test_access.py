"""Every page and every action by role. A new address without a line here fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from apps.accounts.roles import ADMINISTRATOR, CODE_AUTHOR, OPERATOR, VIEWER
from tests import people
from tests.pages.conftest import World, conversation_of

SignIn = Callable[..., Client]
EVERYBODY = {VIEWER, OPERATOR, ADMINISTRATOR, CODE_AUTHOR}
OPERATORS = {OPERATOR, ADMINISTRATOR}
DEMO, ABC = ("demo",), ("demo", "abc123")

# Name of the address -> (arguments, roles that may open it).
PAGES: dict[str, tuple[tuple[object, ...], set[str]]] = {
    "dashboard:overview": ((), EVERYBODY),
    "dashboard:work": ((), EVERYBODY),
    "registry:checkpoints": ((), EVERYBODY),
    "registry:new": ((), OPERATORS),
    "registry:checkpoint": (("tiny",), EVERYBODY),
    "registry:log": (("tiny",), EVERYBODY),
    "registry:access": ((), {ADMINISTRATOR}),
    "planner:planner": ((), EVERYBODY),
    "planner:result": ((), EVERYBODY),
    "engines:builds": ((), EVERYBODY),
    "engines:new": ((), OPERATORS),
    "engines:preview": ((), OPERATORS),
    "engines:paste": ((), OPERATORS),
    "engines:build": ((7,), EVERYBODY),
    "engines:compare": ((), EVERYBODY),
    "engines:clean_up": ((), EVERYBODY),
    "engines:import": ((), OPERATORS),
    "engines:engine": ((1,), EVERYBODY),
    "engines:log": ((7,), EVERYBODY),
    "serving:deployments": ((), EVERYBODY),
    "serving:new": ((), OPERATORS),
    "serving:preview": ((), OPERATORS),
    "serving:deployment": (DEMO, EVERYBODY),
    "serving:live_data": (DEMO, EVERYBODY),
    "serving:instances": (DEMO, EVERYBODY),
    "serving:configuration": (DEMO, EVERYBODY),
    "serving:advice": (DEMO, EVERYBODY),
    "serving:adaptive": (DEMO, EVERYBODY),
    "serving:rollout": (DEMO, EVERYBODY),
    "serving:scaling": (DEMO, EVERYBODY),
    "serving:access": (DEMO, EVERYBODY),
    "serving:edit": (DEMO, OPERATORS),
    "serving:log": (ABC, EVERYBODY),
    "repositories:repositories": ((), EVERYBODY),
    "repositories:repository": (("own",), EVERYBODY),
    "repositories:new": ((), OPERATORS),
    "repositories:line": ((), OPERATORS),
    "metrics:metrics": ((), EVERYBODY),
    "metrics:data": ((), EVERYBODY),
    "alerts:alerts": ((), EVERYBODY),
    "alerts:alert": ((1,), EVERYBODY),
    "alerts:bell": ((), EVERYBODY),
    "alerts:history": ((), EVERYBODY),
    "alerts:rules": ((), EVERYBODY),
    "alerts:new_rule": ((), OPERATORS),
    "alerts:preview": ((), OPERATORS),
    "alerts:rule": (("kv-full",), OPERATORS),
    "alerts:silences": ((), EVERYBODY),
    "alerts:channels": ((), EVERYBODY),
    "alerts:channel": (("ops",), OPERATORS),
    "alerts:notifications": ((), EVERYBODY),
    "fleet:fleet": ((), EVERYBODY),
    "fleet:node": (("n1",), EVERYBODY),
    "fleet:node_data": (("n1",), EVERYBODY),
    "fleet:slot": (("n1", 0), EVERYBODY),
    "fleet:slot_data": (("n1", 0), EVERYBODY),
    "fleet:join": ((), {ADMINISTRATOR}),
    "gateway:keys": ((), EVERYBODY),
    "gateway:new_key": ((), OPERATORS),
    "gateway:preview": ((), EVERYBODY),
    "gateway:key": ((1,), EVERYBODY),
    "gateway:edit_key": ((1,), OPERATORS),
    "gateway:usage": ((), EVERYBODY),
    "gateway:export": ((), EVERYBODY),
    "gateway:requests": ((), EVERYBODY),
    "gateway:request": ((1,), EVERYBODY),
    "gateway:routes": ((), EVERYBODY),
    "gateway:new_route": ((), OPERATORS),
    "gateway:route": (("assistant",), OPERATORS),
    "gateway:new_external": ((), OPERATORS),
    "gateway:external": (("elsewhere",), OPERATORS),
    "chat:playground": ((), OPERATORS),
    "chat:compare": ((), OPERATORS),
    "loadtests:tests": ((), EVERYBODY),
    "loadtests:new": ((), OPERATORS),
    "loadtests:compare": ((), EVERYBODY),
    "loadtests:run": ((1,), EVERYBODY),
    "loadtests:log": ((1,), EVERYBODY),
    "loadtests:new_study": ((), OPERATORS),
    "loadtests:study": ((1,), EVERYBODY),
    "loadtests:new_tuning": ((), OPERATORS),
    "loadtests:tuning": ((1,), EVERYBODY),
    "loadtests:quality": ((), EVERYBODY),
    "loadtests:quality_run": ((1,), EVERYBODY),
    "loadtests:quality_log": ((1,), EVERYBODY),
    "loadtests:new_quality_run": ((), OPERATORS),
    "loadtests:new_quality_gate": ((), OPERATORS),
    "loadtests:quality_gate": (("close",), OPERATORS),
}
ACTIONS: dict[str, tuple[object, ...]] = {
    "registry:check": (),
    "registry:inspect": ("tiny",),
    "registry:cancel": ("tiny",),
    "registry:retry": ("tiny",),
    "registry:delete": ("tiny",),
    "engines:cancel": (7,),
    "engines:retry": (7,),
    "engines:delete_engine": (7,),
    "engines:apply_remedy": (7,),
    "engines:rebuild": (7,),
    "engines:clean": (),
    "engines:pin": (),
    "engines:policy": (),
    "serving:deploy": DEMO,
    "serving:stop": DEMO,
    "serving:pause_rollout": DEMO,
    "serving:resume_rollout": DEMO,
    "serving:promote_rollout": DEMO,
    "serving:wake": DEMO,
    "serving:delete": DEMO,
    "serving:roll_back": ("demo", 1),
    "serving:restart": ABC,
    "serving:apply_advice": ("demo", "batch_size_always_full"),
    "repositories:check": ("own",),
    "repositories:delete": ("own",),
    "alerts:acknowledge": (1,),
    "alerts:unacknowledge": (1,),
    "alerts:end_silence": (1,),
    "alerts:switch_rule": ("kv-full",),
    "alerts:delete_rule": ("kv-full",),
    "alerts:test_channel": ("ops",),
    "alerts:delete_channel": ("ops",),
    "fleet:cordon": ("n1",),
    "fleet:revoke_join": (1,),
    "fleet:uncordon": ("n1",),
    "fleet:price": ("n1", 0),
    "fleet:probe": ("n1",),
    "fleet:maintenance": ("n1",),
    "fleet:resume": ("n1",),
    "fleet:labels": ("n1",),
    "fleet:policy": ("n1",),
    "fleet:forget": ("n1",),
    "gateway:revoke_key": (1,),
    "gateway:cancel": ("r1",),
    "gateway:delete_route": ("assistant",),
    "gateway:delete_external": ("elsewhere",),
    "chat:new": (),
    "chat:new_comparison": (),
    "chat:save_prompt_set": (),
    "chat:delete_prompt_set": ("capitals",),
    "loadtests:start": ("steady",),
    "loadtests:delete_test": ("steady",),
    "loadtests:stop": (1,),
    "loadtests:repeat": (1,),
    "loadtests:delete_run": (1,),
    "loadtests:cancel_study": (1,),
    "loadtests:delete_study": (1,),
    "loadtests:cancel_tuning": (1,),
    "loadtests:apply_tuning": (1,),
    "loadtests:delete_tuning": (1,),
    "loadtests:production": ("demo",),
    "loadtests:cancel_quality_run": (1,),
    "loadtests:repeat_quality_run": (1,),
    "loadtests:delete_quality_run": (1,),
    "loadtests:delete_quality_gate": ("close",),
    "loadtests:waive_quality_gate": ("abc",),
    "loadtests:end_quality_waiver": ("abc",),
}
# Addresses with tests of their own: sign-in, health, the palette, and what belongs to one conversation.
ELSEWHERE = {
    "dashboard:sign_in",
    "dashboard:sign_out",
    "dashboard:words",
    "dashboard:palette",
    "dashboard:healthz",
    "dashboard:readyz",
    "fleet:installer",
    "fleet:source",
    "chat:conversation",
    "chat:rename",
    "chat:delete",
    "chat:share",
    "chat:export",
    "chat:comparison",
    "chat:repeat_comparison",
    "chat:rename_comparison",
    "chat:delete_comparison",
    "chat:share_comparison",
    "chat:export_comparison",
    "chat:shared",
    "chat:export_shared",
    "chat:revoke",
}


def _page_names() -> set[str]:
    found = set()
    for resolver in get_resolver().url_patterns:
        if isinstance(resolver, URLResolver) and resolver.namespace not in {
            None,
            "admin",
            "api",
            "api-1.0.0",
        }:
            patterns = [p for p in resolver.url_patterns if isinstance(p, URLPattern)]
            found |= {f"{resolver.namespace}:{pattern.name}" for pattern in patterns}
    return {
        name
        for name in found
        if name.split(":")[0]
        in {
            "dashboard",
            "registry",
            "planner",
            "engines",
            "serving",
            "metrics",
            "alerts",
            "fleet",
            "gateway",
            "chat",
            "loadtests",
            "repositories",
        }
    }


def test_every_address_is_listed_here() -> None:
    assert _page_names() == {*PAGES, *ACTIONS, *ELSEWHERE}


# One role shows that every page's queries run on both databases.
@pytest.mark.parametrize(
    "role",
    [
        ADMINISTRATOR,
        *(pytest.param(role, marks=pytest.mark.one_database) for role in (VIEWER, OPERATOR, CODE_AUTHOR)),
    ],
)
def test_pages_open_for_their_roles_only(world: World, sign_in: SignIn, role: str) -> None:
    client = sign_in(role)
    seen = {name: client.get(reverse(name, args=args)).status_code for name, (args, _roles) in PAGES.items()}
    assert seen == {name: 200 if role in roles else 403 for name, (_args, roles) in PAGES.items()}


@pytest.mark.parametrize("role", [VIEWER, CODE_AUTHOR])
def test_actions_are_refused_to_who_may_only_look(world: World, sign_in: SignIn, role: str) -> None:
    client = sign_in(role)
    seen = {name: client.post(reverse(name, args=args)).status_code for name, args in ACTIONS.items()}
    assert seen == dict.fromkeys(ACTIONS, 403)


def test_actions_change_nothing_by_get(world: World, sign_in: SignIn) -> None:
    client = sign_in(ADMINISTRATOR)
    seen = {name: client.get(reverse(name, args=args)).status_code for name, args in ACTIONS.items()}
    assert seen == dict.fromkeys(ACTIONS, 405)


def test_the_forms_refuse_posts_of_a_viewer(world: World, sign_in: SignIn) -> None:
    client = sign_in(VIEWER)
    for name in ("registry:new", "engines:new", "serving:new"):
        assert client.post(reverse(name), {"name": "x"}).status_code == 403


def test_without_a_role_there_is_nothing_but_the_reason(world: World, sign_in: SignIn) -> None:
    answer = sign_in().get("/")
    assert answer.status_code == 403
    assert "This needs the role viewer." in answer.content.decode()
    assert "Ask an administrator" in answer.content.decode()


def test_without_an_account_everything_leads_to_sign_in(world: World, client: Client) -> None:
    for name, (args, _roles) in PAGES.items():
        answer = client.get(reverse(name, args=args))
        assert answer.status_code == 302
        assert answer.headers["Location"].startswith("/sign-in/?next=/")


def test_a_conversation_is_its_owners_alone(world: World) -> None:
    owner, other = people.person(OPERATOR, name="owner"), people.person(OPERATOR, name="other")
    row = conversation_of(owner, world.deployment)
    urls = [reverse(f"chat:{name}", args=[row.pk]) for name in ("conversation", "rename", "delete")]
    assert people.client_of(owner).get(urls[0]).status_code == 200
    stranger = people.client_of(other)
    assert stranger.get(urls[0]).status_code == 404
    assert [stranger.post(url, {"title": "mine now"}).status_code for url in urls[1:]] == [404, 404]
    row.refresh_from_db()
    assert row.title == "Paris"


def test_a_link_is_for_viewers_and_what_it_shows_stays_its_owners(world: World, sign_in: SignIn) -> None:
    owner = people.person(OPERATOR, name="owner")
    row = conversation_of(owner, world.deployment)
    client = people.client_of(owner)
    shown = client.post(reverse("chat:share", args=[row.pk])).headers["Location"]
    viewer, other = sign_in(VIEWER), sign_in(OPERATOR)
    page = viewer.get(shown)
    assert (page.status_code, "Paris" in page.content.decode()) == (200, True)
    assert viewer.get(f"{shown}export/json/").headers["Content-Disposition"].endswith('-paris.json"')
    assert sign_in().get(shown).status_code == 403
    assert people.client_of(None).get(shown).status_code == 302
    assert [
        other.post(f"{shown}revoke/").status_code,
        other.get(f"/playground/{row.pk}/export/json/").status_code,
    ] == [403, 404]
    assert client.post(f"{shown}revoke/").status_code == 303
    gone = viewer.get(shown)
    assert (gone.status_code, "revoked by owner" in gone.content.decode()) == (404, True)


def test_posts_need_the_csrf_token(world: World) -> None:
    client = people.client_of(people.person(OPERATOR), csrf=True)
    answer = client.post(reverse("engines:cancel", args=[7]))
    assert answer.status_code == 403
    assert "This form was too old" in answer.content.decode()


def test_what_is_not_there_is_said_in_the_frame(world: World, sign_in: SignIn) -> None:
    client = sign_in(VIEWER)
    for path in (
        "/builds/99/",
        "/checkpoints/none/",
        "/deployments/none/",
        "/deployments/demo/instances/none/log",
    ):
        answer = client.get(path)
        assert answer.status_code == 404
        assert 'id="main"' in answer.content.decode()


def test_an_unknown_address_has_a_page(client: Client, sign_in: SignIn) -> None:
    answer = sign_in(VIEWER).get("/no-such-page/")
    assert answer.status_code == 404
    assert "There is no such page" in answer.content.decode()
    assert 'class="rail"' in answer.content.decode()
    assert 'class="rail"' not in client.get("/no-such-page/", follow=True).content.decode()


@pytest.mark.django_db
class TestSignIn:
    """The only page that is open."""

    def test_leads_on_to_the_page_asked_for(self, client: Client) -> None:
        people.person(VIEWER, name="ada")
        answer = client.post("/sign-in/", {"username": "ada", "password": "correct horse", "next": "/fleet/"})
        assert answer.status_code == 302
        assert answer.headers["Location"] == "/fleet/"

    def test_leads_nowhere_else(self, client: Client) -> None:
        people.person(VIEWER, name="ada")
        data = {"username": "ada", "password": "correct horse", "next": "https://example.com/"}
        assert client.post("/sign-in/", data).headers["Location"] == "/"

    def test_says_what_is_wrong(self, client: Client) -> None:
        people.person(VIEWER, name="ada")
        answer = client.post("/sign-in/", {"username": "ada", "password": "wrong"})
        assert answer.status_code == 200
        assert "do not belong together" in answer.content.decode()
        assert 'value="ada"' in answer.content.decode()

    def test_names_the_empty_field(self, client: Client) -> None:
        text = client.post("/sign-in/", {"username": "", "password": ""}).content.decode()
        assert "Give your name." in text
        assert "Give your password." in text

    def test_signing_out_is_a_post(self, client: Client) -> None:
        client.force_login(User.objects.create_user("ada"))
        assert client.get("/sign-out/").status_code == 405
        assert client.post("/sign-out/").headers["Location"] == "/sign-in/"
        assert client.get("/").status_code == 302
