"""A server's log that has grown too long is put aside while the server writes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workers.failures import LOAD_MARK
from workers.log_rotation import rotate_server_logs


def test_the_open_file_is_written_on(tmp_path: Path, settings: Any) -> None:
    settings.INFLIGHT_HOME = tmp_path
    folder = tmp_path / "instances" / "i-1"
    folder.mkdir(parents=True)
    (folder / LOAD_MARK).write_text('{"log_offset": 700}')
    small = tmp_path / "instances" / "i-2" / "triton.log"
    small.parent.mkdir()
    small.write_text("short\n")
    with (folder / "triton.log").open("a") as server:
        server.write("old line\n" * 100)
        server.flush()
        assert rotate_server_logs(limit=500) == 1
        server.write("new line\n")
    assert (folder / "triton.log").read_text() == "new line\n"
    assert (folder / "triton.log.1").read_text().count("old line") == 100
    assert json.loads((folder / LOAD_MARK).read_text()) == {"log_offset": 0}
    assert small.read_text() == "short\n"
    assert sorted(path.name for path in folder.iterdir()) == [LOAD_MARK, "triton.log", "triton.log.1"]
    assert rotate_server_logs(limit=500) == 0
