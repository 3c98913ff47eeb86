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
    talk.wait_for_function(f"() => {FIGURE}.layout.shapes.length === 3")
    shapes = talk.evaluate(f"{FIGURE}.layout.shapes")
    band, first, end = shapes
    assert band["type"] == "rect"
    assert first["type"] == "line"
    assert band["x0"] <= first["x0"] <= band["x1"] == end["x0"]


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


MARKDOWN = """<think>
Is it **Paris**?
</think>

# The capital

It is *Paris*, `R&B` &amp; more:
see <b>here</b> and [the map](https://example.org/map "Map"), not [this](javascript:window.bad=1).

- one
- two
  - inner
- [x] done

1. first
2. second

| city | people |
|:-----|-------:|
| Paris | 2 |

```python
print("<b>hi</b>")  # ` and ```

for x in range(3): pass
```

> quoted
> twice

<img src="x" onerror="window.bad=1"><script>window.bad = 1</script>

![picture](https://example.org/x.png)

Title
-----

last *line"""

# What a text looks like when it comes in pieces of `size` letters, each drawn, beside how it looks as a whole.
CUT = """async ([text, sizes]) => {
  const { Markdown } = await import('/static/js/playground/markdown.js');
  const drawn = (pieces) => {
    const box = document.createElement('div');
    const view = new Markdown(box);
    for (const piece of pieces) { view.append(piece); view.draw({ now: Infinity }); }
    view.draw({ whole: true });
    box.normalize();
    return box.innerHTML;
  };
  const whole = drawn([text]);
  return sizes.filter((size) => {
    const pieces = [];
    for (let at = 0; at < text.length; at += size) pieces.push(text.slice(at, at + size));
    return drawn(pieces) !== whole;
  });
}"""


def test_markdown_is_drawn_safely_and_thoughts_are_folded(talk: Page, engine: Script) -> None:
    engine.words = tuple(MARKDOWN[at : at + 9] for at in range(0, len(MARKDOWN), 9))
    engine.pause = 0.002
    _ask(talk)
    turn = talk.locator("[data-turn]").last
    expect(turn).to_have_attribute("data-state", "done")
    answer = turn.locator("[data-answer]")
    expect(answer.locator("h3")).to_have_text("The capital")
    assert answer.locator("ul > li").all_inner_texts()[-1] == "\u2611 done"
    assert answer.locator("td").all_inner_texts() == ["Paris", "2"]
    assert answer.locator("pre code").inner_text().startswith('print("<b>hi</b>")  # ` and ```')
    expect(answer.locator(".markdown > p").first).to_contain_text("It is Paris, R&B & more:")
    expect(answer.locator(".markdown > p").first).to_contain_text("<b>here</b>")
    assert answer.locator("a").evaluate_all("found => found.map((a) => a.href)") == [
        "https://example.org/map",
        "https://example.org/x.png",
    ]
    assert answer.locator("img, script, b").count() == 0
    assert talk.evaluate("window.bad") is None
    fold = answer.locator("details.thought")
    assert fold.get_attribute("open") is None
    expect(fold.locator("summary")).to_have_text("Thought before it answered")
    expect(fold).to_contain_text("Is it **Paris**?")
    assert checks.problems(talk) == []
    turn.get_by_role("button", name="Show the letters as they came").click()
    assert answer.text_content() == MARKDOWN
    turn.get_by_role("button", name="Show the letters as they came").click()
    expect(answer.locator("h3")).to_have_text("The capital")
    # However a text is cut, it looks the same in the end; also one that stops in the middle of anything.
    body = MARKDOWN.partition("</think>")[2]
    for end in (len(body), *range(40, len(body), 97)):
        assert talk.evaluate(CUT, [body[:end], [1, 2, 3, 7, 50]]) == [], body[:end]


def test_a_conversation_by_keyboard_alone(talk: Page, engine: Script) -> None:
    """Ask, ask in other words, go through the branches, go on from an earlier answer, copy, stop."""
    engine.words, engine.pause = ("Paris.",), 0.001
    for question in ("One?", "Two?"):
        _ask(talk, question)
        expect(talk.locator("main [data-turn]").last).to_have_attribute("data-state", "done")
        expect(talk.locator("main [data-question]").last).to_have_text(question)
    expect(talk.locator("[data-count]")).to_be_attached()
    talk.locator("[data-turns]").focus()
    hidden = checks.tab_to(talk, "[data-turn]:nth-of-type(2) [data-edit]")
    talk.keyboard.press("Enter")
    field = talk.get_by_label("The question in other words")
    expect(field).to_be_focused()
    talk.keyboard.press("Escape")
    expect(talk.locator("[data-turn]:nth-of-type(2) [data-edit]")).to_be_focused()
    talk.keyboard.press("Enter")
    talk.keyboard.press("Control+a")
    talk.keyboard.type("Zwei?")
    talk.keyboard.press("Enter")
    expect(talk.locator("main [data-question]").last).to_have_text("Zwei?")
    expect(talk.locator("main [data-turn]").last).to_have_attribute("data-state", "done")
    expect(talk.locator("[data-branch-at]").nth(1)).to_have_text("2 of 2")
    talk.locator("[data-turns]").focus()
    hidden += checks.tab_to(talk, "[data-turn]:nth-of-type(2) [data-branch='-1']")
    talk.keyboard.press("Enter")
    expect(talk.locator("main [data-question]").last).to_have_text("Two?")
    talk.locator("[data-turns]").focus()
    hidden += checks.tab_to(talk, "[data-turn]:nth-of-type(1) [data-from-here]")
    talk.keyboard.press("Enter")
    expect(talk.locator("main [data-turn]")).to_have_count(1)
    expect(talk.locator("#prompt")).to_be_focused()
    talk.keyboard.type("Three?")
    talk.keyboard.press("Enter")
    expect(talk.locator("main [data-question]").last).to_have_text("Three?")
    expect(talk.locator("main [data-turn]").last).to_have_attribute("data-state", "done")
    expect(talk.locator("[data-branch-at]").nth(1)).to_have_text("3 of 3")
    assert hidden == []
    talk.reload()
    assert talk.locator("main [data-question]").all_inner_texts() == ["One?", "Three?"]
    for width, theme in ((390, "dark"), (390, "light"), (1440, "dark")):
        talk.set_viewport_size({"width": width, "height": 900})
        talk.emulate_media(color_scheme=theme)
        assert checks.problems(talk) == []
    talk.set_viewport_size({"width": 1440, "height": 900})
    talk.emulate_media(color_scheme="light")


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
    assert talk.locator("#param-stop_words").input_value() == "END\nSTOP"


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
