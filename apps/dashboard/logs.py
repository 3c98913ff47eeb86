"""Log files for the log view: the tail in the page, the rest as text, the whole as a download."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError, InvalidInput, NotFound
from apps.realtime import log_sources

# In the page: enough to fill the view. By script: enough for most logs; longer ones are downloaded.
PAGE_BYTES = 24 * 1024
VIEW_BYTES = 4 * 1024 * 1024
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log: its text, the byte after it, and how many lines come before."""

    text: str = ""
    end: int = 0
    lines_before: int = 0


def inside_home(path: str) -> Path | None:
    """The file, if it lies under INFLIGHT_HOME; a row's path is not trusted further than that."""
    if not path:
        return None
    found = Path(path).resolve()
    home = Path(settings.INFLIGHT_HOME).resolve()
    return found if found.is_relative_to(home) and found.is_file() else None


def tail(path: str, most: int = PAGE_BYTES) -> Tail:
    """The last `most` bytes, from the beginning of a line. An empty tail where there is no file."""
    if log_sources.is_elsewhere(path):
        return _tail_elsewhere(path, most)
    found = inside_home(path)
    if found is None:
        return Tail()
    try:
        with found.open("rb") as file:
            end = file.seek(0, 2)
            start = max(0, end - most)
            file.seek(start)
            data = file.read(end - start)
            if start:
                cut = data.find(b"\n") + 1
                start, data = start + cut, data[cut:]
            before = _lines(found, start)
    except OSError:
        return Tail()
    return Tail(data.decode("utf-8", "replace"), end, before)


def _tail_elsewhere(address: str, most: int) -> Tail:
    """The same of a log on another host; where that is away its reason stands in place of the log."""
    try:
        found = log_sources.window(address, -most, most)
        text, end = found.text, found.offset
        if found.start:
            text = text[text.find("\n") + 1 :]
        # A window has an upper bound; the rest of what was asked for comes in further ones.
        while end < found.size and len(text) < most:
            more = log_sources.window(address, end, most)
            if not more.text:
                break
            text, end = text + more.text, more.offset
        return Tail(text, end)
    except InflightError as error:
        return Tail(f"{error.sentence} {error.remedy}\n")


def _lines(path: Path, end: int) -> int:
    if end > 64 * _CHUNK:
        return 0
    count = 0
    with path.open("rb") as file:
        while end > 0:
            chunk = file.read(min(_CHUNK, end))
            if not chunk:
                break
            count += chunk.count(b"\n")
            end -= len(chunk)
    return count


def response(request: HttpRequest, path: str, name: str) -> HttpResponseBase:
    """The log as text, or as a file where ?download=1 asks for it. An empty text before the first line.

    A download may begin at a byte (?download=1&offset=1000), so that one that broke off goes on.
    """
    if request.GET.get("download"):
        offset = _offset(request)
        if log_sources.is_elsewhere(path):
            return _download(_encoded(path, offset), name)
        found = inside_home(path)
        if found is None:
            raise NotFound(
                "log_missing",
                _("There is no log file."),
                remedy=_("The work has not begun, or its folder was deleted."),
            )
        file = found.open("rb")
        file.seek(min(offset, found.stat().st_size))
        return FileResponse(file, as_attachment=True, filename=name, content_type="text/plain; charset=utf-8")
    found_tail = tail(path, VIEW_BYTES)
    answer = HttpResponse(found_tail.text, content_type="text/plain; charset=utf-8")
    answer["X-Log-End"] = str(found_tail.end)
    answer["X-Log-Lines-Before"] = str(found_tail.lines_before)
    answer["Cache-Control"] = "no-store"
    return answer


def _offset(request: HttpRequest) -> int:
    given = request.GET.get("offset", "0")
    if not re.fullmatch(r"[0-9]{1,18}", given):
        raise InvalidInput(
            "offset_unreadable",
            _("“%(text)s” is no byte of a log.") % {"text": given[:40]},
            field="offset",
            remedy=_("Give a whole number, 0 for the beginning."),
        )
    return int(given)


def _encoded(address: str, offset: int) -> Iterator[bytes]:
    for text in log_sources.pieces(address, offset):
        yield text.encode()


def _download(pieces: Iterator[bytes], name: str) -> HttpResponseBase:
    answer = StreamingHttpResponse(pieces, content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
