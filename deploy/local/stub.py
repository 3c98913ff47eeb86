"""The python backend's stub for Python 3.13, made to work with the numpy that exists for Python 3.13.

The stubs in the wheel were compiled against numpy 1: they read an array's item size at offset 32 of its dtype, where
numpy 2 keeps flags; the size is at offset 40 there. On Python 3.11 and 3.12 the serving environment has numpy 1. For
3.13 there is no numpy 1, and with numpy 2 every input of a model would be read with strides of zero. The five
instructions of that stub that read the size are pointed to its new place: one byte each, in a copy whose original is
known by its SHA-256. Any other stub is left as it is, and the model refuses to start with a sentence.
"""

from __future__ import annotations

import hashlib

STUB_3_13 = "7b701b4b4bc01ca7af0350eaffa4f2aed92f02b465b3494a265059e4d3ca6cf8"
# File offset of the displacement byte of each load of PyArray_Descr.elsize: twice in each constructor of PbTensor
# from an array (nbytes), once in pybind11's constructor of an array (default strides).
DISPLACEMENTS = (0xA6C74, 0xA6E90, 0xA7664, 0xA78A9, 0xACA2B)
NUMPY_1_OFFSET, NUMPY_2_OFFSET = 0x20, 0x28


def for_numpy_2(stub: bytes) -> bytes:
    """The stub as it must be for numpy 2, or the very same bytes where it is not the one that is known."""
    if hashlib.sha256(stub).hexdigest() != STUB_3_13:
        return stub
    patched = bytearray(stub)
    for offset in DISPLACEMENTS:
        patched[offset] = NUMPY_2_OFFSET
    return bytes(patched)
