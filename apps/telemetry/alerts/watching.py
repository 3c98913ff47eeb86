"""What rules are asked about: the objects that exist now, and the newest samples of each.

Samples are read from where telemetry keeps them, only those that are new since the last look, and only the metrics
that some rule needs are held in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from apps.fleet.models import Gpu, Node
from apps.serving import states as serving_states
from apps.serving.models import Deployment, Instance
from apps.telemetry import store
from apps.telemetry.domain.alerting.judge import Sample

# (stream, after epoch seconds) -> samples, oldest first.
Reader = Callable[[str, float], Sequence[Sample]]
# Samples reach their stream a little after the second that they are of.
_OVERLAP = 5.0


@dataclass(frozen=True, slots=True)
class Watched:
    """One object that a rule may be asked about.

    `name` is what a person reads and selectors fit; `stream` is where its samples lie, empty where it has none;
    `talks`: samples are to be expected, since epoch second `talks_since`.
    """

    kind: str
    id: str
    name: str
    state: str = ""
    deployment: str = ""
    stream: str = ""
    talks: bool = False
    talks_since: float = 0.0

    def fits(self, selector: str) -> bool:
        """Whether a rule's selector names it; a server also goes by its deployment's name."""
        names = {self.name, self.deployment} if self.deployment else {self.name}
        return selector == "*" or any(fnmatchcase(name, selector) for name in names)


def everything() -> list[Watched]:
    """All objects, in four queries."""
    instances = list(
        Instance.objects.exclude(state=serving_states.GONE)
        .select_related("deployment")
        .only("pk", "uid", "state", "serving_since", "metrics_port", "deployment__name", "deployment_id")
    )
    servers = [_server(row) for row in instances]
    talking: dict[int, float] = {}
    for row, server in zip(instances, servers, strict=True):
        if server.talks:
            since = talking.get(row.deployment_id, server.talks_since)
            talking[row.deployment_id] = min(since, server.talks_since)
    deployments = [
        Watched(
            kind="deployment",
            id=str(pk),
            name=name,
            state=state,
            deployment=name,
            stream=store.deployment_key(pk) if pk in talking else "",
            talks=pk in talking,
            talks_since=talking.get(pk, 0.0),
        )
        for pk, name, state in Deployment.objects.values_list("pk", "name", "state")
    ]
    nodes = [
        Watched("node", str(row.pk), str(row), row.state, stream=store.node_key(row.pk))
        for row in Node.objects.all()
    ]
    gpus = [
        Watched("gpu", str(row.pk), f"{row.node}/gpu{row.index}", stream=store.gpu_key(row.pk))
        for row in Gpu.objects.filter(device=Gpu.Device.GPU).select_related("node")
    ]
    fleet = Watched("fleet", "", "", stream=store.FLEET, talks=True)
    return [fleet, *deployments, *servers, *nodes, *gpus]


def _server(row: Instance) -> Watched:
    talks = row.state in (serving_states.SERVING, serving_states.DRAINING) and row.metrics_port is not None
    return Watched(
        kind="instance",
        id=str(row.pk),
        name=f"{row.deployment.name}/{row.uid}",
        state=row.state,
        deployment=row.deployment.name,
        stream=store.instance_key(row.pk) if talks else "",
        talks=talks,
        talks_since=row.serving_since.timestamp() if row.serving_since else 0.0,
    )


class Memory:
    """The newest samples of each stream, held between looks."""

    def __init__(self, read: Reader = store.read) -> None:
        self._read = read
        self._held: dict[str, deque[Sample]] = {}
        self._keys: frozenset[str] = frozenset()

    def look(self, streams: Collection[str], keys: Collection[str], seconds: float, now: float) -> None:
        """Read what is new in these streams; keep `seconds` of these metrics, and nothing of other streams."""
        wanted = frozenset(keys)
        if not wanted <= self._keys:
            # A rule asks for a metric that was not kept so far.
            self._held.clear()
        self._keys = wanted
        for gone in set(self._held) - set(streams):
            del self._held[gone]
        for stream in streams:
            self._extend(stream, seconds, now)

    def of(self, stream: str) -> Sequence[Sample]:
        """Samples of a stream, oldest first."""
        return tuple(self._held.get(stream, ()))

    def _extend(self, stream: str, seconds: float, now: float) -> None:
        held = self._held.setdefault(stream, deque())
        newest = float(held[-1]["at"] or 0.0) if held else now - seconds
        for sample in self._read(stream, newest):
            at = sample.get("at")
            if at is not None and at > newest:
                held.append(
                    {"at": at, **{key: sample[key] for key in self._keys if sample.get(key) is not None}}
                )
        while held and float(held[0]["at"] or 0.0) < now - seconds - _OVERLAP:
            held.popleft()
