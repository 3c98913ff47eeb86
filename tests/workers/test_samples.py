"""The course of a step's memory and disk, kept beside its log and read back for the chart."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from apps.core import clock
from apps.engines.domain.resources import FILE, MAX_POINTS, read_samples
from apps.fleet.processes import identify
from workers.usage import Meter, Samples


def test_a_meter_keeps_size_and_course(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    work = tmp_path / "work"
    (work / "inner").mkdir(parents=True)
    (work / "inner" / "a").write_bytes(b"x" * 700)
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    request.addfinalizer(child.wait)
    request.addfinalizer(child.kill)
    samples = Samples(tmp_path / FILE, "convert")
    meter = Meter("mark", identify(child.pid), tmp_path, work, samples)
    assert meter.look()
    now += 5
    (work / "b").write_bytes(b"x" * 300)
    assert meter.look()
    (work / "b").unlink()
    now += 5
    assert meter.look()
    assert meter.usage.disk_bytes == 1000
    assert meter.usage.as_dict()["disk_bytes"] == 1000
    assert (meter.usage.peak_bytes or 0) > 1e5
    found = read_samples((tmp_path / FILE).read_text().splitlines())
    assert [sample.disk_bytes for sample in found] == [700, 1000, 700]
    assert {sample.stage for sample in found} == {"convert"}


def test_a_long_step_is_sampled_ever_more_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    samples = Samples(tmp_path / FILE, "build")
    for _look in range(12 * 1800):
        samples.keep(1, 1)
        now += 2
    assert 100 < len((tmp_path / FILE).read_text().splitlines()) < 1000
    # Where nothing can be written, the build goes on.
    Samples(tmp_path / "gone" / FILE, "build").keep(1, 1)


def test_a_chart_is_thinned_and_broken_lines_are_passed_over() -> None:
    lines = [json.dumps({"at": n, "stage": "a", "memory_bytes": n % 7}) for n in range(1000)]
    found = read_samples(
        [*lines, "{", "[]", '{"at": "x"}', '{"at": 5, "memory_bytes": -1, "disk_bytes": true}']
    )
    assert len(found) <= MAX_POINTS
    assert max(sample.memory_bytes or 0 for sample in found) == 6
    assert (found[-1].memory_bytes, found[-1].disk_bytes) in {(None, None), (6, None)}
