"""Assembly of the REST API `/api/v1/` from the routers of the apps."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, re_path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from ninja.openapi.docs import Swagger

from apps.accounts.api import router as accounts_router
from apps.accounts.rest import AUTH
from apps.chat.api import router as chat_router
from apps.chat.compare_api import router as compare_router
from apps.control.api import router as control_router
from apps.core.exceptions import NotFound
from apps.engines.api import router as engines_router
from apps.fleet.api import router as fleet_router
from apps.fleet.join_api import router as join_router
from apps.gateway.adaptive_api import router as adaptive_router
from apps.gateway.api import router as gateway_router
from apps.loadtests.api import router as loadtests_router
from apps.loadtests.quality_api import router as quality_router
from apps.loadtests.tuning_api import router as tuning_router
from apps.registry.api import router as registry_router
from apps.serving.api import router as serving_router
from apps.serving.repositories_api import router as repositories_router
from apps.specs.errors import InflightAPI, error_body, install
from apps.specs.routes import router as specs_router
from apps.telemetry.api import router as telemetry_router

DESCRIPTION = (
    "Everything that the pages do. Authenticate with `Authorization: Bearer ifl_...` (an API token) or with a "
    "session and its CSRF token. Every error has the shape of `Problem`. What is absent is null."
)

api = InflightAPI(
    title="Inflight",
    version="1",
    description=DESCRIPTION,
    urls_namespace="api",
    auth=AUTH,
    # The validator badge would ask a server on the internet.
    docs=Swagger({"validatorUrl": None, "defaultModelsExpandDepth": -1, "docExpansion": "list"}),
)
_FOR_PEOPLE = {"openapi-json", "openapi-view", "api-root"}
install(api)
for router in (
    registry_router,
    engines_router,
    serving_router,
    repositories_router,
    fleet_router,
    join_router,
    telemetry_router,
    control_router,
    loadtests_router,
    tuning_router,
    quality_router,
    chat_router,
    compare_router,
    gateway_router,
    adaptive_router,
    specs_router,
    accounts_router,
):
    api.add_router("", router)


def urls() -> tuple[list[URLPattern | URLResolver], str, str]:
    """Routes of the API. Operations authenticate by themselves; the documentation wants a signed-in person."""
    patterns, app_name, namespace = api.urls
    for pattern in patterns:
        if isinstance(pattern, URLPattern) and pattern.name not in _FOR_PEOPLE:
            vars(pattern.callback)["login_required"] = False
    return [*patterns, re_path(".*", unknown_path, name="unknown")], app_name, namespace


@login_not_required
@csrf_exempt
def unknown_path(request: HttpRequest) -> HttpResponse:
    """Answer for a path that is none, in the shape of every error."""
    error = NotFound(
        "unknown_path",
        _("The API has no path %(path)s.") % {"path": request.path},
        remedy=_("The list of operations is at %(docs)s.") % {"docs": reverse("api:openapi-view")},
    )
    return api.create_response(request, error_body(error), status=error.status)
