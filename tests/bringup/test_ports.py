"""The ports of the pages and of the gateway."""

from __future__ import annotations

import socket

import pytest

from deploy.local import ports
from deploy.local.errors import Problem


def test_wanted_port_comes_from_make_or_the_environment() -> None:
    assert ports.wanted({}) == 8000
    assert ports.wanted({"INFLIGHT_WEB_PORT": "8080"}) == 8080
    assert ports.wanted({"PORT": "9000", "INFLIGHT_WEB_PORT": "8080"}) == 9000


def test_wanted_port_of_the_gateway() -> None:
    assert ports.wanted_gateway({}) == 8001
    assert ports.wanted_gateway({"INFLIGHT_GATEWAY_PORT": "9001", "PORT": "9000"}) == 9001


@pytest.mark.parametrize("value", ["0", "65536", "-1", "eighty", "80.5"])
def test_port_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(Problem, match="is no port"):
        ports.wanted({"PORT": value})


def test_taken_ports_are_passed_over() -> None:
    assert ports.choose(8000, free=lambda port: port >= 8003) == 8003


def test_no_free_port_is_a_sentence_with_a_remedy() -> None:
    with pytest.raises(Problem, match="No port from 8000 to 8099") as caught:
        ports.choose(8000, free=lambda port: False)
    assert "PORT=" in caught.value.remedy


def test_search_ends_at_the_last_port() -> None:
    with pytest.raises(Problem, match="65530 to 65535"):
        ports.choose(65530, free=lambda port: False)


def test_a_listening_server_makes_its_port_taken() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not ports.is_free(server.getsockname()[1])
