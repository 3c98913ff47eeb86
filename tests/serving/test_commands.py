"""manage.py wait_for and stop_instances."""

from __future__ import annotations

import io
import os
import signal
import threading

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from apps.core.transitions import transition
from apps.engines import states as engine_states
from apps.engines.models import Build
from apps.serving import services, states
from apps.serving.management.commands.wait_for import describe
from apps.serving.models import Deployment, Instance
from tests import objects
from tests.support.standin import StandIn, Ticker
from tests.support.waiting import eventually
from workers.runtimes import processes


def wait_for(name: str = "demo", timeout: float = 5.0) -> list[str]:
    output = io.StringIO()
    call_command("wait_for", deployment=name, timeout=timeout, stdout=output)
    return output.getvalue().splitlines()


@pytest.mark.django_db
def test_waiting_ends_when_the_deployment_is_ready(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    uid = Instance.objects.get().uid
    assert wait_for() == [f"demo: ready; {uid} serving"]


@pytest.mark.django_db
def test_a_ready_row_whose_server_is_gone_is_waited_for(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    row = Instance.objects.get()
    assert row.pid is not None
    os.kill(row.pid, signal.SIGKILL)  # nobody has looked since
    eventually(lambda: processes.create_time(row.pid or 0) is None)
    with pytest.raises(CommandError, match="demo is not ready after"):
        wait_for(timeout=0.0)


@pytest.mark.django_db
def test_waiting_for_what_failed_or_is_stopped_says_why() -> None:
    demo = objects.deployment(build_profile=objects.build_profile())
    with pytest.raises(CommandError, match="demo is stopped"):
        wait_for()
    services.deploy("test", demo)
    transition(
        demo,
        states.FAILED,
        actor="test",
        sentence="The disk is full.",
        remedy="Free some.",
        waiting_build=None,
    )
    with pytest.raises(CommandError, match=r"demo: The disk is full\. Free some\."):
        wait_for()
    with pytest.raises(CommandError, match="no deployment other"):
        wait_for("other")


@pytest.mark.django_db
def test_waiting_is_bounded_and_shows_how_far_a_build_is() -> None:
    demo = services.deploy("test", objects.deployment(build_profile=objects.build_profile()))
    build = Build.objects.get()
    stages = [{"name": "write", "title": "Write the engine", "state": "running"}]
    transition(build, engine_states.RUNNING, actor="test", stages=stages, progress=0.42)
    demo.refresh_from_db()
    assert describe(demo) == f"demo: waiting; build #{build.number} running 42%, Write the engine"
    with pytest.raises(CommandError, match="not ready after 0 s"):
        wait_for(timeout=0)


@pytest.mark.django_db(transaction=True)
def test_a_failure_while_waiting_ends_it() -> None:
    demo = services.deploy("test", objects.deployment(build_profile=objects.build_profile()))
    looked = threading.Event()

    def fail() -> None:
        looked.wait(10)
        row = Deployment.objects.get(pk=demo.pk)
        transition(row, states.FAILED, actor="test", sentence="No.", waiting_build=None)
        connection.close()

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            looked.set()
            return super().write(text)

    thread = threading.Thread(target=fail)
    thread.start()
    output = Output()
    with pytest.raises(CommandError, match=r"demo: No\."):
        call_command("wait_for", deployment="demo", timeout=20, stdout=output)
    thread.join()
    assert output.getvalue().startswith("demo: waiting; build #1 queued")


@pytest.mark.django_db
def test_stop_instances_ends_servers_that_no_worker_looks_after(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    row = Instance.objects.get()
    output = io.StringIO()
    call_command(
        "stop_instances", reason="Down for the night.", drain_seconds=1.0, timeout=20.0, stdout=output
    )
    assert f"demo: ending {row.uid}" in output.getvalue()
    assert processes.create_time(row.pid or 0) is None
    row.refresh_from_db()
    demo.refresh_from_db()
    assert (row.state, demo.desired, demo.state) == (states.GONE, "running", states.STARTING)
    assert demo.sentence == "Down for the night."
    again = io.StringIO()
    call_command("stop_instances", stdout=again)
    assert again.getvalue() == ""


@pytest.mark.django_db
def test_stop_instances_says_what_it_could_not_end_in_time(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    standin.behave(in_flight=1)
    uid = Instance.objects.get().uid
    with pytest.raises(CommandError, match=f"{uid} \\(draining\\)"):
        call_command("stop_instances", drain_seconds=60.0, timeout=0.5, stdout=io.StringIO())


@pytest.mark.django_db
def test_stop_instances_on_a_host_that_never_joined_does_nothing() -> None:
    output = io.StringIO()
    call_command("stop_instances", stdout=output)
    assert output.getvalue() == ""
