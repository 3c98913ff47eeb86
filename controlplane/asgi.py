"""ASGI entry of the web process: pages, admin, REST and websockets."""

from __future__ import annotations

import gc
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings

from apps.core.body_limit import BodyLimit
from apps.realtime.isolation import OwnThread
from controlplane.routing import websocket_urlpatterns

# Forms and documents are small; archives of weights come through these addresses only. A form is a little larger
# than the file in it.
BODY_BYTES, FORM_BYTES = 64_000_000, 1_000_000
UPLOADS = ("/checkpoints/-/new/", "/repositories/-/new/", "/api/v1/checkpoint-archives")

application = ProtocolTypeRouter(
    {
        "http": BodyLimit(
            django_application,
            BODY_BYTES,
            dict.fromkeys(UPLOADS, settings.INFLIGHT_UPLOAD_BYTES + FORM_BYTES),
        ),
        # Session and person of a socket are read on its own thread too, not on the one that all would share.
        "websocket": OwnThread(
            AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))
        ),
    }
)

# What was loaded so far stays for good: looking through all of it again held up every running answer.
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 50, 100)
# Threads that render pages and read rows give way to the event loop, which relays tokens, fifty times sooner so.
sys.setswitchinterval(0.0001)
