"""One config.pbtxt: as text with places, as the message that it means, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tritonclient.grpc.model_config_pb2 import ModelConfig

from apps.serving.domain import pbtxt
from apps.serving.domain.repository_check import right_values, variables
from apps.serving.domain.repository_check.findings import Remark, at, from_finding
from apps.serving.domain.repository_check.schema_walk import Walk
from apps.serving.domain.repository_check.text_tree import Node, TreeError, read_tree


@dataclass(slots=True)
class ReadConfig:
    """A file as it was read. `config` is None where nothing of it could be understood.

    `readable` says whether Triton could read the file as it stands; otherwise `config` is what remains of it without
    the refused fields and with values in place of unfilled variables. `refused_by` is protobuf's own complaint.
    """

    model: str
    file: str
    text: str
    nodes: list[Node] = field(default_factory=list)
    config: ModelConfig | None = None
    readable: bool = False
    refused_by: str = ""
    remarks: list[Remark] = field(default_factory=list)

    def errors(self) -> list[Remark]:
        """What keeps the model from loading."""
        return [remark for remark in self.remarks if remark.severity == "error"]


def read_config(text: str, model: str, file: str = pbtxt.FILE_NAME) -> ReadConfig:
    """Read and check one configuration; `model` is the name of its folder. Never raises for what the text holds."""
    read = ReadConfig(model, file, text)
    try:
        read.config, read.readable = pbtxt.parse(text, file), True
    except pbtxt.PbtxtError as error:
        read.refused_by = f"{error.line}:{error.column}: {error.detail}"
        refused_at, detail = (error.line, error.column), error.detail
    try:
        read.nodes = read_tree(text)
    except TreeError as error:
        if not read.readable:
            read.remarks.append(_unreadable(read, *refused_at, detail))
        else:
            place = at(file, error.line)
            message = f"The places in this file cannot be told: {error.message}."
            read.remarks.append(Remark("places_unknown", "info", model, place, message))
            read.remarks += _rules(read)
        return read
    walk = Walk(model, file)
    walk.run(read.nodes)
    bare = list(variables.bare(read.nodes, model, file))
    read.remarks += [*bare, *walk.remarks, *variables.quoted(read.nodes, model, file)]
    if not read.readable:
        read.config = _rest(read, walk.refused)
        if not bare and not walk.remarks:
            read.remarks.append(_unreadable(read, *refused_at, detail))
    read.remarks += _rules(read)
    return read


def _unreadable(read: ReadConfig, line: int, column: int, detail: str) -> Remark:
    message = f"Triton cannot read the file: {detail}"
    remedy = right_values.wrong_format(read.text) or (
        "Correct this place; the server says only that it failed to read the text proto."
    )
    facts = {"line": line, "column": column, "detail": detail}
    return Remark("config_unreadable", "error", read.model, at(read.file, line), message, remedy, facts)


def _rest(read: ReadConfig, refused: list[tuple[int, int]]) -> ModelConfig | None:
    """The configuration without what is refused; None where even that cannot be read."""
    cuts = [(start, end, "") for start, end in _outermost(refused)]
    for top in read.nodes:
        for node in top.walk():
            if not any(start <= node.start < end for start, end, _text in cuts):
                cuts += [
                    (token.start, token.end, variables.stand_in(token, node))
                    for token in node.values
                    if token.kind == "variable"
                ]
    text = read.text
    for start, end, instead in sorted(cuts, reverse=True):
        # Lines stay where they are, so that what is found later has its right place.
        text = text[:start] + instead + "\n" * read.text.count("\n", start, end) + text[end:]
    try:
        return pbtxt.parse(text, read.file)
    except pbtxt.PbtxtError:
        return None


def _outermost(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


def _rules(read: ReadConfig) -> list[Remark]:
    if read.config is None:
        return []
    return [from_finding(found, read.model, read.file) for found in pbtxt.findings(read.config, read.model)]
