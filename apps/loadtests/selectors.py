"""Reading load tests, runs, studies and quality runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.core.exceptions import NotFound, NotPossibleNow
from apps.loadtests.domain import records
from apps.loadtests.domain.records import Columns
from apps.loadtests.models import LoadRun, LoadTest, ProductionMark, QualityGate, QualityRun, Study
from apps.serving.models import Deployment

# Files of records, one for each process of the generator.
RECORD_FILES = "records-*.jsonl.gz"


def load_tests() -> QuerySet[LoadTest]:
    """All load tests by name."""
    return LoadTest.objects.all()


def load_test(name: str) -> LoadTest:
    """One load test by its name. Raises NotFound."""
    found = load_tests().filter(name=name).first()
    if found is None:
        raise NotFound(
            "load_test_unknown",
            _("There is no load test %(name)s.") % {"name": name},
            remedy=_("Make it, or see the list of load tests."),
        )
    return found


def runs() -> QuerySet[LoadRun]:
    """All runs, newest first."""
    return LoadRun.objects.select_related("test", "study", "deployment", "requested_by")


def run(number: int) -> LoadRun:
    """One run by its number. Raises NotFound."""
    found = runs().filter(number=number).first()
    if found is None:
        raise NotFound(
            "load_run_unknown",
            _("There is no run #%(number)s.") % {"number": number},
            remedy=_("See the list of runs."),
        )
    return found


def studies() -> QuerySet[Study]:
    """All studies, newest first."""
    return Study.objects.select_related("requested_by")


def study(number: int) -> Study:
    """One study by its number. Raises NotFound."""
    found = studies().filter(number=number).first()
    if found is None:
        raise NotFound(
            "study_unknown",
            _("There is no study #%(number)s.") % {"number": number},
            remedy=_("See the list of load tests."),
        )
    return found


def is_production(deployment: Deployment) -> bool:
    """Whether somebody marked the deployment as production."""
    return ProductionMark.objects.filter(deployment=deployment).exists()


def runs_folder() -> Path:
    """Where plans, logs and records of runs lie."""
    return Path(settings.INFLIGHT_HOME) / "load"


def datasets_folder() -> Path:
    """Where datasets lie that scenarios name."""
    return Path(settings.INFLIGHT_HOME) / "datasets"


def datasets() -> list[str]:
    """Names of the datasets that are there."""
    return sorted(
        path.name
        for path in datasets_folder().glob("*")
        if path.is_file() and path.suffix in (".json", ".jsonl")
    )


def record_files(row: LoadRun) -> list[Path]:
    """The files of a run's records; empty where there are none on this machine."""
    return sorted(Path(row.folder).glob(RECORD_FILES)) if row.folder else []


def record_lines(row: LoadRun) -> Iterable[records.Record]:
    """Every record of a run. Raises NotPossibleNow where they are not here."""
    files = record_files(row)
    if not files:
        raise NotPossibleNow(
            "no_records",
            _("The records of run #%(number)s are not on this machine (any more).") % {"number": row.number},
            remedy=_("Run it again; its summary is still there."),
        )
    return itertools.chain(records.read(files))


def columns(row: LoadRun) -> Columns:
    """The records of a run as columns. Raises NotPossibleNow."""
    return records.columns(record_lines(row))


def quality_runs() -> QuerySet[QualityRun]:
    """All quality runs, newest first."""
    return QualityRun.objects.select_related(
        "engine__checkpoint", "engine__node", "baseline", "deployment", "baseline_deployment", "requested_by"
    )


def quality_run(number: int) -> QualityRun:
    """One quality run by its number. Raises NotFound."""
    found = quality_runs().filter(number=number).first()
    if found is None:
        raise NotFound(
            "quality_run_unknown",
            _("There is no quality run #%(number)s.") % {"number": number},
            remedy=_("See the page Quality."),
        )
    return found


def quality_gates() -> QuerySet[QualityGate]:
    """All gates by name."""
    return QualityGate.objects.select_related("build_profile__checkpoint")


def quality_gate(name: str) -> QualityGate:
    """One gate by its name. Raises NotFound."""
    found = quality_gates().filter(name=name).first()
    if found is None:
        raise NotFound(
            "quality_gate_unknown",
            _("There is no quality gate %(name)s.") % {"name": name},
            remedy=_("See the page Quality."),
        )
    return found


def quality_folder() -> Path:
    """Where plans, rows and logs of quality runs lie."""
    return Path(settings.INFLIGHT_HOME) / "quality"
