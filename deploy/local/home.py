"""The layout of INFLIGHT_HOME, and the few small files in it that the launcher alone writes."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import Problem

CHECKOUT = Path(__file__).resolve().parents[2]
# sun_path of unix(7) holds 108 bytes with its closing NUL; supervisord binds `<name>.<pid>` before it links the name.
LONGEST_SOCKET = 107 - len(".4194304")
# The home's paths go through a shell in tritonserver (24.10 starts the python backend's stub that way), through URLs
# (redis, celery) and supervisord's configuration, none of which quote alike.
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+")
FOLDERS = ("run", "logs", "redis", "serving", "checkpoints", "engines", "builds", "instances", "cache")
NODE_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


@dataclass(frozen=True, slots=True)
class Home:
    """Paths of one installation. `root` is absolute."""

    root: Path

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def serving(self) -> Path:
        return self.root / "serving"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def environment(self) -> Path:
        return self.run / "environment"

    @property
    def supervisor_config(self) -> Path:
        return self.run / "supervisord.conf"

    @property
    def supervisor_record(self) -> Path:
        return self.run / "supervisord.json"

    @property
    def admin_password(self) -> Path:
        return self.root / "admin-password"

    @property
    def demo_checkpoint(self) -> Path:
        return self.root / "checkpoints/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"

    def create(self) -> None:
        """Make the folders that the launcher writes to; the home itself is for its owner only."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)
        for name in FOLDERS:
            (self.root / name).mkdir(exist_ok=True)

    def node_id(self) -> str:
        """This home's node id, made once: `n-` and six characters, unique among homes that share a host."""
        path = self.root / "node-id"
        if path.is_file():
            kept = path.read_text(encoding="ascii", errors="replace").strip()
            if re.fullmatch(r"n-[a-z0-9]{6,20}", kept):
                return kept
            raise Problem(
                f"{path} holds {kept!r}, which is no node id.",
                f"Put the old id back, or remove the file to begin as a new node: rm {path}",
            )
        made = "n-" + "".join(secrets.choice(NODE_ALPHABET) for _ in range(6))
        write_atomically(path, made + "\n")
        return made

    def sockets(self) -> Path:
        """Folder for unix sockets: `run`, or a short private one where that path is too long."""
        if len(str(self.run / "supervisor.sock")) <= LONGEST_SOCKET:
            return self.run
        name = hashlib.sha256(str(self.root).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"inflight-{os.getuid()}-{name}"

    def create_sockets(self) -> Path:
        """Make the socket folder; refuses one in a shared folder that somebody else made first."""
        folder = self.sockets()
        if folder == self.run:
            return folder
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise Problem(
                f"{folder} belongs to somebody else, and the sockets of {self.root} would lie there.",
                "Remove it, or choose a home with a shorter path: INFLIGHT_HOME=/srv/inflight make up",
            )
        folder.chmod(0o700)
        return folder

    def remove_sockets(self) -> None:
        """Remove what `create_sockets` made outside the home, once nothing listens there."""
        folder = self.sockets()
        if folder == self.run or not folder.is_dir() or folder.is_symlink():
            return
        for entry in folder.iterdir():
            entry.unlink(missing_ok=True)
        folder.rmdir()


def find_home(environ: dict[str, str], checkout: Path = CHECKOUT) -> Home:
    """The home that INFLIGHT_HOME names, or `var` in the checkout."""
    named = environ.get("INFLIGHT_HOME") or str(checkout / "var")
    root = Path(named).expanduser().absolute()
    if not PLAIN_PATH.fullmatch(str(root.resolve())):
        raise Problem(
            f"The home {str(root)!r} has characters in its path other than A-Z, a-z, 0-9, `.`, `_` and `-`; "
            "tritonserver cannot start models from there.",
            "Choose a plain path: INFLIGHT_HOME=/srv/inflight make up",
        )
    if root.exists() and not root.is_dir():
        raise Problem(f"INFLIGHT_HOME {root} is a file.", "Name a folder, or one that does not exist yet.")
    return Home(root.resolve())


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a small file so that a reader sees the old content or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
