"""The door's own certificate: made once, its key never leaves the home; the others know it by the node's row."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

YEARS = 10


@dataclass(frozen=True, slots=True)
class Kept:
    """Where certificate and key lie, and the certificate as text."""

    certificate: Path
    key: Path
    pem: str


def ensure(folder: Path, node_id: str, address: str) -> Kept:
    """The node's certificate for `address`, made where there is none (or one for another address). Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    try:
        found = certificate.read_text(encoding="ascii")
        if key.is_file() and _fits(found, address):
            return Kept(certificate, key, found)
    except (FileNotFoundError, ValueError):
        pass
    private, pem = _made(node_id, address)
    _write(key, private)
    _write(certificate, pem)
    return Kept(certificate, key, pem)


def door_context(kept: Kept) -> ssl.SSLContext:
    """TLS of the side that listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(kept.certificate, kept.key)
    return context


def _fits(pem: str, address: str) -> bool:
    found = x509.load_pem_x509_certificate(pem.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    now = datetime.datetime.now(datetime.UTC)
    return _name(address) in list(names) and found.not_valid_after_utc > now + datetime.timedelta(days=30)


def _name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _made(node_id: str, address: str) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"inflight {node_id}"[:64])])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A caller's clock may be behind.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName([_name(address)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), built.public_bytes(serialization.Encoding.PEM).decode()


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
    temporary.replace(path)
