"""Rendered TensorRT-LLM repositories: golden files, every setting, nothing open, nothing wrong by our own check."""

from __future__ import annotations

import dataclasses
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from apps.core.exceptions import InvalidInput
from apps.serving.domain import block_messages, pbtxt, repository
from apps.serving.domain.repository_check.check import check_repository
from apps.serving.domain.repository_check.trtllm_parameters import TENSORRT_LLM
from apps.serving.domain.trtllm import engine_models, settings, spec, templates
from apps.serving.domain.trtllm.launch import launch
from apps.serving.domain.trtllm.render import configuration, models, render
from tests.support.trtllm_templates import write_engine, write_templates

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples/repositories").glob("*.yaml"))
GOLDEN = ROOT / "tests/data/repositories"
OURS = [path for path in EXAMPLES if "recipe: llamacpp" not in path.read_text()]
ENGINE: dict[str, Any] = {"recipe": "engine", "version": "1.2", "model": "/engines/x"}
CHECKPOINT: dict[str, Any] = {"recipe": "checkpoint", "version": "1.2", "model": "/checkpoints/x"}


def together(files: dict[str, str]) -> str:
    """All files in one, each under its path."""
    return "".join(f"=== {path}\n{text}" for path, text in sorted(files.items()))


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_rendering_is_as_it_was(path: Path) -> None:
    # Rewrite a golden file by `render_repository EXAMPLE --out DIR --configuration-only` and this very join.
    made = configuration(spec.parse(yaml.safe_load(path.read_text())))
    assert together(made) == (GOLDEN / f"{path.stem}.txt").read_text()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_our_own_check_finds_nothing_wrong(path: Path, tmp_path: Path) -> None:
    values = yaml.safe_load(path.read_text())
    if values["recipe"] == "engine":
        ranks = values.get("parallel", {}).get("tp", 1) * values.get("parallel", {}).get("pp", 1)
        values["model"] = str(write_engine(tmp_path / "engine", ranks))
        values["tokenizer"] = str(tmp_path / "tokenizer")
        (tmp_path / "tokenizer").mkdir()
        (tmp_path / "tokenizer/tokenizer.json").write_text("{}")
    written = tmp_path / "spec.yaml"
    written.write_text(yaml.safe_dump(values))
    arguments = ["render_repository", str(written), "--out", str(tmp_path / "out")]
    if values["recipe"] != "llamacpp":
        arguments += ["--templates", str(write_templates(tmp_path, f"{values['version']}.0"))]
    call_command(*arguments, stdout=StringIO(), stderr=StringIO())
    report = check_repository(tmp_path / "out")
    assert report.findings == ()
    assert report.good
    repository.remove(tmp_path / "out")


def test_every_parameter_of_the_backend_has_one_place_and_is_written() -> None:
    known = {item.key for item in TENSORRT_LLM} - {"enable_trt_overlap"}
    placed = {item.key for item in settings.FIXED} | {
        key for key, item in settings.PLACED.items() if item.engine
    }
    assert set(settings.PLACED) - placed == {item.key for item in settings.AROUND}
    assert not placed & set(settings.PROFILE)
    assert set(settings.PROFILE) | placed == known | {"max_num_tokens"}
    assert set(engine_models.engine_parameters(spec.parse(ENGINE))) == known


@pytest.mark.parametrize("setting", settings.PROFILE.values(), ids=lambda item: item.key)
def test_each_setting_has_its_words_and_reaches_the_files(setting: settings.Setting) -> None:
    assert setting.title
    assert {setting.meaning[-1], setting.cost[-1]} == {"."}
    samples: dict[str, Any] = {"bool": False, "fraction": 0.5, "ints": "64,128"}
    value = setting.choices[-1] if setting.choices else samples.get(setting.form, max(setting.least, 7))
    if setting.key.endswith("_choices"):
        value = "{0},{0,0}"
    chosen = {"settings": {setting.key: value}}
    if setting.engine:
        config = pbtxt.parse(configuration(spec.parse(ENGINE | chosen))["tensorrt_llm/config.pbtxt"])
        assert config.parameters[setting.key].string_value == settings.as_text(value)
    text = configuration(spec.parse(CHECKPOINT | chosen))["tensorrt_llm/1/model.yaml"]
    differs = text != configuration(spec.parse(CHECKPOINT))["tensorrt_llm/1/model.yaml"]
    assert differs == (bool(setting.yaml) or setting.key == "cancellation_check_period_ms")


@pytest.mark.parametrize("release", ["0.17", "0.19.0", "0.20", "1.0.0rc3", "1.2.1"])
def test_no_variable_stays_open_and_blocks_read_back(release: str) -> None:
    for values in (ENGINE, CHECKPOINT):
        wanted = spec.parse(values | {"version": release})
        for path, text in configuration(wanted).items():
            assert "${" not in text
            if path.endswith(pbtxt.FILE_NAME):
                model = next(item for item in models(wanted) if item.name == path.split("/")[0])
                assert block_messages.read(pbtxt.parse(text)) == model


@pytest.mark.parametrize(
    ("values", "written"),
    [
        (ENGINE, ["preprocessing", "tensorrt_llm", "postprocessing", "fox"]),
        (
            ENGINE | {"answers": "tensorrt_llm_bls"},
            ["preprocessing", "tensorrt_llm", "postprocessing", "fox"],
        ),
        (CHECKPOINT, ["fox"]),
    ],
)
def test_the_model_that_answers_has_the_public_name(
    values: dict[str, Any], written: list[str], tmp_path: Path
) -> None:
    wanted = spec.parse(values | {"public_name": "fox", "revision": 7})
    assert [model.name for model in models(wanted)] == written
    made = render(wanted, templates.find(str(write_templates(tmp_path))))
    assert {file.path.split("/")[0] for file in made.files} == set(written)
    assert {file.path.split("/")[1] for file in made.files} - {"config.pbtxt"} == {"7"}
    with pytest.raises(InvalidInput, match="public_name"):
        spec.parse(ENGINE | {"public_name": "postprocessing"})


def test_templates_are_looked_for_beside_the_toolchain_and_those_of_the_release_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (write_templates(tmp_path / release, release) for release in ("0.19.0", "1.2.1"))
    monkeypatch.setattr(templates, "PLACES", (str(new.parent),))
    examples = str(old.parent / "examples")
    assert templates.find_for(None, examples, (1, 2)) == templates.Templates(new, (1, 2))
    assert templates.find_for(None, examples, (0, 19)) == templates.Templates(old, (0, 19))
    assert templates.find_for(None, "", (0, 19)) == templates.Templates(new, (1, 2))
    monkeypatch.setattr(templates, "PLACES", ())
    assert templates.find_for(None, "", (1, 2)) is None
    with pytest.raises(InvalidInput, match="holds no templates"):
        templates.find_for(str(tmp_path), examples, (1, 2))


def test_names_of_tensors_follow_the_release() -> None:
    def inputs(release: str, model: str) -> set[str]:
        text = configuration(spec.parse(ENGINE | {"version": release}))[f"{model}/config.pbtxt"]
        return {tensor.name for tensor in pbtxt.parse(text).input}

    for model in ("tensorrt_llm", "ensemble", "tensorrt_llm_bls"):
        assert {"min_length", "random_seed"} <= inputs("0.19", model)
        assert {"min_tokens", "seed"} <= inputs("1.0", model)
        assert not {"min_length", "random_seed"} & inputs("1.0", model)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"recipe": "other"}, "recipe"),
        ({"version": "newest"}, "version"),
        ({"color": "red"}, "color"),
        ({"settings": {"kv_cache_free_gpu_mem_fraction": 1.5}}, "settings.kv_cache_free_gpu_mem_fraction"),
        ({"settings": {"enable_chunked_context": "yes"}}, "settings.enable_chunked_context"),
        ({"settings": {"batch_scheduler_policy": "fast"}}, "settings.batch_scheduler_policy"),
        ({"settings": {"eagle_choices": "{0"}}, "settings.eagle_choices"),
        ({"settings": {"medusa_choices": "${medusa_choices}"}}, "settings.medusa_choices"),
        ({"settings": {"decoding_mode": "lookahead"}}, "settings.lookahead_window_size"),
        ({"settings": {"gpu_device_ids": "0"}}, "settings.gpu_device_ids"),
        ({"placement": {"gpu_device_ids": "0,x"}}, "placement.gpu_device_ids"),
        ({"placement": {"gpu_device_ids": "0;1"}}, "placement.gpu_device_ids"),
        ({"placement": {"gpu_device_ids": "0,0"}, "parallel": {"tp": 2}}, "placement.gpu_device_ids"),
        ({"placement": {"num_nodes": 2}}, "placement.num_nodes"),
        ({"parallel": {"tp": 2}, "instances": {"engine": 2}}, "instances.engine"),
        (
            {"parallel": {"mode": "orchestrator"}, "placement": {"participant_ids": "1"}},
            "placement.participant_ids",
        ),
        ({"recipe": "checkpoint", "parallel": {"mode": "orchestrator"}}, "parallel.mode"),
        ({"recipe": "checkpoint", "instances": {"engine": 2}}, "placement.gpu_device_ids"),
    ],
)
def test_what_cannot_be_served_is_refused_by_its_field(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        spec.parse(ENGINE | values)
    assert refused.value.findings[0].where == field
    assert refused.value.remedy


@pytest.mark.parametrize("values", [None, [], "engine", 7])
def test_a_specification_is_a_mapping(values: Any) -> None:
    with pytest.raises(InvalidInput, match="is no mapping"):
        spec.parse(values)


@pytest.mark.parametrize(
    ("values", "processes", "environment"),
    [
        (ENGINE, 1, {}),
        (ENGINE | {"parallel": {"tp": 2, "pp": 2}}, 4, {}),
        (ENGINE | {"parallel": {"tp": 4, "mode": "orchestrator"}}, 1, {"TRTLLM_ORCHESTRATOR": "1"}),
        (CHECKPOINT | {"parallel": {"tp": 8}}, 1, {}),
    ],
)
def test_each_rank_is_started_once(values: Any, processes: int, environment: dict[str, str]) -> None:
    started = launch(spec.parse(values), "/repository")
    assert started.processes == processes == started.argv.count("/opt/tritonserver/bin/tritonserver")
    assert ("mpirun" in started.argv) == (values["recipe"] == "engine")
    assert environment.items() <= started.environment.items()
    prefixes = {word for word in started.argv if "shm-region-prefix-name" in word}
    assert len(prefixes) == processes


def test_python_files_are_those_of_the_nodes_own_release(tmp_path: Path) -> None:
    folder = write_templates(tmp_path, "1.2.1")
    found = templates.find(str(folder))
    assert found is not None
    assert found.release == (1, 2)
    files = {file.path: file.content for file in render(spec.parse(ENGINE | {"revision": 5}), found).files}
    assert (
        files["tensorrt_llm_bls/5/lib/decode.py"]
        == (folder / "inflight_batcher_llm/tensorrt_llm_bls/1/lib/decode.py").read_bytes()
    )
    # Triton serves a version where its folder is.
    assert {"ensemble/5/", "tensorrt_llm/5/"} <= set(files)
    with pytest.raises(InvalidInput, match=r"are of TensorRT-LLM 1\.2, the node has 0\.19"):
        render(spec.parse(ENGINE | {"version": "0.19"}), found)


@pytest.mark.parametrize("fault", ["missing", "link", "large"])
def test_a_broken_template_folder_is_named(fault: str, tmp_path: Path) -> None:
    folder = write_templates(tmp_path)
    file = folder / "llmapi/tensorrt_llm/1/helpers.py"
    file.unlink()
    if fault == "link":
        file.symlink_to("/etc/hostname")
    if fault == "large":
        file.write_bytes(b"#" * (templates.MOST_BYTES + 1))
    with pytest.raises(InvalidInput, match=r"tensorrt_llm/1/helpers\.py"):
        render(spec.parse(CHECKPOINT), templates.find(str(folder)))
    with pytest.raises(InvalidInput, match="holds no templates"):
        templates.find(str(tmp_path / "nowhere"))
    assert templates.find(None, [str(tmp_path / "nowhere")]) is None


def test_without_templates_the_rest_is_rendered_and_said_so() -> None:
    rendered = render(spec.parse(CHECKPOINT | {"settings": {"multi_block_mode": True}}), None)
    assert [found.id for found in rendered.findings] == ["python_files_missing", "setting_without_effect"]


def test_a_rendered_repository_is_touched_so_that_a_reload_reloads(tmp_path: Path) -> None:
    rendered = render(spec.parse(CHECKPOINT), None)
    root = tmp_path / "repository"
    repository.write(root, rendered.files)
    before = (root / "tensorrt_llm/config.pbtxt").stat().st_mtime_ns
    repository.write(root, rendered.files)
    assert (root / "tensorrt_llm/config.pbtxt").stat().st_mtime_ns > before
    repository.remove(root)


def _call(*arguments: str) -> tuple[int, str, str]:
    out, error = StringIO(), StringIO()
    try:
        call_command("render_repository", *arguments, stdout=out, stderr=error)
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue(), error.getvalue()
    except CommandError as refused:
        return refused.returncode, out.getvalue(), str(refused)
    return 0, out.getvalue(), error.getvalue()


def test_the_command_keeps_its_contract(tmp_path: Path) -> None:
    example, out = str(OURS[-1]), str(tmp_path / "out")
    code, text, _error = _call(example, "--out", out, "--configuration-only", "--json")
    answer = json.loads(text)
    assert code == 0
    assert answer["files"] == ["tensorrt_llm/1/model.yaml", "tensorrt_llm/config.pbtxt"]
    assert answer["launch"]["processes"] == 1
    assert _call(example, "--out", out)[0] == 2
    assert _call(str(tmp_path / "none.yaml"), "--out", f"{out}2")[0] == 2
    broken = tmp_path / "broken.yaml"
    broken.write_text("recipe: engine\nmodel: ''\n")
    code, text, _error = _call(str(broken), "--out", f"{out}2", "--json")
    assert (code, json.loads(text)["findings"][0]["where"]) == (1, "model")
    code, _text, error = _call(example, "--out", f"{out}2", "--templates", str(tmp_path))
    assert (code, "holds no templates" in error) == (1, True)
    repository.remove(tmp_path / "out")


def test_settings_are_frozen_data() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.FIXED[0].title = "x"  # type: ignore[misc]
