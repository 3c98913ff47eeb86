"""The admin's theme: the same frame, words and links as the pages."""

from __future__ import annotations

from typing import Any

from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _


def _item(title: Any, icon: str, view: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": reverse_lazy(view)}


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Inflight",
    "SITE_HEADER": "Inflight",
    "SITE_SUBHEADER": _("Configuration"),
    "SITE_URL": "/",
    "SHOW_HISTORY": True,
    "STYLES": [lambda request: static("css/admin.css")],
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
                    _item(_("Build profiles"), "tune", "admin:engines_buildprofile_changelist"),
                    _item(_("Batching profiles"), "stacks", "admin:serving_batchingprofile_changelist"),
                    _item(_("Deployments"), "rocket_launch", "admin:serving_deployment_changelist"),
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
                    _item(_("Users"), "person", "admin:auth_user_changelist"),
                    _item(_("Roles"), "group", "admin:auth_group_changelist"),
                    _item(_("API tokens"), "key", "admin:accounts_apitoken_changelist"),
                ],
            },
        ],
    },
}
