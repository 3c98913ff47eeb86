"""Serves plotly.min.js out of the plotly wheel: that one file, not the folder's second bundle and samples."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import plotly
from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage
from django.core.files.storage import FileSystemStorage

PLOTLY_STATIC_NAME = "vendor/plotly.min.js"
_FOLDER = Path(plotly.__file__).parent / "package_data"


class _PlotlyStorage(FileSystemStorage):
    """Maps the public name to the file inside the wheel."""

    prefix = ""

    def path(self, name: str) -> str:
        """Path of the one file that this storage has."""
        return str(_FOLDER / "plotly.min.js")

    def exists(self, name: str) -> bool:
        """Whether the wheel has the file."""
        return name == PLOTLY_STATIC_NAME and (_FOLDER / "plotly.min.js").is_file()


class PlotlyFinder(BaseFinder):
    """Finds `vendor/plotly.min.js`."""

    storage = _PlotlyStorage(location=_FOLDER)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Nothing can be misconfigured here."""
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """Path of the file, or an empty list, as Django's finders answer."""
        if path != PLOTLY_STATIC_NAME:
            return []
        found = str(_FOLDER / "plotly.min.js")
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[tuple[str, Any]]:
        """The one file, for collectstatic."""
        yield PLOTLY_STATIC_NAME, self.storage
