"""Where builds and engines lie under INFLIGHT_HOME."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings


def engines_folder() -> Path:
    """Folder of all engines."""
    return Path(settings.INFLIGHT_HOME) / "engines"


def engine_folder(fingerprint: str) -> Path:
    """Folder of one engine: `model.gguf` and `manifest.json`."""
    return engines_folder() / fingerprint


def build_folder(number: int, attempt: int) -> Path:
    """Folder of one attempt: `log.txt`, and `work/` while it runs."""
    return Path(settings.INFLIGHT_HOME) / "builds" / f"{number}-{attempt}"
