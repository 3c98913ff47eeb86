"""Engines into the store and out of it. Blocking and long; workers call it in threads and jobs of their own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from apps.engines import paths
from apps.engines.models import Engine
from apps.engines.sharing.store import Store, StoreFailed, configured

MANIFEST = "manifest.json"
DIGEST_LENGTH = 64
Said = Callable[[int], object]


def built_here(engine: Engine) -> bool:
    """Whether the engine's folder is this host's own, or nobody knows whose it is."""
    return engine.node is None or engine.node.node_id == settings.INFLIGHT_NODE_ID


def local_folder(engine: Engine) -> Path:
    """Where the engine lies on this host, or comes to lie when it is fetched."""
    if Path(engine.path).is_relative_to(settings.INFLIGHT_HOME) or built_here(engine):
        return Path(engine.path)
    return paths.engine_folder(engine.fingerprint)


def is_whole(folder: Path, engine: Engine) -> bool:
    """Whether all files that the engine's row names lie there at their sizes."""
    try:
        told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(told["fingerprint"] == engine.fingerprint) and all(
            (folder / name).stat().st_size == size for name, size, _digest in files_of(engine.manifest)
        )
    except (OSError, ValueError, KeyError, TypeError, StoreFailed):
        return False


def files_of(manifest: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """(name, bytes, SHA-256) of each file. Raises StoreFailed for a manifest that names none, or names outside."""
    found = []
    for file in manifest.get("files") or []:
        name, size, digest = str(file.get("name", "")), file.get("size_bytes"), str(file.get("sha256", ""))
        place = PurePosixPath(name)
        inside = name and not place.is_absolute() and ".." not in place.parts
        if not inside or not isinstance(size, int) or len(digest) != DIGEST_LENGTH:
            raise _no_manifest()
        found.append((name, size, digest))
    if not found:
        raise _no_manifest()
    return found


def push(folder: Path, manifest: Mapping[str, Any], store: Store | None = None) -> int:
    """Put an engine of this host into the store; bytes that were not there yet. 0 without a store.

    Raises StoreFailed, also where a file is not what the manifest says.
    """
    target = store or configured()
    if target is None:
        return 0
    sent = 0
    for name, size, digest in files_of(manifest):
        if target.has(digest, size):
            continue
        path = folder / name
        if _digest_of(path) != digest:
            raise StoreFailed(
                "engine_changed",
                _("%(file)s is not what the engine's manifest says.") % {"file": path},
                remedy=_("Build the engine again: the same profile makes the same engine."),
            )
        target.put(digest, path, size)
        sent += size
    return sent


def pull(engine: Engine, store: Store | None = None, said: Said | None = None) -> Path:
    """Fetch an engine from the store; its folder here, whole or not there at all. `said` hears of bytes.

    Raises StoreFailed: without a store, or where a file is missing there or is not what the row says.
    """
    source = store or configured()
    if source is None:
        raise StoreFailed(
            "store_missing",
            _("The engine lies on %(node)s, and there is no store that this host could fetch it from.")
            % {"node": engine.node},
            field="INFLIGHT_STORE",
            remedy=_(
                "Set INFLIGHT_STORE on all hosts (docs/several-hosts.md), or build the engine on this node."
            ),
        )
    place = local_folder(engine)
    hidden = place.with_name(f".incoming-{place.name[:12]}-{os.getpid()}")
    shutil.rmtree(hidden, ignore_errors=True)
    try:
        for name, size, digest in files_of(engine.manifest):
            _fetch(source, hidden / name, size, digest, said or (lambda count: None))
        _write(hidden / MANIFEST, engine.manifest)
        if place.exists():
            broken = place.with_name(f".broken-{place.name[:12]}-{os.getpid()}")
            place.rename(broken)
            shutil.rmtree(broken, ignore_errors=True)
        hidden.rename(place)
    except OSError as error:
        raise StoreFailed(
            "engine_not_kept",
            _("The engine could not be written: %(why)s.") % {"why": error},
            remedy=_("Make room under the node's home."),
        ) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return place


def _fetch(source: Store, path: Path, size: int, digest: str, said: Said) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    found, written = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in source.read(digest, size):
            found.update(chunk)
            written += len(chunk)
            if written > size:
                break
            file.write(chunk)
            said(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    if found.hexdigest() != digest or written != size:
        raise StoreFailed(
            "store_damaged",
            _("The store holds something else than %(file)s (SHA-256 %(digest)s…).")
            % {"file": path.name, "digest": digest[:12]},
            remedy=_(
                "Delete that blob in the store, then push the engine again from the node that built it."
            ),
        )


def _write(path: Path, manifest: Mapping[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _digest_of(path: Path) -> str:
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1024 * 1024):
                found.update(chunk)
    except OSError as error:
        raise StoreFailed(
            "engine_unreadable",
            _("%(file)s cannot be read: %(why)s.") % {"file": path, "why": error.strerror or error},
            remedy=_("Push it from the node that built it, where its folder is whole."),
        ) from error
    return found.hexdigest()


def _no_manifest() -> StoreFailed:
    return StoreFailed(
        "engine_unlisted",
        _("The engine's manifest does not list its files with size and SHA-256."),
        remedy=_("Build it again, or import it anew."),
    )
