"""The guard in front of every URL that a person may make Inflight call."""

from __future__ import annotations

import asyncio
import socket

import pytest

from apps.core import outbound
from apps.core.exceptions import InvalidInput


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.org/x?y=1",
        "http://hooks.example.org:8080/",
        "https://93.184.216.34/",
        "https://[2606:4700::1111]/",
        "https://HOOKS.example.org./x",
    ],
)
def test_the_public_internet_is_open(url: str) -> None:
    outbound.check_url(url, [])


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.9.9.9:9000/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://10.0.0.5/",
        "http://172.16.3.4/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1%25eth0]/",
        "http://[fd00::1]/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://localhost:6379/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://redis/",
        "http://metadata.google.internal/",
        "http://printer.local/",
    ],
)
def test_what_is_not_public_must_be_named(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        outbound.check_url(url, [])
    assert caught.value.code == "url_not_allowed"
    assert caught.value.field == "url"
    assert "INFLIGHT_OUTBOUND_ALLOW" in caught.value.remedy


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.org/x",
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x",
        "http:///x",
        "http://exa mple.org/",
        "http://example.org/\r\nHost: other",
        "http://example.org\\@127.0.0.1/",
        "http://user:pass@example.org/",
        "http://example.org:0/",
        "http://example.org:65536/",
        "http://example.org:port/",
        "http://[::1/",
        "http://127.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://1.2.3.0x10/",
        "http://exämple.org/",
        "http://example。org/",
        "http://%31%32%37.0.0.1/",
        "https://example.org/#x",
        "https://" + "a" * 64 + ".org/",
        "https://example.org/" + "a" * 2000,
    ],
)
def test_odd_urls_are_refused_before_anything_reads_them_otherwise(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        outbound.check_url(url, ["127.0.0.1", "localhost"], field="webhook")
    assert caught.value.code in {"url_refused", "url_host"}
    assert caught.value.field == "webhook"


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://127.0.0.1:9000/", "127.0.0.1"),
        ("http://127.0.0.1:9000/", "127.0.0.1:9000"),
        ("http://127.0.0.1:9000/", "127.0.0.0/8"),
        ("http://[::1]:9000/", "::1"),
        ("http://[::1]:9000/", "[::1]:9000"),
        ("http://[fd00::5]/", "fd00::/8"),
        ("http://10.1.2.3/", "10.0.0.0/8:80"),
        ("https://hooks.internal/", "hooks.internal"),
        ("https://hooks.internal/", "hooks.internal:443"),
        ("https://a.b.internal/", "*.internal"),
        ("http://localhost:9000/", "LocalHost:9000"),
    ],
)
def test_an_entry_opens_what_it_names(url: str, entry: str) -> None:
    outbound.check_url(url, ["other.example.org", entry])


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://127.0.0.1:6379/", "127.0.0.1:9000"),
        ("http://127.0.0.2:9000/", "127.0.0.1"),
        ("http://internal/", "*.internal"),
        ("http://evilhooks.internal/", "hooks.internal"),
        ("http://x.hooks.internal/", "hooks.internal"),
        ("http://evil-internal/", "*.internal"),
    ],
)
def test_an_entry_opens_nothing_else(url: str, entry: str) -> None:
    with pytest.raises(InvalidInput, match="public internet"):
        outbound.check_url(url, [entry])


def test_a_closed_installation_opens_only_the_list() -> None:
    outbound.check_url("https://hooks.example.org/", ["*.example.org"], public=False)
    for url in ("https://example.com/", "https://93.184.216.34/"):
        with pytest.raises(InvalidInput):
            outbound.check_url(url, ["*.example.org"], public=False)


@pytest.mark.parametrize(
    "entry", ["", "http://example.org", "10.0.0.0/99", "a b", "host:", "host:0", "127.1", "*"]
)
def test_an_entry_that_cannot_be_read_is_named(entry: str) -> None:
    with pytest.raises(InvalidInput, match="allow-list"):
        outbound.parse_allow([entry])


def test_a_public_name_that_resolves_inside_is_refused_when_it_is_used() -> None:
    assert not outbound.address_allowed("evil.example.org", "127.0.0.1", 80, [])
    assert not outbound.address_allowed("evil.example.org", "169.254.169.254", 80, [])
    assert not outbound.address_allowed("evil.example.org", "::ffff:10.0.0.1", 80, [])
    assert outbound.address_allowed("evil.example.org", "93.184.216.34", 80, [])
    assert outbound.address_allowed("hooks.internal", "10.0.0.1", 80, ["hooks.internal"])


def test_the_resolver_of_a_session_gives_only_addresses_that_are_allowed() -> None:
    async def resolve(allow: list[str]) -> list[str]:
        resolver = outbound.GuardedResolver(allow)
        try:
            return [item["host"] for item in await resolver.resolve("localhost", 9000, socket.AF_INET)]
        finally:
            await resolver.close()

    with pytest.raises(OSError, match="not allowed"):
        asyncio.run(resolve([]))
    assert asyncio.run(resolve(["127.0.0.1:9000"])) == ["127.0.0.1"]
