"""Rows for the gateway's benchmark, in the home and database of the environment. Prints {key, cookie} as JSON.

python -m tests.support.gateway_rows --double PORT [--triton-http URL --triton-grpc HOST:PORT]
"""

from __future__ import annotations

import argparse
import json

import django

NAMES = ("double", "pump")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--double", type=int, required=True)
    parser.add_argument("--triton-http", default="")
    parser.add_argument("--triton-grpc", default="")
    given = parser.parse_args()
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command

    from tests.support import gateway
    from tests.support.web import session_of

    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)
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
    cookie = session_of(User.objects.get(username="owner")).session_key
    print(json.dumps({"key": key, "cookie": cookie}))


if __name__ == "__main__":
    main()
