"""A bare host runs the one command that the page prints: `python -m tests.hosts.bare`, the last part of make hosts.

An empty folder is its home, PATH is that of a fresh login, nothing of this checkout or of its environments is named
to it. It fetches the program from the pages over TLS, installs everything, joins, serves, and is taken down with the
make of its own copy. Wrong, used and expired tokens are refused in words and leave nothing behind.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.chaos.installation import Installation
from tests.hosts.looks import PLACE_SECONDS, answers, place, say
from tests.support.triton import CHECKOUT

COMMAND_SECONDS, INSTALL_SECONDS = 120.0, 1200.0
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
# Run with a candidate from the checkout, standard library only: 0 where the preflight has nothing to say of it.
PROBE = (
    "import sys, pathlib; from deploy.local import preflight as p; "
    "sys.exit(bool(p.problems(p.look([pathlib.Path('/tmp')]), 0)))"
)
TOKEN = re.compile(r"ifj_[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Bare:
    """A host with nothing but an operating system: `folder` is the home of the account that runs the command."""

    folder: Path
    environ: dict[str, str]

    def shell(self, command: str, seconds: float = COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a line as somebody would who pastes it."""
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=self.environ,
            timeout=seconds,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@contextlib.contextmanager
def bare_host() -> Iterator[Bare]:
    """An empty home; how this machine reaches a package index and whom it trusts are the operating system's."""
    folder = Path(tempfile.mkdtemp(prefix="inflight-bare-"))
    network = {
        key: value
        for key, value in os.environ.items()
        if key.startswith("PIP_") or key.lower() in {"http_proxy", "https_proxy", "no_proxy", "all_proxy"}
    }
    trust = os.environ["SSL_CERT_FILE"]
    own = {
        "HOME": str(folder),
        "PATH": _path(),
        "LANG": "C.UTF-8",
        "SSL_CERT_FILE": trust,
        "CURL_CA_BUNDLE": trust,
    }
    try:
        yield Bare(folder, {**network, **own})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _path() -> str:
    """The system's PATH; before it the folder of an interpreter, where the system's own python3 will not do."""
    system = shutil.which("python3", path=SYSTEM_PATH)
    for python in (system, str(Path(sys.executable).resolve())):
        if (
            python is not None
            and subprocess.run([python, "-c", PROBE], cwd=CHECKOUT, check=False).returncode == 0
        ):
            return SYSTEM_PATH if python == system else f"{Path(python).parent}:{SYSTEM_PATH}"
    raise AssertionError("this machine has no Python that an installation takes")


class Page:
    """The page of the fleet as an administrator's browser has it."""

    def __init__(self, installation: Installation) -> None:
        self.url = installation.environment["INFLIGHT_WEB_URL"]
        self.client = httpx.Client(base_url=self.url, follow_redirects=True, timeout=30)
        password = (installation.stack.home / "admin-password").read_text(encoding="utf-8").strip()
        self.client.get("/sign-in/")
        done = self._post("/sign-in/", username="admin", password=password)
        assert done.status_code == 200, done.status_code
        assert "/sign-in/" not in str(done.url), done.url

    def command(self, **fields: str) -> str:
        """Press "Make the command"; what the page then shows, as the button of its box copies it."""
        self.client.get("/fleet/-/join/")
        answer = self._post("/fleet/-/join/", minutes="15", **fields)
        assert answer.status_code == 200, answer.text[:500]
        found = re.search(r'data-copy="(curl [^"]*)"', answer.text)
        assert found is not None, "the page prints no command"
        return html.unescape(found.group(1))

    def _post(self, path: str, **fields: str) -> httpx.Response:
        token = self.client.cookies["csrftoken"]
        return self.client.post(
            path,
            data={"csrfmiddlewaretoken": token, **fields},
            headers={"Origin": self.url, "Referer": self.url + path},
        )


def prove(installation: Installation) -> None:
    """All that is claimed of the one command."""
    page = Page(installation)
    with bare_host() as host:
        _refused(host, TOKEN.sub("ifj_wrong", page.command(labels="host=wrong")), "a wrong token")
        expired = page.command(labels="host=late")
        _expire(installation)
        _refused(host, expired, "an expired token")
        command = page.command(labels="host=bare")
        say(f"the page prints: {TOKEN.sub('ifj_...', command)}")
        began = time.monotonic()
        done = host.shell(command, INSTALL_SECONDS)
        try:
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
            took, last = time.monotonic() - began, done.stdout.strip().splitlines()[-2]
            say(f"the command ended well after {took:.0f} s: {last}")
            _refused(host, command.replace("python3 -", "python3 - --into again", 1), "a used token")
            _serves(installation, host)
        finally:
            down = host.shell(f"make -C {host.folder}/inflight/inflight down")
        assert down.returncode == 0, down.stdout + down.stderr
        assert not _processes(host), "nothing of it runs after make down"
    say("A bare host joined with the command of the page, served, and was taken down.")


def _serves(installation: Installation, host: Bare) -> None:
    def ready() -> bool:
        nodes = installation.call("GET", "/nodes")["items"]
        return [each["state"] for each in nodes if each["labels"].get("host") == "bare"] == ["ready"]

    _value, seconds = installation.until(ready, PLACE_SECONDS, "the bare host's node is ready")
    say(f"its node is ready {seconds:.1f} s later")
    running = _processes(host)
    assert running, "its workers run"
    for pid in running:
        for part in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                text = (Path("/proc") / str(pid) / part).read_bytes()
                assert os.fsencode(CHECKOUT) + b"/" not in text, (pid, part, text[:2000])
                assert TOKEN.pattern.split("[")[0].encode() not in text, (pid, part)
    key = installation.gateway_key()
    place(installation, "bare")
    answer = answers(installation, key).strip()
    assert answer, "an answer of the server on the bare host"
    say(f"it serves: {answer[:60]!r}; of its {len(running)} processes none knows this checkout")
    status = host.shell(f"make -C {host.folder}/inflight/inflight status")
    assert status.returncode == 0, status.stdout + status.stderr


def _refused(host: Bare, command: str, what: str) -> None:
    before = sorted(path.name for path in host.folder.iterdir())
    done = host.shell(command)
    said = done.stderr.strip()
    assert (done.returncode, "join token" in said, "Traceback" in said) == (1, True, False), said
    assert sorted(path.name for path in host.folder.iterdir()) == before, "it leaves nothing behind"
    say(f"{what} is refused: {said.splitlines()[0]}")


def _expire(installation: Installation) -> None:
    """The newest token's time has passed."""
    script = (
        "from apps.fleet.models import JoinToken; from apps.core import clock; from datetime import timedelta; "
        "row = JoinToken.objects.order_by('-pk').first(); row.expires_at = clock.now() - timedelta(seconds=1); "
        "row.save()"
    )
    done = installation.stack.manage("shell", "-c", script)
    assert done.returncode == 0, done.stderr


def _processes(host: Bare) -> list[int]:
    """Processes whose command line or environment names its folder."""
    found, mark = [], os.fsencode(host.folder)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def main() -> int:
    """The command: one installation, one bare host."""
    from tests.hosts.three import DEMO_SECONDS, first_host

    with first_host() as installation:
        say(f"the demo is ready {installation.ready(DEMO_SECONDS):.0f} s later")
        prove(installation)
    return 0


if __name__ == "__main__":
    sys.exit(main())
