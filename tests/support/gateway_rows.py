"""Rows for the gateway's benchmarks, in the home and database of the environment. Prints {key, cookie, keys} as JSON.

python -m tests.support.gateway_rows [--double PORT] [--triton-http URL --triton-grpc HOST:PORT] [--more JSON]

`--more`: {engines: [{name, http, grpc, slots}], routes: [as save_route], keys: [as create_key]}; engines of one name
are replicas of one deployment. `keys` are the texts of those keys by name.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

import django

NAMES = ("double", "pump")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--double", type=int, default=0)
    parser.add_argument("--triton-http", default="")
    parser.add_argument("--triton-grpc", default="")
    parser.add_argument("--more", type=json.loads, default={})
    given = parser.parse_args()
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command

    from tests.support import gateway
    from tests.support.web import session_of

    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)
    if given.double:
        gateway.external(given.double, NAMES[0])
    if given.triton_http:
        gateway.triton_deployment(given.triton_http, given.triton_grpc, NAMES[1])
    # Limits that are counted and never reached.
    key = gateway.key(
        "bench",
        requests_per_minute=10_000_000,
        tokens_per_minute=1_000_000_000,
        concurrent_requests=50_000,
    )
    keys = _more(given.more)
    cookie = session_of(User.objects.get(username="owner")).session_key
    print(json.dumps({"key": key, "cookie": cookie, "keys": keys}))


def _more(more: Mapping[str, Any]) -> dict[str, str]:
    """Engines, routes and keys; the keys' texts by name."""
    from apps.gateway import services
    from apps.serving.models import Deployment
    from tests.support import gateway

    for one in more.get("engines", ()):
        known = Deployment.objects.filter(name=one["name"]).first()
        if known is None:
            gateway.triton_deployment(one["http"], one["grpc"], one["name"], one["slots"])
        else:
            gateway.replica(known, one["http"], one["grpc"])
    for route in more.get("routes", ()):
        services.save_route("benchmark", route)
    return {data["name"]: gateway.key(**data) for data in more.get("keys", ())}


if __name__ == "__main__":
    main()
