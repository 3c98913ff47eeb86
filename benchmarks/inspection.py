"""How long the worst files take that a checkpoint may hold: configurations and headers made to hurt.

Run on a quiet machine: `python -m benchmarks.inspection`. Each file is read in a process of its own; the time is that
of reading alone (interpreter start excluded), the memory the most that was resident. The bounds are 1 s and 200 MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.registry.domain.test_hostile import HUNGRY, TEXTS

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 1.0
MEGABYTES = 200.0
READ = """
import json, sys, time
from pathlib import Path
from apps.registry.domain.checkpoint_reader import read_checkpoint
start = time.perf_counter()
facts = read_checkpoint(Path(sys.argv[1])).facts
seconds = time.perf_counter() - start
(line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(json.dumps([seconds, int(line.split()[1]) / 1000, [finding.id for finding in facts.findings][:2]]))
"""


def main() -> int:
    """Print a line for each file; exit 1 where one passes a bound."""
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path in sorted(_files(Path(folder)).items()):
            argv = [sys.executable, "-c", READ, str(path)]
            done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
            seconds, megabytes, found = json.loads(done.stdout)
            passed = seconds <= SECONDS and megabytes <= MEGABYTES
            worst = worst if passed else 1
            print(
                f"{name:<22} {seconds:6.3f} s {megabytes:6.1f} MB  {', '.join(found)}{'' if passed else '  <-'}"
            )
    return worst


def _files(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for name, (file, make) in HUNGRY.items():
        files[name] = folder / name.replace(" ", "-") / file
        files[name].parent.mkdir()
        make(files[name])
    for name, (raw, _code) in TEXTS.items():
        files[name] = folder / name.replace(" ", "-") / "config.json"
        files[name].parent.mkdir()
        files[name].write_bytes(raw)
    return files


if __name__ == "__main__":
    sys.exit(main())
