"""The audit trail, read-only."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from apps.core.models import AuditEntry


class ReadOnlyAdmin(ModelAdmin):
    """Shows rows that only services and workers write."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds such a row by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object | None = None) -> bool:
        """Nobody edits such a row by hand."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object | None = None) -> bool:
        """Nobody deletes such a row by hand."""
        return False


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    """Who did what, newest first."""

    list_display = [
        "at",
        "actor_label",
        "verb",
        "object_type",
        "object_label",
        "from_state",
        "to_state",
        "sentence",
    ]
    list_filter = ["verb", "object_type"]
    search_fields = ["actor_label", "verb", "object_label", "sentence"]
    date_hierarchy = "at"
