"""docs/llamacpp-model.md names what the contract and the metrics hold, with the same defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from llamacpp_contract import INPUTS, OUTPUTS, PARAMETERS, Tensor
from llamacpp_measures import FAMILIES

PAGE = Path(__file__).resolve().parents[2] / "docs/llamacpp-model.md"


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, list[str]]]:
    """{heading: {first cell: other cells}} of the page's tables."""
    found: dict[str, dict[str, list[str]]] = {}
    heading = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            found.setdefault(heading, {})[cells[0].strip("`")] = cells[1:]
    return found


def written(tensor: Tensor) -> str:
    if not tensor.optional:
        return "required"
    if isinstance(tensor.default, bool):
        return f"`{str(tensor.default).lower()}`"
    return "`[]`" if tensor.default == () else f"`{tensor.default}`"


def test_parameters(rows: dict[str, dict[str, list[str]]]) -> None:
    table = rows["Parameters of config.pbtxt"]
    assert list(table) == [parameter.name for parameter in PARAMETERS]
    for parameter in PARAMETERS:
        default = "required" if parameter.default is None else f"`{parameter.default}`"
        assert table[parameter.name] == [default, parameter.meaning]


def test_inputs(rows: dict[str, dict[str, list[str]]]) -> None:
    table = rows["Inputs"]
    assert list(table) == [tensor.name for tensor in INPUTS]
    for tensor in INPUTS:
        kind, default, *_ = table[tensor.name]
        assert kind == tensor.type + (", many" if tensor.dims == (-1,) else "")
        assert default == written(tensor)


def test_outputs(rows: dict[str, dict[str, list[str]]]) -> None:
    table = rows["Outputs"]
    assert list(table) == [tensor.name for tensor in OUTPUTS]
    for tensor in OUTPUTS:
        assert re.match(rf"{tensor.type}\b", table[tensor.name][0])


def test_metrics(rows: dict[str, dict[str, list[str]]]) -> None:
    table = rows["Metrics"]
    assert set(table) == {family.name for family in FAMILIES}
    for family in FAMILIES:
        assert table[family.name][0] == family.kind
        assert all(table[family.name][1:3])
