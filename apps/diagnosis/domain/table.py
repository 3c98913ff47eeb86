"""All log rules. Within one line the first rule that fits is taken, so the more exact ones stand first."""

from __future__ import annotations

from apps.diagnosis.domain import table_build, table_environment, table_host, table_request, table_server
from apps.diagnosis.domain.rule import Rule

RULES: tuple[Rule, ...] = (
    *table_environment.RULES,
    *table_build.RULES,
    *table_server.RULES,
    *table_request.RULES,
    *table_host.RULES,
)
