"""Stands in for tritonserver in tests of the control plane: real argv, real ports, behaviour from a file.

`behaviour.json` beside the program: load (ok, slow, refuse, hang, unreadable), load_seconds, probe (ok, refuse,
hang), version, exit_at_start (code), busy_port_starts (how many starts say that a port is taken), in_flight,
silent (answers nothing), deaf_to_term. Read anew at each use, so a test changes it while the server runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(sys.argv[0]).resolve().parent
KNOWN = [
    "--id",
    "--model-repository",
    "--model-control-mode",
    "--disable-auto-complete-config",
    "--exit-on-error",
    "--exit-timeout-secs",
    "--strict-readiness",
    "--model-load-thread-count",
    "--http-address",
    "--http-port",
    "--reuse-http-port",
    "--http-restricted-api",
    "--grpc-address",
    "--grpc-port",
    "--reuse-grpc-port",
    "--grpc-restricted-protocol",
    "--metrics-address",
    "--metrics-port",
    "--metrics-config",
    "--allow-sagemaker",
    "--allow-vertex-ai",
    "--log-format",
    "--log-verbose",
    "--backend-directory",
    "--backend-config",
    "--load-model",
    "--allow-http",
    "--allow-grpc",
    "--allow-metrics",
]
OURS = [
    "text_input",
    "max_tokens",
    "stream",
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "min_tokens",
    "beam_width",
]


def behaviour() -> dict:
    try:
        return json.loads((HERE / "behaviour.json").read_text())
    except (OSError, ValueError):
        return {}


def flags() -> dict[str, str]:
    found = {}
    for part in sys.argv[1:]:
        name, _, value = part.partition("=")
        if name not in KNOWN:
            print(f"tritonserver: unrecognized option '{name}'", flush=True)
            sys.exit(1)
        found[name] = value
    return found


def stub() -> None:
    """A process of the name that those of the python backend have."""
    path = HERE / "triton_python_backend_stub"
    with contextlib.suppress(FileExistsError):
        path.symlink_to(shutil.which("sleep"))
    subprocess.Popen([str(path), "600"])


class Model:
    """One model of the repository. Its inputs are those of its configuration, of our own model a few of them."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        text = (folder / "config.pbtxt").read_text()
        found = re.findall(
            r'^input \{\s*name: "([^"]+)"\s*data_type: TYPE_\w+((?:\s*dims: -?\d+)*)', text, re.M
        )
        batched = 0 if re.search(r"^max_batch_size: [1-9]", text, re.M) is None else 1
        own = [] if "gguf_path" in text else found
        self.inputs = [
            {"name": name, "datatype": "BYTES", "shape": [-1] * (batched + dims.count("dims"))}
            for name, dims in own
        ] or [{"name": name} for name in OURS]
        self.steps = re.findall(r'^ +model_name: "([^"]+)"', text, re.M)
        python = 'backend: "python"' in text and bool(own)
        self.stubs = int(re.search(r"count: (\d+)", text)[1]) if python else 0
        self.state, self.reason = "", ""
        self.loads = 0

    def load(self) -> tuple[int, dict]:
        now = behaviour()
        how = now.get("load", "ok")
        self.loads += 1
        if how == "unreadable":
            print(
                f"E \"Poll failed for model directory '{self.name}': failed to read text proto from x\"",
                flush=True,
            )
            return 500, {"error": f"failed to load '{self.name}', failed to poll from model repository"}
        self.state = "LOADING"
        print(f'I "loading: {self.name}:1"', flush=True)
        if how == "slow":
            time.sleep(now.get("load_seconds", 1))
        while how == "hang":
            time.sleep(0.05)
            how = behaviour().get("load", "ok")
        if how == "refuse":
            self.state, self.reason = "UNAVAILABLE", "Internal: out of tune"
            print(f"E \"failed to load '{self.name}' version 1: Internal: out of tune\"", flush=True)
            text = f"load failed for model '{self.name}': version 1 is at UNAVAILABLE state: Internal: out of tune;\n"
            return 400, {"error": text}
        for each in self.steps:
            Handler.models[each].load()
        for _ in range(self.stubs):
            stub()
        self.state = "READY"
        print(f"I \"successfully loaded '{self.name}'\"", flush=True)
        return 200, {}


class Handler(BaseHTTPRequestHandler):
    models: dict[str, Model]
    options: dict[str, str]
    secret: str
    generated = 0

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, status: int, body: object) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def silent(self) -> bool:
        while behaviour().get("silent"):
            time.sleep(0.05)
        return False

    def do_GET(self) -> None:
        self.silent()
        if self.path == "/v2/health/live":
            return self.answer(200, b"")
        if self.path == "/v2":
            about = {"name": self.options["--id"], "version": behaviour().get("version", "2.71.0")}
            return self.answer(200, about)
        asked = self.models.get(self.path.removeprefix("/v2/models/"))
        if asked is not None:
            return self.answer(200, {"name": asked.name, "inputs": asked.inputs})
        if self.path == "/metrics":
            count = behaviour().get("in_flight", 0)
            labels = '{model="m",version="1"}'
            text = f"inflight_requests_running{labels} {count}\ninflight_requests_waiting{labels} 0\n"
            text += f"inflight_generated_tokens_total{labels} {Handler.generated}\n"
            return self.answer(200, text.encode())
        return self.answer(404, {"error": "no such page"})

    def do_POST(self) -> None:
        self.silent()
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        name, _, wanted = self.secret.partition("=")
        if self.path.startswith("/v2/repository") and self.headers.get(name) != wanted:
            return self.answer(403, {"error": f"This API is restricted, expecting header '{name}'"})
        if self.path == "/v2/repository/index":
            rows = []
            for each in self.models.values():
                rows.append({"name": each.name})
                if each.state:
                    rows[-1] |= {"version": "1", "state": each.state, "reason": each.reason}
            return self.answer(200, rows)
        *_, model, verb = self.path.split("/")
        asked = self.models.get(model)
        if asked is not None and self.path.startswith("/v2/repository/"):
            (HERE / "control.jsonl").open("a").write(json.dumps([verb, model]) + "\n")
            if verb == "load":
                return self.answer(*asked.load())
            asked.state, asked.reason = "UNAVAILABLE", "unloaded"
            return self.answer(200, {})
        if asked is not None and verb == "generate_stream":
            (HERE / "probes.jsonl").open("a").write(json.dumps(body) + "\n")
            how = behaviour().get("probe", "ok")
            while how == "hang":
                time.sleep(0.05)
                how = behaviour().get("probe", "ok")
            Handler.generated += 1
            event = {"error": "no tokens here"} if how == "refuse" else {"text_output": "a"}
            return self.answer(200, f"data: {json.dumps(event)}\n\n".encode())
        return self.answer(404, {"error": "no such page"})


def rank(name: str) -> int:
    status, said = Handler.models[name].load()
    if status != 200:
        print(f"E {said}", flush=True)
        return 1
    signal.pause()
    return 0


def main() -> None:
    if "--help" in sys.argv:
        print("Usage: tritonserver [options]")
        for name in KNOWN:
            print(f"  {name} <value>\n\tText.")
        return
    options = flags()
    now = behaviour()
    starts = HERE / "starts.txt"
    count = int(starts.read_text()) if starts.exists() else 0
    starts.write_text(str(count + 1))
    if count < now.get("busy_port_starts", 0):
        port = options["--http-port"]
        print(
            f"failed to start HTTP service: Unavailable - Socket '127.0.0.1:{port}' already in use ",
            flush=True,
        )
        sys.exit(1)
    if now.get("exit_at_start") is not None:
        print("error while loading shared libraries: libnothing.so", flush=True)
        sys.exit(now["exit_at_start"])
    if now.get("deaf_to_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    prefix = options["--backend-config"].partition("shm-region-prefix-name=")[2]
    region = Path("/dev/shm") / f"{prefix}{os.getpid()}"
    region.write_bytes(b"\0" * 64)
    folders = sorted(path for path in Path(options["--model-repository"]).iterdir())
    Handler.models = {folder.name: Model(folder) for folder in folders}
    if options.get("--allow-http") == "false":
        # A rank that serves nobody: it loads its model and stays in it.
        sys.exit(rank(options["--load-model"]))
    Handler.options = options
    Handler.secret = options["--http-restricted-api"].partition(":")[2]
    servers = [
        ThreadingHTTPServer(("127.0.0.1", int(options[name])), Handler)
        for name in ("--http-port", "--metrics-port")
    ]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f'I "Started HTTPService at 127.0.0.1:{options["--http-port"]}"', flush=True)
    signal.pause()


main()
