"""Where external deployments may lie: only what INFLIGHT_UPSTREAM_ALLOW names, on top of apps/core/outbound.py.

The internet is not open: an operator could otherwise have the gateway read what lies behind it. A name in the list
may be used, but what it resolves to is looked at too: loopback, link-local (a cloud's metadata service), multicast
and unspecified addresses must be in the list themselves, or a foreign name server could point inside.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core import outbound
from apps.core.exceptions import InvalidInput


def allowed() -> Sequence[str]:
    """Entries of the allow-list (hosts, addresses, networks, each with a port if wanted)."""
    found: Sequence[str] = settings.INFLIGHT_UPSTREAM_ALLOW
    return found


def check(url: str, field: str = "base_url") -> str:
    """The base URL without a slash at its end. Raises InvalidInput naming `field`; asks no name server."""
    try:
        outbound.check_url(url, allowed(), field=field, public=False)
    except InvalidInput as error:
        if error.code != "url_not_allowed":
            raise
        raise InvalidInput(
            error.code,
            _("%(host)s is not among the hosts that external deployments may use.")
            % {"host": error.facts["host"]},
            field=field,
            remedy=_("An administrator can allow it: add %(host)s:%(port)s to INFLIGHT_UPSTREAM_ALLOW.")
            % {"host": error.facts["host"], "port": error.facts["port"]},
            facts=error.facts,
        ) from None
    if "?" in url:
        raise InvalidInput(
            "url_refused",
            _("A base URL has no query (?...)."),
            field=field,
            remedy=_("Write what stands before /chat/completions, for example https://host/v1."),
        )
    return url.rstrip("/")


def address_fits(host: str, address: str, port: int) -> bool:
    """Whether `host`, which resolves to `address`, may be connected to at `port`."""
    if not outbound.address_allowed(host, address, port, allowed(), public=False):
        return False
    # Asked as if the host were the address itself, so that a name's entry does not answer.
    if outbound.address_allowed(address, address, port, allowed(), public=False):
        return True
    return not _is_inside(address)


def _is_inside(text: str) -> bool:
    found = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped or found.sixtofour
        if mapped is not None:
            return _is_inside(str(mapped))
    return found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of a URL that was checked before."""
    parts = urlsplit(url)
    return (
        parts.scheme,
        (parts.hostname or "").lower(),
        parts.port or outbound.DEFAULT_PORTS.get(parts.scheme),
    )
