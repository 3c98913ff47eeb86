"""Probes this node's toolchains: once when its control worker starts, and again when somebody asks.

Runs in a thread of the control worker. Each probe is a supervised child with a deadline, in the toolchain's own
Python or its container, so that a broken driver hangs nothing of ours.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.engines.attempts import Renewal
from apps.fleet.containers import client_environment, end_containers
from apps.fleet.domain.toolchain_argv import ALL_GPUS, Command, Place, container_name, wrap
from apps.fleet.domain.toolchain_file import EXAMPLES, GIB, Offer, read_offers
from apps.fleet.domain.toolchain_report import Judgement, judge, read_report
from apps.fleet.models import Node
from apps.fleet.processes import mark_of
from apps.fleet.selectors import local_node
from apps.fleet.toolchains import Probed, record_toolchains
from workers.builders.base import Step
from workers.pumps import LogFile
from workers.stopping import stopping
from workers.supervisor import Supervisor
from workers.watch import Duties, Watch

log = logging.getLogger(__name__)
PROBE = Path(__file__).with_name("toolchain_probe.py")
# Twice importing tensorrt_llm, each with its own limit in the probe, and the container's start.
DEADLINE_SECONDS = 600.0
LOG_BYTES = 1024 * 1024
# Enough for the report and whatever the imports printed after it.
TAIL_BYTES = 262_144
OWN = "[inflight] "


class Prober:
    """Looks whether a probe is due. `look` is called every few seconds by a thread that lives as long as we do."""

    def __init__(self) -> None:
        self._begun = False

    def look(self) -> None:
        """Probe if nothing was probed since this worker started, or since somebody asked."""
        node = local_node()
        if node is None:
            return
        asked = node.probe_asked_at
        due = asked is not None and (node.probed_at is None or node.probed_at < asked)
        if self._begun and not due:
            return
        probe_node(node)
        self._begun = True


def probe_node(node: Node) -> list[Probed]:
    """Probe all that the node's configuration names, and write it down."""
    try:
        offers = configured_offers()
    except InflightError as error:
        log.warning("The toolchains file cannot be used: %s", error.sentence)
        record_toolchains(node, [], f"{error.sentence} {error.remedy}".strip())
        return []
    except OSError as error:
        problem = _("%(file)s cannot be read: %(why)s.")
        record_toolchains(
            node, [], problem % {"file": settings.INFLIGHT_TOOLCHAINS, "why": error.strerror or error}
        )
        return []
    found = [_probe(node, offer) for offer in offers]
    record_toolchains(node, found)
    return found


def configured_offers() -> tuple[Offer, ...]:
    """The node's file; without one INFLIGHT_TRTLLM_PYTHON, or the Python beside a trtllm-build on PATH.

    Raises InvalidInput for a file that is not as agreed, OSError for one that cannot be read.
    """
    path = Path(settings.INFLIGHT_TOOLCHAINS)
    if path.exists():
        return read_offers(path.read_text(encoding="utf-8"))
    python = settings.INFLIGHT_TRTLLM_PYTHON or _python_beside(shutil.which("trtllm-build"))
    return (Offer(name="native", kind="native", python=python, examples=EXAMPLES),) if python else ()


def _python_beside(program: str | None) -> str:
    if program is None:
        return ""
    python = Path(program).absolute().with_name("python3")
    return str(python) if os.access(python, os.X_OK) else ""


def _probe(node: Node, offer: Offer) -> Probed:
    program = ""
    if offer.kind != "native":
        program = offer.program or shutil.which(offer.kind) or ""
        if not program:
            problem = _("%(program)s is not on this node's PATH.") % {"program": offer.kind}
            remedy = _("Install it, or write program: with its path in the toolchains file.")
            return Probed(offer, "", None, Judgement(recipes=(), problem=problem, remedy=remedy))
    output = LogFile(_fresh(Path(settings.INFLIGHT_HOME) / "toolchains" / f"{offer.name}.log"), LOG_BYTES)
    try:
        ending = _run(node, offer, program, output)
        # Without our own lines: the toolchain's last words are what a person wants to read.
        lines = output.tail(TAIL_BYTES).splitlines()
        text = "\n".join(line for line in lines if not line.startswith(OWN))
    finally:
        output.close()
    try:
        report = read_report(text)
    except InflightError as error:
        sentence = error.sentence
        if ending == "deadline":
            sentence = _("The probe did not end within %(minutes)s minutes.") % {
                "minutes": round(DEADLINE_SECONDS / 60)
            }
        judgement = Judgement(recipes=(), problem=sentence, remedy=error.remedy)
        return Probed(offer, program, None, judgement, str(output.path))
    return Probed(offer, program, report, judge(report), str(output.path))


def _run(node: Node, offer: Offer, program: str, output: LogFile) -> str:
    """Run the probe to its end; returns how it ended."""
    mark = mark_of(node.node_id, "probe", node.pk, os.getpid())
    place = Place(
        kind=offer.kind,
        python=offer.python,
        image=offer.image,
        program=program,
        shared_memory_bytes=offer.shared_memory_gib * GIB,
        user=f"{os.getuid()}:{os.getgid()}",
    )
    command = Command(
        argv=("python3", "-c", PROBE.read_text(encoding="utf-8"), offer.examples),
        cwd="/tmp" if place.image else "/",  # noqa: S108 - inside the container
        mark=mark,
        name=container_name(mark, offer.name),
        gpus=(ALL_GPUS,),
    )
    wrapped = wrap(place, command)
    step = Step(
        name="probe",
        title=_("Probe %(name)s") % {"name": offer.name},
        argv=wrapped.argv,
        cwd=Path("/"),
        deadline_seconds=DEADLINE_SECONDS,
        env={**(client_environment() if place.image else {}), **wrapped.env},
        end=wrapped.end,
        shown=tuple(word if len(word) < 400 else "<probe>" for word in wrapped.argv),
    )
    watch = Watch(Duties(renew=lambda: Renewal(True, False), cancelled=lambda: False, stopping=stopping))
    watch.start()
    try:
        supervisor = Supervisor(
            mark, output, watch, record=lambda child: True, progress=lambda done, total: None
        )
        return supervisor.run(step).ending
    except OSError as error:
        output.say(f"{step.argv[0]}: {error.strerror}")
        return "not_started"
    finally:
        watch.stop()
        if program:
            end_containers(mark, [program])


def _fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path
