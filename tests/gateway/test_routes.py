"""Routes and external deployments: what may stand behind a name, and where the gateway may call."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core import secrets
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.core.models import AuditEntry
from apps.gateway import services, upstream_urls
from apps.gateway.models import ExternalDeployment, GatewayRoute
from tests import objects
from tests.people import person

pytestmark = pytest.mark.django_db
ALLOW = ["api.example.org", "127.0.0.1:9000", "10.1.0.0/16", "llm.internal:8000"]


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.INFLIGHT_UPSTREAM_ALLOW = ALLOW


def external(name: str = "elsewhere", **data: Any) -> ExternalDeployment:
    given = {"base_url": "https://api.example.org/v1", "model": "large-1"}
    return services.save_external("test", {"name": name, **given, **data})


def refused(data: dict[str, Any], instance: GatewayRoute | None = None) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as caught:
        services.save_route("test", data, instance)
    found = caught.value.findings[0] if caught.value.findings else caught.value
    where = found.where if hasattr(found, "where") else caught.value.field
    return caught.value.code, where


class TestRoutes:
    """One public name in front of deployments."""

    def test_several_targets_with_weights_and_lengths(self) -> None:
        objects.deployment("demo")
        external()
        targets = [
            {"deployment": "demo", "weight": 9.0, "max_prompt_tokens": 512},
            {"external": "elsewhere"},
        ]
        row = services.save_route("test", {"name": "chat", "targets": targets, "fallback": "demo"})
        assert row.targets == [targets[0], {"external": "elsewhere", "weight": 1.0}]
        assert AuditEntry.objects.get(verb="gatewayroute.created").object_label == "chat"

    def test_a_deployment_has_settings_under_its_own_name(self) -> None:
        objects.deployment("demo")
        row = services.save_route("test", {"name": "demo", "requests_per_minute": 5})
        assert (row.targets, row.limits.requests_per_minute) == ([], 5)
        services.save_route("test", {"requests_per_minute": None}, row)
        row.refresh_from_db()
        assert row.requests_per_minute is None
        services.delete_route("test", row)
        assert not GatewayRoute.objects.exists()

    @pytest.mark.parametrize(
        ("data", "code", "where"),
        [
            ({"name": "nobody"}, "targets_missing", "targets"),
            ({"name": "Bad Name", "targets": [{"deployment": "demo"}]}, "invalid_value", "name"),
            ({"name": "warmup", "targets": [{"deployment": "demo"}]}, "name_reserved", "name"),
            ({"name": "a", "targets": [{"deployment": "none"}]}, "target_unknown", "targets.0.deployment"),
            ({"name": "a", "targets": [{"external": "none"}]}, "target_unknown", "targets.0.external"),
            ({"name": "a", "targets": [{"deployment": "demo", "external": "x"}]}, "target_form", "targets.0"),
            ({"name": "a", "targets": [{}]}, "target_form", "targets.0"),
            ({"name": "a", "targets": ["demo"]}, "target_form", "targets.0"),
            (
                {"name": "a", "targets": [{"deployment": "demo", "weight": -1}]},
                "target_form",
                "targets.0.weight",
            ),
            (
                {"name": "a", "targets": [{"deployment": "demo", "weight": float("nan")}]},
                "target_form",
                "targets.0.weight",
            ),
            ({"name": "a", "targets": [{"deployment": "demo", "wait": 1}]}, "target_form", "targets.0.wait"),
            ({"name": "a", "targets": [{"deployment": "demo", "weight": 0}]}, "targets_weight", "targets"),
            ({"name": "a", "targets": [{"deployment": "demo"}] * 2}, "target_repeated", "targets.1"),
            (
                {"name": "a", "targets": [{"deployment": "demo"}], "fallback": "x"},
                "route_unknown",
                "fallback",
            ),
            ({"name": "demo", "fallback": "demo"}, "fallback_loop", "fallback"),
            ({"name": "demo", "queue_size": -1}, "invalid_value", "queue_size"),
            ({"name": "demo", "queue_seconds": 1e9}, "invalid_value", "queue_seconds"),
            ({"name": "demo", "body_days": 0}, "invalid_value", "body_days"),
            ({"name": "demo", "max_tokens": 0}, "invalid_value", "max_tokens"),
            ({"name": "demo", "unknown": 1}, "unknown_field", "unknown"),
        ],
    )
    def test_what_is_wrong_is_named(self, data: dict[str, Any], code: str, where: str) -> None:
        objects.deployment("demo")
        assert refused(data) == (code, where)
        assert not GatewayRoute.objects.exists()

    def test_fallbacks_lead_nowhere_twice(self) -> None:
        objects.deployment("demo")
        target = [{"deployment": "demo"}]
        first = services.save_route("test", {"name": "a", "targets": target})
        services.save_route("test", {"name": "b", "targets": target, "fallback": "a"})
        assert refused({"fallback": "b"}, first) == ("fallback_loop", "fallback")
        with pytest.raises(NotPossibleNow) as caught:
            services.delete_route("test", first)
        assert "b" in caught.value.sentence

    def test_the_name_stays(self) -> None:
        objects.deployment("demo")
        row = services.save_route("test", {"name": "demo"})
        assert refused({"name": "other"}, row) == ("name_fixed", "name")


class TestExternalDeployments:
    """Somebody else's API: its address, its secret."""

    def test_the_secret_is_kept_encrypted(self) -> None:
        row = services.set_external_secret("test", external(), " sk-very-secret\n")
        assert "sk-very-secret" not in row.secret
        assert secrets.decrypt(row.secret) == "sk-very-secret"
        trail = AuditEntry.objects.get(verb="externaldeployment.secret")
        assert "sk-very-secret" not in str(trail.detail)
        assert services.set_external_secret("test", row, "").secret == ""

    @pytest.mark.parametrize("text", ["a b", "a\nb", "ä", "x" * 4001, "a\x00"])
    def test_a_secret_that_would_break_a_header_is_refused(self, text: str) -> None:
        row = external()
        with pytest.raises(InvalidInput) as caught:
            services.set_external_secret("test", row, text)
        assert caught.value.field == "secret"
        assert text not in caught.value.sentence

    def test_another_host_does_not_get_the_secret(self) -> None:
        row = services.set_external_secret("test", external(), "sk-1")
        row = services.save_external("test", {"base_url": "https://api.example.org/v2"}, row)
        assert row.secret
        row = services.save_external("test", {"base_url": "http://127.0.0.1:9000/v1"}, row)
        assert not row.secret

    def test_it_is_not_deleted_while_a_route_leads_there(self) -> None:
        row = external()
        services.save_route("test", {"name": "chat", "targets": [{"external": "elsewhere"}]})
        with pytest.raises(NotPossibleNow) as caught:
            services.delete_external("test", row)
        assert caught.value.facts == {"routes": ["chat"]}
        services.delete_route("test", GatewayRoute.objects.get())
        services.delete_external("test", row)

    def test_a_deployment_keeps_its_name(self) -> None:
        objects.deployment("demo")
        with pytest.raises(InvalidInput) as caught:
            external("demo")
        assert (caught.value.code, caught.value.field) == ("name_taken", "name")

    def test_viewers_change_nothing(self) -> None:
        viewer, row = person("viewer"), external()
        for call in (
            lambda: services.save_external(viewer, {"model": "x"}, row),
            lambda: services.set_external_secret(viewer, row, "x"),
            lambda: services.delete_external(viewer, row),
            lambda: services.save_route(viewer, {"name": "a", "targets": [{"external": "elsewhere"}]}),
        ):
            with pytest.raises(NotAllowed):
                call()


class TestWhereTheGatewayMayCall:
    """The table of hostile addresses. The internet is not open either: only what the list names."""

    @pytest.mark.parametrize(
        "url",
        [
            "https://api.example.org/v1",
            "https://API.example.org./v1/",
            "http://127.0.0.1:9000/v1",
            "http://10.1.2.3/v1",
            "http://llm.internal:8000",
        ],
    )
    def test_listed(self, url: str) -> None:
        assert upstream_urls.check(url) == url.rstrip("/")

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "api.example.org/v1",
            "ftp://api.example.org/",
            "file:///etc/passwd",
            "gopher://127.0.0.1:9000/_GET",
            "https://openai.example.com/v1",
            "https://api.example.org.evil.com/v1",
            "https://evil.com/api.example.org",
            "https://evilapi.example.org/v1",
            "https://sub.api.example.org/v1",
            "http://127.0.0.1/v1",
            "http://127.0.0.1:6379/",
            "http://127.0.0.2:9000/",
            "http://127.1:9000/",
            "http://2130706433:9000/",
            "http://0x7f000001:9000/",
            "http://0177.0.0.1:9000/",
            "http://[::ffff:127.0.0.1]:6379/",
            "http://[::1]:9000/",
            "http://localhost:9000/",
            "http://169.254.169.254/latest/meta-data/",
            "http://[fd00::1]/",
            "http://10.2.0.1/",
            "http://llm.internal/",
            "http://llm.internal:6379/",
            "https://user:pass@api.example.org/v1",
            "https://api.example.org@evil.com/v1",
            "https://api.example.org\\@evil.com/v1",
            "https://api.example.org/v1#x",
            "https://api.example.org/v1?key=secret",
            "https://api.example.org:99999/v1",
            "https://api.example.org/v1\r\nHost: evil.com",
            "https://\u0430pi.example.org/v1",
            "https://api.example.org/" + "a" * 2000,
        ],
    )
    def test_not_listed(self, url: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            external(base_url=url)
        assert caught.value.field == "base_url"
        assert caught.value.remedy
        assert not ExternalDeployment.objects.exists()

    def test_nothing_is_open_without_a_list(self, settings: Any) -> None:
        settings.INFLIGHT_UPSTREAM_ALLOW = []
        with pytest.raises(InvalidInput) as caught:
            upstream_urls.check("https://api.example.org/v1")
        assert "INFLIGHT_UPSTREAM_ALLOW" in caught.value.remedy

    @pytest.mark.parametrize(
        ("host", "address", "port", "fits"),
        [
            ("api.example.org", "93.184.216.34", 443, True),
            ("api.example.org", "192.168.7.7", 443, True),
            # A listed name whose owner lets it point inside.
            ("api.example.org", "127.0.0.1", 443, False),
            ("api.example.org", "::1", 443, False),
            ("api.example.org", "::ffff:127.0.0.1", 443, False),
            ("api.example.org", "169.254.169.254", 443, False),
            ("api.example.org", "fe80::1%eth0", 443, False),
            ("api.example.org", "0.0.0.0", 443, False),
            ("api.example.org", "224.0.0.1", 443, False),
            ("api.example.org", "nonsense", 443, False),
            # The list names the address itself.
            ("api.example.org", "127.0.0.1", 9000, True),
            ("127.0.0.1", "127.0.0.1", 9000, True),
            ("127.0.0.1", "127.0.0.1", 9001, False),
            ("other.example.org", "93.184.216.34", 443, False),
            ("other.example.org", "10.1.9.9", 443, True),
            ("llm.internal", "10.9.9.9", 8000, True),
            ("llm.internal", "10.9.9.9", 8001, False),
        ],
    )
    def test_what_a_name_resolves_to_counts_too(self, host: str, address: str, port: int, fits: bool) -> None:
        assert upstream_urls.address_fits(host, address, port) is fits
