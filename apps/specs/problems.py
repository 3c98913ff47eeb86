"""Faults of a document as sentences: which document, which kind and name, which field, and the nearest right word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from apps.core.exceptions import Finding
from apps.core.names import NAME_PATTERN
from apps.specs.yaml_reader import RawDocument

if TYPE_CHECKING:
    from apps.specs.documents import Document

Path = tuple[str | int, ...]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely was meant to be; case plays no part."""
    by_lower = {item.lower().replace("_", ""): item for item in known}
    found = difflib.get_close_matches(word.lower().replace("_", ""), list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def place(number: int, where: str, line: int, kind: object = None, name: object = None) -> str:
    """Where a fault is, as the sentences begin: file, document, kind, name and line."""
    what = " ".join(str(part) for part in (kind, name) if isinstance(part, str) and part)
    values = {"where": where, "number": number, "line": line, "what": what}
    if what:
        return _("%(where)s, document %(number)d (%(what)s), line %(line)d") % values
    return _("%(where)s, document %(number)d, line %(line)d") % values


def finding(raw: RawDocument, where: str, code: str, path: Path, reason: str, remedy: str = "") -> Finding:
    """A fault at a path of a document."""
    value = raw.value if isinstance(raw.value, dict) else {}
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    begin = place(raw.number, where, raw.line_of(path), value.get("kind"), name)
    return Finding(code, "error", f"{begin}: {reason}", where=".".join(map(str, path)), remedy=remedy)


def not_a_mapping(raw: RawDocument, where: str) -> Finding:
    """The document is a list or a word."""
    reason = _("a document is a mapping with apiVersion, kind, metadata and spec; this is %(what)s.")
    return finding(raw, where, "not_a_mapping", (), reason % {"what": shape_of(raw.value)})


def header(raw: RawDocument, where: str, version: str, kinds: Sequence[str]) -> list[Finding]:
    """What is wrong with apiVersion and kind; nothing else is looked at until these are right."""
    findings = []
    given = raw.value.get("apiVersion")
    if given != version:
        reason = (
            _("apiVersion is missing; write apiVersion: %(version)s.")
            if given is None
            else _("apiVersion %(given)s is not known; write apiVersion: %(version)s.")
        )
        text = reason % {"given": given, "version": version}
        findings.append(finding(raw, where, "unknown_api_version", ("apiVersion",), text))
    kind = raw.value.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        reason = (
            _("kind is missing.") if kind is None else _("kind %(given)s is not known.") % {"given": kind}
        )
        reason += _suggestion(kind, kinds) or " " + _("The kinds are %(kinds)s.") % {
            "kinds": ", ".join(kinds)
        }
        findings.append(finding(raw, where, "unknown_kind", ("kind",), reason))
    return findings


def repeated(where: str, document: Document, first: Document) -> Finding:
    """Two documents describe the same object."""
    reason = _("document %(number)d describes it already; keep one.") % {"number": first.number}
    begin = place(document.number, where, document.line, document.kind, document.name)
    return Finding("repeated_object", "error", f"{begin}: {reason}", where="metadata.name")


def missing_reference(document: Document, path: str, kind: str, name: str, known: Iterable[str]) -> Finding:
    """A document names an object that is neither in the file nor in the database."""
    reason = _("%(path)s: there is no %(kind)s %(name)s in the file or in Inflight.")
    text = reason % {"path": path, "kind": kind, "name": name} + _suggestion(name, known)
    begin = place(document.number, document.where, document.line, document.kind, document.name)
    return Finding(
        "missing_reference",
        "error",
        f"{begin}: {text}",
        where=path,
        remedy=_("Add a document for it, or correct the name."),
    )


def from_pydantic(
    error: ValidationError, raw: RawDocument, where: str, model: type[BaseModel], prefix: Path
) -> list[Finding]:
    """Every fault of a pydantic error as a finding, unknown fields with the nearest right name."""
    found = []
    for item in error.errors(include_url=False):
        path = (*prefix, *item["loc"])
        shown = ".".join(map(str, path)) or "spec"
        known = field_names(model, item["loc"][:-1])
        found.append(finding(raw, where, item["type"], path, sentence_for(item, shown, known)))
    return found


def sentence_for(item: ErrorDetails, path: str, known: Sequence[str] = ()) -> str:
    """A pydantic error as a sentence. `known` are the names that an unknown field may have been meant to be."""
    kind, given, facts = item["type"], item["input"], item.get("ctx", {})
    if kind == "extra_forbidden":
        suggestion = _suggestion(str(item["loc"][-1]), known)
        listed = " " + _("Known are %(names)s.") % {"names": ", ".join(known)} if known else ""
        return _("%(path)s is not a known field.") % {"path": path} + (suggestion or listed)
    if kind == "missing":
        return _("%(path)s is missing.") % {"path": path}
    values = {"path": path, "given": _quoted(given), "shape": shape_of(given), **facts}
    if kind in {"enum", "literal_error"}:
        choices = [word.strip("'") for word in str(facts["expected"]).replace(" or ", ", ").split(", ")]
        values["choices"] = ", ".join(choices)
        return _("%(path)s must be one of %(choices)s, not %(given)s.") % values + _suggestion(given, choices)
    if kind == "string_pattern_mismatch" and facts.get("pattern") != NAME_PATTERN:
        return _("%(path)s %(given)s has a form that is not allowed.") % values
    if kind == "value_error":
        return f"{path}: {facts['error']}."
    template = _templates().get(kind)
    if template is not None:
        return template % values
    return f"{path}: {item['msg']}."


def _templates() -> dict[str, str]:
    text = _("%(path)s must be text, not %(shape)s; put it in quotes.")
    number = _("%(path)s must be a whole number, not %(shape)s.")
    mapping = _("%(path)s must be a mapping, not %(shape)s.")
    return {
        "string_type": text,
        "int_type": number,
        "int_from_float": number,
        "int_parsing": number,
        "bool_type": _("%(path)s must be true or false, not %(shape)s."),
        "list_type": _("%(path)s must be a list, not %(shape)s."),
        "timezone_aware": _("%(path)s needs a time zone, for example 2030-01-31T12:00:00Z."),
        "model_type": mapping,
        "model_attributes_type": mapping,
        "dict_type": mapping,
        "greater_than_equal": _("%(path)s must be at least %(ge)s, not %(given)s."),
        "less_than_equal": _("%(path)s must be at most %(le)s, not %(given)s."),
        "string_too_short": _("%(path)s must not be empty."),
        "string_too_long": _("%(path)s must have at most %(max_length)s characters."),
        "string_pattern_mismatch": _(
            "%(path)s %(given)s is not a name: use lower-case letters, digits, dots, dashes and underscores; "
            "begin with a letter or digit; at most 63."
        ),
    }


def field_names(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """Names that the file may use in the mapping at `loc` of a model."""
    current: Any = model
    for part in loc:
        fields = getattr(current, "model_fields", {})
        by_alias = {info.alias or name: info.annotation for name, info in fields.items()}
        current = by_alias.get(str(part))
        for inner in getattr(current, "__args__", ()):
            if hasattr(inner, "model_fields"):
                current = inner
    return [info.alias or name for name, info in getattr(current, "model_fields", {}).items()]


def shape_of(value: object) -> str:
    """What a YAML value is, in words."""
    if value is None:
        return _("empty")
    if isinstance(value, bool):
        return _("the truth value %(value)s") % {"value": str(value).lower()}
    if isinstance(value, int | float):
        return _("the number %(value)s") % {"value": value}
    if isinstance(value, str):
        return _("the text %(value)s") % {"value": _quoted(value)}
    if isinstance(value, list):
        return ngettext("a list of %(count)d", "a list of %(count)d", len(value)) % {"count": len(value)}
    return _("a mapping") if isinstance(value, dict) else _("a date")


def _quoted(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _suggestion(given: object, known: Iterable[str]) -> str:
    found = nearest(str(given), known) if isinstance(given, str) else None
    return " " + _("Did you mean %(word)s?") % {"word": found} if found else ""
