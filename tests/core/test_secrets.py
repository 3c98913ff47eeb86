"""Secrets that rows keep: readable only with the key file, which is mode 600."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from apps.core import secrets
from apps.core.secrets import SecretUnreadable


@pytest.fixture(autouse=True)
def home(tmp_path: Path, settings: Any) -> Path:
    settings.INFLIGHT_HOME = tmp_path / "home"
    return tmp_path / "home"


@pytest.mark.parametrize("text", ["", "hf_abc", "schlüssel \N{KEY}\n", "x" * 5000])
def test_what_was_encrypted_comes_back(text: str) -> None:
    stored = secrets.encrypt(text)
    assert stored.isascii()
    assert not text or text not in stored
    assert secrets.decrypt(stored) == text


def test_the_key_file_is_for_its_owner_alone(home: Path) -> None:
    secrets.encrypt("x")
    assert stat.S_IMODE((home / secrets.KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == [secrets.KEY_FILE]


def test_two_encryptions_differ() -> None:
    assert secrets.encrypt("x") != secrets.encrypt("x")


def test_processes_that_make_the_key_at_once_agree() -> None:
    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(secrets.encrypt, ["x"] * 16))
    assert [secrets.decrypt(text) for text in stored] == ["x"] * 16


def _code(stored: str) -> str:
    with pytest.raises(SecretUnreadable) as caught:
        secrets.decrypt(stored)
    assert caught.value.remedy
    return caught.value.code


def test_what_cannot_be_read_is_said(home: Path) -> None:
    stored = secrets.encrypt("very secret")
    key = home / secrets.KEY_FILE
    kept = key.read_bytes()
    assert _code(stored[:-3]) == "secret_other_key"
    assert _code("ü") == "secret_other_key"
    key.chmod(0o640)
    assert _code(stored) == "secret_key_open"
    key.chmod(0o600)
    key.write_bytes(b"short")
    assert _code(stored) == "secret_key_damaged"
    key.unlink()
    assert _code(stored) == "secret_key_missing"
    secrets.encrypt("another")
    assert _code(stored) == "secret_other_key"
    key.write_bytes(kept)
    assert secrets.decrypt(stored) == "very secret"
