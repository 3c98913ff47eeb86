"""Where Inflight may send requests on a person's word (webhooks, upstreams, hubs): a guard against SSRF.

Addresses of the public internet are allowed. Everything else - loopback, private, link-local (the metadata service of
a cloud), reserved - must be named in an allow-list, whose entries are:

    hooks.example.org     this name, whatever it resolves to        *.example.org   every name below it
    10.1.2.3  fd00::1     this address                              10.0.0.0/8      every address of the network
    127.0.0.1:9000        any of these with a port: only that port  [::1]:9000      the same for IPv6

`check_url` looks at the text alone and asks no name server, so it fits a form. A name may resolve to something else
by the time it is used: connect with `session(allow)` (aiohttp) or ask `address_allowed` for each address resolved,
and never follow redirects unchecked.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from django.utils.translation import gettext as _

from apps.core.exceptions import InvalidInput

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LONGEST_URL = 2000
DEFAULT_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.(?!-)[a-z0-9_-]{1,63})*")
# What a system's resolver reads as IPv4 although it is not four decimal numbers: 127.1, 0x7f000001, 2130706433.
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Names that never belong to the public internet (RFC 6761, RFC 6762, RFC 8375, ICANN 2024).
_LOCAL_NAMES = ("localhost", "local", "internal", "home.arpa", "localdomain")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of an allow-list: a name (`*.` at its beginning: every name below it) or a network; port None: any."""

    name: str = ""
    network: Network | None = None
    port: int | None = None

    def names(self, host: str) -> bool:
        """Whether it names this host."""
        return bool(self.name) and (
            host.endswith(self.name[1:]) if self.name.startswith("*.") else host == self.name
        )

    def holds(self, address: Address) -> bool:
        """Whether the address lies in its network."""
        return self.network is not None and address in self.network


def parse_allow(allow: Sequence[str]) -> list[Entry]:
    """Entries of an allow-list. Raises InvalidInput naming the first that cannot be read."""
    return [_entry(text) for text in allow]


def check_url(url: str, allow: Sequence[str], *, field: str = "url", public: bool = True) -> None:
    """Refuse a URL that Inflight must not call, by its text alone; raises InvalidInput naming `field`.

    `allow`: the entries described above. `public=False`: only what the list names, the internet is not open.
    """
    parts = _parts(url, field)
    host, port = _host(parts, field), parts.port or DEFAULT_PORTS[parts.scheme]
    entries = parse_allow(allow)
    if any(entry.names(host) and entry.port in (None, port) for entry in entries):
        return
    address = _address(host)
    if address is None:
        fits = public and "." in host and not _is_local_name(host)
    else:
        fits = address_allowed(host, host, port, allow, public=public)
    if not fits:
        raise _refused(host, port, field)


def address_allowed(host: str, address: str, port: int, allow: Sequence[str], *, public: bool = True) -> bool:
    """Whether `host`, resolved to `address`, may be connected to at `port`."""
    found = _address(address)
    if found is None:
        return False
    for entry in parse_allow(allow):
        if entry.port in (None, port) and (entry.names(host.rstrip(".").lower()) or entry.holds(found)):
            return True
    return public and found.is_global and not found.is_multicast


class GuardedResolver(AbstractResolver):
    """A resolver for aiohttp that gives only addresses which may be connected to; none left is an OSError."""

    def __init__(self, allow: Sequence[str], *, public: bool = True) -> None:
        self._allow = allow
        self._public = public
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Addresses of `host` that the list allows."""
        found = await self._inner.resolve(host, port, family)
        fitting = [
            item
            for item in found
            if address_allowed(host, item["host"], port, self._allow, public=self._public)
        ]
        if not fitting:
            raise OSError(errno.EACCES, "the name leads to addresses that are not allowed")
        return fitting

    async def close(self) -> None:
        """End the resolver inside."""
        await self._inner.close()


def session(allow: Sequence[str], *, public: bool = True, **options: Any) -> aiohttp.ClientSession:
    """An aiohttp session whose connections go only where the list allows; `options` as ClientSession takes them.

    Proxies of the environment are not used. Check each URL with `check_url` first, because aiohttp resolves no
    literal address, and pass `allow_redirects=False`.
    """
    connector = aiohttp.TCPConnector(resolver=GuardedResolver(allow, public=public))
    return aiohttp.ClientSession(connector=connector, trust_env=False, **options)


def _parts(url: str, field: str) -> SplitResult:
    def refuse(sentence: str, remedy: str) -> InvalidInput:
        return InvalidInput("url_refused", sentence, field=field, remedy=remedy)

    whole = _("Write it as https://host/path.")
    if len(url) > LONGEST_URL:
        raise refuse(_("The URL is longer than %(most)d characters.") % {"most": LONGEST_URL}, whole)
    if any(ord(character) <= 32 or ord(character) == 127 or character == "\\" for character in url):
        raise refuse(_("The URL holds spaces, control characters or backslashes."), whole)
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or 1 <= parts.port <= 65535
    except ValueError:
        raise refuse(_("The URL cannot be read."), whole) from None
    if parts.scheme not in DEFAULT_PORTS:
        raise refuse(_("Only http and https URLs are called."), whole)
    if not port_fits:
        raise refuse(_("The port of the URL is not from 1 to 65535."), whole)
    if "@" in parts.netloc:
        raise refuse(
            _("The URL holds a user name or password, which would be shown wherever the URL is."),
            _("Leave them out."),
        )
    if parts.fragment:
        raise refuse(
            _("The URL has a fragment (#...), which no server ever sees."), _("Leave the fragment out.")
        )
    return parts


def _host(parts: SplitResult, field: str) -> str:
    host = (parts.hostname or "").rstrip(".").lower()
    known = _address(host) is not None
    if not known and (not _NAME.fullmatch(host) or _NUMERIC.fullmatch(host) or len(host) > 253):
        raise InvalidInput(
            "url_host",
            _("The host of the URL is neither a name nor an address in its usual form."),
            field=field,
            remedy=_("Write a name in ASCII letters, an IPv4 address as four numbers, or IPv6 in brackets."),
        )
    return host


def _address(text: str) -> Address | None:
    """The address in a text, without the wrappings in which IPv6 carries an IPv4 address."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        teredo = found.teredo
        inner = found.ipv4_mapped or found.sixtofour or (teredo[1] if teredo else None)
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        return inner or found
    return found


def _is_local_name(host: str) -> bool:
    return any(host == name or host.endswith("." + name) for name in _LOCAL_NAMES)


def _entry(text: str) -> Entry:
    whole = text.strip().lower()
    try:
        return Entry(network=ipaddress.ip_network(whole, strict=False))
    except ValueError:
        pass
    host, separator, port_text = whole.rpartition(":")
    port = None
    if separator:
        if not port_text.isascii() or not port_text.isdigit() or not 1 <= int(port_text) <= 65535:
            raise _bad_entry(text)
        port, whole = int(port_text), host.removeprefix("[").removesuffix("]")
    try:
        return Entry(network=ipaddress.ip_network(whole, strict=False), port=port)
    except ValueError:
        name = whole.rstrip(".")
        if not _NAME.fullmatch(name.removeprefix("*.")) or _NUMERIC.fullmatch(name):
            raise _bad_entry(text) from None
        return Entry(name=name, port=port)


def _bad_entry(text: str) -> InvalidInput:
    return InvalidInput(
        "allow_entry",
        _("%(entry)r is no entry of an allow-list.") % {"entry": text},
        remedy=_("Write a name, *.name, an address or a network (10.0.0.0/8), each with :port if you like."),
    )


def _refused(host: str, port: int, field: str) -> InvalidInput:
    return InvalidInput(
        "url_not_allowed",
        _("%(host)s is not an address of the public internet, or not one that is open here.")
        % {"host": host},
        field=field,
        remedy=_("An administrator can allow it: add %(entry)s to INFLIGHT_OUTBOUND_ALLOW.")
        % {"entry": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"},
        facts={"host": host, "port": port},
    )
