"""Behind a TLS proxy: secure cookies, HSTS, a real host name in INFLIGHT_ALLOWED_HOSTS."""

from controlplane.settings.base import *

SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_HSTS_SECONDS = 31_536_000
