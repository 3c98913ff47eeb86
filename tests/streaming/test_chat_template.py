"""Chat templates: the public case 65, the helpers of the trade, and what a hostile template may not do."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from apps.streaming.domain import chat_template, template_sandbox
from apps.streaming.domain.chat_template import (
    ChatTemplate,
    SpecialTokens,
    TemplateFailure,
    from_gguf_metadata,
    from_tokenizer_config,
    needs_bos,
    one_bos,
)

CASE = Path(__file__).resolve().parents[1] / "data/cases/65-double-bos-from-chat-template"
USER = [{"role": "user", "content": "Hi"}]
SMOLLM = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA2 = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'].strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}{% endfor %}"
)


def test_case_65_one_bos() -> None:
    case = json.loads((CASE / "input.json").read_text())
    wanted = json.loads((CASE / "expected.json").read_text())
    add = needs_bos(case["rendered"], case["bos_token"])
    assert {"add_special_tokens": str(add).lower()} == wanted["set"]
    assert one_bos(case["rendered"], case["bos_token"]).count(case["bos_token"]) == wanted["bos_count_right"]
    assert one_bos(case["bos_token"] + case["rendered"], case["bos_token"]) == case["rendered"]


def test_a_template_that_prints_no_bos_needs_it_added() -> None:
    rendered = ChatTemplate(SMOLLM, SpecialTokens(bos="<s>")).render(USER)
    assert rendered.add_bos
    assert not ChatTemplate(LLAMA2, SpecialTokens(bos="<s>", eos="</s>")).render(USER).add_bos


def test_a_bos_that_a_user_wrote_in_the_middle_stays() -> None:
    assert one_bos("<s>[INST] what is <s><s>? [/INST]", "<s>") == "<s>[INST] what is <s><s>? [/INST]"
    assert one_bos("no marker", "") == "no marker"


def test_the_demo_checkpoints_template() -> None:
    assert ChatTemplate(SMOLLM).render(USER).text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    messages = [{"role": "system", "content": "Be brief."}, *USER]
    assert ChatTemplate(SMOLLM).render(messages, add_generation_prompt=False).text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    )


def test_a_conversation_of_several_turns() -> None:
    messages = [*USER, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": " Bye "}]
    rendered = ChatTemplate(LLAMA2, SpecialTokens("<s>", "</s>")).render(messages)
    assert rendered.text == "<s>[INST] Hi [/INST] Hello </s>[INST] Bye [/INST]"


def test_the_templates_own_refusal_is_shown() -> None:
    with pytest.raises(TemplateFailure) as caught:
        ChatTemplate(LLAMA2).render([{"role": "system", "content": "x"}, *USER])
    assert caught.value.code == "template_refused"
    assert "roles must alternate" in caught.value.sentence
    assert caught.value.remedy


def render(source: str, **more: Any) -> str:
    return ChatTemplate(source).render(USER, **more).text


def test_blocks_are_trimmed_and_loops_have_controls() -> None:
    source = (
        "{% for n in range(9) %}\n  {% if n == 1 %}\n{% continue %}\n  {% endif %}\n"
        "  {% if n == 3 %}{% break %}{% endif %}\n{{ n }};\n{% endfor %}"
    )
    assert render(source).replace("\n", "") == "0;2;"


def test_tojson_writes_letters_as_they_are() -> None:
    assert render("{{ messages | tojson }}") == '[{"role": "user", "content": "Hi"}]'
    assert render("{{ x | tojson(indent=2) }}", x={"a": "é<"}) == '{\n  "a": "é<"\n}'


def test_strftime_now_and_generation_blocks_and_tools() -> None:
    assert render("{{ strftime_now('%Y') }}") == time.strftime("%Y")
    assert render("{% generation %}a{% endgeneration %}b") == "ab"
    assert render("{% if tools %}{{ tools[0].name }}{% else %}none{% endif %}", tools=[{"name": "f"}]) == "f"
    assert render("{% if tools is not none %}x{% else %}none{% endif %}") == "none"
    assert render("{% if documents is defined %}x{% else %}-{% endif %}") == "-"


def test_a_namespace_and_a_macro_work() -> None:
    source = (
        "{% macro wrap(x) %}[{{ x }}]{% endmacro %}{% set ns = namespace(n=0) %}"
        "{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ wrap(m.content) ~ ns.n }}{% endfor %}"
    )
    assert render(source) == "[Hi]1"


def test_formats_that_pad_little_are_allowed() -> None:
    assert render("{{ '%02d-%s' % (3, 'x') }}{{ '{:>3}'.format(7) }}") == "03-x  7"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("", "template_missing"),
        ("  \n", "template_missing"),
        ("{% for %}", "template_broken"),
        ("{{ messages[5].content.x }}", "template_broken"),
        ("{{ 1 / 0 }}", "template_broken"),
        ("{% include 'x' %}", "template_broken"),
        ("{{ messages.append(1) }}", "template_broken"),
        ("{{ ''.__class__.__mro__ }}", "template_broken"),
        ("{{ cycler.__init__.__globals__ }}", "template_broken"),
        ("{{ raise_exception('no') }}", "template_refused"),
        ("x" * (chat_template.MAX_TEMPLATE + 1), "template_too_large"),
    ],
)
def test_each_failure_has_its_code_a_sentence_and_a_remedy(source: str, code: str) -> None:
    with pytest.raises(TemplateFailure) as caught:
        ChatTemplate(source).render(USER)
    assert caught.value.code == code
    assert caught.value.sentence
    assert caught.value.remedy
    assert caught.value.field == "chat_template"


GROWING = "{% set ns = namespace(t='xxxxxxxx') %}"
BOMBS = {
    "times": "{{ 'x' * 1000000000 }}",
    "times list": "{{ ([1] * 1000000000) | length }}",
    "power": "{{ 9 ** 999999999 }}",
    "doubling": GROWING + "{% for n in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
    "adding": GROWING + "{% for n in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}{{ ns.t }}",
    "captured": (
        "{% set big = 'x' * 3000000 %}"
        "{% set all %}{% for n in range(90000) %}{{ big }}{% endfor %}{% endset %}{{ all }}"
    ),
    "output": "{% for n in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "replace": "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
    "replace filter": "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
    "join": "{{ ('x' * 100000).join(('y' * 100000) | list) }}",
    "join filter": "{{ range(99999) | join('y' * 100000) }}",
    "format": "{{ '{:999999999}'.format(1) }}",
    "percent": "{{ '%999999999d' % 1 }}",
    "star": "{{ '%*d' % (999999999, 1) }}",
    "center": "{{ 'x'.center(999999999) }}",
    "center filter": "{{ 'x' | center(999999999) }}",
    "indent": "{{ ('\\n' * 1000000) | indent(1000, true, true) }}",
    "lipsum": "{{ lipsum(n=100000) }}",
    "recursion": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "tojson": "{{ messages | tojson(indent=999999999) }}",
}


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_a_template_cannot_fill_the_memory(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(TemplateFailure) as caught:
        render(BOMBS[name])
    assert caught.value.code in ("template_too_large", "template_broken", "template_too_slow")
    assert time.monotonic() - began < 10


def test_a_template_cannot_run_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "MAX_SECONDS", 0.2)
    inner = "{% for b in range(99999) %}{% if a == -1 %}{% endif %}{% endfor %}"
    endless = "{% for a in range(99999) %}" + inner + "{% endfor %}"
    before = sys.gettrace()
    with pytest.raises(TemplateFailure) as caught:
        render(endless)
    assert caught.value.code == "template_too_slow"
    assert sys.gettrace() is before


def test_templates_of_a_tokenizer_config() -> None:
    one = {
        "chat_template": "{{ bos_token }}x",
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
    }
    assert from_tokenizer_config(one).render(USER).text == "<s>x"
    many = {"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}
    assert from_tokenizer_config(many).render(USER).text == "d"
    assert from_tokenizer_config(many, "tool_use").render(USER).text == "t"
    with pytest.raises(TemplateFailure, match="default, tool_use"):
        from_tokenizer_config(many, "rag")
    with pytest.raises(TemplateFailure) as caught:
        from_tokenizer_config({"bos_token": None})
    assert caught.value.code == "template_missing"


def test_templates_of_gguf_metadata() -> None:
    metadata = {"tokenizer.chat_template": "d", "tokenizer.chat_template.tool_use": "t", "general.name": "x"}
    assert from_gguf_metadata(metadata, SpecialTokens()).render(USER).text == "d"
    assert from_gguf_metadata(metadata, SpecialTokens(), "tool_use").render(USER).text == "t"
    with pytest.raises(TemplateFailure):
        from_gguf_metadata({}, SpecialTokens())
