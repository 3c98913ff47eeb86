"""The real static files, collected as an installation collects them: hashed names reach into module imports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as project
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command
from django.utils.functional import empty

from controlplane.settings import base

IMPORT = re.compile(
    r"""^\s*(?:import|export)\b[^'"\n]*['"]([./][^'"]+)['"]|\bimport\(['"]([./][^'"]+)['"]\)""", re.MULTILINE
)
HASHED = re.compile(r"\.[0-9a-f]{12}\.\w+$")


@pytest.fixture
def collected(tmp_path: Path, settings: Any) -> Path:
    settings.STORAGES = {**project.STORAGES, "staticfiles": base.STORAGES["staticfiles"]}
    settings.STATIC_ROOT = tmp_path / "static"
    staticfiles_storage._wrapped = empty
    try:
        call_command("collectstatic", interactive=False, verbosity=0)
    finally:
        staticfiles_storage._wrapped = empty
    return tmp_path / "static"


def test_every_module_imports_hashed_files_that_exist(collected: Path) -> None:
    names: dict[str, str] = json.loads((collected / "staticfiles.json").read_text())["paths"]
    modules = [hashed for name, hashed in names.items() if name.startswith("js/") and name.endswith(".js")]
    assert modules
    for name in modules:
        path = collected / name
        for match in IMPORT.finditer(path.read_text(encoding="utf-8")):
            target = match[1] or match[2]
            assert HASHED.search(target), f"{name} imports {target}, which a deploy would serve stale"
            assert (path.parent / target).resolve().is_file(), f"{name} imports {target}, which is not there"
    assert HASHED.search(names["vendor/plotly.min.js"])
