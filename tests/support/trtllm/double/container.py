"""Stands in for docker and podman: run, ps and rm, with the image's programs taken from the doubles' own folder.

`run` starts the entrypoint as a child of a process in a session of its own, as a container's parent is no child of
the client: ending the client ends nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TAKES = {
    *(
        "--pull",
        "--name",
        "--label",
        "--network",
        "--gpus",
        "--ipc",
        "--shm-size",
        "--ulimit",
        "--security-opt",
    ),
    *("--user", "--userns", "--workdir", "--mount", "--env", "--entrypoint", "--device", "--filter"),
}


def main() -> None:
    state = Path(os.environ["TRTLLM_CONTAINERS"])
    verb, *rest = sys.argv[1:]
    {"run": _run, "ps": _ps, "rm": _rm}[verb](rest, state)


def _options(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    found: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        name, _, value = words.pop(0).partition("=")
        found.setdefault(name, []).append(value or (words.pop(0) if name in TAKES else ""))
    return found, words


def _run(words: list[str], state: Path) -> None:
    options, (image, *arguments) = _options(words)
    if image != os.environ["TRTLLM_IMAGE"]:
        print(f"Error: No such image: {image}", file=sys.stderr)
        sys.exit(125)
    env = dict(pair.partition("=")[::2] for pair in options.get("--env", []))
    inside = str(Path(os.environ["TRTLLM_BIN"]))
    program = options["--entrypoint"][0]
    path = program if "/" in program else f"{inside}/{program}"
    child = subprocess.Popen(
        [path, *arguments],
        env={"PATH": f"{inside}:/usr/bin:/bin", **env},
        cwd=options.get("--workdir", ["/"])[0],
        start_new_session=True,
    )
    state.mkdir(exist_ok=True)
    record = state / f"{child.pid}.json"
    names = {key: options.get(f"--{key}", [""])[0] for key in ("name", "label")}
    record.write_text(json.dumps(names))
    # As docker's client does, which is asked to end and passes it on.
    signal.signal(signal.SIGTERM, lambda number, frame: child.terminate())
    code = child.wait()
    record.unlink(missing_ok=True)
    sys.exit(code if code >= 0 else 128 - code)


def _ps(words: list[str], state: Path) -> None:
    wanted = _options(words)[0]["--filter"][0].removeprefix("label=")
    for record in state.glob("*.json"):
        if json.loads(record.read_text())["label"] == wanted:
            print(record.stem)


def _rm(words: list[str], state: Path) -> None:
    for name in _options(words)[1]:
        for record in state.glob("*.json"):
            if name in (record.stem, json.loads(record.read_text())["name"]):
                os.killpg(int(record.stem), signal.SIGKILL)
                record.unlink(missing_ok=True)
                time.sleep(0)


if __name__ == "__main__":
    main()
