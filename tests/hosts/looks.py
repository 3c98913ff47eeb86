"""What is asked of several hosts: place the demo on one of them, ask it, say what was seen."""

from __future__ import annotations

from typing import Any

from tests.chaos.installation import Installation

PLACE_SECONDS = 420.0


def say(text: str) -> None:
    """One line of progress."""
    print(text, flush=True)


def place(installation: Installation, name: str) -> dict[str, Any]:
    """Change the demo so that it runs on the host of that label, deploy, and wait until it serves there alone."""
    shown = installation.show()
    body = {
        "build": shown["build_profile"],
        "batching": shown["batching"],
        "replicas": 1,
        "placement": {"labels": {"host": name}},
        "slo": shown["slo"],
        "rollout": shown["rollout"],
    }
    installation.call("PUT", f"/deployments/{installation.deployment}", body)
    installation.call("POST", f"/deployments/{installation.deployment}/deploy")

    def there() -> dict[str, Any] | None:
        serving = installation.instances("serving", "draining")
        node = node_of(installation, name)
        return serving[0] if len(serving) == 1 and serving[0]["node_id"] == node else None

    found, seconds = installation.until(there, PLACE_SECONDS, f"the demo serves on {name} alone")
    say(f"the demo serves on {name} ({found['uid']}) after {seconds:.1f} s")
    return dict(found)


def node_of(installation: Installation, name: str) -> str:
    """The id of the node that has this label."""
    nodes = installation.call("GET", "/nodes")["items"]
    return str(next(each["node_id"] for each in nodes if each["labels"].get("host") == name))


def answers(installation: Installation, key: str) -> str:
    """What the demo answers through the gateway."""
    import httpx

    body = {
        "model": installation.deployment,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 16,
    }
    answer = httpx.post(
        f"{installation.gateway_url}/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])
