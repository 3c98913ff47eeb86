"""Between typed blocks and Triton's protobuf messages: `compose` and `read`, which undo each other."""

from __future__ import annotations

import dataclasses
import types
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from google.protobuf.message import Message
from tritonclient.grpc.model_config_pb2 import ModelConfig

from apps.core.exceptions import InvalidInput
from apps.serving.domain import blocks, pbtxt
from apps.serving.domain.server_release import Release


def compose(model: blocks.Model) -> ModelConfig:
    """The message of a configuration; nothing is checked but that each value fits its field.

    Raises InvalidInput naming the field for a value of the wrong kind or beyond the field's range.
    """
    config = ModelConfig()
    _write(model, config, "")
    return config


def checked(model: blocks.Model, release: Release | None = None) -> ModelConfig:
    """The same, after the server's own rules; raises InvalidInput with every finding that a server would refuse."""
    config = compose(model)
    findings = pbtxt.findings(config, model.name, release)
    errors = tuple(found for found in findings if found.severity == "error")
    if errors:
        first = errors[0]
        raise InvalidInput(
            first.id, first.message, field=first.where, remedy=first.remedy, findings=tuple(findings)
        )
    return config


def read(config: ModelConfig) -> blocks.Model:
    """The blocks of a message. Raises InvalidInput naming a field that no block has."""
    model: blocks.Model = _read(config, blocks.Model, "")
    return model


@cache
def _fields(kind: Any) -> tuple[tuple[str, str, Any], ...]:
    """(name in the block, name in the message, type) of each field."""
    hints = get_type_hints(kind)
    return tuple(
        (item.name, item.metadata.get("field", item.name), _without_none(hints[item.name]))
        for item in dataclasses.fields(kind)
    )


def _without_none(hint: Any) -> Any:
    if get_origin(hint) is types.UnionType:
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


def _write(block: Any, message: Message, where: str) -> None:
    # Also where everything has its default: an empty message says that the block is there.
    message.SetInParent()
    kind: Any = type(block)
    for name, field, _hint in _fields(kind):
        value = getattr(block, name)
        place = f"{where}.{field}" if where else field
        try:
            _set(message, field, value, place)
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                "block_value",
                f"{place}: {value!r} does not fit: {error}.",
                field=place,
                remedy="Give a value of the field's kind and range.",
            ) from error


def _set(message: Message, field: str, value: Any, place: str) -> None:
    if value is None:
        return
    if dataclasses.is_dataclass(value):
        _write(value, getattr(message, field), place)
    elif isinstance(value, dict):
        _set_map(getattr(message, field), field, value, place)
    elif isinstance(value, tuple):
        target = getattr(message, field)
        for index, item in enumerate(value):
            if dataclasses.is_dataclass(item):
                _write(item, target.add(), f"{place}[{index}]")
            else:
                target.append(item)
    elif value or not _in_a_choice(message, field):
        # A member of a choice that has its default stays out: setting it would unset the others.
        setattr(message, field, value)


def _set_map(target: Any, field: str, value: dict[Any, Any], place: str) -> None:
    for key, item in value.items():
        if dataclasses.is_dataclass(item):
            _write(item, target[key], f"{place}[{key}]")
        else:
            _set_text(target, key, item)


def _set_text(target: Any, key: Any, item: Any) -> None:
    try:
        target[key] = item
    except (ValueError, TypeError):
        # The model's own parameters hold their text one message deeper.
        target[key].string_value = item


def _in_a_choice(message: Message, field: str) -> bool:
    return message.DESCRIPTOR.fields_by_name[field].containing_oneof is not None


def _read(message: Any, kind: Any, where: str) -> Any:
    known = {field for _name, field, _hint in _fields(kind)}
    for descriptor, _content in message.ListFields():
        if descriptor.name not in known:
            place = f"{where}.{descriptor.name}" if where else descriptor.name
            raise InvalidInput(
                "field_without_block",
                f"{place} is not among the settings that Inflight writes.",
                field=place,
                remedy="Remove it, or keep the file as it is.",
            )
    return kind(**{name: _value(message, field, hint, where) for name, field, hint in _fields(kind)})


def _value(message: Any, field: str, hint: Any, where: str) -> Any:
    place = f"{where}.{field}" if where else field
    descriptor = message.DESCRIPTOR.fields_by_name[field]
    value = getattr(message, field)
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return tuple(
            _read(item, inner, f"{place}[{index}]") if dataclasses.is_dataclass(inner) else item
            for index, item in enumerate(value)
        )
    if get_origin(hint) is dict:
        inner = get_args(hint)[1]
        return {key: _item(value[key], inner, f"{place}[{key}]") for key in sorted(value)}
    if dataclasses.is_dataclass(hint):
        return _read(value, hint, place) if message.HasField(field) else None
    if descriptor.enum_type is not None:
        found = descriptor.enum_type.values_by_number.get(value)
        return found.name if found is not None else str(value)
    return value


def _item(value: Any, inner: Any, place: str) -> Any:
    if dataclasses.is_dataclass(inner):
        return _read(value, inner, place)
    return getattr(value, "string_value", value)
