"""ES modules: none imports itself over others, which would leave its name by content without end."""

from __future__ import annotations

import os
import re
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2] / "static/js"
IMPORT = re.compile(r'^(?:import|export)\b[^;]*?"(\.{1,2}/[^"]+)"', re.MULTILINE)


def _imports() -> dict[Path, set[Path]]:
    return {
        file: {Path(os.path.normpath(file.parent / name)) for name in IMPORT.findall(file.read_text("utf-8"))}
        for file in ROOT.rglob("*.js")
    }


def test_modules_import_what_exists_and_no_ring() -> None:
    found = _imports()
    assert len(found) > 40
    assert {str(name) for names in found.values() for name in names if not name.is_file()} == set()
    # Raises CycleError, which names the ring.
    assert set(TopologicalSorter(found).static_order()) >= set(found)
