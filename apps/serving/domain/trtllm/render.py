"""A whole TensorRT-LLM repository as files: our configuration, the node's own python files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apps.core.exceptions import Finding
from apps.serving.domain import block_messages, blocks, pbtxt
from apps.serving.domain.repository import RepositoryFile
from apps.serving.domain.trtllm import engine_models, llmapi_model, templates
from apps.serving.domain.trtllm.spec import RepositorySpec
from apps.serving.domain.trtllm.templates import Templates

Code = Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class Rendered:
    """Files in the order of their paths; a path with / at its end is an empty folder."""

    files: tuple[RepositoryFile, ...]
    findings: tuple[Finding, ...] = ()

    def texts(self) -> dict[str, str]:
        """Text of our own files by path, without the templates' python files."""
        return {
            file.path: file.content.decode()
            for file in self.files
            if file.path.endswith((pbtxt.FILE_NAME, llmapi_model.YAML_NAME))
        }


def models(spec: RepositorySpec) -> tuple[blocks.Model, ...]:
    """Every model of the repository as blocks."""
    return engine_models.models(spec) if spec.recipe == "engine" else (llmapi_model.model(spec),)


def configuration(spec: RepositorySpec) -> dict[str, str]:
    """Text of config.pbtxt of each model, and of model.yaml, by path. Raises InvalidInput for a server's rule."""
    found = {
        f"{model.name}/{pbtxt.FILE_NAME}": pbtxt.render(block_messages.checked(model))
        for model in models(spec)
    }
    if spec.recipe == "checkpoint":
        name = f"{spec.name_of(spec.entry)}/{spec.revision}/{llmapi_model.YAML_NAME}"
        found[name] = llmapi_model.yaml_text(spec)
    return found


def render(spec: RepositorySpec, found: Templates | None) -> Rendered:
    """The repository. Without templates (null) it has no python files, and a finding that says so.

    Raises InvalidInput where the templates are not those of the release.
    """
    kind = templates.ENGINE_FOLDER if spec.recipe == "engine" else templates.LLMAPI_FOLDER
    code: Code = templates.python_files(found, kind, spec.release) if found is not None else {}
    files = [RepositoryFile(path, text.encode()) for path, text in configuration(spec).items()]
    for model, parts in ((model, code[model]) for model in spec.written if model in code):
        folder = f"{spec.name_of(model)}/{spec.revision}"
        files += [RepositoryFile(f"{folder}/{path}", content) for path, content in parts.items()]
    for model in ("tensorrt_llm", engine_models.ENSEMBLE) if spec.recipe == "engine" else ():
        # Triton serves a version whose folder is there, also where nothing is to be read from it.
        if model in spec.written:
            files.append(RepositoryFile(f"{spec.name_of(model)}/{spec.revision}/", b""))
    return Rendered(tuple(sorted(files, key=lambda file: file.path)), tuple(_findings(spec, found)))


def _findings(spec: RepositorySpec, found: Templates | None) -> list[Finding]:
    findings = []
    if found is None:
        findings.append(
            Finding(
                "python_files_missing",
                "warning",
                "The python files of the models are not here: they are the node's own.",
                "templates",
                "Name the folder all_models of the node's TensorRT-LLM installation.",
            )
        )
    elif found.release is None:
        findings.append(
            Finding(
                "templates_release_unknown",
                "warning",
                f"Nothing beside {found.folder} says of which release the templates are.",
                "templates",
                f"Make sure that they are those of {spec.version}.",
            )
        )
    if spec.recipe == "checkpoint":
        for key in llmapi_model.ignored_settings(spec):
            message = f"{key} does nothing here: the PyTorch backend has no such argument."
            findings.append(
                Finding("setting_without_effect", "info", message, f"settings.{key}", "Remove it.")
            )
    elif "max_num_tokens" in spec.settings:
        message = "max_num_tokens does nothing here: the engine's build fixed it."
        findings.append(
            Finding("setting_without_effect", "info", message, "settings.max_num_tokens", "Remove it.")
        )
    return findings
