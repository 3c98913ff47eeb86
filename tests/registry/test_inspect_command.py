"""`manage.py inspect_checkpoint`: the documented keys, exit codes 0, 1 and 2, and no database."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.support.hugging_face import TINY, write_hugging_face
from tests.support.llama import write_llama

KEYS = [
    "family",
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_kv_heads",
    "head_dim",
    "vocab_size",
    "intermediate_size",
    "max_position_embeddings",
    "attention_window",
    "rope",
    "quantization",
    "params",
    "kv_bytes_per_token",
    "valid_tp",
    "findings",
]


def run(*argv: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("inspect_checkpoint", *argv, stdout=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def answer(*argv: str) -> tuple[int, dict[str, Any]]:
    code, text = run(*argv, "--json")
    return code, json.loads(text)


def test_the_three_kinds_of_paths_give_the_same_keys(tmp_path: Path) -> None:
    folder = write_hugging_face(tmp_path / "m")
    file = write_llama(tmp_path / "m.gguf", tokenizer__chat_template="{{ x }}")
    told = [answer(str(path)) for path in (folder, folder / "config.json", file)]
    assert [code for code, _ in told] == [0, 0, 0]
    for _, found in told:
        assert list(found)[: len(KEYS)] == KEYS
        assert (found["family"], found["num_layers"], found["num_attention_heads"]) == ("llama", 2, 4)
    assert {tuple(found) for _, found in told} == {tuple(told[0][1])}


def test_refused_input_exits_1_with_its_findings(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TINY, "hidden_size": "4096"}))
    code, found = answer(str(path))
    assert code == 1
    assert [finding["where"] for finding in found["findings"] if finding["severity"] == "error"] == [
        "hidden_size"
    ]
    assert found["num_layers"] == 2
    code, text = run(str(path))
    assert code == 1
    assert 'error: hidden_size is "4096", not a whole number. Correct hidden_size' in text
    assert answer(str(tmp_path / "none"))[0] == 1


def test_every_size_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TINY, "num_attention_heads": 12, "num_key_value_heads": 6, "hidden_size": 96,
                                "intermediate_size": 96}))  # fmt: skip
    assert answer(str(path))[1]["valid_tp"] == [1, 2]
    assert answer(str(path), "--all-tp")[1]["valid_tp"] == [1, 2, 3, 6, 12]


def test_text_for_people(tmp_path: Path) -> None:
    code, text = run(str(write_hugging_face(tmp_path / "m")))
    assert code == 0
    lines = dict(line.split(None, 1) for line in text.splitlines())
    assert (lines["family"], lines["attention_window"], lines["valid_tp"]) == ('"llama"', "none", "[1, 2, 4]")


def test_wrong_usage() -> None:
    with pytest.raises(CommandError):
        call_command("inspect_checkpoint")


def test_without_any_database(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY))
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": "postgres://nobody@127.0.0.1:9/none",
    }
    for argv, code in (([str(path), "--json"], 0), ([], 2)):
        done = subprocess.run(
            [sys.executable, "manage.py", "inspect_checkpoint", *argv],
            cwd=Path(__file__).resolve().parents[2],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
