"""The admin's form of a build profile."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.accounts.service_admin import ServiceForm
from apps.engines.models import BuildProfile


class BuildProfileForm(ServiceForm):
    """Each field with its default, its meaning and what it costs."""

    class Meta:
        model = BuildProfile
        fields = ["name", "checkpoint", "builder", "quantization", "options"]
        help_texts = {
            "name": _(
                "How deployments and the API call it: lower-case letters, digits, dots, dashes, underscores."
            ),
            "checkpoint": _("The weights to build from. Only one in state ready can be built."),
            "builder": _("What makes the engine. Default llama.cpp: runs on any CPU, no GPU needed."),
            "quantization": _(
                "Weight type of the engine. Default F16: 16 bits a weight, nothing is lost. Fewer bits take less "
                "memory and run faster on a CPU; below 5 bits answers become noticeably worse."
            ),
            "options": _("Options of the builder as JSON. Default {}: the llama.cpp builder has none."),
        }
