"""A PostgreSQL and a Redis as several hosts share them: on TCP, with a password, over TLS only."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import os
import pwd
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deploy.local.postgres import ACCOUNT, find_programs
from tests.support.ports import free_port
from tests.support.redis import redis_binary

START_SECONDS = 30.0
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate for 127.0.0.1 that signs itself: certificate and key as files."""

    certificate: Path
    key: Path


def authority(folder: Path) -> Authority:
    """Make one."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "inflight test")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Authority(folder / "cert.pem", folder / "key.pem")
    made.certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    made.key.chmod(0o600)
    return made


@contextlib.contextmanager
def pages_over_tls(signed: Authority, port: int, web_port: Callable[[], int]) -> Iterator[None]:
    """A TLS proxy before the pages, on this port; `web_port` is asked at the first connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while block := await reader.read(65536):
                writer.write(block)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(HOST, web_port())
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(lead, HOST, port, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


def trusting(signed: Authority, folder: Path) -> Path:
    """The system's authorities and this one, as a host's trust store would hold them."""
    paths = ssl.get_default_verify_paths()
    known = os.environ.get("SSL_CERT_FILE") or paths.cafile or paths.openssl_cafile
    bundle = folder / "authorities.pem"
    text = Path(known).read_text(encoding="utf-8") if known and Path(known).is_file() else ""
    bundle.write_text(text + "\n" + signed.certificate.read_text(encoding="ascii"), encoding="utf-8")
    return bundle


@contextlib.contextmanager
def redis_over_tls(signed: Authority, folder: Path) -> Iterator[str]:
    """A Redis with a password and TLS only; its URL."""
    port, password = free_port(), secrets.token_urlsafe(24)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "redis.conf"
    # In a file: an argument would show the password to everybody on the host.
    config.write_text(
        f"port 0\ntls-port {port}\nbind {HOST}\nrequirepass {password}\n"
        f"tls-cert-file {signed.certificate}\ntls-key-file {signed.key}\ntls-auth-clients no\n"
        f'dir {folder}\nsave ""\nappendonly no\nmaxmemory-policy noeviction\n',
        encoding="utf-8",
    )
    config.chmod(0o600)
    url = f"rediss://:{password}@{HOST}:{port}"
    with _process([redis_binary(), str(config)], folder / "redis.log"):
        client = redis.Redis.from_url(f"{url}/0", ssl_ca_certs=str(signed.certificate))
        _until(client.ping, "redis answers")
        client.close()
        yield url


@contextlib.contextmanager
def postgres_over_tls(signed: Authority) -> Iterator[str]:
    """A PostgreSQL that takes passwords over TLS only; its URL, with the authority to check it against."""
    programs = find_programs()
    assert programs is not None, "PostgreSQL's server is not installed"
    folder = Path(tempfile.mkdtemp(prefix="inflight-hosts-pg-"))
    port, password = free_port(), secrets.token_urlsafe(24)
    try:
        secret, certificate, key = folder / "password", folder / "server.crt", folder / "server.key"
        secret.write_text(password + "\n", encoding="ascii")
        shutil.copyfile(signed.certificate, certificate)
        shutil.copyfile(signed.key, key)
        key.chmod(0o600)
        prefix = _as_account(folder)
        argv = [*prefix, str(programs / "initdb"), "-D", str(folder / "data"), "-U", ACCOUNT, "-E", "UTF8"]
        subprocess.run(
            [*argv, "--locale=C.UTF-8", "--no-sync", "-A", "scram-sha-256", f"--pwfile={secret}"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        (folder / "data/pg_hba.conf").write_text(
            f"hostssl all all {HOST}/32 scram-sha-256\n", encoding="ascii"
        )
        options = {
            "listen_addresses": HOST, "port": str(port), "ssl": "on", "ssl_cert_file": str(certificate),
            "ssl_key_file": str(key), "fsync": "off", "unix_socket_directories": "", "max_connections": "120",
        }  # fmt: skip
        flags = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        url = f"postgres://{ACCOUNT}:{password}@{HOST}:{port}/postgres?sslmode=verify-full&sslrootcert={signed.certificate}"
        server = [*prefix, str(programs / "postgres"), "-D", str(folder / "data"), *flags]
        with _process(server, folder / "postgres.log", signal.SIGINT):
            _until(lambda: psycopg.connect(url, connect_timeout=2).close(), "postgres answers")
            yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_account(folder: Path) -> list[str]:
    """postgres refuses to run as root."""
    if os.geteuid() != 0:
        return []
    account = pwd.getpwnam(ACCOUNT)
    for path in (folder, *folder.iterdir()):
        os.chown(path, account.pw_uid, account.pw_gid)
    return ["setpriv", f"--reuid={ACCOUNT}", f"--regid={account.pw_gid}", "--clear-groups", "--"]


@contextlib.contextmanager
def _process(argv: list[str], log: Path, ends_with: int = signal.SIGTERM) -> Iterator[None]:
    with log.open("ab") as output:
        child = subprocess.Popen(argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=log.parent)
    try:
        yield
    finally:
        child.send_signal(ends_with)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _until(call: object, what: str) -> None:
    deadline, last = time.monotonic() + START_SECONDS, ""
    while time.monotonic() < deadline:
        try:
            call()  # type: ignore[operator]
            return
        except (redis.RedisError, psycopg.Error, OSError, ssl.SSLError) as error:
            last = str(error)
            time.sleep(0.1)
    raise AssertionError(f"not within {START_SECONDS:.0f} s: {what}: {last}")
