"""Installs an Inflight worker on this host and lets it join: fetched and run by the command of the fleet's page.

    curl -fsS https://inflight.example/fleet/-/install.py | INFLIGHT_JOIN_TOKEN=... python3 - https://inflight.example

Standard library only. The token is read from the environment, or asked for; it is in no argument of any program.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import ssl
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, NoReturn
from urllib.parse import urlsplit

SOURCE = "/fleet/-/source.tar.gz"
LARGEST = 200_000_000
CHUNK = 256 * 1024
OLDEST, TOO_NEW = (3, 11), (3, 14)


def refuse(what: str, remedy: str = "") -> NoReturn:
    """End with a sentence and what to do."""
    print(f"{what}\n{remedy}".rstrip(), file=sys.stderr, flush=True)
    raise SystemExit(1)


def arguments(argv: list[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="install_worker.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("url", help="address of the pages, as in https://inflight.example")
    parser.add_argument("--into", default="~/inflight", help="folder for the program (default ~/inflight)")
    parser.add_argument("--home", default="", help="INFLIGHT_HOME (default: var in that folder)")
    parser.add_argument(
        "--ca", default="", help="PEM file of the authority that signed the pages' certificate"
    )
    return parser.parse_args(argv)


def the_token() -> str:
    """The join token: INFLIGHT_JOIN_TOKEN, else asked for at the terminal (standard input is this program)."""
    given = os.environ.get("INFLIGHT_JOIN_TOKEN", "").strip()
    if given:
        return given
    try:
        with Path("/dev/tty").open("r+b", buffering=0):
            return getpass.getpass("Join token: ").strip()
    except (OSError, EOFError):
        refuse("There is no join token.", "Set INFLIGHT_JOIN_TOKEN; the page of the fleet makes one.")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


def fetch(url: str, token: str, ca: str, target: IO[bytes]) -> None:
    """The program's archive. No redirect is followed: one would carry the token elsewhere."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        refuse(f"{url!r} is no address.", "Give that of the pages, as in https://inflight.example.")
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if parts.scheme == "https":
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca or None)))
    request = urllib.request.Request(url.rstrip("/") + SOURCE, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=60) as answer:
            got = 0
            while chunk := answer.read(CHUNK):
                got += len(chunk)
                if got > LARGEST:
                    refuse(
                        "The archive is larger than a program can be.", "See whether the address is right."
                    )
                target.write(chunk)
    except urllib.error.HTTPError as error:
        refuse(*_told(error))
    except OSError as error:
        refuse(
            f"The pages cannot be reached: {getattr(error, 'reason', error)}.",
            "See the address, or --ca FILE.",
        )


def _told(error: urllib.error.HTTPError) -> tuple[str, str]:
    try:
        told = json.loads(error.read(20_000))
        return str(told["message"]), str(told.get("remedy", ""))
    except (ValueError, KeyError, TypeError):
        return f"The pages answered {error.code}.", "See whether the address is theirs."


def unpack(archive: IO[bytes], into: Path) -> Path:
    """Write the program; what would lie outside its folder is refused. An older program there is overwritten."""
    into.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=archive, mode="r:gz") as tar:
            _extract(tar, into)
    except (tarfile.TarError, OSError, EOFError) as error:
        refuse(f"The archive cannot be unpacked: {error}.", f"See whether {into} can be written to.")
    return into / "inflight"


def _extract(tar: tarfile.TarFile, into: Path) -> None:
    """As tarfile's filter "data", which Debian 12's Python 3.11.2 does not have; files and folders only."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(into, filter="data")
        return
    root = into.resolve()
    for member in tar:
        inside = (root / member.name).resolve().is_relative_to(root)
        if not inside or not (member.isfile() or member.isdir()):
            raise tarfile.TarError(f"{member.name!r} would lie outside {root}, or is no plain file")
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        member.uid, member.gid = os.getuid(), os.getgid()
        member.uname = member.gname = ""
        tar.extract(member, into)


def main(argv: list[str]) -> None:
    """Fetch, unpack, and go on with the program's own launcher."""
    if not OLDEST <= sys.version_info[:2] < TOO_NEW:
        refuse("Inflight needs Python 3.11 to 3.13.", "Run the command with one of these: python3.12 - URL")
    asked = arguments(argv)
    token = the_token()
    with tempfile.TemporaryFile() as archive:
        fetch(asked.url, token, asked.ca, archive)
        archive.seek(0)
        program = unpack(archive, Path(asked.into).expanduser().absolute())
    environ = {**os.environ, "INFLIGHT_JOIN_TOKEN": token, "INFLIGHT_JOIN_URL": asked.url}
    if asked.ca:
        environ["INFLIGHT_JOIN_CA"] = str(Path(asked.ca).absolute())
    if asked.home:
        environ["INFLIGHT_HOME"] = str(Path(asked.home).expanduser().absolute())
    os.chdir(program)
    os.execve(sys.executable, [sys.executable, "-m", "deploy.local", "worker"], environ)


if __name__ == "__main__":
    main(sys.argv[1:])
