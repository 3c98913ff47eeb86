"""pytest plugin: keeps only the tests that touch the database, for the second run on PostgreSQL."""

from __future__ import annotations

import pytest

FIXTURES = {"db", "transactional_db", "django_db_reset_sequences", "live_server"}


def touches_database(item: pytest.Item) -> bool:
    """Whether a test is marked for the database or asks for one of its fixtures, directly or through another.

    Not those marked `one_database`: what they show (files, processes, templates) is the same on any database.
    """
    if item.get_closest_marker("one_database") is not None:
        return False
    return item.get_closest_marker("django_db") is not None or bool(
        FIXTURES & set(getattr(item, "fixturenames", ()))
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what never reaches a database."""
    others = [item for item in items if not touches_database(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if touches_database(item)]
