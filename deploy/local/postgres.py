"""A PostgreSQL server of our own for one test run: private folder, unix socket only, gone afterwards."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from deploy.local.errors import Problem

# Distributions keep the server's programs outside PATH, one folder for each version (Debian, Fedora).
PLACES = ("lib/postgresql/*/bin/initdb", "pgsql-*/bin/initdb")
# postgres refuses to run as root: Debian's package brings this account.
ACCOUNT = "postgres"
# Nothing is kept, so nothing need be safe on disk: about twice as fast.
SETTINGS = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "listen_addresses=",
    "max_connections=60",
)
START_SECONDS = 30


def find_programs() -> Path | None:
    """Folder with initdb, postgres and pg_dump of the newest installed version, or None."""
    found: list[tuple[int, Path]] = []
    for program in (program for place in PLACES for program in Path("/usr").glob(place)):
        version = re.search(r"(\d+)$", program.parents[1].name)
        found.append((int(version[1]) if version else 0, program.parent))
    if found:
        return max(found)[1]
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@contextlib.contextmanager
def server(log: Path) -> Iterator[str]:
    """Run a server and yield its DATABASE_URL; the server and its files are gone when the block ends.

    As root it runs under the account `postgres`, which must reach its folder: it lies in the temporary folder, not
    under the home (mode 700).
    """
    programs = find_programs()
    if programs is None:
        raise Problem("PostgreSQL's server is not installed.", "Install it: apt-get install -y postgresql")
    folder = Path(tempfile.mkdtemp(prefix="inflight-pg-"))
    prefix = _as_account(folder)
    try:
        _initialise(prefix, programs, folder, log)
        with log.open("ab") as output:
            options = [option for setting in SETTINGS for option in ("-c", setting)]
            child = subprocess.Popen(
                [
                    *prefix,
                    str(programs / "postgres"),
                    "-D",
                    str(folder / "data"),
                    "-k",
                    str(folder),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
            )
        try:
            _wait_ready(child, folder, log)
            yield f"postgres://{ACCOUNT}@{quote(str(folder), safe='')}/postgres"
        finally:
            _stop(child, folder / "data/postmaster.pid")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def socket_folder(url: str) -> Path:
    """Where the socket of a `server` block lies."""
    return Path(unquote(url.rpartition("@")[2].partition("/")[0]))


def restart(url: str, log: Path) -> None:
    """Restart the server of a `server` block as an operator does: clients are cut off, it comes back as it was."""
    folder = socket_folder(url)
    programs = find_programs()
    if programs is None:
        raise Problem("PostgreSQL's server is not installed.", "Install it: apt-get install -y postgresql")
    argv = [*_as_account(folder), str(programs / "pg_ctl"), "restart", "-D", str(folder / "data")]
    with log.open("ab") as output:
        # It writes where the first one did; pg_ctl itself would hold the output of a caller that waits for its end.
        done = subprocess.run(
            [*argv, "-m", "fast", "-w", "-t", str(START_SECONDS)],
            check=False,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if done.returncode != 0:
        raise Problem("PostgreSQL could not be restarted.", f"See {log}.")


def _as_account(folder: Path) -> list[str]:
    """Command prefix that drops root; hands the folder to the account."""
    if os.geteuid() != 0:
        return []
    try:
        account = pwd.getpwnam(ACCOUNT)
    except KeyError:
        raise Problem(
            f"PostgreSQL does not run as root, and there is no account {ACCOUNT}.",
            "Install the server's package, which makes it: apt-get install -y postgresql",
        ) from None
    os.chown(folder, account.pw_uid, account.pw_gid)
    return ["setpriv", f"--reuid={ACCOUNT}", f"--regid={account.pw_gid}", "--clear-groups", "--"]


def _initialise(prefix: list[str], programs: Path, folder: Path, log: Path) -> None:
    argv = [*prefix, str(programs / "initdb"), "-D", str(folder / "data"), "-U", ACCOUNT, "-A", "trust"]
    with log.open("ab") as output:
        done = subprocess.run(
            [*argv, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"],
            check=False,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if done.returncode != 0:
        raise Problem("PostgreSQL's initdb failed.", f"See {log}.")


def _wait_ready(child: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
    """Wait until postmaster.pid says `ready`: its eighth line."""
    deadline = time.monotonic() + START_SECONDS
    pidfile = folder / "data/postmaster.pid"
    while time.monotonic() < deadline and child.poll() is None:
        with contextlib.suppress(OSError):
            lines = pidfile.read_text(encoding="utf-8", errors="replace").splitlines()
            if len(lines) > 7 and lines[7].strip() == "ready":
                return
        time.sleep(0.05)
    raise Problem("PostgreSQL did not start.", f"See {log}.")


def _stop(child: subprocess.Popen[bytes], pidfile: Path) -> None:
    """Stop the postmaster (SIGINT: fast shutdown, clients are cut off); kill its group if that does not help."""
    try:
        postmaster = int(pidfile.read_text(encoding="utf-8").split("\n", 1)[0])
    except (OSError, ValueError):
        postmaster = child.pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(postmaster, signal.SIGINT)
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
