"""The admin's forms of people and tokens."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.utils.translation import gettext_lazy as _
from unfold.forms import UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from apps.accounts.models import ApiToken
from apps.accounts.roles import ADMINISTRATOR, CODE_AUTHOR, GRANTS, OPERATOR, VIEWER
from apps.accounts.service_admin import RefusedForm, ServiceForm

ROLE_CHOICES = [
    (VIEWER, _("viewer: sees everything but conversations, people and tokens")),
    (OPERATOR, _("operator: also configures, builds, deploys and chats")),
    (ADMINISTRATOR, _("administrator: also people, roles and the tokens of others")),
    (CODE_AUTHOR, _("code author: may bring in files that run")),
]
_ORDER = list(GRANTS)


class RolesField(forms.MultipleChoiceField):
    """Which roles a person holds."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("choices", ROLE_CHOICES)
        kwargs.setdefault("widget", UnfoldAdminCheckboxSelectMultipleWidget)
        kwargs.setdefault("required", False)
        kwargs.setdefault("label", _("Roles"))
        kwargs.setdefault("help_text", _("Without a role an account can sign in and see nothing."))
        super().__init__(**kwargs)


class PersonForm(RefusedForm):
    """An account with its roles; Django's permissions play no part."""

    service_names = {"groups": "roles"}

    roles = RolesField()

    class Meta:
        model = User
        fields = ["username", "first_name", "last_name", "email", "is_active"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        held = set(self.instance.groups.values_list("name", flat=True)) if self.instance.pk else set()
        self.initial["roles"] = [name for name in _ORDER if name in held]
        if "is_active" in self.fields:
            self.fields["is_active"].help_text = _(
                "Switch off to keep somebody out; their history stays. Their tokens stop working too."
            )


class NewPersonForm(RefusedForm, UserCreationForm):
    """A new account with its roles."""

    roles = RolesField(initial=[VIEWER])

    class Meta:
        model = User
        fields = ["username", "first_name", "last_name", "email"]


class TokenForm(ServiceForm):
    """A new token. Its text is shown once, after it is made."""

    class Meta:
        model = ApiToken
        fields = ["owner", "name", "expires_at"]
        field_classes = {"expires_at": forms.SplitDateTimeField}
        help_texts = {
            "owner": _("The token acts as this person, with all of their roles."),
            "name": _("The program or machine that will use it."),
            "expires_at": _("When it stops working, UTC. Empty: never."),
        }
