"""The playground: streamed answers, stop, regenerate, parameters, a reload in mid-answer, bands on the charts."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, expect

from apps.chat import services, sources
from apps.chat.models import Conversation, Turn
from apps.serving.models import Deployment
from tests.browser import checks
from tests.browser.conftest import Tab
from tests.browser.world import World
from tests.chat.fakes import Script

# Counts the writes into the conversation, and measures the longest time between two frames.
WATCH = """() => {
  window.longest = 0;
  window.writes = 0;
  let last = performance.now();
  const look = (now) => {
    window.longest = Math.max(window.longest, now - last);
    last = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  const options = { childList: true, subtree: true };
  new MutationObserver(() => { window.writes += 1; }).observe(document.querySelector('[data-turns]'), options);
}"""
FIGURE = "document.querySelector('[data-chart=chart-playground] .js-plotly-plot')"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Script:
    """The engine that answers; a test changes what it says."""
    script = Script(pause=0.02)
    monkeypatch.setattr(sources, "prepare", lambda turn: script.answering())
    return script


@pytest.fixture
def talk(tab: Tab, world: World, engine: Script) -> Page:
    """An open conversation of the signed-in person."""
    row = services.create_conversation(User.objects.get(username="ada"), world.deployment)
    tab.page.goto(f"/playground/{row.pk}/")
    expect(tab.page.get_by_role("button", name="Send")).to_be_enabled()
    return tab.page


def _ask(page: Page, words: str = "What is the capital of France?") -> None:
    page.fill("#prompt", words)
    page.keyboard.press("Enter")


def test_an_answer_streams_and_is_measured(talk: Page) -> None:
    talk.evaluate("checks.forget()")
    _ask(talk)
    turn = talk.locator("[data-turn]").last
    expect(turn.locator("[data-answer]")).to_have_text("Paris is the capital.")
    expect(turn).to_have_attribute("data-state", "done")
    row = Turn.objects.get()
    expect(turn.locator("[data-tokens]")).to_have_text("5")
    expect(turn.locator("[data-ttft]")).not_to_have_text("\u2013")
    expect(turn.locator("[data-rate]")).not_to_have_text("\u2013")
    expect(turn.locator("[data-prompt-tokens]")).to_have_text("7 prompt, 3 cached")
    expect(talk.locator("[data-status]")).to_contain_text("Done: 5 tokens")
    expect(talk.locator("#prompt")).to_be_focused()
    assert talk.input_value("#prompt") == ""
    assert row.answer == "Paris is the capital."
    assert checks.problems(talk) == []
    talk.wait_for_function(f"() => {FIGURE}.layout.shapes.length === 2")
    shapes = talk.evaluate(f"{FIGURE}.layout.shapes")
    band, first = shapes
    assert band["type"] == "rect"
    assert first["type"] == "line"
    assert band["x0"] <= first["x0"] <= band["x1"]


def test_enter_sends_and_shift_enter_makes_a_line(talk: Page) -> None:
    talk.fill("#prompt", "")
    talk.keyboard.type("one")
    talk.keyboard.press("Shift+Enter")
    talk.keyboard.type("two")
    talk.keyboard.press("Enter")
    expect(talk.locator("[data-question]").last).to_have_text("one\ntwo")


def test_stop_ends_the_answer_and_keeps_its_text(talk: Page, engine: Script) -> None:
    engine.endless = True
    _ask(talk)
    expect(talk.locator("[data-answer]").last).to_contain_text("Paris is the capital.")
    assert talk.get_by_role("button", name="Send").is_hidden()
    talk.get_by_role("button", name="Stop the answer").click()
    turn = talk.locator("[data-turn]").last
    expect(turn).to_have_attribute("data-state", "stopped")
    expect(turn).to_contain_text("stopped")
    assert turn.locator("[data-answer]").inner_text().startswith("Paris is the capital.")
    assert engine.cancelled
    expect(talk.get_by_role("button", name="Send")).to_be_visible()
    assert checks.problems(talk) == []


def test_escape_stops_too(talk: Page, engine: Script) -> None:
    engine.endless = True
    _ask(talk)
    expect(talk.locator("[data-answer]").last).to_contain_text("Paris")
    talk.keyboard.press("Escape")
    expect(talk.locator("[data-turn]").last).to_have_attribute("data-state", "stopped")


def test_an_answer_is_made_anew_in_its_place(talk: Page, engine: Script) -> None:
    _ask(talk)
    expect(talk.locator("[data-turn]").last).to_have_attribute("data-state", "done")
    engine.words = ("Still", " Paris.")
    talk.get_by_role("button", name="Answer anew").click()
    expect(talk.locator("[data-answer]").last).to_have_text("Still Paris.")
    expect(talk.locator("main [data-turn]")).to_have_count(1)
    assert Turn.objects.count() == 2


def test_parameters_go_with_the_next_question(talk: Page) -> None:
    talk.get_by_role("button", name="Parameters").click()
    talk.get_by_label("System prompt").fill("Be brief.")
    talk.get_by_label("Temperature").fill("0.7")
    talk.get_by_label("Maximum tokens").fill("32")
    talk.get_by_label("Stop words").fill("END\nSTOP")
    assert checks.problems(talk) == []
    talk.keyboard.press("Escape")
    expect(talk.locator("#drawer")).to_be_hidden()
    _ask(talk)
    expect(talk.locator("[data-turn]").last).to_have_attribute("data-state", "done")
    assert Turn.objects.get().params == {"max_tokens": 32, "temperature": 0.7, "stop_words": ["END", "STOP"]}
    assert Conversation.objects.get().system_prompt == "Be brief."
    talk.reload()
    assert talk.locator("#param-temperature").input_value() == "0.7"
    assert talk.locator("#param-stop").input_value() == "END\nSTOP"


def test_a_refused_parameter_is_named_and_the_question_kept(talk: Page) -> None:
    talk.get_by_role("button", name="Parameters").click()
    talk.get_by_label("Top p").fill("7")
    talk.locator("#prompt").click()
    _ask(talk, "Why?")
    expect(talk.locator(".toast-bad")).to_contain_text("top_p")
    expect(talk.get_by_label("Top p")).to_be_focused()
    assert talk.input_value("#prompt") == "Why?"
    assert Turn.objects.count() == 0


def test_a_reload_in_mid_answer_goes_on(talk: Page, engine: Script) -> None:
    engine.words = tuple(f"word{n} " for n in range(150))
    _ask(talk)
    expect(talk.locator("[data-answer]").last).to_contain_text("word20")
    talk.reload()
    turn = talk.locator("main [data-turn]").last
    expect(turn).to_have_attribute("data-state", "done", timeout=15000)
    assert turn.locator("[data-answer]").inner_text().strip() == "".join(engine.words).strip()


def test_a_second_window_sees_the_same_answer(talk: Page, context: BrowserContext, engine: Script) -> None:
    other = context.new_page()
    other.goto(talk.url)
    expect(other.get_by_role("button", name="Send")).to_be_enabled()
    _ask(talk)
    expect(other.locator("main [data-answer]").last).to_have_text("Paris is the capital.")
    other.close()


def test_two_hundred_tokens_a_second_stay_smooth(talk: Page, engine: Script) -> None:
    engine.words = tuple(f"word{n} " for n in range(600))
    engine.pause = 0.005
    talk.evaluate(WATCH)
    _ask(talk)
    expect(talk.locator("[data-turn]").last).to_have_attribute("data-state", "done", timeout=30000)
    found = talk.evaluate("({ longest, writes })")
    # One write a frame at most: far fewer than there are tokens. The longest frame is that of a busy machine.
    assert found["writes"] < 500, found
    assert found["longest"] < 600, found


def test_a_failed_answer_says_why(talk: Page, engine: Script) -> None:
    engine.crash = RuntimeError("gone")
    _ask(talk)
    turn = talk.locator("[data-turn]").last
    expect(turn).to_have_attribute("data-state", "failed")
    expect(turn.locator("[data-problem]")).to_be_visible()
    assert checks.problems(talk) == []


def test_a_deployment_that_does_not_serve_takes_no_question(tab: Tab, world: World, engine: Script) -> None:
    Deployment.objects.filter(name="demo").update(state="stopped")
    row = services.create_conversation(User.objects.get(username="ada"), world.deployment)
    tab.page.goto(f"/playground/{row.pk}/")
    expect(tab.page.get_by_text("demo does not serve now.")).to_be_visible()
    expect(tab.page.get_by_role("button", name="Send")).to_be_disabled()
    assert checks.problems(tab.page) == []


def test_the_divider_moves_by_keyboard_and_is_kept(talk: Page) -> None:
    handle = talk.get_by_role("separator")
    handle.focus()
    for _press in range(5):
        talk.keyboard.press("ArrowLeft")
    expect(handle).to_have_attribute("aria-valuenow", "40")
    talk.reload()
    expect(handle).to_have_attribute("aria-valuenow", "40")
    talk.evaluate("localStorage.clear()")
