"""The vocabulary as a table for docs/telemetry.md."""

from __future__ import annotations

from apps.telemetry.domain.vocabulary import HISTOGRAMS, KEYS

BEGIN = "<!-- vocabulary: written by manage.py export_vocabulary -->"
END = "<!-- end of the vocabulary -->"
_AREAS = {
    "requests": "Requests",
    "latency": "Latency",
    "tokens": "Tokens",
    "kv": "KV cache",
    "batch": "Batches and steps",
    "engine": "Engine and server",
    "health": "Health of the figures",
    "process": "The server's processes",
    "gpu": "GPU",
    "host": "Host",
}


def tables() -> str:
    """One table for each area, and one of the histograms."""
    parts = []
    for area, title in _AREAS.items():
        rows = [
            f"| `{key.name}` | {_unit(key.unit)} | {key.kind} | {_cell(key.source)} | {_cell(key.limits)} |"
            for key in KEYS
            if key.area == area
        ]
        head = "| name | unit | kind | source | what it cannot say |\n|---|---|---|---|---|"
        parts.append(f"### {title}\n\n{head}\n" + "\n".join(rows))
    rows = [f"| `{name}` | {_unit(unit)} | {title} |" for name, (unit, title) in HISTOGRAMS.items()]
    parts.append("### Histograms\n\n| name | unit | of |\n|---|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts)


def replaced(document: str) -> str:
    """A document with the tables of now between its two marks; raises ValueError where a mark is missing."""
    before, begin, rest = document.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the marks of the vocabulary are missing")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def _unit(unit: str) -> str:
    return "" if unit == "1" else unit


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
