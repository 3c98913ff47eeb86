"""Default and bounds of a model's column, for the other forms of the same input (API bodies, YAML documents)."""

from __future__ import annotations

from typing import Any, cast

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models


def number_field(model: type[models.Model], name: str) -> dict[str, Any]:
    """Keyword arguments of a pydantic `Field` for a whole-number column: default, ge and le.

    The column's validators are the only place where the bounds stand; positive columns begin at 0.
    """
    column = cast("models.IntegerField[int, int]", model._meta.get_field(name))
    lows = [int(item.limit_value) for item in column.validators if isinstance(item, MinValueValidator)]
    highs = [int(item.limit_value) for item in column.validators if isinstance(item, MaxValueValidator)]
    return {"default": column.default, "ge": max([0, *lows]), "le": min([2**31 - 1, *highs])}
