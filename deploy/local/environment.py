"""`<home>/run/environment`: what a running installation tells every process that is pointed at its home.

KEY=value lines, values taken as they are (no quoting). Read by controlplane.settings for whatever the process
environment does not set, so `.venv/bin/python manage.py ...` finds a running installation from a plain shell.

| key | value |
|---|---|
| INFLIGHT_HOME | the home itself, absolute |
| INFLIGHT_NODE_ID | this home's node, e.g. `n-3fk2a9` |
| INFLIGHT_REDIS_URL | `unix:///.../redis.sock` or `redis://host:port`, no database number |
| INFLIGHT_REDIS_SERVER | path of a redis-server program (tests start their own with it) |
| INFLIGHT_WEB_PORT, INFLIGHT_WEB_URL | where the pages are |
| INFLIGHT_GATEWAY_PORT, INFLIGHT_GATEWAY_URL | where the OpenAI-compatible API is |
| INFLIGHT_SERVING_PYTHON | Python of the serving environment |
| INFLIGHT_SERVING_SITE_PACKAGES | its site-packages: PYTHONPATH of models in Triton |
| INFLIGHT_SERVING_PYTHONHOME | prefix of the Python whose libpython the backend's stub loads |
| INFLIGHT_TRITON_BIN | the tritonserver program |
| INFLIGHT_TRITON_BACKENDS | value of --backend-directory |
| INFLIGHT_TRITON_LIBS | value of LD_LIBRARY_PATH |
| INFLIGHT_DEMO_CHECKPOINT | the demo's GGUF file |
| DATABASE_URL, INFLIGHT_{REDIS_CA, JOIN_*, DOOR_*, STORE*} | only where the launcher was started with one |
| INFLIGHT_JOINED_TO, INFLIGHT_SECRET_KEY | only on a host that joined: its pages' address, and what it was given |
"""

from __future__ import annotations

from pathlib import Path

from deploy.local.errors import Problem
from deploy.local.home import write_atomically


def parse(text: str, where: str) -> dict[str, str]:
    """Parse KEY=value lines; blank lines and `#` comments are passed over; anything else is a Problem."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, separator, value = line.partition("=")
        if not separator or not key.strip().isidentifier():
            raise Problem(
                f"{where}, line {number}: expected KEY=value, got {line!r}.",
                "Remove the file; `make up` writes it anew.",
            )
        found[key.strip()] = value.strip()
    return found


def read(path: Path) -> dict[str, str]:
    """The file's values; none where it does not exist yet. Undecodable bytes are a Problem."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise Problem(
            f"{path} is not text ({error.reason}).", "Remove it; `make up` writes it anew."
        ) from error


def write(path: Path, values: dict[str, str]) -> None:
    """Write the values in order, mode 600 (a database URL may hold a password)."""
    for key, value in values.items():
        if not key.isidentifier() or "\n" in value or value != value.strip():
            raise Problem(
                f"{key}={value!r} cannot be kept in {path}: a value is one line without spaces at its ends.",
                f"Set {key} to a plain value.",
            )
    lines = ["# Written by `make up`; the real environment wins over it."]
    lines += [f"{key}={value}" for key, value in values.items()]
    write_atomically(path, "\n".join(lines) + "\n", mode=0o600)
