"""Where e-mail goes out. Without INFLIGHT_SMTP_HOST none is sent, and whoever wants to send some is told so."""

from __future__ import annotations

from controlplane.settings import env

EMAIL_HOST = env.text("INFLIGHT_SMTP_HOST")
EMAIL_PORT = env.integer("INFLIGHT_SMTP_PORT", 25)
EMAIL_HOST_USER = env.text("INFLIGHT_SMTP_USER")
EMAIL_HOST_PASSWORD = env.text("INFLIGHT_SMTP_PASSWORD")
EMAIL_USE_TLS = env.flag("INFLIGHT_SMTP_STARTTLS")
EMAIL_USE_SSL = env.flag("INFLIGHT_SMTP_TLS")
# Seconds; a mail server that hangs must not keep other notifications waiting.
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("INFLIGHT_MAIL_FROM", "inflight@localhost")
