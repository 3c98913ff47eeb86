"""ASGI entry of the gateway process: OpenAI's API over the deployments."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from apps.gateway.app import Gateway

application = Gateway()
