"""Every page at every width and in both themes: nothing overflows, text is legible, the keyboard gets everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, BrowserContext, Page

from apps.accounts.roles import VIEWER
from apps.chat import services
from apps.chat.compared_models import SharedLink
from apps.chat.models import Conversation, Turn
from apps.gateway.models import ExternalDeployment
from tests import people
from tests.browser import checks
from tests.browser.conftest import Tab, cookie_of
from tests.browser.server import Server
from tests.browser.world import LONG, World
from tests.support.sequences import go_on_after

# axe-core looks at every page once, and at the playground's at both ends of each.
AXE_LOOKS = frozenset({(1440, "light")})
AXE_LOOKS_PLAYGROUND = frozenset((width, theme) for width in (390, 1440) for theme in checks.THEMES)
CONVERSATION = "/playground/{conversation}/"
EXTERNAL = 901


@dataclass(frozen=True, slots=True)
class Case:
    """A page, what it must say without any script, and the selector of its main action."""

    path: str
    words: str
    action: str


PAGES = (
    Case("/", "Needs attention", "#attention button"),
    Case("/checkpoints/", "tiny", "main .button-primary"),
    Case("/checkpoints/tiny/", "llama", "main .button-primary"),
    Case(f"/checkpoints/{LONG}/", "announces", "main .button-danger"),
    Case("/checkpoints/-/new/", "Register a checkpoint", "main .button-primary"),
    Case("/builds/", "running", "main .button-primary"),
    Case("/builds/new/?checkpoint=tiny", "Engine, estimated", "main .button-primary"),
    Case("/builds/paste/", "What it means", "main .button-primary"),
    Case("/builds/1/", "succeeded", "main .button-primary"),
    Case("/builds/2/", "The disk is full", "main .button-primary"),
    Case("/builds/3/", "Quantise the weights", "main .button-danger"),
    Case("/builds/compare/?a=1&b=2", "Time by stage", "main .page-actions .button"),
    Case("/builds/clean-up/", "Would go", "main .button-primary"),
    Case("/deployments/", "degraded", "main .button-primary"),
    Case("/deployments/demo/", "TTFT", "main .button-danger"),
    Case("/deployments/demo/instances/", "k3v9q2m8tx", "#instances button"),
    Case("/deployments/demo/configuration/?revision=1", "config.pbtxt", "#revisions button"),
    Case("/deployments/demo/access/", "manage.py", "main [data-copy]"),
    Case("/deployments/-/new/", "Public name", "main .button-primary"),
    Case("/deployments/demo/edit/", "Replicas", "main .button-primary"),
    Case("/repositories/", "pair", "main .button-primary"),
    Case("/repositories/pair/", "delay_ms", "main .button-danger"),
    Case("/repositories/-/new/", "Folder on this node", "main .button-primary"),
    Case("/metrics/", "Tokens/s", "[data-charts-pause]"),
    Case("/metrics/alerts/", "KV use is 97%, above 90%.", "#rows button"),
    Case("/metrics/alerts/1/", "Who was told", "main .button-primary"),
    Case("/metrics/alerts/history/", "KV cache almost full", "#rows a"),
    Case("/metrics/alerts/rules/", "KV use > 90%", "main .button-primary"),
    Case("/metrics/alerts/rules/kv-full/", "What it says now", "main .button-primary"),
    Case("/metrics/alerts/silences/", "planned work", "main .button-primary"),
    Case("/metrics/alerts/channels/", "hooks.example.org", "#rows button"),
    Case("/metrics/alerts/notifications/", "200 ok", "#filter-q"),
    Case("/deployments/demo/rollout/", "Timeline", "main .button-small"),
    Case("/deployments/demo/scaling/", "Decisions", "#scaling a"),
    Case("/deployments/demo/advice/", "cannot say", "main .button-small"),
    Case("/fleet/", "cpu0", "#nodes a"),
    Case("/fleet/n1/", "Identity and versions", "main .page-actions button"),
    Case("/fleet/n1/0/", "Who held it before", "main .charts-bar a"),
    Case("/gateway/", "Requests/min", "main .button-primary"),
    Case("/gateway/keys/new/", "What this key can do", "main .button-primary"),
    Case("/gateway/keys/1/", "60 requests in any 60 seconds", "main .button-danger"),
    Case("/gateway/usage/", "Generated tokens", "main .filters .button"),
    Case("/gateway/requests/", "req-0001", "#rows a"),
    Case("/gateway/requests/1/", "capital of France", "main [data-copy]"),
    Case("/gateway/routes/", "elsewhere", "main .button-primary"),
    Case("/gateway/routes/assistant/", "Longest prompt", "main .button-primary"),
    Case("/gateway/external/elsewhere/", "Base URL", "main .button-primary"),
    Case("/load-tests/", "slow against quick", "main .button-primary"),
    Case("/load-tests/new/", "Warm-up", "main .button-primary"),
    Case("/load-tests/runs/1/", "TPOT p99", "main .button-danger"),
    Case("/load-tests/compare/?arm=slow:1,3,5&arm=quick:2,4,6", "tokens/s (", "main .button-primary"),
    Case("/load-tests/studies/1/", "Second by second", "main .button-danger"),
    Case("/load-tests/studies/new/", "Repeats", "main .button-primary"),
    Case("/load-tests/quality/", "Speed gained beside quality lost", "main .button-primary"),
    Case("/load-tests/quality/1/", "Answers side by side", "main .button-primary"),
    Case("/load-tests/quality/new/", "Windows of the text", "main .button-primary"),
    Case("/load-tests/quality/gates/new/", "Perplexity ratio at most", "main .button-primary"),
    Case("/load-tests/tunings/1/", "Best so far", "main .button-primary"),
    Case("/load-tests/tunings/new/", "Values of your own", "main .button-primary"),
    Case("/deployments/demo/adaptive/", "Nothing was moved yet", "main .button-primary"),
    Case("/playground/", "New conversation", "main .button-primary"),
    Case(CONVERSATION, "Paris", "#prompt"),
    Case(f"/playground/{EXTERNAL}/", "somebody else's server", "#prompt"),
    Case("/playground/compare/", "New comparison", "main .button-primary"),
    Case("/playground/shared/comparison/", "Not every side", "[popovertarget=menu-compare]"),
)


@pytest.fixture
def talk(tab: Tab, world: World) -> int:
    """A conversation of the signed-in person with one answer of each kind."""
    ada = User.objects.get(username="ada")
    row = Conversation.objects.create(
        owner=ada, deployment=world.deployment, title=LONG, params={"max_tokens": 64}
    )
    _turns(row)
    elsewhere = ExternalDeployment.objects.get(name="elsewhere")
    Conversation.objects.create(pk=EXTERNAL, owner=ada, external=elsewhere, title=f"{LONG} elsewhere")
    go_on_after(Conversation)
    _comparison(ada, row)
    return row.pk


def _comparison(owner: User, talk: Conversation) -> None:
    """A recorded conversation against an engine that has not answered yet, shared."""
    sides = [{"deployment": LONG, "revision": None}]
    made = services.create_comparison(owner, {"sides": sides, "conversation": talk.pk, "title": LONG})
    SharedLink.objects.create(uid="comparison", comparison=made, created_by=owner)


def _turns(row: Conversation) -> None:
    common = {
        "conversation": row,
        "prompt": "What is the capital of France? " * 8,
        "metrics": {"ttft_ms": 142.2, "tokens": 8},
    }
    stopped, failed = (
        {"sentence": "Stopped by you."},
        {"sentence": "The server went away.", "remedy": "Ask again."},
    )
    before = Turn.objects.create(uid="t1", position=1, answer="Paris. " * 60, state="done", **common)
    common["parent"] = before
    before = Turn.objects.create(uid="t2", position=2, answer="x" * 300, state="stopped", **stopped, **common)
    common["parent"] = before
    row.head = Turn.objects.create(uid="t3", position=3, state="failed", **failed, **common)
    row.save()


def _open(page: Page, case: Case, talk: int) -> None:
    page.goto(case.path.format(conversation=talk))


# Rows, session and page are made anew for each test, which takes as long as a look at a page.
TOGETHER = 4


@pytest.mark.parametrize(
    "cases",
    [PAGES[first : first + TOGETHER] for first in range(0, len(PAGES), TOGETHER)],
    ids=lambda cases: cases[0].path,
)
def test_pages_at_every_width_and_theme(tab: Tab, talk: int, cases: tuple[Case, ...]) -> None:
    assert {case.path: wrong for case in cases if (wrong := _look(tab.page, case, talk))} == {}


def _look(page: Page, case: Case, talk: int) -> dict[str, list[str]]:
    """What is wrong with a page, by width and theme."""
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light")
    _open(page, case, talk)
    page.wait_for_load_state("networkidle")
    checks.assert_still(page)
    _keyboard(page, case)
    found: dict[str, list[str]] = {}
    for width, height in checks.SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for theme in checks.THEMES:
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            wrong = checks.problems(page)
            if case.path.startswith("/playground/"):
                wrong += checks.axe(page) if (width, theme) in AXE_LOOKS_PLAYGROUND else []
            elif (width, theme) in AXE_LOOKS:
                # checks.js measures the contrast of each text, at every width and in both themes.
                wrong += checks.axe(page, "color-contrast")
            if wrong:
                found[f"{width} {theme}"] = wrong
    return found


def _keyboard(page: Page, case: Case) -> None:
    """The skip link comes first, and Tab leads to the main action with a ring around all that it passes."""
    if case.action == "#prompt":
        # The page begins where the person goes on: in the composer.
        assert page.evaluate("document.activeElement.id") == "prompt"
        assert checks.tab_to(page, "[data-divider]") == []
        return
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip", case.path
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert checks.tab_to(page, case.action) == [], case.path


def test_every_page_has_its_content_without_scripts(
    browser: Browser, server: Server, tab: Tab, talk: int, context: BrowserContext
) -> None:
    plain = browser.new_context(base_url=server.url, java_script_enabled=False)
    plain.add_cookies(context.cookies())  # type: ignore[arg-type]
    page = plain.new_page()
    try:
        missing = []
        for case in PAGES:
            _open(page, case, talk)
            if case.words not in page.locator("main").inner_text():
                missing.append(case)
        assert missing == []
    finally:
        plain.close()


def test_sign_in_at_every_width_and_theme(context: BrowserContext, server: Server, world: World) -> None:
    context.clear_cookies()
    tab = Tab(context.new_page())
    page = tab.page
    page.goto("/builds/3/")
    assert "/sign-in/?next=/builds/3/" in page.url
    assert checks.at_every_size(page) == {}
    people.person(VIEWER, name="vera")
    page.keyboard.type("vera")
    page.keyboard.press("Tab")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for()
    assert checks.problems(page) == []
    page.fill("#id_password", "correct horse")
    page.keyboard.press("Enter")
    page.get_by_text("Quantise the weights").first.wait_for()
    assert page.url.endswith("/builds/3/")
    tab.close(server)


def test_refusals_are_legible_too(tab: Tab, server: Server, context: BrowserContext) -> None:
    tab.forgiven = ("404 (Not Found)", "403 (Forbidden)")
    page = tab.page
    for path in ("/builds/999/", "/no-such-page/"):
        page.goto(path)
        assert checks.problems(page) == []
    context.clear_cookies()
    context.add_cookies([cookie_of(people.person(VIEWER, name="vera"), server)])  # type: ignore[list-item]
    page.goto("/builds/new/")
    assert "This needs the role operator." in page.locator("main").inner_text()
    assert checks.problems(page) == []
