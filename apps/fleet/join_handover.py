"""What a host that joins must know: where the database and Redis are, their certificates, and the shared secrets.

Addresses are those of INFLIGHT_JOIN_DATABASE_URL and INFLIGHT_JOIN_REDIS_URL where they are set (other hosts may know
the servers by other names), else this installation's own, unless those mean "this host" only.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.core.secrets import KEY_FILE, encrypt, key_path

# The joining host writes them below <home>/run/certificates and <home>; names, not paths, cross the wire.
REDIS_CA, DATABASE_CA = "redis-ca.pem", "database-ca.pem"
LARGEST_CERTIFICATE = 64 * 1024
STORE = (
    "INFLIGHT_STORE",
    "INFLIGHT_STORE_ENDPOINT",
    "INFLIGHT_STORE_REGION",
    "INFLIGHT_STORE_KEY_ID",
    "INFLIGHT_STORE_SECRET",
)


@dataclass(frozen=True, slots=True)
class Handover:
    """`environment` is for <home>/run/environment; `certificates` and `secrets` are files by name (texts)."""

    environment: dict[str, str]
    certificates: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, dict[str, str]]:
        """JSON form."""
        return {
            "environment": self.environment,
            "certificates": self.certificates,
            "secrets": self.secrets,
            "labels": self.labels,
        }


def require_reachable() -> None:
    """Raise NotPossibleNow, naming the setting, where another host could reach neither database nor Redis."""
    database_url()
    redis_url()


def database_url() -> str:
    """The database as other hosts reach it. Raises NotPossibleNow for SQLite, a socket or a loopback address."""
    given = settings.INFLIGHT_JOIN_DATABASE_URL
    url = given or settings.INFLIGHT_DATABASE_URL
    if not url or url.startswith("sqlite"):
        raise NotPossibleNow(
            "join_needs_postgresql",
            _("This installation keeps its rows in an SQLite file, which serves one host only."),
            field="DATABASE_URL",
            remedy=_("Move to PostgreSQL first (docs/several-hosts.md): set DATABASE_URL and start again."),
        )
    if not given and _only_here(urlsplit(url).hostname or ""):
        raise NotPossibleNow(
            "join_database_local",
            _("DATABASE_URL names the database by an address that means this host only."),
            field="INFLIGHT_JOIN_DATABASE_URL",
            remedy=_("Set INFLIGHT_JOIN_DATABASE_URL to the address by which other hosts reach it."),
        )
    return str(url)


def redis_url() -> str:
    """Redis as other hosts reach it. Raises NotPossibleNow for a socket or a loopback address."""
    given = settings.INFLIGHT_JOIN_REDIS_URL
    url = given or settings.INFLIGHT_REDIS_URL
    if not given and (url.startswith("unix:") or _only_here(urlsplit(url).hostname or "")):
        raise NotPossibleNow(
            "join_redis_local",
            _("INFLIGHT_REDIS_URL names Redis by an address that means this host only."),
            field="INFLIGHT_REDIS_URL",
            remedy=_("Use a Redis with a password and TLS that other hosts reach (rediss://), or set "
            "INFLIGHT_JOIN_REDIS_URL to the address by which they do."),
        )  # fmt: skip
    return str(url)


def handover(node_id: str, labels: dict[str, str]) -> Handover:
    """All that the worker of `node_id` must know. Raises NotPossibleNow as above or for a lost certificate."""
    environment = {
        "INFLIGHT_NODE_ID": node_id,
        "DATABASE_URL": database_url(),
        "INFLIGHT_REDIS_URL": redis_url(),
        "INFLIGHT_SECRET_KEY": settings.SECRET_KEY,
        "INFLIGHT_WEB_URL": settings.INFLIGHT_WEB_URL,
        "INFLIGHT_GATEWAY_URL": settings.INFLIGHT_GATEWAY_URL,
        **{name: getattr(settings, name) for name in STORE},
    }
    certificates = {}
    for name, path in ((REDIS_CA, settings.INFLIGHT_REDIS_CA), (DATABASE_CA, _database_ca())):
        if path:
            certificates[name] = _certificate(path)
    # Rows hold texts that only this key reads: every host needs the same one, made here if there is none yet.
    encrypt("")
    secrets = {KEY_FILE: key_path().read_text(encoding="ascii")}
    known = {key: value for key, value in environment.items() if value}
    return Handover(known, certificates, secrets, dict(labels))


def _database_ca() -> str:
    query = parse_qs(urlsplit(settings.INFLIGHT_DATABASE_URL).query)
    path = (query.get("sslrootcert") or [""])[0]
    return "" if path == "system" else path


def _certificate(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise NotPossibleNow(
            "join_certificate_unreadable",
            _("The certificate %(path)s cannot be read.") % {"path": path},
            field="INFLIGHT_REDIS_CA",
            remedy=_("Name a PEM file that the web process may read."),
        ) from error
    return text[:LARGEST_CERTIFICATE]


def _only_here(host: str) -> bool:
    """Whether a host name or address means the host that says it; a socket's path (or nothing) does, too."""
    if not host or host == "localhost" or host.lower().startswith(("/", "%2f")):
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified
