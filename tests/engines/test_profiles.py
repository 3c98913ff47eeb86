"""Build profiles through their services."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.exceptions import InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.core.models import AuditEntry
from apps.engines import selectors
from apps.engines.models import BuildProfile, Quantization
from apps.engines.serialize import build_profile_dict
from apps.engines.services import delete_build_profile, save_build_profile
from tests import objects
from tests.people import person

pytestmark = pytest.mark.django_db


def test_a_profile_has_defaults_and_is_changed_by_parts() -> None:
    objects.checkpoint()
    row = save_build_profile("cli", {"name": "f16", "checkpoint": "tiny"})
    assert (row.builder, row.quantization, row.options) == ("llamacpp", "F16", {})
    save_build_profile("cli", {"quantization": Quantization.Q8_0}, row)
    row.refresh_from_db()
    assert (row.name, row.quantization) == ("f16", "Q8_0")
    assert build_profile_dict(row)["checkpoint"] == "tiny"
    assert selectors.build_profile("f16") == row
    assert [entry.verb for entry in AuditEntry.objects.filter(object_type="buildprofile").order_by("id")] == [
        "buildprofile.created",
        "buildprofile.changed",
    ]


@pytest.mark.parametrize(
    ("data", "code", "field"),
    [
        ({"name": "a"}, "build_profile_invalid", "checkpoint"),
        ({"checkpoint": "tiny"}, "build_profile_invalid", "name"),
        ({"name": "A b", "checkpoint": "tiny"}, "name_invalid", "name"),
        ({"name": "a", "checkpoint": "none"}, "checkpoint_unknown", "checkpoint"),
        ({"name": "a", "checkpoint": "tiny", "builder": "magic"}, "unknown_builder", "builder"),
        ({"name": "a", "checkpoint": "tiny", "quantization": "Q9"}, "unknown_quantization", "quantization"),
        ({"name": "a", "checkpoint": "tiny", "options": {"x": 1}}, "unknown_option", "options.x"),
        ({"name": "a", "checkpoint": "tiny", "options": 7}, "build_profile_invalid", "options"),
        ({"name": "a", "checkpoint": "tiny", "colour": "red"}, "build_profile_invalid", "colour"),
    ],
)
def test_wrong_fields_are_named(data: dict[str, Any], code: str, field: str) -> None:
    objects.checkpoint()
    with pytest.raises(InvalidInput) as caught:
        save_build_profile("cli", data)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.remedy
    assert not BuildProfile.objects.exists()


def test_names_are_taken_once(profile: BuildProfile) -> None:
    with pytest.raises(InvalidInput) as caught:
        save_build_profile("cli", {"name": profile.name, "checkpoint": "tiny"})
    assert caught.value.code == "name_taken"


def test_roles(profile: BuildProfile) -> None:
    viewer = person("viewer")
    with pytest.raises(NotAllowed):
        save_build_profile(viewer, {"name": "b", "checkpoint": "tiny"})
    with pytest.raises(NotAllowed):
        delete_build_profile(viewer, profile)


def test_deleting_waits_for_deployments_and_leaves_builds(profile: BuildProfile) -> None:
    build = objects.build(profile, "failed")
    deployment = objects.deployment()
    with pytest.raises(NotPossibleNow) as caught:
        delete_build_profile("cli", profile)
    assert "demo" in caught.value.sentence
    deployment.delete()
    delete_build_profile("cli", profile)
    build.refresh_from_db()
    assert build.profile is None
    with pytest.raises(NotFound):
        selectors.build_profile("f16")
