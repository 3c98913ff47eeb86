"""Last stage: hash, write the manifest, sync, and make the engine visible by one rename."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from workers.builders.llamacpp_steps.events import run
from workers.builders.publishing import publish


def main() -> None:
    """Command line of the stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artefact", type=Path, required=True, help="the finished folder, still hidden")
    parser.add_argument(
        "--plan", type=Path, required=True, help="what was set out to do, and what stages said"
    )
    parser.add_argument("--engines", type=Path, required=True)
    parser.add_argument("--fingerprint", required=True)
    options = parser.parse_args()
    plan = json.loads(options.plan.read_text())
    publish(options.artefact, plan, options.engines, options.fingerprint, _versions())


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("gguf", "numpy", "xllamacpp"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


if __name__ == "__main__":
    run(main)
