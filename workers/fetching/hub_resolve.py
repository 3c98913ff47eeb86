"""First step: what the revision names, which files the checkpoint needs, and how large they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url

from apps.core.exceptions import InvalidInput
from apps.registry.hub.folders import hub_folder
from apps.registry.hub.selection import RepoFile, Selection, choose
from workers.builders.llamacpp_steps.events import StepFailed, run, say, send
from workers.fetching.common import read_plan
from workers.fetching.hub_client import Hub, explained, hub_of

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
MOST_FILES = 20_000


def main() -> None:
    """Command line of the step."""
    plan = read_plan(__doc__)
    hub = hub_of(plan)
    with explained(hub):
        commit, listing = _listing(hub)
        say(f"{hub.repo} at {hub.revision} is commit {commit}, {len(listing)} files")
        chosen = _chosen(listing, plan)
        files = [_sized(hub, commit, file) for file in chosen.files]
    _refuse_huge(files)
    folder = hub_folder(Path(plan["checkpoints"]), hub.repo, commit, [file.name for file in files])
    for file in files:
        say(f"{file.size:>15,} {file.name}")
    facts: dict[str, Any] = {
        "commit": commit,
        "form": chosen.form,
        "files": [file.as_dict() for file in files],
        "folder": str(folder),
        "total": sum(file.size for file in files),
    }
    send("result", facts=facts)


def _listing(hub: Hub) -> tuple[str, list[RepoFile]]:
    api = HfApi(endpoint=hub.endpoint, token=hub.credentials)
    info = api.model_info(hub.repo, revision=hub.revision, files_metadata=True, timeout=60)
    if not COMMIT.fullmatch(info.sha or ""):
        raise StepFailed(
            "hub_answer_invalid",
            "The hub's answer names no commit.",
            "Check the mirror's address under Hub access.",
        )
    siblings = info.siblings or []
    if len(siblings) > MOST_FILES:
        raise StepFailed(
            "too_many_files",
            f"The repository lists {len(siblings)} files.",
            "Choose a repository that holds one model.",
        )
    files = [
        RepoFile(
            item.rfilename,
            (item.lfs.size if item.lfs else item.size) or 0,
            item.lfs.sha256 if item.lfs else "",
            "" if item.lfs else (item.blob_id or ""),
        )
        for item in siblings
    ]
    return str(info.sha), files


def _chosen(listing: list[RepoFile], plan: dict[str, Any]) -> Selection:
    try:
        return choose(listing, plan["files"], plan["pickle"])
    except InvalidInput as error:
        send("result", facts={"offered": error.facts.get("choices", [])})
        raise


def _sized(hub: Hub, commit: str, file: RepoFile) -> RepoFile:
    """The file with its size: a mirror that lists none is asked for each."""
    if file.size:
        return file
    url = hf_hub_url(hub.repo, file.name, revision=commit, endpoint=hub.endpoint)
    found = get_hf_file_metadata(url, token=hub.credentials, endpoint=hub.endpoint, retry_on_errors=True)
    return RepoFile(file.name, found.size or 0, file.sha256, file.blob, file.local)


def _refuse_huge(files: list[RepoFile]) -> None:
    """The library fetches no larger file over plain HTTP, because the hub's own store serves none."""
    huge = next((file for file in files if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE), None)
    if huge is not None:
        raise StepFailed(
            "file_too_large",
            f"{huge.name} has {huge.size / 1e9:.0f} GB; hubs serve files up to 50 GB over plain HTTP.",
            "Choose a repository whose weights are in several files, or a smaller type.",
        )


if __name__ == "__main__":
    run(main)
