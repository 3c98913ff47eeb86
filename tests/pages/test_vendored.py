"""Other people's scripts are those of their releases, and what both sides of the playground must know alike."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from apps.streaming.domain import thinking

STATIC = Path(__file__).resolve().parents[2] / "static"


def test_vendored_scripts_are_what_the_lock_says() -> None:
    folder = STATIC / "vendor"
    locked = json.loads((folder / "vendored.json").read_text(encoding="utf-8"))
    assert {path.name for path in folder.glob("*.js")} == set(locked)
    for name, facts in locked.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"], name
        assert (folder / f"{facts['package']}.LICENSE.md").is_file()


def test_page_and_server_know_the_same_marks_of_thoughts() -> None:
    text = (STATIC / "js/playground/thinking.js").read_text(encoding="utf-8")
    found = re.findall(r'^  \["(.+)", "(.+)"\],$', text, re.MULTILINE)
    assert tuple(found) == thinking.MARKS


def test_thoughts_are_told_from_answers() -> None:
    assert thinking.split("<think>\nhm\n</think>\n\n42") == thinking.Parts("hm", "42")
    assert thinking.split("<think>hm") == thinking.Parts("hm", "", open=True)
    # Where the template opened the thought, its end alone is in the answer.
    assert thinking.split("hm\n</think>\n\n42") == thinking.Parts("hm", "42")
    for plain in ("42", "Close it with </think> then.", ""):
        assert thinking.split(plain) == thinking.Parts(None, plain)
