"""What is written about toolchains, what a probe says, how argument lists are wrapped: tables without a database."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from apps.core.exceptions import InvalidInput
from apps.fleet.domain.toolchain_argv import ALL_GPUS, Command, Mount, Place, container_name, mountable, wrap
from apps.fleet.domain.toolchain_file import read_offers
from apps.fleet.domain.toolchain_report import MARK, judge, read_report

GOLDEN = Path(__file__).resolve().parents[1] / "data/toolchains"
IMAGE = "registry.example/tensorrt-llm/release@sha256:" + "0123456789abcdef" * 4
PLACES = {
    "native": Place("native", python="/opt/trtllm/bin/python3"),
    "docker": Place("docker", image=IMAGE, program="/usr/bin/docker", user="1000:1000"),
    "podman": Place("podman", image=IMAGE, program="/usr/bin/podman"),
}
BUILD = Command(
    argv=(
        "trtllm-build",
        "--checkpoint_dir",
        "/home/i/stages/ab",
        "--output_dir",
        "/home/i/builds/7-1/work/engine",
    ),
    cwd="/home/i/builds/7-1/work",
    mark="n1:build:7:1",
    name=container_name("n1:build:7:1", "build"),
    env={"TLLM_LOG_LEVEL": "INFO", "HOME": "/home/i/builds/7-1/work"},
    mounts=(Mount("/home/i/stages/ab"), Mount("/home/i/builds/7-1/work", writable=True)),
    gpus=("GPU-0", "GPU-1"),
)
SERVER = Command(
    argv=(
        "mpirun",
        *("-n", "1", "/opt/tritonserver/bin/tritonserver", "--http-address", "127.0.0.1"),
        *(":", "-n", "1", "/opt/tritonserver/bin/tritonserver"),
    ),
    cwd="/home/i/instances/u1",
    mark="n1:instance:3:1",
    name=container_name("n1:instance:3:1", "triton"),
    mounts=(Mount("/home/i/instances/u1/repository"), Mount("/home/i/engines/cd")),
    gpus=("0",),
    network="host",
)


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize(("what", "command"), [("build", BUILD), ("server", SERVER)])
def test_an_argument_list_is_wrapped_as_its_golden_file_says(kind: str, what: str, command: Command) -> None:
    found = wrap(PLACES[kind], command)
    said = {"argv": list(found.argv), "env": found.env, "end": list(found.end)}
    assert said == json.loads((GOLDEN / f"{kind}-{what}.json").read_text())


def test_one_gpu_all_gpus_and_none() -> None:
    def words(kind: str, *gpus: str) -> str:
        return " ".join(wrap(PLACES[kind], Command(("x",), "/", "m", "n", gpus=gpus)).argv)

    assert '--gpus "device=0"' in words("docker", "0")
    assert "--gpus all" in words("docker", ALL_GPUS)
    assert "--gpus" not in words("docker")
    assert "--device nvidia.com/gpu=all" in words("podman", ALL_GPUS)
    native = Command(("x",), "/", "m", "n", gpus=(ALL_GPUS,))
    assert "CUDA_VISIBLE_DEVICES" not in wrap(PLACES["native"], native).env
    assert wrap(PLACES["native"], Command(("x",), "/", "m", "n")).env["CUDA_VISIBLE_DEVICES"] == ""


def test_a_containers_name_and_a_mounts_path_are_such_that_the_program_takes_them() -> None:
    assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", container_name("n1 ü:build:7:1", "quantize"))
    assert [mountable(path) for path in ("/a", "a", "/a,b", '/a"b', "/a\nb")] == [True, *[False] * 4]


def test_the_file_is_read() -> None:
    native, image = read_offers(
        '[[toolchain]]\nname = "a"\nkind = "native"\npython = "/p/python3"\n'
        f'[[toolchain]]\nname = "b-1.2.1"\nkind = "podman"\nimage = "{IMAGE}"\nshared_memory_gib = 16\n'
    )
    assert (native.location, native.examples) == ("/p/python3", "/app/tensorrt_llm/examples")
    assert (image.location, image.shared_memory_gib) == (IMAGE, 16)
    assert read_offers("") == ()


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("toolchain = [", "", "no TOML"),
        ("toolchain = 3", "toolchain", "no list"),
        ("[other]", "other", "no field of this file"),
        ('[[toolchain]]\nkind = "native"', "toolchain 1.name", "required"),
        ('[[toolchain]]\nname = "A"\nkind = "native"\npython = "/p"', "toolchain 1", "lower-case"),
        ('[[toolchain]]\nname = "a"\nkind = "lxc"', "toolchain 1.kind", "native"),
        ('[[toolchain]]\nname = "a"\nkind = "native"\npython = "p"', "toolchain 1", "absolute path"),
        ('[[toolchain]]\nname = "a"\nkind = "docker"\nimage = "x:1.2"', "toolchain 1", "digest"),
        ('[[toolchain]]\nname = "a"\nkind = "docker"\nimage = "--privileged"', "toolchain 1", "digest"),
        (
            f'[[toolchain]]\nname = "a"\nkind = "docker"\nimage = "{IMAGE}"\nprogram = "d"',
            "toolchain 1",
            "absolute",
        ),
        (
            f'[[toolchain]]\nname = "a"\nkind = "docker"\nimage = "{IMAGE}"\ntag = "d"',
            "toolchain 1.tag",
            "not permitted",
        ),
        (f'[[toolchain]]\nname = "a"\nkind = "docker"\nimage = "{IMAGE}"\n' * 2, "toolchain 2.name", "twice"),
    ],
)
def test_a_file_with_a_fault_names_field_and_remedy(text: str, field: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_offers(text)
    assert (caught.value.code, caught.value.field) == ("toolchains_file_invalid", field)
    assert said in caught.value.sentence
    assert caught.value.remedy


WHOLE: dict[str, Any] = {
    "python": "3.12.3",
    "tensorrt_llm": "1.2.1",
    "tensorrt": "10.14.1.48",
    "torch": "2.9.1",
    "cuda": "13.1.0",
    "driver": "590.44.01",
    "gpus": [{"index": 0, "name": "H100", "uuid": "GPU-0", "sm": 90, "memory_bytes": 85520809984}],
    "trtllm_build": {"path": "/usr/local/bin/trtllm-build", "exit_code": 0, "said": ""},
    "mpirun": "/usr/local/mpi/bin/mpirun",
    "quantize": True,
    "converters": 20,
}


def report(**changes: Any) -> str:
    return f"a warning\n{MARK}{json.dumps({**WHOLE, **changes})}\nand something after it\n"


@pytest.mark.parametrize(
    ("changes", "recipes", "said"),
    [
        ({}, ("engine", "checkpoint"), ""),
        ({"tensorrt_llm": "0.16.0"}, ("engine",), ""),
        ({"tensorrt_llm": "1.3.0rc14", "trtllm_build": None}, ("checkpoint",), "compiles no engines"),
        ({"trtllm_build": None}, ("checkpoint",), "no trtllm-build"),
        (
            {"trtllm_build": {"path": "x", "exit_code": 1, "said": "libmpi.so: cannot open"}},
            ("checkpoint",),
            "libmpi.so: cannot open",
        ),
        (
            {"trtllm_build": {"path": "x", "exit_code": None, "said": "no answer"}},
            ("checkpoint",),
            "no answer",
        ),
        ({"quantize": False, "converters": 0}, ("checkpoint",), "example scripts"),
        ({"gpus": [], "gpu_error": "there is no nvidia-smi"}, (), "there is no nvidia-smi"),
        ({"tensorrt_llm": None, "import_error": "No module named 'tensorrt_llm'"}, (), "No module named"),
        ({"tensorrt_llm": "unknown"}, (), "cannot be read"),
    ],
)
def test_what_a_toolchain_can_do_follows_from_what_it_really_has(
    changes: dict[str, Any], recipes: tuple[str, ...], said: str
) -> None:
    found = judge(read_report(report(**changes)))
    assert found.recipes == recipes
    assert said in found.problem
    assert bool(found.problem) == bool(found.remedy)


def test_versions_that_are_unknown_are_left_out() -> None:
    found = read_report(report(cuda=None, driver=None))
    assert found.versions == {
        "python": "3.12.3",
        "tensorrt_llm": "1.2.1",
        "tensorrt": "10.14.1.48",
        "torch": "2.9.1",
    }
    assert found.sms == [90]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("", "printed nothing"),
        ("Traceback\ndocker: Error response from daemon: no such image\n", "no such image"),
        (f'{MARK}{{"python": "3', "cut off"),
        (f"{MARK}[1]", "report"),
        (f"{MARK}{{}}", "python"),
        (report(gpus=[{"index": -1, "name": "x"}]), "gpus.0.index"),
        (report(converters="many"), "converters"),
        (report(tensorrt_llm={"version": 1}), "tensorrt_llm"),
        (report(torch="2" * 600), "torch"),
    ],
)
def test_a_report_that_cannot_be_used_says_what_about_it(output: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_report(output)
    assert caught.value.code == "toolchain_report_unreadable"
    assert said in caught.value.sentence
