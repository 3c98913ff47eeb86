"""How to call the gateway, ready to copy."""

from __future__ import annotations

import json
from typing import NamedTuple

from django.conf import settings

PLACEHOLDER = "$INFLIGHT_KEY"


class Call(NamedTuple):
    """One way to call: what it is called and its text."""

    name: str
    text: str


def base_url() -> str:
    """What clients put before /chat/completions."""
    return f"{settings.INFLIGHT_GATEWAY_URL.rstrip('/')}/v1"


def calls(model: str, key: str = "") -> list[Call]:
    """The same request for curl, Python and JavaScript; without a key it is read from the environment."""
    return [
        Call("curl", _curl(model, key)),
        Call("Python", _python(model, key)),
        Call("JavaScript", _js(model, key)),
    ]


def _curl(model: str, key: str) -> str:
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": 64,
            "stream": True,
        }
    )
    return (
        f"curl -N {base_url()}/chat/completions \\\n"
        f'  -H "Authorization: Bearer {key or PLACEHOLDER}" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{body}'"
    )


def _python(model: str, key: str) -> str:
    secret = json.dumps(key) if key else 'os.environ["INFLIGHT_KEY"]'
    return "\n".join(
        [
            *(() if key else ("import os",)),
            "from openai import OpenAI",
            "",
            f"client = OpenAI(base_url={json.dumps(base_url())}, api_key={secret})",
            "stream = client.chat.completions.create(",
            f"    model={json.dumps(model)},",
            '    messages=[{"role": "user", "content": "Say hello."}],',
            "    max_tokens=64,",
            "    stream=True,",
            ")",
            "for chunk in stream:",
            '    print(chunk.choices[0].delta.content or "", end="", flush=True)',
        ]
    )


def _js(model: str, key: str) -> str:
    secret = json.dumps(key) if key else "process.env.INFLIGHT_KEY"
    return "\n".join(
        [
            'import OpenAI from "openai";',
            "",
            f"const client = new OpenAI({{ baseURL: {json.dumps(base_url())}, apiKey: {secret} }});",
            "const stream = await client.chat.completions.create({",
            f"  model: {json.dumps(model)},",
            '  messages: [{ role: "user", content: "Say hello." }],',
            "  max_tokens: 64,",
            "  stream: true,",
            "});",
            "for await (const chunk of stream) {",
            '  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");',
            "}",
        ]
    )
