"""The stub of Python 3.13 for numpy 2."""

from __future__ import annotations

import hashlib

import pytest

from deploy.local import stub


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A stand-in that has the old offset where the real stub has it."""
    content = bytearray(b"\xab" * (max(stub.DISPLACEMENTS) + 1))
    for offset in stub.DISPLACEMENTS:
        content[offset] = stub.NUMPY_1_OFFSET
    monkeypatch.setattr(stub, "STUB_3_13", hashlib.sha256(content).hexdigest())
    return bytes(content)


def test_known_stub_differs_in_five_bytes(known: bytes) -> None:
    patched = stub.for_numpy_2(known)
    changed = {place: patched[place] for place in range(len(known)) if patched[place] != known[place]}
    assert changed == dict.fromkeys(stub.DISPLACEMENTS, stub.NUMPY_2_OFFSET)
    assert len(patched) == len(known)


@pytest.mark.parametrize("other", [b"", b"another stub"])
def test_unknown_stub_is_left_alone(known: bytes, other: bytes) -> None:
    assert stub.for_numpy_2(other) == other
    assert stub.for_numpy_2(known + b"x") == known + b"x"
    assert stub.for_numpy_2(stub.for_numpy_2(known)) == stub.for_numpy_2(known)
