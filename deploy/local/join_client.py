"""The joining host's side of the exchange. Standard library only: it runs before anything is installed.

The token goes in a header, never in an argument or an address: both are shown to others (ps, logs).
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SECONDS = 30
LARGEST_ANSWER = 1_000_000
# What the answer may set: a control plane that was taken over shall not set PATH or LD_PRELOAD here.
VARIABLES = frozenset(
    {
        "DATABASE_URL",
        "INFLIGHT_GATEWAY_URL",
        "INFLIGHT_NODE_ID",
        "INFLIGHT_REDIS_URL",
        "INFLIGHT_SECRET_KEY",
        "INFLIGHT_STORE",
        "INFLIGHT_STORE_ENDPOINT",
        "INFLIGHT_STORE_KEY_ID",
        "INFLIGHT_STORE_REGION",
        "INFLIGHT_STORE_SECRET",
        "INFLIGHT_WEB_URL",
    }
)
CERTIFICATES = {"redis-ca.pem": "INFLIGHT_REDIS_CA", "database-ca.pem": "PGSSLROOTCERT"}
SECRETS = frozenset({"secrets.key"})


class ExchangeFailed(Exception):
    """The control plane refused, cannot be reached, or answered what is no answer; `remedy` says what to do."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


def exchange(url: str, token: str, node_id: str, hostname: str, ca: str = "") -> dict[str, dict[str, str]]:
    """Spend `token` at the control plane `url`: {environment, certificates, secrets, labels}, each text by name.

    `ca` is a PEM file to trust besides the host's own. Raises ExchangeFailed.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ExchangeFailed(
            f"{url!r} is no address.", "Give the one of the pages, as in https://inflight.example."
        )
    if not token.strip():
        raise ExchangeFailed(
            "There is no join token.", "Copy it from the page of the fleet: it is shown once."
        )
    body = json.dumps({"node_id": node_id, "hostname": hostname}).encode()
    request = urllib.request.Request(
        f"{url.rstrip('/')}/api/v1/join",
        data=body,
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token.strip()}"},
        method="POST",
    )
    return _checked(_ask(request, ca))


def _ask(request: urllib.request.Request, ca: str) -> bytes:
    context = ssl.create_default_context(cafile=ca or None) if request.type == "https" else None
    # No redirects: one would carry the token to another host.
    opener = urllib.request.build_opener(
        _NoRedirect, *([urllib.request.HTTPSHandler(context=context)] if context else [])
    )
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return bytes(answer.read(LARGEST_ANSWER))
    except urllib.error.HTTPError as error:
        raise _refusal(error) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ExchangeFailed(
            f"The control plane cannot be reached: {reason}.",
            "See whether this host reaches its address, and trusts its certificate (--ca FILE).",
        ) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _refusal(error: urllib.error.HTTPError) -> ExchangeFailed:
    try:
        told = json.loads(error.read(LARGEST_ANSWER))
        return ExchangeFailed(str(told["message"]), str(told.get("remedy", "")))
    except (ValueError, KeyError, TypeError):
        return ExchangeFailed(
            f"The control plane answered {error.code}.", "See whether the address is that of its pages."
        )


def _checked(text: bytes) -> dict[str, dict[str, str]]:
    try:
        told = json.loads(text)
        parts = {name: dict(told[name]) for name in ("environment", "certificates", "secrets", "labels")}
    except (ValueError, KeyError, TypeError):
        raise ExchangeFailed(
            "What answered is no control plane of this version.", "Use the same release on both hosts."
        ) from None
    for part in parts.values():
        for key, value in part.items():
            if not isinstance(value, str):
                raise ExchangeFailed(f"The control plane answered no text for {key}.", "")
    for key, value in parts["environment"].items():
        if key not in VARIABLES or "\n" in value:
            raise ExchangeFailed(f"The control plane would set {key}, which a worker does not take from it.")
    unknown = (set(parts["certificates"]) - set(CERTIFICATES)) | (set(parts["secrets"]) - SECRETS)
    if unknown:
        raise ExchangeFailed(f"The control plane sent a file that nobody asked for: {min(unknown)}.")
    return parts


def keep(home: Path, handed: dict[str, dict[str, str]]) -> dict[str, str]:
    """Write the certificates and secrets (mode 600) below `home`; the variables for its environment file."""
    values = dict(handed["environment"])
    folder = home / "run" / "certificates"
    for name, text in handed["certificates"].items():
        write_private(folder / name, text)
        values[CERTIFICATES[name]] = str(folder / name)
    for name, text in handed["secrets"].items():
        write_private(home / name, text)
    return values


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
