"""The button "rebuild for this node": a build with that node's toolchain, the profile as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.core.exceptions import NotPossibleNow
from apps.engines import states
from apps.engines.models import Build, Engine
from apps.engines.rebuilds import rebuild_for_node
from apps.engines.services import start_build
from tests.engines.test_engine_guard import toolchain
from tests.support.trtllm import rows


@pytest.fixture
def engine(db: None, tmp_path: Path, settings: Any) -> Engine:
    """An engine that was built on this node for SM 90, with its build and profile."""
    settings.INFLIGHT_HOME = tmp_path
    here = rows.node()
    toolchain(here, "hopper")
    profile = rows.profile(gpu="h100")
    build = start_build("test", profile)
    made = Engine.objects.create(
        state=states.READY, fingerprint=build.fingerprint, checkpoint=profile.checkpoint, builder="trtllm",
        quantization="none", node=here, path=str(tmp_path / "e"), size_bytes=1,
    )  # fmt: skip
    Build.objects.filter(pk=build.pk).update(state=states.SUCCEEDED, engine=made)
    return made


def test_the_nodes_own_toolchain_is_taken(engine: Engine) -> None:
    there = rows.node()
    there.pk, there.node_id = None, "ada"
    there.save(force_insert=True)
    toolchain(there, "ada", sm=89, release="1.2.0")
    build = rebuild_for_node("test", engine, there)
    assert (build.state, build.spec["toolchain"], build.spec["sm"]) == ("queued", "ada", 89)
    assert build.spec["versions"]["tensorrt_llm"] == "1.2.0"
    assert build.fingerprint != engine.fingerprint
    profile = build.profile
    assert profile is not None
    assert (profile.gpu, profile.toolchain) == ("h100", "")
    # Pressed twice, it is one build.
    assert rebuild_for_node("test", engine, there) == build


def test_a_node_that_cannot_build_it_says_why(engine: Engine) -> None:
    bare = rows.node()
    bare.pk, bare.node_id = None, "bare"
    bare.save(force_insert=True)
    with pytest.raises(NotPossibleNow) as caught:
        rebuild_for_node("test", engine, bare)
    assert caught.value.code == "no_toolchain_fits"
    Build.objects.update(profile=None)
    with pytest.raises(NotPossibleNow) as caught:
        rebuild_for_node("test", engine, bare)
    assert caught.value.code == "no_profile"
