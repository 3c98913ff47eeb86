"""Settings, chosen by INFLIGHT_SETTINGS: dev (default), prod or test."""

from __future__ import annotations

from controlplane.settings.env import load_environment_file, text

load_environment_file()

_which = text("INFLIGHT_SETTINGS", "dev")
if _which == "prod":
    from controlplane.settings.prod import *
elif _which == "test":
    from controlplane.settings.test import *
else:
    from controlplane.settings.dev import *
