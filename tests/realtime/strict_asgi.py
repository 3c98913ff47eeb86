"""The ASGI application with the hosts of production; the test settings allow all."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

from django.conf import settings

settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]

from controlplane.asgi import application  # noqa: E402

__all__ = ["application"]
