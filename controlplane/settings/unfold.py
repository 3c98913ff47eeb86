"""The admin's theme: the same frame, words and links as the pages."""

from __future__ import annotations

from typing import Any

from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _


def _item(title: Any, icon: str, view: str, permission: str | None = None) -> dict[str, Any]:
    item = {"title": title, "icon": icon, "link": reverse_lazy(view), "permission": permission}
    # A page is never the one being shown here, and "/" is the beginning of every address.
    return item if view.startswith("admin:") else {**item, "active": lambda request: False}


_PEOPLE = "apps.accounts.admin_site.may_administer"
# The greys and the accent of static/css/tokens.css, in unfold's scale.
_GREYS = {
    "50": "#f5f6f8",
    "100": "#f0f2f5",
    "200": "#e3e7ec",
    "300": "#cbd2da",
    "400": "#929dac",
    "500": "#5c6675",
    "600": "#475162",
    "700": "#343c48",
    "800": "#232932",
    "900": "#151920",
    "950": "#0e1115",
}
_ACCENT = {
    "50": "#e8effc",
    "100": "#dbe6fb",
    "200": "#c3d6fb",
    "300": "#a9c5fd",
    "400": "#86aefc",
    "500": "#86aefc",
    "600": "#1d55c4",
    "700": "#17469f",
    "800": "#163c84",
    "900": "#182543",
    "950": "#0c1730",
}


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Inflight",
    "SITE_HEADER": "Inflight",
    "SITE_SUBHEADER": _("Configuration"),
    "SITE_URL": "/",
    "SHOW_HISTORY": True,
    "BORDER_RADIUS": "6px",
    "COLORS": {
        "base": _GREYS,
        "primary": _ACCENT,
        "font": {
            "subtle-light": "#5c6675",
            "subtle-dark": "#929dac",
            "default-light": "#475162",
            "default-dark": "#aab3c0",
            "important-light": "#14181f",
            "important-dark": "#e8ebf0",
        },
    },
    "STYLES": [lambda request: static("css/admin.css")],
    "SCRIPTS": [lambda request: static("js/admin-theme.js")],
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("icon.svg")},
    ],
    "SIDEBAR": {
        "show_search": True,
        "navigation": [
            {
                "title": _("Inflight"),
                "items": [
                    _item(_("Overview"), "space_dashboard", "dashboard:overview"),
                    _item(_("Playground"), "chat", "chat:playground"),
                ],
            },
            {
                "title": _("Configuration"),
                "items": [
                    _item(_("Checkpoints"), "database", "admin:registry_checkpoint_changelist"),
                    _item(_("Hub access"), "cloud_download", "registry:access", _PEOPLE),
                    _item(_("Build profiles"), "tune", "admin:engines_buildprofile_changelist"),
                    _item(_("Quantization"), "compress", "admin:engines_quantizationprofile_changelist"),
                    _item(_("Batching profiles"), "stacks", "admin:serving_batchingprofile_changelist"),
                    _item(_("Deployments"), "rocket_launch", "admin:serving_deployment_changelist"),
                ],
            },
            {
                "title": _("Gateway"),
                "items": [
                    _item(_("Keys"), "vpn_key", "admin:gateway_gatewaykey_changelist"),
                    _item(_("Routes"), "alt_route", "admin:gateway_gatewayroute_changelist"),
                    _item(_("External deployments"), "public", "admin:gateway_externaldeployment_changelist"),
                    _item(_("Usage"), "bar_chart", "admin:gateway_usagehour_changelist"),
                    _item(_("Requests"), "receipt_long", "admin:gateway_requestlog_changelist"),
                ],
            },
            {
                "title": _("Records"),
                "items": [
                    _item(_("Builds"), "construction", "admin:engines_build_changelist"),
                    _item(_("Engines"), "memory", "admin:engines_engine_changelist"),
                    _item(_("Instances"), "dns", "admin:serving_instance_changelist"),
                    _item(_("Nodes"), "host", "admin:fleet_node_changelist"),
                    _item(_("Audit"), "history", "admin:core_auditentry_changelist"),
                ],
            },
            {
                "title": _("People"),
                "items": [
                    _item(_("Users"), "person", "admin:auth_user_changelist", _PEOPLE),
                    _item(_("Roles"), "group", "admin:auth_group_changelist", _PEOPLE),
                    _item(_("API tokens"), "key", "admin:accounts_apitoken_changelist", _PEOPLE),
                ],
            },
        ],
    },
}
