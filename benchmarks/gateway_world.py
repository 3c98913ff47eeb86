"""Everything that the gateway's benchmark runs, started and ended here: Redis, web, gateways, upstreams, litellm."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.serving import find_installation, serve_folder
from deploy.local import environment, packages
from deploy.local.home import find_home
from deploy.local.progress import Steps

CHECKOUT = Path(__file__).resolve().parents[1]
PUMP_FILES = CHECKOUT / "tests/data/pump"
PUMP, DOUBLE = "pump", "double"
GAP = 0.02
START_SECONDS = 90.0
# The home that `make up` uses; the benchmark's own processes get another.
HOME = os.environ.get("INFLIGHT_HOME") or str(CHECKOUT / "var")


@dataclass
class World:
    """Addresses of what runs. `key` may do everything; its limits are on and never reached."""

    home: Path
    environ: dict[str, str]
    key: str
    gateway_port: int
    double_port: int
    web_port: int
    cookie: str
    triton_port: int = 0
    litellm_program: str = ""
    stack: ExitStack = field(default_factory=ExitStack)

    def more_gateway(self, **environ: str) -> int:
        """Another gateway process on a port of its own, with these variables."""
        return gateway(self.stack, self.home, {**self.environ, **environ})

    def litellm(self) -> int:
        """Start the litellm proxy; its port. Its environment is made first where there is none (750 MB)."""
        program = Path(self.litellm_program) if self.litellm_program else litellm_environment()
        port = free_port()
        config = self.home / "litellm.yaml"
        config.write_text(
            f"model_list:\n  - model_name: {DOUBLE}\n    litellm_params:\n      model: openai/{DOUBLE}\n"
            f"      api_base: http://127.0.0.1:{self.double_port}/v1\n      api_key: none\n"
            f"litellm_settings:\n  drop_params: true\ngeneral_settings:\n  master_key: {self.key}\n",
            encoding="utf-8",
        )
        argv = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        environ = {**os.environ, "LITELLM_LOG": "ERROR", "LITELLM_TELEMETRY": "False"}
        environ["PATH"] = f"{program.parent}{os.pathsep}{environ.get('PATH', '')}"
        start(self.stack, self.home / "litellm.log", [*argv, "--num_workers", "1"], environ)
        until_answers(f"http://127.0.0.1:{port}/health/liveliness", self.home / "litellm.log")
        return port

    def reload_overview(self) -> bool:
        """Load the overview page once; whether it answered."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.web_port}/", headers={"Cookie": f"sessionid={self.cookie}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status == 200 and b"</html>" in response.read()
        except OSError:
            return False


def litellm_environment() -> Path:
    """The litellm program of requirements/bench-litellm.lock, in an environment under the home of `make up`."""
    home = find_home(dict(os.environ) | {"INFLIGHT_HOME": HOME})
    venv = packages.Venv(home.cache / "bench-litellm", (packages.REQUIREMENTS / "bench-litellm.lock",))
    home.cache.mkdir(parents=True, exist_ok=True)
    with Steps(1).step("Packages of the litellm proxy") as step:
        packages.ensure(venv, step, home.cache / "pip-bench-litellm.log", home.cache)
    return venv.root / "bin/litellm"


@contextmanager
def world(litellm: str = "", triton: bool = True) -> Iterator[World]:
    """Start everything, and end it."""
    home = Path(tempfile.mkdtemp(prefix="inflight-gateway-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        environ = environment_of(home)
        installation = find_installation({**os.environ, **environ}) if triton else None
        redis(stack, home, environ)
        double_port = free_port()
        double = [sys.executable, "-m", "tests.support.openai_double", "--port", str(double_port)]
        start(stack, home / "double.log", [*double, "--chunks", "150", "--gap-ms", str(GAP * 1000)], environ)
        running = None
        if installation is not None:
            running = stack.enter_context(serve_folder(installation, _write_pump))
            running.control(f"/v2/repository/models/{PUMP}/load")
        more = ["--triton-http", running.http_url, "--triton-grpc", running.grpc_url] if running else []
        rows = rows_of(environ, "--double", str(double_port), *more)
        web_port = free_port()
        web = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application", "--host", "127.0.0.1"]
        start(stack, home / "web.log", [*web, "--port", str(web_port), "--lifespan", "off"], environ)
        until_answers(f"http://127.0.0.1:{web_port}/healthz", home / "web.log")
        yield World(
            home=home,
            environ=environ,
            key=rows["key"],
            gateway_port=gateway(stack, home, environ),
            double_port=double_port,
            web_port=web_port,
            cookie=rows["cookie"],
            triton_port=int(running.http_url.rsplit(":", 1)[1]) if running else 0,
            litellm_program=litellm,
            stack=stack,
        )


def environment_of(home: Path) -> dict[str, str]:
    """A home of the benchmark's own; programs are those of `make up`, unless the environment names some."""
    known: dict[str, str] = {}
    for folder in (Path(HOME), CHECKOUT / "var/test"):
        known = known or environment.read(folder / "run/environment")
    programs = {name: value for name, value in known.items() if "TRITON" in name or "SERVING" in name}
    redis = os.environ.get("INFLIGHT_REDIS_SERVER") or known.get("INFLIGHT_REDIS_SERVER")
    return {
        **{name: value for name, value in programs.items() if name not in os.environ},
        "INFLIGHT_HOME": str(home),
        "INFLIGHT_NODE_ID": "n-bench",
        "INFLIGHT_REDIS_URL": f"unix://{home / 'redis.sock'}",
        "INFLIGHT_REDIS_SERVER": redis or shutil.which("redis-server") or "redis-server",
        "INFLIGHT_UPSTREAM_ALLOW": "127.0.0.1",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "DATABASE_URL": "",
    }


def redis(stack: ExitStack, home: Path, environ: dict[str, str]) -> None:
    """A Redis of the benchmark's own, at the socket that the environment names."""
    argv = [environ["INFLIGHT_REDIS_SERVER"], "--port", "0", "--unixsocket", str(home / "redis.sock")]
    start(stack, home / "redis.log", [*argv, "--save", "", "--dir", str(home)], environ)


def _write_pump(root: Path) -> None:
    shutil.copytree(PUMP_FILES, root / PUMP)


def rows_of(environ: dict[str, str], *arguments: str) -> dict[str, Any]:
    """Migrate and make what the gateway serves, in a process of its own; what it prints, see there."""
    argv = [sys.executable, "-m", "tests.support.gateway_rows", *arguments]
    done = subprocess.run(
        argv, cwd=CHECKOUT, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"The rows were not made.\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def gateway(stack: ExitStack, home: Path, environ: dict[str, str]) -> int:
    """A gateway process; its port."""
    port = free_port()
    log = home / f"gateway-{port}.log"
    start(stack, log, [sys.executable, "-m", "apps.gateway.server", "--port", str(port)], environ)
    until_answers(f"http://127.0.0.1:{port}/healthz", log)
    return port


def start(stack: ExitStack, log: Path, argv: list[str], environ: dict[str, str]) -> None:
    """A process that ends with the stack."""
    handle = stack.enter_context(log.open("ab"))
    process = subprocess.Popen(
        argv,
        cwd=CHECKOUT,
        env={**os.environ, **environ},
        stdout=handle,
        stderr=handle,
        start_new_session=True,
    )
    stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def until_answers(url: str, log: Path) -> None:
    """Wait until something answers there. Raises RuntimeError with the log's end."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError(f"{url} does not answer.\n{log.read_text(errors='replace')[-2000:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
