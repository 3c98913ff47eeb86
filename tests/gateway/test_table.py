"""The table that a gateway process holds: what is in it, and that every change raises its version."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from apps.core import clock, secrets
from apps.core.transitions import amend, transition
from apps.gateway import services, table
from apps.gateway.domain.facts import Limits, Priority, Table
from apps.gateway.keys import digest_of
from apps.gateway.models import ExternalDeployment, GatewayKey
from apps.serving import states
from apps.serving.models import Deployment, Revision
from tests import objects
from tests.people import person
from tests.support.redis import RedisServer


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.INFLIGHT_UPSTREAM_ALLOW = ["api.example.org"]


def serving_deployment(name: str = "demo", uid: str = "abc", **columns: Any) -> Deployment:
    deployment = objects.deployment(name)
    revision = objects.revision(deployment)
    Deployment.objects.filter(pk=deployment.pk).update(active_revision=revision)
    objects.instance(revision, uid, http_port=9001, grpc_port=9002, metrics_port=9003, **columns)
    deployment.refresh_from_db()
    return deployment


@pytest.mark.django_db
class TestContent:
    """What the path finds in it."""

    def test_nothing(self) -> None:
        assert table.load_table() == Table(version=0, keys={}, routes={})

    def test_a_deployment_is_a_route_of_its_own_name(self) -> None:
        deployment = serving_deployment()
        route = table.load_table().routes["demo"]
        (upstream,) = route.upstreams
        assert (upstream.uid, upstream.kind, upstream.model) == ("abc", "triton", "demo")
        assert (upstream.http_url, upstream.grpc_url) == ("http://127.0.0.1:9001", "127.0.0.1:9002")
        revision = deployment.active_revision
        assert revision is not None
        assert upstream.slots == revision.batching["max_batch_size"]
        assert (upstream.revision, upstream.deployment_id) == (1, deployment.pk)
        assert (route.route_id, route.limits, route.fallback) == (None, Limits(), "")
        assert route.max_sequence_tokens == 1024
        assert set(route.tokens) == {"bos", "eos", "kind", "adds"}
        assert route.tokens["kind"] == "llamacpp"

    @pytest.mark.parametrize("state", [states.LOADING, states.DRAINING, states.FAILED, states.GONE])
    def test_only_what_serves_is_an_upstream(self, state: str) -> None:
        serving_deployment(state=state)
        assert table.load_table().routes["demo"].upstreams == ()

    def test_what_shall_stop_or_is_of_another_revision_is_none(self) -> None:
        deployment = serving_deployment(stop_requested_at=clock.now())
        other = objects.revision(deployment, 2, states.SUPERSEDED)
        objects.instance(other, "new", http_port=1, grpc_port=2, metrics_port=3)
        assert table.load_table().routes["demo"].upstreams == ()

    @pytest.mark.parametrize(
        ("batching", "slots"),
        [({"max_batch_size": 8}, 8), ({"strategy": "none", "max_batch_size": 8}, 1), ({}, None)],
    )
    def test_slots(self, batching: dict[str, Any], slots: int | None) -> None:
        assert table.slots_of(batching) == slots

    def test_a_route_with_weights(self) -> None:
        serving_deployment()
        revision = Revision.objects.get()
        objects.instance(revision, "second", http_port=9011, grpc_port=9012, metrics_port=9013, replica=1)
        row = services.save_external(
            "test", {"name": "elsewhere", "base_url": "https://api.example.org/v1/", "model": "m", "slots": 4}
        )
        services.set_external_secret("test", row, "sk-1")
        targets = [
            {"deployment": "demo", "weight": 9.0, "max_prompt_tokens": 100},
            {"external": "elsewhere", "weight": 1.0},
        ]
        data = {
            "name": "chat",
            "targets": targets,
            "fallback": "demo",
            "tokens_per_minute": 5,
            "record_bodies": True,
        }
        services.save_route("test", {**data, "queue_size": 7, "queue_seconds": 3})
        found = table.load_table()
        route = found.routes["chat"]
        assert [(u.uid, u.weight, u.max_prompt_tokens, u.slots) for u in route.upstreams] == [
            ("abc", 4.5, 100, 17),
            ("second", 4.5, 100, 17),
            ("external:elsewhere", 1.0, None, 4),
        ]
        outside = route.upstreams[2]
        assert (outside.kind, outside.http_url, outside.model) == (
            "openai",
            "https://api.example.org/v1",
            "m",
        )
        assert outside.secret == "sk-1"
        assert "sk-1" not in repr(route)
        assert (route.fallback, route.queue_size, route.queue_seconds) == ("demo", 7, 3)
        assert route.limits == Limits(tokens_per_minute=5)
        assert route.record_bodies
        assert found.routes["elsewhere"].upstreams[0].uid == "external:elsewhere"

    @pytest.mark.parametrize(
        ("shares", "weights"),
        [
            ((0.95, 0.05), {"old": 9.5, "new": 0.25, "newer": 0.25}),
            ((3.0, 1.0), {"old": 7.5, "new": 1.25, "newer": 1.25}),
            ((1.0, 0.0), {"old": 10.0, "new": 0.0, "newer": 0.0}),
        ],
    )
    def test_a_target_is_shared_as_a_rollout_says(
        self, monkeypatch: pytest.MonkeyPatch, shares: tuple[float, float], weights: dict[str, float]
    ) -> None:
        deployment = serving_deployment(uid="old")
        canary = objects.revision(deployment, 2, states.PENDING)
        for replica, uid in enumerate(("new", "newer")):
            objects.instance(canary, uid, http_port=1, grpc_port=2, metrics_port=3, replica=replica)

        def traffic(row: Deployment, rows: list[Any]) -> list[tuple[int, float, list[Any]]]:
            of = {number: [one for one in rows if one.revision.number == number] for number in (1, 2, 3)}
            return [(1, shares[0], of[1]), (2, shares[1], of[2]), (3, 5.0, of[3])]

        monkeypatch.setattr("apps.gateway.table.serving.traffic", traffic)
        services.save_route("test", {"name": "chat", "targets": [{"deployment": "demo", "weight": 10.0}]})
        found = table.load_table().routes["chat"].upstreams
        assert {one.uid: one.weight for one in found} == pytest.approx(weights)
        assert [one.revision for one in found] == [1, 2, 2]

    def test_a_secret_that_cannot_be_read_costs_one_upstream(self, tmp_path: Any, settings: Any) -> None:
        settings.INFLIGHT_HOME = tmp_path
        row = services.save_external(
            "test", {"name": "elsewhere", "base_url": "https://api.example.org/v1", "model": "m"}
        )
        services.set_external_secret("test", row, "sk-1")
        secrets.key_path().unlink()
        assert table.load_table().routes["elsewhere"].upstreams == ()

    def test_keys_that_work(self) -> None:
        owner, off = person("operator"), person("operator", name="off")
        objects.deployment("demo")
        later = clock.now() + timedelta(days=1)
        data = {"name": "good", "routes": ["demo"], "priority": "high", "expires_at": later, "max_tokens": 9}
        good, text = services.create_key(owner, data)
        revoked, _text = services.create_key(owner, {"name": "revoked"})
        services.revoke_key(owner, revoked)
        expired, _text = services.create_key(owner, {"name": "expired"})
        GatewayKey.objects.filter(pk=expired.pk).update(expires_at=clock.now())
        services.create_key("test", {"name": "ownerless"}, off)
        off.is_active = False
        off.save()
        (digest,) = found = table.load_table().keys
        assert digest == digest_of(text)
        facts = found[digest]
        assert (facts.key_id, facts.name, facts.prefix) == (good.pk, "good", good.prefix)
        assert (facts.routes, facts.priority) == (frozenset({"demo"}), Priority.HIGH)
        assert facts.limits == Limits(max_tokens=9)
        assert facts.expires_at == pytest.approx(later.timestamp())

    def test_it_takes_a_few_queries_however_much_there_is(
        self, django_assert_max_num_queries: Callable[..., Any]
    ) -> None:
        owner = person("operator")
        for number in range(5):
            serving_deployment(f"d{number}", f"u{number}")
            services.create_key(owner, {"name": f"k{number}"})
        with django_assert_max_num_queries(16):
            table.load_table()


@pytest.mark.django_db(transaction=True)
class TestVersion:
    """Whatever changes the table raises its version."""

    def raises(self, change: Callable[[], object]) -> bool:
        before = table.current_version()
        change()
        return table.current_version() > before

    def test_keys(self) -> None:
        owner = person("operator")
        made: list[GatewayKey] = []
        assert self.raises(lambda: made.append(services.create_key(owner, {"name": "a"})[0]))
        assert self.raises(lambda: services.change_key(owner, made[0], {"priority": "low"}))
        assert self.raises(lambda: services.revoke_key(owner, made[0]))
        assert self.raises(owner.delete)

    def test_people(self) -> None:
        owner = person("operator")
        owner.is_active = False
        assert self.raises(owner.save)
        owner.last_login = clock.now()
        assert not self.raises(lambda: owner.save(update_fields=["last_login"]))

    def test_routes_and_externals(self) -> None:
        objects.deployment("demo")
        assert self.raises(lambda: services.save_route("test", {"name": "demo"}))
        data = {"name": "elsewhere", "base_url": "https://api.example.org", "model": "m"}
        assert self.raises(lambda: services.save_external("test", data))
        row = ExternalDeployment.objects.get()
        assert self.raises(lambda: services.set_external_secret("test", row, "x"))
        assert self.raises(lambda: services.delete_external("test", row))

    def test_what_serves(self) -> None:
        made: list[Deployment] = []
        assert self.raises(lambda: made.append(serving_deployment(state=states.LOADING)))
        instance = made[0].instances.get()
        assert self.raises(lambda: transition(instance, states.SERVING, actor="ctl"))
        assert self.raises(lambda: amend(instance, stop_requested_at=clock.now()))
        assert self.raises(lambda: transition(instance, states.DRAINING, actor="ctl"))
        assert not self.raises(lambda: amend(instance, restarts=2))
        assert self.raises(lambda: amend(made[0], active_revision=None))
        canary = objects.revision(made[0], 2, states.PENDING)
        assert self.raises(lambda: transition(canary, states.FAILED, actor="ctl"))

    @pytest.mark.integration
    def test_every_process_is_told(self, redis_server: RedisServer) -> None:
        with redis_server.client(3) as client:
            heard = client.pubsub()
            heard.subscribe(table.TABLE_CHANNEL)
            owner = person("operator")
            row, _text = services.create_key(owner, {"name": "a"})
            services.revoke_key(owner, row)
            versions: list[int] = []
            deadline = time.monotonic() + 5
            while len(versions) < 2 and time.monotonic() < deadline:
                message = heard.get_message(ignore_subscribe_messages=True, timeout=0.5)
                if message:
                    versions.append(int(message["data"]))
            assert versions[-1] == table.current_version()

    def test_a_change_goes_through_where_redis_is_away(self, settings: Any) -> None:
        settings.REDIS_URL = "redis://127.0.0.1:1/0"
        assert self.raises(lambda: services.create_key(person("operator"), {"name": "a"}))
