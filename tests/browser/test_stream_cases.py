"""Every stream case through the real path: a real tritonserver with a model that replays what engines send, or an
external OpenAI-style server, the relay, the chat socket, and the letters that stand on the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from apps.chat import services, sources
from apps.chat.external_chunks import chatml
from apps.chat.models import Turn
from apps.gateway.models import ExternalDeployment
from apps.streaming.token_source import Endpoint, GenerationRequest, TokenSource
from apps.streaming.triton_grpc import TritonGrpcSource
from apps.streaming.triton_http import TritonHttpSource
from apps.streaming.triton_messages import ModelInterface, rules_of
from benchmarks.serving import RunningServer, find_installation, serve_folder
from tests.browser.conftest import Tab
from tests.browser.world import World
from tests.streaming import replay
from tests.streaming.stream_cases import ALL, INPUTS, OUTPUTS, StreamCase, chunks
from tests.streaming.upstreams import Upstream, openai_thread
from tests.support.triton import find_installation as find_values

BY_NAME = {f"case:{case.name}": case for case in ALL}
# Asks one question after the other as a person would, and reads each answer's letters.
ASK_ALL = """async (questions) => {
  const prompt = document.querySelector('#prompt');
  const found = [];
  const last = () => [...document.querySelectorAll('main [data-turn]')].at(-1);
  for (const question of questions) {
    prompt.value = question;
    prompt.form.requestSubmit();
    const deadline = performance.now() + 15000;
    while (last()?.querySelector('[data-question]').textContent !== question
           || last().dataset.state === 'streaming') {
      if (performance.now() > deadline) throw new Error(`no answer to ${question}`);
      await new Promise((go) => requestAnimationFrame(go));
    }
    last().querySelector('[data-as-text]').click();
    found.push({
      text: last().querySelector('[data-answer]').textContent,
      state: last().dataset.state,
      problem: last().querySelector('[data-problem]').textContent,
    });
  }
  return found;
}"""


@pytest.fixture(scope="module")
def triton() -> Iterator[RunningServer]:
    """A tritonserver with the replaying models."""
    with serve_folder(find_installation(find_values().values), replay.write) as server:
        for kind in replay.KINDS:
            server.control(f"/v2/repository/models/{kind}/load")
        yield server


def source_of(triton: RunningServer, case: StreamCase, prompt: str) -> TokenSource:
    """Cases take turns over the two protocols."""
    endpoint = Endpoint(triton.http_url, triton.grpc_url, case.kind)
    rules = None
    if case.accumulated:
        interface = ModelInterface(INPUTS[case.kind], frozenset(OUTPUTS[case.kind]))
        rules = rules_of(prompt, interface, accumulated=True)
    if ALL.index(case) % 2:
        return TritonHttpSource(endpoint, rules=rules, shared=True)
    return TritonGrpcSource(endpoint, rules=rules)


class Elsewhere(Upstream):
    """An OpenAI-style server that replays the case which the last question names."""

    def script_of(self, asked: dict[str, Any]) -> list[Any]:
        case = BY_NAME[asked["messages"][-1]["content"]]
        return chunks(case, chatml(asked["messages"]))


def _read(tab: Tab, conversation: int) -> None:
    """Ask every case in a conversation; what stands on the page, and what is kept, are its letters."""
    tab.page.goto(f"/playground/{conversation}/")
    expect(tab.page.get_by_role("button", name="Send")).to_be_enabled()
    found = tab.page.evaluate(ASK_ALL, list(BY_NAME))
    seen = {case.name: (one["text"], one["state"]) for case, one in zip(ALL, found, strict=True)}
    assert seen == {case.name: (case.text, case.state) for case in ALL}
    problems = ((case.says, one["problem"]) for case, one in zip(ALL, found, strict=True))
    assert [(says, told) for says, told in problems if says not in told] == []
    kept = dict(Turn.objects.filter(conversation=conversation).values_list("prompt", "answer"))
    assert kept == {name: case.text for name, case in BY_NAME.items()}


def test_what_engines_send_is_what_a_person_reads(
    tab: Tab, world: World, triton: RunningServer, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    ada = User.objects.get(username="ada")
    settings.INFLIGHT_UPSTREAM_ALLOW = ["127.0.0.1"]
    with openai_thread(Elsewhere()) as url:
        ExternalDeployment.objects.filter(name="elsewhere").update(base_url=url)
        elsewhere = ExternalDeployment.objects.get(name="elsewhere")
        _read(tab, services.create_conversation(ada, elsewhere).pk)

    def prepare(turn: Turn) -> sources.Answering:
        prompt = f"<|im_start|>user\n{turn.prompt}<|im_end|>\n<|im_start|>assistant\n"
        source = source_of(triton, BY_NAME[turn.prompt], prompt)
        return sources.Answering(source, GenerationRequest(prompt, request_id=turn.uid), "i-test", 3)

    monkeypatch.setattr(sources, "prepare", prepare)
    _read(tab, services.create_conversation(ada, world.deployment).pk)
