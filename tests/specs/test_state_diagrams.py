"""docs/states.md is what the code says."""

from __future__ import annotations

from django.conf import settings

from apps.specs.state_diagrams import MACHINES, document


def test_the_document_is_current() -> None:
    written = (settings.BASE_DIR / "docs/states.md").read_text(encoding="utf-8")
    assert written == document(), "run manage.py export_states"
    assert all(f"## {machine.name}\n" in written for machine in MACHINES)
