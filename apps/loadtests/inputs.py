"""Turning what a form, the API or a YAML document says into a scenario; errors name field and remedy."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from pydantic import ValidationError

from apps.core.exceptions import InvalidInput
from apps.core.refused import refused_fields
from apps.loadtests import selectors
from apps.loadtests.domain.compare import METRICS
from apps.loadtests.domain.datasets import DatasetProblem, load
from apps.loadtests.domain.scenario import Scenario, parse
from apps.serving.models import Deployment


def scenario(value: Any) -> Scenario:
    """A checked scenario. Raises InvalidInput with a finding for each refused field."""
    try:
        found = value if isinstance(value, Scenario) else parse(value)
    except ValidationError as error:
        raise refused_fields(error, _("docs/load-tests.md lists the fields of a scenario.")) from error
    check_dataset(found)
    return found


def check_dataset(found: Scenario) -> None:
    """Raise InvalidInput unless the scenario's dataset is there and has what the scenario takes from it."""
    name = found.prompts.dataset
    if not name:
        return
    try:
        rows = load(selectors.datasets_folder() / name)
    except DatasetProblem as error:
        raise InvalidInput(
            "dataset_unusable",
            str(error),
            field="prompts.dataset",
            remedy=_("Datasets lie in %(folder)s.") % {"folder": selectors.datasets_folder()},
        ) from error
    if found.load.mode == "trace" and all(row.at is None for row in rows):
        raise InvalidInput(
            "dataset_without_times",
            _("%(name)s has no row with a timestamp, so its arrivals cannot be replayed.") % {"name": name},
            field="load.mode",
            remedy=_("Use a trace with timestamps in milliseconds, or another mode of the load."),
        )


def deployment_of(found: Scenario) -> Deployment | None:
    """The deployment of the scenario's target. Raises InvalidInput where there must be one and is none."""
    row = Deployment.objects.select_related("active_revision").filter(name=found.target).first()
    if row is None and found.via != "gateway":
        raise InvalidInput(
            "target_unknown",
            _("There is no deployment %(name)s.") % {"name": found.target},
            field="target",
            remedy=_("Name one of: %(names)s.")
            % {"names": ", ".join(Deployment.objects.values_list("name", flat=True)[:20]) or "-"},
        )
    return row


def primary(name: str) -> str:
    """A checked name of a primary metric. Raises InvalidInput."""
    if name not in METRICS:
        raise InvalidInput(
            "metric_unknown",
            _("%(name)s is no metric that can be compared.") % {"name": name},
            field="primary",
            remedy=_("Choose one of: %(names)s.") % {"names": ", ".join(METRICS)},
        )
    return name
