"""The python files of NVIDIA's templates: found in the node's own installation and matched to its release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from apps.core.exceptions import InvalidInput
from apps.serving.domain.trtllm.tensors import Version

# Where NVIDIA's containers and checkouts have them.
PLACES = (
    "/app/all_models",
    "/app/tensorrt_llm/triton_backend/all_models",
    "/opt/tritonserver/all_models",
    "/tensorrtllm_backend/all_models",
)
ENGINE_FOLDER = "inflight_batcher_llm"
LLMAPI_FOLDER = "llmapi"
# Model in the template folder -> its python files, by their path under a version.
NEEDED: dict[str, dict[str, tuple[str, ...]]] = {
    ENGINE_FOLDER: {
        "preprocessing": ("model.py",),
        "postprocessing": ("model.py",),
        "tensorrt_llm_bls": ("model.py", "lib/decode.py", "lib/triton_decoder.py"),
    },
    LLMAPI_FOLDER: {"tensorrt_llm": ("model.py", "helpers.py")},
}
_VERSION_FILES = ("tools/version.txt", "version.txt", "tensorrt_llm/version.py")
_RELEASE = re.compile(r"(\d{1,2})\.(\d{1,3})\.\d+")
MOST_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class Templates:
    """A template folder. `release` null: nothing beside it says which one it is of."""

    folder: Path
    release: Version | None


def find(configured: str | None, places: Iterable[str] = PLACES) -> Templates | None:
    """The configured folder, else the first that is there. Raises InvalidInput where the configured one is none."""
    for place in (configured,) if configured else tuple(places):
        folder = Path(place)
        for inner in (folder, folder / "all_models", folder / "triton_backend/all_models"):
            if (inner / ENGINE_FOLDER).is_dir() or (inner / LLMAPI_FOLDER).is_dir():
                return Templates(inner, _release_of(inner))
    if configured:
        raise InvalidInput(
            "templates_missing",
            f"{configured} holds no templates of TensorRT-LLM.",
            field="templates",
            remedy=f"Name the folder all_models, which has {ENGINE_FOLDER} and {LLMAPI_FOLDER} in it.",
        )
    return None


def find_for(configured: str | None, examples: str, release: Version) -> Templates | None:
    """The templates of a release on this node: those configured, else beside the toolchain's example scripts, else
    where NVIDIA has them. Of several those of the release are taken, then those that tell none.
    """
    if configured:
        return find(configured)
    beside = (str(Path(examples).parent),) if examples.startswith("/") else ()
    found = [each for place in (*beside, *PLACES) if (each := find(None, (place,))) is not None]
    order = {release: 0, None: 1}
    return min(found, key=lambda each: order.get(each.release, 2), default=None)


def _release_of(folder: Path) -> Version | None:
    for parent in (folder, *list(folder.parents)[:3]):
        for name in _VERSION_FILES:
            try:
                text = (parent / name).read_text(encoding="utf-8", errors="replace")[:10_000]
            except OSError:
                continue
            if found := _RELEASE.search(text):
                return int(found[1]), int(found[2])
    return None


def python_files(found: Templates, kind: str, release: Version) -> dict[str, dict[str, bytes]]:
    """{model: {path under its version: content}} of one kind of template.

    Raises InvalidInput where a file is missing, too large or leaves the folder, or the release is another one.
    """
    if found.release is not None and found.release != release:
        have, want = (".".join(map(str, each)) for each in (found.release, release))
        raise InvalidInput(
            "templates_of_another_release",
            f"The templates in {found.folder} are of TensorRT-LLM {have}, the node has {want}.",
            field="templates",
            remedy=f"Name the templates of {want}: inputs and parameters differ between releases.",
        )
    return {
        model: {path: _read(found.folder / kind, model, path) for path in paths}
        for model, paths in NEEDED[kind].items()
    }


def _read(root: Path, model: str, path: str) -> bytes:
    file = root / model / "1" / path
    try:
        inside = file.resolve().is_relative_to(root.resolve())
        content = file.read_bytes() if inside and file.stat().st_size <= MOST_BYTES else None
    except OSError:
        content = None
    if content is None:
        raise InvalidInput(
            "template_file_missing",
            f"The templates have no {model}/1/{path}.",
            field="templates",
            remedy=f"Install them again; {file} is missing, too large, or a link that leaves the folder.",
        )
    return content


def places_of(environment: Mapping[str, str]) -> str | None:
    """The folder that a node's environment names."""
    return environment.get("INFLIGHT_TRTLLM_TEMPLATES") or None
