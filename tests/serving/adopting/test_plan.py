"""What adopting would do: who answers, what must load, what is kept, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.core.exceptions import InvalidInput
from apps.serving.domain import pbtxt
from apps.serving.domain.adopting import files, plan
from apps.serving.domain.repository_check.check import check_repository
from tests.serving.adopting.test_settings import DEFAULTS
from tests.serving.repository_check.world import Repository

ALL = frozenset({"python", "tensorrtllm"})


def planned(root: Path, model: str = "", backends: frozenset[str] | None = ALL) -> plan.Plan:
    return plan.make(root, check_repository(root).as_dict(), model, backends)


def test_an_ensemble_answers_and_its_engine_has_the_settings(repository: Repository) -> None:
    repository.check()
    found = planned(repository.path)
    assert (found.entry, found.tuned, found.kind) == ("ensemble", "tensorrt_llm", "tensorrt_llm")
    assert found.needed[-1] == "ensemble"
    assert set(found.needed) == {"preprocessing", "tensorrt_llm", "postprocessing", "ensemble"}
    assert (found.blockers, found.notes) == ((), ())
    assert "text_output" in found.kept["ensemble"]
    # The BLS model answers where it is named, and calls the engine by its parameter.
    other = planned(repository.path, "tensorrt_llm_bls")
    assert other.needed == ("tensorrt_llm", "tensorrt_llm_bls")


def test_what_cannot_be_served_is_refused_with_every_reason(repository: Repository) -> None:
    repository.change("postprocessing", "max_batch_size: 8", "max_batch_size: 4")
    repository.check()
    found = planned(repository.path, backends=frozenset({"python"}))
    assert {one.id for one in found.blockers} == {"ensemble_batch_size", "backend_missing"}
    assert all(one.remedy for one in found.blockers)
    # A fault of a model that is not needed stands in nobody's way.
    assert not planned(repository.path, "tensorrt_llm_bls").blockers


def test_who_answers_must_be_clear(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text('backend: "python"')
    with pytest.raises(InvalidInput, match="which of the models") as refused:
        planned(tmp_path)
    assert (refused.value.field, refused.value.remedy) == ("model", "Name one of: one, two.")
    assert planned(tmp_path, "two").entry == "two"
    with pytest.raises(InvalidInput, match="no model three"):
        planned(tmp_path, "three")


def test_models_that_the_code_names_are_needed(tmp_path: Path) -> None:
    for name in ("front", "back", "other"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text('backend: "python"')
    (tmp_path / "front/1/model.py").write_text('request = InferenceRequest(model_name="back")')
    assert planned(tmp_path, "front").needed == ("back", "front")


def test_an_instance_gets_links_and_the_public_name(repository: Repository) -> None:
    repository.check()
    found = planned(repository.path)
    profile = {**DEFAULTS, **found.profile, "max_batch_size": 4}
    made = files.instance_files(repository.path, found, "assistant", profile, DEFAULTS)
    by_path = {one.path: one for one in made}
    assert {path.split("/")[0] for path in by_path} == {
        "assistant",
        "preprocessing",
        "tensorrt_llm",
        "postprocessing",
    }
    ensemble = pbtxt.parse(by_path["assistant/config.pbtxt"].content.decode())
    assert ensemble.name == "assistant"
    # The folder of its version is empty, and Triton wants it all the same.
    assert "assistant/1/" in by_path
    assert by_path["preprocessing/1/model.py"].link == str(repository.path / "preprocessing/1/model.py")
    # Untouched configurations stay letter for letter; the engine's has the edited value.
    assert by_path["preprocessing/config.pbtxt"].content.decode() == repository.texts["preprocessing"]
    assert "max_batch_size: 4" in by_path["tensorrt_llm/config.pbtxt"].content.decode()


def test_files_that_lead_elsewhere_are_refused_and_changes_are_noticed(tmp_path: Path) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    (root / "m/1").mkdir(parents=True)
    (root / "m/config.pbtxt").write_text('backend: "python"')
    secret.write_text("x")
    before = files.fingerprint(files.listing(root, ()))
    assert before == files.fingerprint(files.listing(root, ()))
    (root / "m/1/model.py").symlink_to(secret)
    with pytest.raises(InvalidInput, match="leads to"):
        files.listing(root, ())
    assert {one.path: one.is_code for one in files.listing(root, [tmp_path])} == {
        "m/config.pbtxt": False,
        "m/1/model.py": True,
    }
    assert files.fingerprint(files.listing(root, [tmp_path])) != before
    (root / "linked").symlink_to(tmp_path)
    with pytest.raises(InvalidInput, match="link to a folder"):
        files.listing(root, [tmp_path])
