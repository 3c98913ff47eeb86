"""Every error of the REST API in one shape: code, message, field, remedy, facts, findings."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError, ValidationErrorContext

from apps.core.exceptions import Finding, InflightError, InvalidInput
from apps.specs.problems import field_names, sentence_for

log = logging.getLogger(__name__)


def error_body(error: InflightError) -> dict[str, Any]:
    """JSON form of an error with its findings."""
    findings: tuple[Finding, ...] = error.findings if isinstance(error, InvalidInput) else ()
    return {**error.as_dict(), "findings": [finding.as_dict() for finding in findings]}


class InflightAPI(NinjaAPI):
    """NinjaAPI whose errors about input are sentences that name the field and the nearest right word."""

    def validation_error_from_error_contexts(
        self, error_contexts: list[ValidationErrorContext[Any]]
    ) -> ValidationError:
        """Every fault of a request as {type, field, sentence}."""
        faults = []
        for context in error_contexts:
            for item in context.pydantic_validation_error.errors(include_url=False):
                # The first part is the parameter's own name, which a body does not spell.
                inner = item["loc"][1:] if item["loc"][0] not in {"limit", "offset"} else item["loc"]
                field = ".".join(map(str, inner or item["loc"]))
                known = field_names(context.model, item["loc"][:-1])
                faults.append(
                    {"type": item["type"], "field": field, "sentence": sentence_for(item, field, known)}
                )
        return ValidationError(faults)


def install(api: NinjaAPI) -> None:
    """Make `api` answer every exception in the one shape."""

    def answer(request: HttpRequest, error: InflightError, status: int | None = None) -> HttpResponse:
        return api.create_response(request, error_body(error), status=status or error.status)

    def inflight(request: HttpRequest, error: Any) -> HttpResponse:
        return answer(request, error)

    def http(request: HttpRequest, error: Any) -> HttpResponse:
        return answer(request, _from_http(error), error.status_code)

    def plain(request: HttpRequest, error: Any, *, make: Any) -> HttpResponse:
        status, made = make(error)
        return answer(request, made, status)

    api.add_exception_handler(InflightError, inflight)
    api.add_exception_handler(ValidationError, partial(plain, make=_from_validation))
    api.add_exception_handler(HttpError, http)
    api.add_exception_handler(Http404, partial(plain, make=_not_found))
    api.add_exception_handler(PermissionDenied, partial(plain, make=_denied))
    api.add_exception_handler(Exception, partial(plain, make=_unexpected))


def _from_http(error: HttpError) -> InflightError:
    if isinstance(error, AuthenticationError):
        return InflightError(
            "not_signed_in",
            _("Nobody is signed in."),
            remedy=_("Send Authorization: Bearer with an API token, or sign in."),
        )
    if error.status_code == 403 and "CSRF" in error.message:
        return InflightError(
            "csrf_failed",
            _("The request does not come from a page of Inflight."),
            remedy=_("Send the header X-CSRFToken with a session, or use an API token."),
        )
    return InflightError("bad_request", error.message)


def _from_validation(error: ValidationError) -> tuple[int, InflightError]:
    findings = [
        Finding(item["type"], "error", item["sentence"], where=item["field"]) for item in error.errors
    ]
    first = findings[0]
    return 422, InvalidInput("invalid_input", first.message, field=first.where, findings=tuple(findings))


def _not_found(error: Exception) -> tuple[int, InflightError]:
    return 404, InflightError("not_found", _("There is no such object."))


def _denied(error: Exception) -> tuple[int, InflightError]:
    return 403, InflightError("not_allowed", _("Your roles do not include this."))


def _unexpected(error: Exception) -> tuple[int, InflightError]:
    log.error("Unexpected error in the API.", exc_info=error)
    return 500, InflightError(
        "internal_error",
        _("Something in Inflight failed."),
        remedy=_("The log of the web process has the details; try again, then report it."),
    )
