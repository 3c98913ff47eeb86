"""The hub's own library, asked carefully: every request goes where it may, every error gets a reason and a remedy."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx
from django.conf import settings
from huggingface_hub import constants, set_client_factory
from huggingface_hub.errors import (
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from apps.core.exceptions import InvalidInput
from apps.core.outbound import address_allowed, check_url
from workers.builders.llamacpp_steps.events import StepFailed, send
from workers.fetching.common import TOKEN

HTTP_TIMEOUT = httpx.Timeout(30.0, connect=15.0)
CHUNK = 1024 * 1024
_WAIT_TEXT = re.compile(r"\d{1,6}")


@dataclass(frozen=True, slots=True)
class Hub:
    """Which hub is asked for what. `endpoint` None: the library's own; `allow`: as core.outbound reads it."""

    endpoint: str | None
    repo: str
    revision: str
    allow: tuple[str, ...]
    token: str | None

    @property
    def credentials(self) -> str | bool:
        """What the library takes as token: never one that lies about on this machine."""
        return self.token or False


def hub_of(plan: dict[str, Any]) -> Hub:
    """The hub that a plan names, with every request of this process guarded."""
    hub = Hub(
        plan["endpoint"],
        plan["repo"],
        plan["commit"] or plan["revision"],
        tuple(plan["allow"]),
        os.environ.get(TOKEN) or None,
    )
    if not settings.configured:
        # For the guard's sentences; this process has no other use of Django.
        settings.configure(USE_I18N=False)
    # Ten megabytes by default, which a slow line fills in ten seconds and a broken one loses.
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK
    set_client_factory(lambda: _client(hub.allow))
    return hub


def _client(allow: tuple[str, ...]) -> httpx.Client:
    return httpx.Client(
        event_hooks={"request": [lambda request: _guard(request, allow)]},
        follow_redirects=True,
        timeout=HTTP_TIMEOUT,
    )


def _guard(request: httpx.Request, allow: tuple[str, ...]) -> None:
    """Refuse a request, redirects among them, to an address that is not open here."""
    url = request.url
    host, port = url.host, url.port or (443 if url.scheme == "https" else 80)
    try:
        check_url(f"{url.scheme}://{url.netloc.decode('ascii')}/", allow)
        if not _proxied(url.scheme, host):
            _check_addresses(host, port, allow)
    except InvalidInput as error:
        raise StepFailed(
            "url_not_allowed", f"The hub sent us to {host}. {error.sentence}", error.remedy
        ) from error


def _check_addresses(host: str, port: int, allow: tuple[str, ...]) -> None:
    try:
        found = {str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError:
        # It will not connect either, and then says why.
        return
    if found and not any(address_allowed(host, address, port, allow) for address in found):
        raise InvalidInput(
            "url_not_allowed",
            "That name leads to addresses that are not open here.",
            remedy=f"An administrator can allow it: add {host}:{port} to INFLIGHT_OUTBOUND_ALLOW.",
        )


def _proxied(scheme: str, host: str) -> bool:
    return scheme in getproxies() and not proxy_bypass(host)


@contextmanager
def explained(hub: Hub) -> Iterator[None]:
    """Turn what the library raises into StepFailed."""
    try:
        yield
    except (StepFailed, InvalidInput):
        raise
    except (httpx.HTTPError, HFValidationError, FileMetadataError, ValueError) as error:
        raise _failure(error, hub) from error


def _failure(error: Exception, hub: Hub) -> StepFailed:
    match error:
        case GatedRepoError():
            return StepFailed(
                "gated_repo",
                f"{hub.repo} is gated: its authors ask for consent before it may be fetched.",
                "Accept its licence on the hub with your account, and set a token of that account under Hub access."
                if hub.token is None
                else "Accept its licence on the hub with the account of the token that is set.",
            )
        case RevisionNotFoundError():
            return StepFailed(
                "revision_not_found",
                f"{hub.repo} has no branch, tag or commit {hub.revision}.",
                "Check the revision; main is the usual branch.",
            )
        case EntryNotFoundError():
            return StepFailed(
                "file_not_found",
                f"A file of {hub.repo} is gone at this revision.",
                "Try again; if it repeats, choose another revision.",
            )
        case RepositoryNotFoundError():
            return _no_repository(error, hub)
        case HfHubHTTPError():
            return _http(error, hub)
        case HFValidationError():
            return StepFailed(
                "repo_invalid", f"{hub.repo} is no name of a repository: {error}.", "Write OWNER/NAME."
            )
        case FileMetadataError() | ValueError():
            return StepFailed(
                "hub_answer_invalid",
                f"What answered is no hub: {_short(error)}.",
                "Check the mirror's address under Hub access, and whether a proxy answers in its place.",
            )
    return StepFailed(
        "no_network",
        f"The hub cannot be reached: {_short(error)}.",
        "Check this machine's network and proxy, or set a mirror under Hub access. It goes on where it was.",
    )


def _no_repository(error: HfHubHTTPError, hub: Hub) -> StepFailed:
    if error.response.status_code == 401 and hub.token is not None:
        return _token_refused()
    private = (
        "if it is private, set a token under Hub access"
        if hub.token is None
        else "or the token may not read it"
    )
    return StepFailed(
        "repo_not_found", f"The hub has no repository {hub.repo}.", f"Check the spelling; {private}."
    )


def _token_refused() -> StepFailed:
    return StepFailed(
        "token_refused", "The hub does not accept the token.", "Set a new token under Hub access."
    )


def _http(error: HfHubHTTPError, hub: Hub) -> StepFailed:
    code = error.response.status_code
    if code == 401:
        return _token_refused() if hub.token else _no_repository(error, hub)
    if code == 403:
        return StepFailed(
            "access_denied",
            f"The hub refuses access to {hub.repo}.",
            "Set a token under Hub access whose account may read it.",
        )
    if code == 404:
        return _no_repository(error, hub)
    if code == 429:
        wait = _retry_after(error.response)
        send("result", facts={"retry_after_seconds": wait})
        return StepFailed(
            "rate_limited",
            "The hub asks us to slow down.",
            f"It goes on by itself in about {round(wait)} s; a token under Hub access raises the limit.",
        )
    return StepFailed(
        "hub_error",
        f"The hub answered with HTTP status {code}.",
        "It is tried again by itself; see the hub's status page if it goes on.",
    )


def _retry_after(response: httpx.Response) -> float:
    """Seconds that the hub asks for, 60 where it names none; at most an hour."""
    text = response.headers.get("Retry-After", "").strip()
    return min(3600.0, float(text)) if _WAIT_TEXT.fullmatch(text) else 60.0


def _short(error: Exception) -> str:
    """The first line of an error, without addresses: those of a CDN are signed."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"https?://\S+", "the address", first)[:200].rstrip(".")
