"""The main job as a person does it, on the whole of Inflight: build, deploy, chat beside charts, stop, go down."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.chaos import rolling, upheaval
from tests.chaos.faults import FAULTS
from tests.chaos.installation import Installation
from tests.journey.conftest import DOWN_SECONDS, Stack

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

FIGURE = "document.querySelector('[data-chart=chart-playground] .js-plotly-plot')"


def _sign_in(page: Page, stack: Stack) -> None:
    page.goto("/")
    page.fill("[name=username]", "admin")
    page.fill("[name=password]", (stack.home / "admin-password").read_text(encoding="utf-8").strip())
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name="demo").first).to_be_visible()


def _build(page: Page) -> None:
    """Start a build from the page and watch it to its end."""
    page.goto("/builds/new/")
    page.locator("[name=mode][value=new]").check()
    page.select_option("[name=checkpoint]", label="smollm2-135m")
    page.select_option("[name=quantization]", "Q4_0")
    page.fill("[name=name]", "q4")
    page.get_by_role("button", name="Start the build").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Q4_0")
    expect(page.locator("#stages")).to_contain_text("Inspect the checkpoint", timeout=30_000)
    expect(page.locator("#head")).to_contain_text("succeeded", timeout=90_000)
    expect(page.locator("[data-log]")).not_to_be_empty()


def _deploy(page: Page) -> None:
    """Deploy what was built, from the build's own page."""
    page.get_by_role("link", name="Deploy", exact=True).click()
    page.fill("[name=name]", "second")
    page.select_option("[name=batching]", label="inflight-16")
    page.locator("main form button[type=submit]").first.click()
    page.wait_for_url("**/deployments/second/**")
    expect(page.locator(".page-head").first).to_contain_text("ready", timeout=90_000)


def _highest(page: Page, trace: int) -> float:
    """Largest value that one line of the chart has drawn; a gap is NaN."""
    script = f"() => Math.max(0, ...Array.from({FIGURE}.data[{trace}].y).filter(Number.isFinite))"
    return float(page.evaluate(script))


def test_from_a_checkpoint_to_a_stopped_answer(page: Page, stack: Stack) -> None:
    _sign_in(page, stack)
    _build(page)
    _deploy(page)
    page.goto("/playground/")
    page.locator("form", has=page.locator("input[name=deployment][value=demo]")).first.get_by_role(
        "button"
    ).click()
    page.wait_for_url("**/playground/*/")
    expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=30_000)
    page.fill("#prompt", "What is the capital of France?")
    page.keyboard.press("Enter")
    turn = page.locator("[data-turn]").last
    expect(turn).to_have_attribute("data-state", "done", timeout=30_000)
    expect(turn.locator("[data-answer]")).to_contain_text("Paris")
    expect(turn.locator("[data-ttft]")).not_to_have_text("\u2013")

    page.fill("#prompt", "Tell me a very long story about a sailor and the sea.")
    page.keyboard.press("Enter")
    expect(page.locator("[data-turn]")).to_have_count(2)
    page.wait_for_function(f"() => Array.from({FIGURE}.data[0].y).some((value) => value > 0)", timeout=20_000)
    assert _highest(page, 0) > 0, "tokens per second moved while the answer streamed"
    expect(page.locator("[data-answer]").last).to_have_text(re.compile(".{20}", re.DOTALL), timeout=20_000)
    page.get_by_role("button", name="Stop the answer").click()
    expect(page.locator("[data-turn]").last).to_have_attribute("data-state", "stopped")
    said = page.locator("[data-answer]").last.inner_text()
    assert len(said) > 20
    page.wait_for_timeout(1500)
    assert page.locator("[data-answer]").last.inner_text() == said, "nothing comes after the stop"


def _running(port: int) -> float:
    """Requests that an engine has in its slots, as its own metrics say now."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("inflight_requests_running"))


def _compare(page: Page, question: str, tokens: str) -> None:
    """Ask the F16 and the Q4_0 engine the same."""
    page.goto("/playground/compare/")
    page.get_by_label("Side 1").select_option("demo")
    page.get_by_label("Side 2", exact=True).select_option("second")
    page.get_by_label("One question a line").first.fill(question)
    page.get_by_label("Maximum tokens").fill(tokens)
    page.get_by_role("button", name="Compare").click()


def test_two_engines_are_compared_live_and_a_stop_frees_their_slots(page: Page, stack: Stack) -> None:
    rows = json.loads(stack.manage("instance", "list", "--json").stdout)["items"]
    ports = [row["metrics_port"] for row in rows if row["state"] == "serving"]
    assert len(ports) == 2
    _sign_in(page, stack)
    _compare(page, "What is the capital of France?", "24")
    answers = page.locator("[data-question='0'] [data-answer]")
    expect(page.locator(".compare-verdict")).to_contain_text("tokens/s", timeout=30_000)
    expect(answers.nth(0)).to_contain_text("Paris")
    expect(answers.nth(1)).to_have_text(re.compile(".{5}", re.DOTALL))
    expect(page.locator("#compared tbody tr").nth(1)).to_contain_text("%")

    _compare(page, "Tell me a very long story about a sailor and the sea.", "900")
    expect(answers.nth(0)).to_have_text(re.compile(".{20}", re.DOTALL), timeout=30_000)
    expect(answers.nth(1)).to_have_text(re.compile(".{20}", re.DOTALL), timeout=30_000)
    assert [_running(port) for port in ports] == [1.0, 1.0]
    page.get_by_role("button", name="Stop", exact=True).click()
    # benchmarks/stop.py measures how long it takes; here the machine does much else.
    until = time.monotonic() + 10
    while any(map(_running, ports)) and time.monotonic() < until:
        time.sleep(0.05)
    assert [_running(port) for port in ports] == [0.0, 0.0], (
        "a stop frees the slots, long before the answers' end"
    )
    expect(page.get_by_role("button", name="Go on")).to_be_visible()


def test_the_command_line_answers_the_same(stack: Stack) -> None:
    question = ("chat", "--deployment", "demo", "What is the capital of France?", "--json")
    answers = [json.loads(stack.manage(*question).stdout) for _ in range(2)]
    assert "Paris" in answers[0]["answer"]
    assert answers[0]["answer"] == answers[1]["answer"], "greedy and repeatable without sampling flags"
    assert answers[0]["ttft_ms"] > 0
    assert answers[0]["tokens"] > 3


def test_a_second_start_says_that_it_runs(stack: Stack) -> None:
    again = stack.make("up", 30, DETACH="1")
    assert again.returncode == 0
    assert "already running" in again.stdout
    assert stack.url in again.stdout


def _read_stream(url: str, got: list[str]) -> None:
    """Read one long answer straight from Triton, past the control plane."""
    body = {"text_input": "Once upon a time", "max_tokens": 150, "stream": True, "min_tokens": 150}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        got.extend(line.decode() for line in answer if line.startswith(b"data:"))


@pytest.mark.slow
def test_five_rolling_updates_under_eight_streams(stack: Stack) -> None:
    """The short form of `make rolling`. Two streams are open across every switch; an update waits for those alone."""
    done = rolling.run(Installation(stack), updates=5, streams=8, tokens=40, brief=6)
    assert len({each.new for each in done} | {done[0].old}) == 6


def test_streams_outlive_the_control_plane_and_a_server_is_replaced(stack: Stack) -> None:
    """The short form of `make chaos`, sixteen streams through the gateway, and one straight from the server."""
    installation = Installation(stack)
    [server] = installation.instances("serving")
    got: list[str] = []
    url = f"http://127.0.0.1:{server['http_port']}/v2/models/demo/generate_stream"
    reader = threading.Thread(target=_read_stream, args=(url, got))
    reader.start()
    spared = tuple(fault for fault in FAULTS if fault.short and not fault.loses)
    lines = upheaval.run(installation, spared, streams=16, tokens=24)
    reader.join(timeout=90)
    assert not reader.is_alive()
    assert len(got) > 100, "every token of the stream arrived"
    assert not any('"error"' in line for line in got)
    lines += upheaval.run(
        installation, tuple(fault for fault in FAULTS if fault.short and fault.loses), streams=16, tokens=24
    )
    assert len(lines) >= 3
    assert [line.broken() for line in lines] == [[]] * len(lines)


def test_down_leaves_nothing(stack: Stack) -> None:
    uids = [entry.name for entry in (stack.home / "instances").iterdir()]
    assert uids
    assert stack.processes()
    down = stack.make("down", DOWN_SECONDS)
    assert down.returncode == 0, down.stdout + down.stderr
    deadline = time.monotonic() + 5
    while stack.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert stack.processes() == []
    left = [entry.name for entry in Path("/dev/shm").iterdir() if entry.name.startswith(tuple(uids))]
    assert left == []
    assert "is not running" in (stack.make("status", 30).stdout + stack.make("status", 30).stderr).lower()
