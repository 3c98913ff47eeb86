"""static/js/realtime in a real browser, against a scripted server: coming back, gaps, logs, answers."""

from __future__ import annotations

import json
import mimetypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, WebSocketRoute, sync_playwright

from apps.realtime import schema
from tests.support.waiting import BOUND

pytestmark = pytest.mark.browser

STATIC = Path(__file__).parents[2] / "static"
PAGE = """<!doctype html><title>client</title><script type="module">
import { live } from "/js/realtime/socket.js";
import { ChatClient } from "/js/realtime/chat.js";
window.seen = [];
const note = (name) => (...given) => window.seen.push([name, ...given]);
live.onState((state) => window.seen.push(["state", state.name, state.code ?? null]));
window.join = (topic, from) => {
  const names = ["data", "samples", "log", "problem"];
  return live.subscribe(topic, Object.fromEntries(names.map((name) => [name, note(name)])), from);
};
window.live = live;
window.talk = () => {
  window.chat = new ChatClient(7, Object.fromEntries(
    ["started", "delta", "finished", "problem"].map((name) => [name, note(name)])));
};
window.ready = true;
</script>"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    found = os.environ.get("INFLIGHT_TEST_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


class Server:
    """The other end of the page's sockets: keeps what the page says, says what the test wants."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.sockets: list[WebSocketRoute] = []
        self.said: list[dict[str, Any]] = []
        self.greets = True
        page.route_web_socket("ws://client.test/**", self._opened)

    def _opened(self, socket: WebSocketRoute) -> None:
        self.sockets.append(socket)
        socket.on_message(lambda text: self.said.append(json.loads(text)))
        if self.greets:
            self.send(schema.Hello(user="vera", server_time=1.0))

    def send(self, message: schema.Message, **change: Any) -> None:
        """Say a message; `change` spoils it."""
        self.sockets[-1].send(json.dumps(message.model_dump() | change))

    def heard(self, count: int) -> list[dict[str, Any]]:
        """Wait until the page said `count` commands."""
        self._wait(lambda: len(self.said) >= count)
        return self.said

    def seen(self, *name: Any) -> list[Any]:
        """Wait until the page's handlers saw such a call; the first one."""
        found: list[Any] = []

        def look() -> bool:
            calls = self.page.evaluate("window.seen")
            found[:] = [call for call in calls if call[: len(name)] == list(name)]
            return bool(found)

        self._wait(look)
        return list(found[0])

    def forget(self) -> None:
        """Begin anew with what was said and seen."""
        self.said.clear()
        self.page.evaluate("window.seen.length = 0")

    def _wait(self, holds: Any) -> None:
        for _look in range(int(BOUND * 100)):
            if holds():
                return
            self.page.wait_for_timeout(10)
        pytest.fail(f"did not happen: said {self.said}, seen {self.page.evaluate('window.seen')}")


@pytest.fixture
def server(browser: Browser) -> Iterator[Server]:
    """A page with the clients, and its server."""
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def serve(route: Route) -> None:
        path = route.request.url.removeprefix("http://client.test/")
        if not path:
            route.fulfill(body=PAGE, content_type="text/html")
        elif (file := STATIC / path).is_file():
            route.fulfill(body=file.read_text(), content_type=mimetypes.guess_type(path)[0] or "")
        else:
            route.fulfill(status=404)

    page.route("http://client.test/**", serve)
    made = Server(page)
    page.goto("http://client.test/")
    page.wait_for_function("window.ready")
    yield made
    page.close()
    assert errors == []


def joined(server: Server, topic: str = "things", **start: Any) -> None:
    """The page follows a topic and has its snapshot."""
    server.page.evaluate("([topic, from]) => window.leave = window.join(topic, from)", [topic, start])
    assert server.heard(1)[-1] == {"type": "subscribe", "topic": topic, **start}


def test_snapshot_changes_and_leaving(server: Server) -> None:
    joined(server)
    server.send(schema.Snapshot(topic="things", version=5, data={"n": 5}))
    assert server.seen("data")[1:] == [{"n": 5}, {"rows": [], "snapshot": True}]
    rows = [schema.RowChange(kind="thing", key=1, state="new")]
    server.send(schema.Change(topic="things", version=6, data={"n": 6}, rows=rows))
    assert server.seen("data", {"n": 6})[2]["rows"] == [{"kind": "thing", "key": 1, "state": "new"}]
    # A second follower of the topic gets what is there, without another subscription.
    server.forget()
    server.page.evaluate("() => void (window.second = window.join('things'))")
    assert server.seen("data")[1] == {"n": 6}
    server.page.evaluate("() => window.leave()")
    server.page.evaluate("() => window.second()")
    assert server.heard(1) == [{"type": "unsubscribe", "topic": "things"}]


def test_a_gap_asks_once_and_old_news_is_dropped(server: Server) -> None:
    joined(server)
    server.send(schema.Snapshot(topic="things", version=5, data={"n": 5}))
    server.send(schema.Change(topic="things", version=5, data={"n": 0}))
    server.send(schema.Change(topic="things", version=8, data={"n": 8}))
    server.send(schema.Change(topic="things", version=9, data={"n": 9}))
    assert server.heard(2)[1:] == [{"type": "resync", "topic": "things"}]
    server.send(schema.Snapshot(topic="things", version=9, data={"n": 9}))
    server.seen("data", {"n": 9})
    numbers = [call[1]["n"] for call in server.page.evaluate("window.seen") if call[0] == "data"]
    assert numbers == [5, 9]
    assert len(server.said) == 2


@pytest.mark.parametrize("code", [1012, 1011])
def test_a_lost_connection_comes_back_with_its_topics(server: Server, code: int) -> None:
    joined(server, "log:build:1", offset=0)
    server.page.evaluate("() => void window.join('metrics:3', {since: 10})")
    server.heard(2)
    server.send(schema.LogLines(topic="log:build:1", text="abc", start=0, offset=3))
    server.send(schema.Samples(topic="metrics:3", samples=[{"at": 11.0}, {"at": 12.0}]))
    server.seen("samples")
    server.forget()
    server.sockets[-1].close(code=code)
    server.seen("state", "waiting", code)
    server.seen("state", "open")
    # From where they were, not from the beginning.
    assert server.heard(2) == [
        {"type": "subscribe", "topic": "log:build:1", "offset": 3},
        {"type": "subscribe", "topic": "metrics:3", "since": 12},
    ]
    server.send(schema.Snapshot(topic="metrics:3", version=0, data={"samples": [{"at": 12.0}, {"at": 13.0}]}))
    assert server.seen("samples")[1:] == [[{"at": 13}], {"history": True}]


@pytest.mark.parametrize("code", [schema.CLOSE_SIGNED_OUT, schema.CLOSE_NOT_ALLOWED])
def test_a_refusal_is_not_tried_again(server: Server, code: int) -> None:
    joined(server)
    server.sockets[-1].close(code=code)
    server.seen("state", "refused", code)
    server.page.wait_for_timeout(1000)
    assert len(server.sockets) == 1


def test_a_page_of_another_version_stops(server: Server) -> None:
    server.greets = False
    server.page.evaluate("() => void window.join('things')")
    server._wait(lambda: server.sockets)
    server.send(schema.Hello(user="vera", server_time=1.0), protocol=99)
    server.seen("state", "outdated")


def test_what_is_no_message_is_passed_over(server: Server) -> None:
    joined(server)
    server.send(schema.Snapshot(topic="things", version=1, data={"n": 1}), colour="red")
    server.send(schema.Snapshot(topic="things", version=1, data={"n": 1}), type="dance")
    server.send(schema.Snapshot(topic="things", version=2, data={"n": 2}))
    assert server.seen("data")[1] == {"n": 2}


def test_a_log_that_began_anew_or_was_passed_over_says_so(server: Server) -> None:
    joined(server, "log:build:1")
    for start, offset in ((100, 110), (110, 120), (200, 210), (0, 5)):
        server.send(schema.LogLines(topic="log:build:1", text=f"from {start}", start=start, offset=offset))
    server.seen("log", {"text": "from 0", "start": 0, "offset": 5, "reset": True, "skipped": 0})
    calls = [call[1] for call in server.page.evaluate("window.seen") if call[0] == "log"]
    assert [(call["reset"], call["skipped"]) for call in calls] == [
        (False, 0),
        (False, 0),
        (False, 80),
        (True, 0),
    ]


def test_a_problem_reaches_the_topic_it_is_about(server: Server) -> None:
    joined(server)
    server.send(schema.Problem(code="topic_not_allowed", message="No.", remedy="Ask.", topic="things"))
    assert server.seen("problem")[1]["remedy"] == "Ask."


def turn(uid: str = "t1", **more: Any) -> dict[str, Any]:
    return {"uid": uid, "state": "streaming", **more}


def test_an_answer_goes_on_after_a_lost_connection(server: Server) -> None:
    server.page.evaluate("window.talk()")
    server._wait(lambda: server.sockets)
    server.page.wait_for_function("window.chat.state.name === 'open'")
    assert server.page.evaluate("window.chat.ask({prompt: 'Capital?', params: {max_tokens: 5}})")
    asked = {"type": "ask", "prompt": "Capital?", "system_prompt": "", "params": {"max_tokens": 5}}
    assert server.heard(1) == [asked | {"regenerate": None, "edit": None, "after": None}]
    schema.chat_command.validate_python(server.said[0])
    server.send(schema.TurnStarted(turn=turn()))
    # One code point that is two units of a JavaScript string.
    marks = [[12.5, 1, 1], [20.0, 1, 1]]
    server.send(schema.Delta(turn="t1", seq=2, text="👋 ", tokens=2, at=5.0, marks=marks))
    told = {"tokens": 2, "at": 5, "marks": marks, "firstMark": 0}
    assert server.seen("delta")[1:] == ["t1", "👋 ", told]
    server.forget()
    server.sockets[-1].close(code=1011)
    assert server.heard(1) == [{"type": "resume", "turn": "t1", "from_seq": 2, "from_mark": 2}]
    # What comes twice is cut; what would leave a hole is asked for again.
    again = {"first_mark": 1, "marks": [marks[1], [25.0, 2, 2]]}
    server.send(schema.Delta(turn="t1", seq=4, text=" ab", tokens=4, at=6.0, **again))
    assert server.seen("delta")[2:] == ["ab", {"tokens": 4, "at": 6, "marks": [[25.0, 2, 2]], "firstMark": 2}]
    server.send(schema.Delta(turn="t1", seq=9, text="xy", tokens=9, at=7.0))
    assert server.heard(2)[1] == {"type": "resume", "turn": "t1", "from_seq": 4, "from_mark": 3}
    server.send(schema.TurnFinished(turn=turn(state="done")))
    assert server.seen("finished")[1]["state"] == "done"
    # An ended turn is not resumed.
    server.forget()
    server.sockets[-1].close(code=1011)
    server._wait(lambda: len(server.sockets) == 3)
    server.page.wait_for_function("window.chat.state.name === 'open'")
    assert server.said == []


def test_asking_without_a_connection_says_so(server: Server) -> None:
    server.greets = False
    server.page.evaluate("window.talk()")
    assert server.page.evaluate("window.chat.ask({prompt: 'x'})") is False
    assert server.page.evaluate("window.chat.stop('t1')") is False
