"""What toolchains a node offers, as its operator wrote them: TOML read into typed offers, every fault named.

    [[toolchain]]
    name = "trtllm-1.2.1"
    kind = "docker"                          # native, docker or podman
    image = "registry.example/tensorrt-llm/release@sha256:..."
    examples = "/app/tensorrt_llm/examples"  # folder of quantize.py and convert_checkpoint.py in it

A native one has `python`, the absolute path of the interpreter that imports tensorrt_llm, instead of `image`.
"""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from apps.core.exceptions import Finding, InvalidInput

Kind = Literal["native", "docker", "podman"]
# As every name of Inflight (apps/core/names.py, which needs Django).
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
# distribution/reference: a repository, and the digest of one manifest. A tag may move, so none is taken alone.
BY_DIGEST = re.compile(r"[a-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}")
EXAMPLES = "/app/tensorrt_llm/examples"
GIB = 2**30
# docker's own 64 MB are too few for NCCL between ranks, which wants 1 GiB at least.
SHARED_MEMORY_GIB = 8


class Offer(BaseModel):
    """One toolchain as it is written down. `program` is the container program's path, empty: found on PATH."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Kind
    python: str = ""
    image: str = ""
    program: str = ""
    examples: str = EXAMPLES
    shared_memory_gib: Annotated[int, Field(ge=1, le=1024)] = SHARED_MEMORY_GIB

    @model_validator(mode="after")
    def _whole(self) -> Offer:
        problem = _problem(self)
        if problem:
            raise ValueError(problem)
        return self

    @property
    def location(self) -> str:
        """Path or image."""
        return self.python if self.kind == "native" else self.image


def read_offers(text: str) -> tuple[Offer, ...]:
    """Offers of a file, in its order. Raises InvalidInput `toolchains_file_invalid` with every finding."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refuse(
            [_finding("", f"The file is no TOML: {error}", "Correct the line that it names.")]
        ) from error
    findings = [
        _finding(name, f"{name} is no field of this file.", "Write [[toolchain]] tables only.")
        for name in document
        if name != "toolchain"
    ]
    rows = document.get("toolchain", [])
    if not isinstance(rows, list):
        raise _refuse([_finding("toolchain", "toolchain is no list of tables.", "Write [[toolchain]].")])
    offers: list[Offer] = []
    for number, row in enumerate(rows, 1):
        offer, faults = _offer(row, number)
        findings += faults
        if offer is None:
            continue
        if any(other.name == offer.name for other in offers):
            findings.append(
                _finding(f"toolchain {number}.name", f"{offer.name} stands twice.", "Rename one.")
            )
        offers.append(offer)
    if findings:
        raise _refuse(findings)
    return tuple(offers)


def _offer(row: Any, number: int) -> tuple[Offer | None, list[Finding]]:
    where = f"toolchain {number}"
    try:
        return Offer.model_validate(row), []
    except ValidationError as error:
        found = []
        for fault in error.errors():
            field = ".".join([where, *(str(part) for part in fault["loc"])])
            message = str(fault["msg"]).removeprefix("Value error, ")
            found.append(_finding(field, f"{field}: {message}", "See docs/trtllm-builds.md for its fields."))
        return None, found


def _problem(offer: Offer) -> str:
    if not NAME.fullmatch(offer.name):
        return "a name has lower-case letters, digits, dots, dashes and underscores, 63 at most"
    if offer.kind == "native":
        if not offer.python.startswith("/") or "\0" in offer.python:
            return "a native toolchain needs python, the absolute path of its interpreter"
        return "a native toolchain has no image" if offer.image else ""
    if offer.python:
        return "python is for native toolchains; in an image it is python3"
    if not BY_DIGEST.fullmatch(offer.image):
        return "image must name a digest (repository@sha256:64 hex digits), because a tag may move"
    if offer.program and not offer.program.startswith("/"):
        return "program must be an absolute path"
    return ""


def _finding(field: str, message: str, remedy: str) -> Finding:
    return Finding(
        "toolchains_file_invalid", "error", message if message.endswith(".") else f"{message}.", field, remedy
    )


def _refuse(findings: list[Finding]) -> InvalidInput:
    first = findings[0]
    return InvalidInput(
        first.id, first.message, field=first.where, remedy=first.remedy, findings=tuple(findings)
    )
