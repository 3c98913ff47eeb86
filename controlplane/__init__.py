"""Project glue: settings, ASGI entry, URL and websocket routing, the Celery application."""

from controlplane.celery import app as celery_app

__all__ = ["celery_app"]
