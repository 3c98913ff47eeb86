"""A Prometheus that scrapes this control plane, as the source of long histories.

INFLIGHT_PROMETHEUS_URL names it (http or https, with an optional path prefix). What it holds are the gauges of our
own /metrics (`inflight_telemetry_<key>`), so its points use the one vocabulary.
"""

from __future__ import annotations

import json
import logging
import math
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from apps.telemetry.domain.derive import Sample
from apps.telemetry.domain.exported import PREFIX

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
MOST_BYTES = 64 * 1_048_576


def checked_url(text: str) -> str:
    """The address without a slash at its end; raises ImproperlyConfigured naming the setting."""
    try:
        parts = urlsplit(text)
        good = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and not parts.query
            and not parts.fragment
        )
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise ImproperlyConfigured(
            f"INFLIGHT_PROMETHEUS_URL: expected http://HOST:PORT or https://HOST[/path], got {text!r}."
        )
    return text.rstrip("/")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """A history source does not send us elsewhere."""
        return


_opener = urllib.request.build_opener(_NoRedirect)


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    """The HTTP API of one Prometheus."""

    url: str

    @classmethod
    def configured(cls) -> PrometheusSource | None:
        """The one of the settings; None where there is none."""
        text = getattr(settings, "INFLIGHT_PROMETHEUS_URL", "")
        return cls(checked_url(text)) if text else None

    def points(
        self, kind: str, scope_id: int, since: float, until: float, step: int, names: Sequence[str]
    ) -> list[Sample] | None:
        """Points every `step` seconds, those without any value left out; None where it does not answer well."""
        wanted = "|".join(f"{PREFIX}{name}" for name in names)
        query = f'{{__name__=~"{wanted}",scope="{kind}",scope_id="{int(scope_id)}"}}'
        form = {
            "query": query,
            "start": f"{math.ceil(since / step) * step}",
            "end": f"{until:.3f}",
            "step": str(step),
        }
        try:
            return _points(self._post("/api/v1/query_range", form), names)
        except (OSError, ValueError) as error:
            log.warning(
                "Prometheus at %s does not answer well, the database does instead: %s", self.url, error
            )
            return None

    def _post(self, path: str, form: dict[str, str]) -> Any:
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            f"{self.url}{path}", data=urlencode(form).encode(), method="POST"
        )
        with _opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            body = response.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise ValueError("the answer is too large")
        return json.loads(body)


def _points(answer: Any, names: Sequence[str]) -> list[Sample]:
    """Points of a query_range answer; raises ValueError where it is none."""
    if not isinstance(answer, dict) or answer.get("status") != "success":
        reason = answer.get("error") if isinstance(answer, dict) else None
        raise ValueError(str(reason or "the answer is no success"))
    try:
        data = answer["data"]
        if data["resultType"] != "matrix":
            raise ValueError(f"expected a matrix, got {data['resultType']!r}")
        found: dict[float, Sample] = {}
        for curve in data["result"]:
            name = curve["metric"]["__name__"].removeprefix(PREFIX)
            for at, text in curve["values"]:
                value = float(text)
                point = found.setdefault(float(at), {"at": float(at), **dict.fromkeys(names, None)})
                if name in point and math.isfinite(value):
                    point[name] = value
    except (KeyError, TypeError) as error:
        raise ValueError(f"unexpected answer: {error!r}") from error
    return [found[at] for at in sorted(found)]
