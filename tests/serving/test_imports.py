"""Importing, adopting and forgetting a model repository: rows, rights, refusals."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from django.conf import settings

from apps.accounts.roles import ADMINISTRATOR, CODE_AUTHOR, OPERATOR
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.engines.models import Engine
from apps.registry.services import keep_upload
from apps.serving import adoption, imports, preview, selectors, services
from apps.serving.models import BatchingProfile, Deployment, ModelRepository
from apps.serving.serialize import deployment_dict, revision_dict
from apps.specs import services as specs
from apps.specs.current import spec_of
from tests import objects, people
from tests.serving.repository_check.world import Repository

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _backends(settings: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "backends", lambda: frozenset({"python"}))


def test_a_repository_is_adopted_edited_and_deployed() -> None:
    row = objects.model_repository()
    assert [model["name"] for model in row.report["models"]] == ["doubler"]
    made = services.adopt_repository("test", row, "doubled")
    assert (made.batching.name, made.batching.strategy) == ("doubled", "dynamic")
    assert (made.batching.max_batch_size, made.batching.max_queue_delay_microseconds) == (4, 2000)
    assert list(preview.rendered_files(made)) == ["doubled/config.pbtxt"]
    services.save_batching_profile("test", {"max_batch_size": 2}, made.batching)
    made = selectors.deployment("doubled")
    rendered = preview.rendered_files(made)["doubled/config.pbtxt"]
    assert ("max_batch_size: 2" in rendered, "kept" in rendered) == (True, True)
    services.deploy("test", made)
    revision = made.revisions.get()
    assert (revision.engine, revision.repository_fingerprint) == (None, row.fingerprint)
    assert revision_dict(revision)["engine"] is None
    shown = deployment_dict(selectors.deployment("doubled"))
    assert (shown["repository"], shown["serves"], shown["changed"]) == ("own", "own: doubler", False)


def test_a_deployment_of_a_repository_keeps_what_it_serves() -> None:
    made = services.adopt_repository("test", objects.model_repository(), "doubled")
    services.save_deployment("test", {"replicas": 2, "repository": "own"}, made)
    assert Deployment.objects.get().replicas == 2
    objects.build_profile()
    with pytest.raises(InvalidInput) as refused:
        services.save_deployment("test", {"build_profile": "f16"}, made)
    assert refused.value.field == "build_profile"


def test_files_that_changed_are_checked_before_they_are_served() -> None:
    row = objects.model_repository()
    made = services.adopt_repository("test", row, "doubled")
    path = Path(row.folder) / "doubler/1/model.py"
    path.write_text(path.read_text() + "# mine\n")
    with pytest.raises(NotPossibleNow, match="have changed"):
        services.deploy("test", made)
    services.check_again("test", row)
    services.deploy("test", selectors.deployment("doubled"))


def test_what_cannot_be_served_is_refused_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "backends", lambda: frozenset({"onnxruntime"}))
    with pytest.raises(InvalidInput, match="needs the backend python"):
        services.adopt_repository("test", objects.model_repository(), "doubled")
    assert not BatchingProfile.objects.exists()
    assert not Deployment.objects.exists()


def test_code_needs_its_role_and_paths_their_roots(tmp_path: Path) -> None:
    operator = people.person(OPERATOR)
    folder = objects.repository_folder("mine")
    with pytest.raises(NotAllowed, match="code-author"):
        services.import_repository(operator, "mine", {"path": str(folder)})
    author = people.person(OPERATOR, CODE_AUTHOR, name="author")
    row = services.import_repository(author, "mine", {"path": str(folder)})
    assert row.created_by == author
    for source, field in (
        ({"path": str(tmp_path)}, "source.path"),
        ({"path": "relative"}, "source.path"),
        ({"path": str(folder / "missing")}, "source.path"),
        ({"archive": "/etc/passwd"}, "source.archive"),
        ({}, "source"),
    ):
        with pytest.raises(InvalidInput) as refused:
            services.import_repository("test", "other", source)
        assert refused.value.field == field
    with pytest.raises(InvalidInput, match="already"):
        services.import_repository("test", "mine", {"path": str(folder)})


def test_an_archive_is_unpacked_within_bounds_and_goes_with_its_repository(
    django_capture_on_commit_callbacks: object,
) -> None:
    folder = objects.repository_folder("packed")
    archive = _tar(folder)
    author = people.person(OPERATOR, CODE_AUTHOR)
    kept = keep_upload(author, "packed.tar.gz", [archive])
    row = services.import_repository(author, "unpacked", {"archive": str(kept)})
    unpacked = Path(row.folder)
    assert unpacked.is_relative_to(imports.repositories_folder())
    assert (unpacked / "doubler/1/model.py").is_file()
    made = services.adopt_repository(author, row, "doubled")
    with pytest.raises(NotPossibleNow, match="doubled"):
        services.delete_repository(author, row)
    services.delete_deployment(author, made)
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        services.delete_repository(author, row)
    assert not unpacked.exists()
    hostile = keep_upload(author, "bad.tar.gz", [_tar(folder, "../../outside")])
    with pytest.raises(InvalidInput) as refused:
        services.import_repository(author, "bad", {"archive": str(hostile)})
    assert refused.value.code == "archive_traversal"


def _tar(folder: Path, name: str = "packed") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        tar.add(folder, name)
    return made.getvalue()


def test_our_own_repository_becomes_an_ordinary_deployment() -> None:
    profile = objects.build_profile()
    engine = objects.engine(profile)
    folder = Path(settings.INFLIGHT_HOME) / "checkpoints/ours"
    (folder / "demo/1").mkdir(parents=True)
    (folder / "demo/1/model.py").write_text("class TritonPythonModel: pass")
    (folder / "demo/config.pbtxt").write_text(
        'name: "demo" backend: "python" max_batch_size: 1 model_transaction_policy { decoupled: true }\n'
        "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        f'parameters {{ key: "gguf_path" value {{ string_value: "{engine.path}/model.gguf" }} }}\n'
        'parameters { key: "slots" value { string_value: "6" } }\n'
    )
    row = services.import_repository("test", "ours", {"path": str(folder)})
    made = services.adopt_repository("test", row, "mine")
    assert (made.build_profile, made.repository) == (profile, None)
    assert (made.batching.strategy, made.batching.max_batch_size) == ("inflight", 6)


def test_a_pasted_line_becomes_a_profile() -> None:
    line = (
        "python3 tools/fill_template.py -i tensorrt_llm/config.pbtxt "
        '"triton_max_batch_size:64,decoupled_mode:true,max_beam_width:1,engine_dir:/e,'
        "kv_cache_free_gpu_mem_fraction:0.8,enable_kv_cache_reuse:true,max_queue_delay_microseconds:0,"
        'batching_strategy:inflight_fused_batching,max_queue_size:16,spelt_wrong:1"'
    )
    profile, findings = services.profile_of_line("test", "pasted", line)
    assert (profile.engine, profile.strategy, profile.max_batch_size) == ("trtllm", "inflight", 64)
    assert profile.max_queue_size == 16
    assert profile.trtllm == {
        "kv_cache_free_gpu_mem_fraction": 0.8,
        "enable_kv_cache_reuse": True,
        "max_beam_width": 1,
    }
    assert [found["id"] for found in findings] == ["unknown_variable"]
    with pytest.raises(InvalidInput, match=r"no fill_template\.py line"):
        services.profile_of_line("test", "other", "ls")


def test_engines_of_a_repository_are_listed_with_their_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "backends", lambda: frozenset({"python", "tensorrtllm"}))
    root = Path(settings.INFLIGHT_HOME) / "checkpoints/trtllm"
    root.mkdir(parents=True, exist_ok=True)
    repository = Repository(root)
    repository.check()
    (repository.engine / "rank0.engine").write_bytes(b"engine")
    row = services.import_repository("test", "trtllm", {"path": str(repository.path)})
    made = services.adopt_repository("test", row, "assistant", {"checkpoint": objects.checkpoint().name})
    assert (made.repository_model, made.batching.engine, made.batching.strategy) == (
        "ensemble",
        "trtllm",
        "inflight",
    )
    engine = Engine.objects.get()
    assert (engine.provenance, engine.builder) == (Engine.Provenance.IMPORTED, "trtllm")
    # The same repository once more: its engine is known.
    services.adopt_repository("test", row, "again", {"checkpoint": "tiny"})
    assert Engine.objects.count() == 1


def test_a_repository_is_configured_as_code() -> None:
    folder = objects.repository_folder()
    archive = keep_upload(people.person(OPERATOR, CODE_AUTHOR, name="u"), "own.tar.gz", [_tar(folder)])
    objects.batching("slow")
    text = (
        "apiVersion: inflight/v1\nkind: Deployment\nmetadata: {name: doubled}\n"
        "spec: {repository: own, batching: slow, desired: stopped}\n---\n"
        "apiVersion: inflight/v1\nkind: ModelRepository\nmetadata: {name: own}\n"
        f"spec: {{source: {{path: {folder}}}}}\n"
        "---\napiVersion: inflight/v1\nkind: ModelRepository\nmetadata: {name: packed}\n"
        f"spec: {{source: {{archive: {archive}}}}}\n"
    )
    operator = people.person(OPERATOR, name="o")
    assert specs.plan(operator, text, "f.yaml").count("create") == 3
    with pytest.raises(NotAllowed, match="code"):
        specs.apply(operator, text, "f.yaml")
    assert not ModelRepository.objects.exists()
    assert not Deployment.objects.exists()

    author = people.person(ADMINISTRATOR, CODE_AUTHOR)
    specs.apply(author, text, "f.yaml")
    assert Deployment.objects.get().repository == ModelRepository.objects.get(name="own")
    assert specs.plan(author, text, "f.yaml").is_empty
    exported = specs.export(author, ["ModelRepository"])
    assert specs.plan(author, exported, "f.yaml").is_empty
    for wrong, sentence in (
        (text.replace(f"path: {folder}", "path: /elsewhere"), "source does not change"),
        (text.replace("repository: own", "repository: none-such"), "none-such"),
        (exported.replace("name: own", "name: new").replace(str(folder), "/etc"), "not inside a folder"),
        (exported.replace("path:", "folder:"), "folder"),
        (text.replace("{archive:", "{path: /x, archive:"), "either a path or an archive"),
        (exported.replace("sha256: ", "sha256: 0"), "sha256"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            specs.plan(author, wrong, "f.yaml")


def test_a_document_says_which_repository_is_served_and_is_written_back() -> None:
    objects.model_repository()
    objects.batching("slow")
    text = (
        "apiVersion: inflight/v1\nkind: Deployment\nmetadata: {name: doubled}\n"
        "spec: {repository: own, batching: slow, desired: stopped}\n"
    )
    author = people.person(ADMINISTRATOR, CODE_AUTHOR)
    specs.apply(author, text, "f.yaml")
    made = Deployment.objects.get()
    assert (made.repository_model, made.build_profile) == ("doubler", None)
    written = spec_of(made)
    assert (written["repository"], written["model"], "build" in written) == ("own", "doubler", False)
    with pytest.raises(InvalidInput, match="build or a repository"):
        specs.apply(author, text.replace("repository: own, ", ""), "f.yaml")
