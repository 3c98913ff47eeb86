"""schema.py as a JavaScript module: constants and, for each message, its fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from django.conf import settings

from apps.realtime import schema

_HEAD = """// Written by `manage.py export_realtime_schema` out of apps/realtime/schema.py; a test compares the two.
"""


def schema_path() -> Path:
    """Where the committed module lies."""
    return Path(settings.BASE_DIR) / "static" / "js" / "realtime" / "schema.js"


def render() -> str:
    """The whole module as text."""
    constants = {
        "PROTOCOL": schema.PROTOCOL,
        "MAX_TOPICS": schema.MAX_TOPICS,
        "CLOSE": {
            "signedOut": schema.CLOSE_SIGNED_OUT,
            "notAllowed": schema.CLOSE_NOT_ALLOWED,
            "tooSlow": schema.CLOSE_TOO_SLOW,
            "tryLater": schema.CLOSE_TRY_LATER,
        },
        "LIVE_COMMANDS": _table(schema.LiveCommand),
        "CHAT_COMMANDS": _table(schema.ChatCommand),
        "SERVER_MESSAGES": _table(schema.ServerMessage),
    }
    lines = [f"export const {name} = {json.dumps(value, indent=2)};\n" for name, value in constants.items()]
    return _HEAD + "\n" + "\n".join(lines)


def _table(union: Any) -> dict[str, Any]:
    """{message type: {"required": [names], "fields": {name: [JSON types]}}} of an annotated union."""
    models = get_args(get_args(union)[0])
    return {model.model_fields["type"].default: _fields(model) for model in models}


def _fields(model: type[schema.Message]) -> dict[str, Any]:
    properties = model.model_json_schema(mode="serialization")["properties"]
    fields = {name: _types(spec) for name, spec in properties.items() if name != "type"}
    required = [name for name, info in model.model_fields.items() if info.is_required()]
    return {"required": required, "fields": fields}


def _types(spec: dict[str, Any]) -> list[str]:
    options = spec.get("anyOf", [spec])
    return ["number" if option["type"] == "integer" else str(option["type"]) for option in options]
