"""Redis' address as its clients take it: with a password, over TLS, or as a socket."""

from __future__ import annotations

import importlib
import ssl

import pytest

CA = "/etc/ca.pem"


@pytest.mark.parametrize(
    ("url", "ca", "redis", "celery", "tls"),
    [
        ("redis://h:1", "", "redis://h:1/3", "redis://h:1/3", False),
        ("redis://:pw@h:1/", CA, "redis://:pw@h:1/3", "redis://:pw@h:1/3", False),
        ("unix:///r.sock", "", "unix:///r.sock?db=3", "redis+socket:///r.sock?virtual_host=3", False),
        ("rediss://:pw@h:1", "", "rediss://:pw@h:1/3?ssl_cert_reqs=required", "rediss://:pw@h:1/3", True),
        (
            "rediss://u:pw@h:1",
            CA,
            "rediss://u:pw@h:1/3?ssl_cert_reqs=required&ssl_ca_certs=%2Fetc%2Fca.pem",
            "rediss://u:pw@h:1/3",
            True,
        ),
    ],
)
def test_addresses(
    monkeypatch: pytest.MonkeyPatch, url: str, ca: str, redis: str, celery: str, tls: bool
) -> None:
    from controlplane.settings import queues

    monkeypatch.setenv("INFLIGHT_REDIS_URL", url)
    monkeypatch.setenv("INFLIGHT_REDIS_CA", ca)
    try:
        made = importlib.reload(queues)
        assert (made.redis_url(3), made.redis_url(3, celery=True)) == (redis, celery)
        expected = (
            {"ssl_cert_reqs": ssl.CERT_REQUIRED, **({"ssl_ca_certs": CA} if ca else {})} if tls else None
        )
        assert expected == made.CELERY_BROKER_USE_SSL
    finally:
        monkeypatch.undo()
        importlib.reload(queues)
