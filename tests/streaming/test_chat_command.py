"""`manage.py chat`: the answer on the terminal, the figures, the JSON, and what it refuses."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.serving.models import Deployment
from apps.streaming.token_source import Endpoint
from tests import objects
from tests.streaming.upstreams import Upstream, delta, grpc_server, last

pytestmark = pytest.mark.django_db

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role + '\\n' + m.content }}<|im_end|>{{ '\\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\\n' }}"
)


class Server:
    """A gRPC server in a thread of its own, as the command has its own event loop."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.endpoint: Endpoint | None = None

    def __enter__(self) -> Server:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *problem: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self) -> None:
        async with grpc_server(self.upstream) as endpoint:
            self.endpoint = endpoint
            self._ready.set()
            await self._stop.wait()

    @property
    def port(self) -> int:
        assert self.endpoint is not None
        return int(self.endpoint.grpc_url.rsplit(":", 1)[1])


@pytest.fixture
def demo(db: None) -> Deployment:
    made = objects.deployment("demo")
    made.active_revision = objects.revision(made)
    made.save()
    checkpoint = made.active_revision.engine.checkpoint
    checkpoint.chat_template = TEMPLATE
    checkpoint.save()
    return made


@pytest.fixture
def server(demo: Deployment) -> Iterator[Server]:
    script = [delta("Pa"), delta("ris."), last("", completion_tokens=3, reason="stop")]
    with Server(Upstream(script)) as running:
        assert demo.active_revision is not None
        objects.instance(demo.active_revision, grpc_port=running.port, http_port=9, metrics_port=9)
        yield running


def run(*arguments: str, **more: Any) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("chat", *arguments, stdout=out, stderr=err, **more)
    except SystemExit as leaving:
        return int(leaving.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def asked(server: Server, name: str) -> bytes:
    raw: bytes = server.upstream.asked[-1][name][2]
    return raw


def test_it_streams_the_answer_and_prints_the_figures(server: Server) -> None:
    code, out, err = run("--deployment", "demo", "What is the capital of France?")
    assert (code, err) == (0, "")
    answer, figures = out.split("\n\n", 1)
    assert answer == "Paris."
    assert "first token after" in figures
    assert "3 tokens (stop)" in figures
    assert "tokens/s" in figures
    prompt = b"<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    assert asked(server, "text_input").endswith(prompt)


def test_without_flags_it_is_greedy_and_with_them_they_are_sent(server: Server) -> None:
    run("--deployment", "demo", "Hi")
    assert asked(server, "top_k") == b"\x01\0\0\0"
    flags = {"--temperature": "0.5", "--top-k": "7", "--seed": "3", "--max-tokens": "9", "--stop": "x"}
    run("--deployment", "demo", "Hi", *(part for flag in flags.items() for part in flag))
    assert asked(server, "top_k") == b"\x07\0\0\0"
    assert asked(server, "max_tokens") == b"\x09\0\0\0"
    assert asked(server, "seed") == b"\x03" + b"\0" * 7
    assert asked(server, "stop_words") == b"\x01\0\0\0x"


def test_a_system_prompt_comes_first(server: Server) -> None:
    run("--deployment", "demo", "Hi", "--system", "Be brief.")
    assert b"<|im_start|>system\nBe brief.<|im_end|>" in asked(server, "text_input")


def test_json_is_one_object(server: Server) -> None:
    code, out, _ = run("--deployment", "demo", "Hi", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["answer"], found["finish_reason"], found["tokens"]) == ("Paris.", "stop", 3)
    assert found["ttft_ms"] > 0
    assert found["cached_tokens"] is None
    assert found["error"] is None


def test_an_error_of_the_engine_exits_1_with_its_sentence(server: Server) -> None:
    server.upstream.script[:] = [delta("Pa"), {"error": "Stub process 'demo_0_0' is not healthy."}]
    code, out, err = run("--deployment", "demo", "Hi")
    assert code == 1
    assert out.startswith("Pa")
    assert "engine's process has died" in err
    code, out, _ = run("--deployment", "demo", "Hi", "--json")
    assert code == 1
    assert json.loads(out)["error"]["code"] == "engine_died"


def test_nothing_serving_is_refused(demo: Deployment) -> None:
    code, _, err = run("--deployment", "demo", "Hi")
    assert code == 1
    assert "No instance of demo is serving" in err


def test_an_unknown_deployment_a_bad_value_and_an_empty_question_are_refused(demo: Deployment) -> None:
    for arguments, code in (
        (("--deployment", "nobody", "Hi"), "deployment_unknown"),
        (("--deployment", "demo", "Hi", "--temperature", "-1"), "parameter_out_of_range"),
        (("--deployment", "demo", "  "), "prompt_empty"),
    ):
        status, out, _ = run(*arguments, "--json")
        assert status == 1
        assert json.loads(out)["error"]["code"] == code


def test_a_checkpoint_without_a_template_says_so(server: Server, demo: Deployment) -> None:
    assert demo.active_revision is not None
    checkpoint = demo.active_revision.engine.checkpoint
    checkpoint.chat_template = ""
    checkpoint.save()
    status, out, _ = run("--deployment", "demo", "Hi", "--json")
    assert status == 1
    assert json.loads(out)["error"]["code"] == "template_missing"


def test_wrong_usage_is_told(demo: Deployment) -> None:
    with pytest.raises(CommandError):
        call_command("chat", "Hi")
