"""For pytest: quick hashes, an in-memory channel layer and cache unless a test asks for Redis."""

from __future__ import annotations

import os

from controlplane.settings.base import *
from controlplane.settings.base import DATABASES, STORAGES

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ALLOWED_HOSTS = ["*"]
STORAGES = {**STORAGES, "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
if not os.environ.get("INFLIGHT_TEST_REDIS"):
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, not memory: consumers reach the database from threads of their own.
    DATABASES["default"]["TEST"] = {"NAME": str(INFLIGHT_HOME / "test.sqlite3")}
