"""Random identities that are short enough to read aloud."""

from __future__ import annotations

import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def short_id(length: int = 10) -> str:
    """Random lower-case id without look-alike letters; 5 bits a character."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def secret(bytes_of_entropy: int = 24) -> str:
    """URL-safe random secret."""
    return secrets.token_urlsafe(bytes_of_entropy)
