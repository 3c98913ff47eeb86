"""People, roles and tokens in the admin. Only administrators see them."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm

from apps.accounts import services
from apps.accounts.forms import NewPersonForm, PersonForm, TokenForm
from apps.accounts.models import ApiToken
from apps.accounts.object_actions import ObjectAction
from apps.accounts.roles import GRANTS, Action
from apps.accounts.serialize import token_state
from apps.accounts.service_admin import RefusalMixin, ServiceAdmin, StatusAdmin
from apps.core.admin import ReadOnlyAdmin

admin.site.unregister(User)
admin.site.unregister(Group)
TONES = {"active": "ok", "expired": "warn", "revoked": "idle"}


@admin.register(User)
class PersonAdmin(RefusalMixin, StatusAdmin, UserAdmin, ModelAdmin):  # type: ignore[type-arg]
    """Accounts and their roles."""

    form = PersonForm
    add_form = NewPersonForm
    change_password_form = AdminPasswordChangeForm
    list_display = ["username", "roles", "email", "is_active", "last_login"]
    list_filter = ["is_active", "groups"]
    search_fields = ["username", "first_name", "last_name", "email"]
    readonly_fields = ["password_link", "last_login", "date_joined", "is_superuser"]
    filter_horizontal = ()
    fieldsets = (
        (_("Account"), {"fields": ["username", "password_link", "is_active"]}),
        (_("Roles"), {"fields": ["roles", "is_superuser"]}),
        (_("Person"), {"fields": ["first_name", "last_name", "email"]}),
        (_("Dates"), {"fields": ["last_login", "date_joined"]}),
    )
    add_fieldsets = (
        (_("Account"), {"fields": ["username", "usable_password", "password1", "password2"]}),
        (_("Roles"), {"fields": ["roles"]}),
        (_("Person"), {"fields": ["first_name", "last_name", "email"]}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """With the groups, which the list shows."""
        return super().get_queryset(request).prefetch_related("groups")

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A superuser is changed by superusers only."""
        return self._reaches(request, obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A superuser is deleted by superusers only."""
        return self._reaches(request, obj) and super().has_delete_permission(request, obj)

    def _reaches(self, request: HttpRequest, obj: Model | None) -> bool:
        return not (isinstance(obj, User) and obj.is_superuser) or bool(request.user.is_superuser)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Save the account and its roles, each with an audit row."""
        actor = cast(User, request.user)
        services.save_person(actor, obj, changed=form.changed_data)
        services.set_roles(actor, obj, form.cleaned_data.get("roles", []))

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        """Delete through the service."""
        services.delete_person(cast(User, request.user), obj)

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        """A change of password goes round `save_model`."""
        if message and "password" in str(message).lower():
            services.record_password(cast(User, request.user), cast(User, obj))

    @admin.display(description=_("password"))
    def password_link(self, row: User) -> SafeString:
        """Way to the form that sets another password."""
        word = _("Set another password") if row.has_usable_password() else _("Set a password")
        url = reverse("admin:auth_user_password_change", args=[row.pk])
        return format_html('<a class="inf-link" href="{}">{}</a>', url, word)

    @admin.display(description=_("roles"))
    def roles(self, row: User) -> str | None:
        """Roles in the order of what they allow."""
        held = {group.name for group in row.groups.all()}
        names = [name for name in GRANTS if name in held]
        return ", ".join([_t("superuser")] * row.is_superuser + names) or None


@admin.register(Group)
class RoleAdmin(ReadOnlyAdmin):
    """What each role may do. Roles are given to people on the page of the person."""

    list_display = ["name", "allows", "members"]
    ordering = ["pk"]
    search_fields = ["name"]
    fields = ["name", "allows", "members"]
    readonly_fields = ["name", "allows", "members"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        """The roles; groups of other origin have no meaning here."""
        rows: QuerySet[Group] = super().get_queryset(request)
        return rows.filter(name__in=GRANTS).prefetch_related("user_set")

    @admin.display(description=_("allows"))
    def allows(self, row: Group) -> str:
        """Actions of the role."""
        return ", ".join(action.value for action in Action if action in GRANTS.get(row.name, ()))

    @admin.display(description=_("members"))
    def members(self, row: Group) -> str | None:
        """Names of the people who hold it."""
        return ", ".join(sorted(user.get_username() for user in row.user_set.all())) or None


def _revoke(user: User, row: ApiToken) -> str:
    services.revoke_token(user, row)
    return _t("%(token)s was revoked.") % {"token": str(row)}


@admin.register(ApiToken)
class ApiTokenAdmin(ServiceAdmin):
    """Tokens of everybody. A token is made and revoked, never changed."""

    form = TokenForm
    has_preview = False
    warn_unsaved_form = False
    list_display = ["name", "state", "owner", "prefix", "created_at", "expires_at", "last_used_at"]
    list_filter = ["owner", ("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["owner"]
    search_fields = ["name", "prefix", "owner__username"]
    fieldsets = [(_("API token"), {"fields": ["owner", "name", "expires_at"]})]
    made_fieldset = (_("Use"), {"fields": ["prefix", "created_at", "last_used_at", "revoked_at"]})
    readonly_fields = ["prefix", "created_at", "last_used_at", "revoked_at"]
    object_actions = (
        ObjectAction(
            "revoke",
            _("Revoke"),
            Action.ADMINISTER,
            _revoke,
            available=lambda row: row.revoked_at is None,
            confirm=_("Programs that use it are refused from this moment on."),
            danger=True,
        ),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """How it is used is shown once it exists."""
        return [*self.fieldsets, self.made_fieldset] if obj is not None else self.fieldsets

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """A token of one's own, unless chosen otherwise."""
        return {"owner": request.user.pk, **super().get_changeform_initial_data(request)}

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody changes a token."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody deletes a token: it is revoked, and its trace stays."""
        return False

    def save_through_service(self, actor: User, form: Any, row: ApiToken | None) -> ApiToken:
        """Make the token and keep its text for the answer, and only for that."""
        data = form.cleaned_data
        token, form.token_text = services.create_token(actor, data["name"], data["expires_at"], data["owner"])
        return token

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: bool) -> None:
        """Save through the service, and hand the text to the answer."""
        super().save_model(request, obj, form, change)
        request.token_text = form.token_text  # type: ignore[attr-defined]

    def response_add(
        self, request: HttpRequest, obj: ApiToken, post_url_continue: Any = None
    ) -> HttpResponse:
        """Show the text, once, on a page that nobody keeps."""
        context = {
            **self.admin_site.each_context(request),
            "title": _("API token"),
            "opts": self.opts,
            "token": obj,
            "text": request.token_text,  # type: ignore[attr-defined]
        }
        answer = TemplateResponse(request, "admin/inflight/token.html", context)
        answer["Cache-Control"] = "no-store"
        return answer

    @admin.display(description=_("state"))
    def state(self, row: ApiToken) -> SafeString:
        """Whether it works."""
        word = token_state(row)
        return render_to_string("admin/inflight/chip.html", {"state": word, "tone": TONES[word]})
