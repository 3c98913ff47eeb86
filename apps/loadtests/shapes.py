"""What a person gives to configure a load test, as API bodies and YAML documents spell it."""

from __future__ import annotations

from apps.loadtests.domain.scenario import Scenario


class LoadTestFields(Scenario):
    """All of a load test but its name; see docs/load-tests.md."""
