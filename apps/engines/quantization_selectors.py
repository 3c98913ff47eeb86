"""Reading quantization profiles."""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.core.exceptions import NotFound
from apps.engines.models import QuantizationProfile


def quantization_profiles() -> QuerySet[QuantizationProfile]:
    """All quantization profiles by name."""
    return QuantizationProfile.objects.all()


def quantization_profile(name: str) -> QuantizationProfile:
    """One quantization profile by its name. Raises NotFound."""
    found = QuantizationProfile.objects.filter(name=name).first()
    if found is None:
        raise NotFound(
            "quantization_profile_unknown",
            _("There is no quantization profile %(name)s.") % {"name": name},
            remedy=_("Make it, or see the list of quantization profiles."),
        )
    return found
