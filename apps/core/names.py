"""What a public name may look like. The same rule as Triton's model names, lower case only."""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.utils.translation import gettext_lazy as _

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
RESERVED_NAMES = frozenset({"warmup", "configs", "initial_state"})

validate_name = RegexValidator(
    NAME_PATTERN,
    _(
        "Use lower-case letters, digits, dots, dashes and underscores; begin with a letter or digit; at most 63."
    ),
)
