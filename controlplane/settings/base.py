"""What every installation shares. Databases, queues and the environment have files of their own."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from django.utils.translation import gettext_lazy as _

from controlplane.settings import env
from controlplane.settings.database import DATABASES as DATABASES
from controlplane.settings.gateway import *
from controlplane.settings.hosts import *
from controlplane.settings.mail import *
from controlplane.settings.queues import *
from controlplane.settings.telemetry import *
from controlplane.settings.unfold import UNFOLD as UNFOLD

BASE_DIR = env.ROOT
INFLIGHT_HOME: Path = env.home()
INFLIGHT_WEB_URL = env.text("INFLIGHT_WEB_URL", "http://127.0.0.1:8000")

# Where the serving environment lies (written by `make up` into <home>/run/environment).
INFLIGHT_SERVING_PYTHON = env.text("INFLIGHT_SERVING_PYTHON", str(INFLIGHT_HOME / "serving/venv/bin/python"))
# What this node builds with TensorRT-LLM: a file of toolchains, or one native Python.
INFLIGHT_TOOLCHAINS = env.text("INFLIGHT_TOOLCHAINS", str(INFLIGHT_HOME / "toolchains.toml"))
INFLIGHT_TRTLLM_PYTHON = env.text("INFLIGHT_TRTLLM_PYTHON")
# NVIDIA's load generator, where one is installed; empty: the aiperf on PATH.
INFLIGHT_AIPERF_BIN = env.text("INFLIGHT_AIPERF_BIN")
INFLIGHT_TRITON_BIN = env.text("INFLIGHT_TRITON_BIN")
INFLIGHT_TRITON_BACKENDS = env.text("INFLIGHT_TRITON_BACKENDS")
INFLIGHT_TRITON_LIBS = env.text("INFLIGHT_TRITON_LIBS")
INFLIGHT_SERVING_SITE_PACKAGES = env.text("INFLIGHT_SERVING_SITE_PACKAGES")
INFLIGHT_SERVING_PYTHONHOME = env.text("INFLIGHT_SERVING_PYTHONHOME")
# Extra folders from which checkpoints may be registered by path, besides <home>/checkpoints.
INFLIGHT_CHECKPOINT_ROOTS = env.words("INFLIGHT_CHECKPOINT_ROOTS", [])
# The largest archive that may be uploaded through the page or the API, bytes.
INFLIGHT_UPLOAD_BYTES = env.integer("INFLIGHT_UPLOAD_BYTES", 4_000_000_000)
# Where they come to lie while they arrive: on the home's disk, not in /tmp, which is often small. Made at the start.
FILE_UPLOAD_TEMP_DIR = str(INFLIGHT_HOME / "uploads")
# Names, addresses and networks outside the public internet that webhooks and upstreams may reach (core/outbound.py).
INFLIGHT_OUTBOUND_ALLOW = env.words("INFLIGHT_OUTBOUND_ALLOW", [])
# The gateway (docs/gateway.md): processes that share its port, how tokens come from Triton (auto, http, grpc),
# whether equal beginnings of prompts go to the same replica, and the largest body that is read.
INFLIGHT_GATEWAY_PROCESSES = env.integer("INFLIGHT_GATEWAY_PROCESSES", 1)
INFLIGHT_GATEWAY_TRANSPORT = env.text("INFLIGHT_GATEWAY_TRANSPORT", "auto")
INFLIGHT_GATEWAY_PREFIX_AFFINITY = env.flag("INFLIGHT_GATEWAY_PREFIX_AFFINITY", True)
INFLIGHT_GATEWAY_MAX_BODY_BYTES = env.integer("INFLIGHT_GATEWAY_MAX_BODY_BYTES", 8 * 1024 * 1024)

SECRET_KEY = env.secret_key()
DEBUG = False
# Behind a TLS proxy INFLIGHT_WEB_URL says under which name people and joining hosts come.
_pages = urlsplit(INFLIGHT_WEB_URL)
_hosts = ["127.0.0.1", "localhost", "[::1]"]
_hosts += [_pages.hostname] if _pages.hostname and _pages.hostname not in (*_hosts, "::1") else []
ALLOWED_HOSTS = env.words("INFLIGHT_ALLOWED_HOSTS", _hosts)
CSRF_TRUSTED_ORIGINS = env.words(
    "INFLIGHT_TRUSTED_ORIGINS", [f"https://{_pages.netloc}"] if _pages.scheme == "https" else []
)

# Workers and telemetry leave out what only pages need: a sixth of the work of their start (deploy/local/programs.py).
INFLIGHT_PAGES = env.flag("INFLIGHT_PAGES", True)
INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "apps.accounts.admin_apps.InflightAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "csp",
    "django_htmx",
    *(["ninja"] if INFLIGHT_PAGES else []),
    "apps.core",
    "apps.realtime",
    "apps.accounts",
    "apps.registry",
    "apps.fleet",
    "apps.diagnosis",
    "apps.engines",
    "apps.serving",
    "apps.streaming",
    "apps.telemetry",
    "apps.loadtests",
    "apps.chat",
    "apps.gateway",
    "apps.control",
    "apps.specs",
    "apps.dashboard",
    # For its management commands; it has no models.
    "workers",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    # Nothing is open to the world: views say so where they are (login_not_required).
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "apps.dashboard.context.frame",
            ],
        },
    },
]

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Permissions come from the roles alone (apps/accounts/roles.py).
AUTHENTICATION_BACKENDS = ["apps.accounts.backends.RoleBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/sign-in/"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = ["controlplane.formats"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATIC_ROOT = INFLIGHT_HOME / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "apps.dashboard.static_finder.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "apps.dashboard.static_storage.ModuleManifestStorage"},
}

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

# Plotly draws its mode bar with inline styles; scripts are ours alone. /admin/ relaxes this for Alpine.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        "style-src": ["'self'", "'unsafe-inline'"],
        "img-src": ["'self'", "data:", "blob:"],
        "connect-src": ["'self'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'self'"],
        "form-action": ["'self'"],
    }
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.text("INFLIGHT_LOG_LEVEL", "INFO")},
    "loggers": {"aiosqlite": {"level": "WARNING"}, "asyncio": {"level": "WARNING"}},
}
