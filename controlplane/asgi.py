"""ASGI entry of the web process: pages, admin, REST and websockets."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator

from apps.realtime.isolation import OwnThread
from controlplane.routing import websocket_urlpatterns

application = ProtocolTypeRouter(
    {
        "http": django_application,
        # Session and person of a socket are read on its own thread too, not on the one that all would share.
        "websocket": OwnThread(
            AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))
        ),
    }
)
