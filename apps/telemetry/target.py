"""One server that is scraped; without Django, so that a host without a control plane can be measured too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One server. `pid` is set only where the process runs on this host; `gpu_uuid` is empty on a CPU slot.

    `statistics_url` is empty where the restricted API cannot be asked from here.
    """

    instance_id: int
    uid: str
    deployment_id: int
    url: str
    pid: int | None = None
    created: float | None = None
    gpu_uuid: str = ""
    statistics_url: str = ""
    secret_path: str = ""
    # On another host, whose own scraper tells of its processes and its GPU.
    remote: bool = False
