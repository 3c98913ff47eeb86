"""Assembly of the REST API `/api/v1/` from the routers of the apps."""

from __future__ import annotations

from ninja import NinjaAPI

api = NinjaAPI(title="Inflight", version="1", urls_namespace="api")
