"""What each flag of a build's commands does, out of the tables that the commands are composed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePath

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.engines.domain.trtllm.build_flags import BUILD_FLAGS
from apps.engines.domain.trtllm.conversion_flags import CONVERT_FLAGS, QUANTIZE_FLAGS
from apps.engines.domain.trtllm.flag import Flag

PROGRAMS: dict[str, tuple[Flag, ...]] = {
    "trtllm-build": BUILD_FLAGS,
    "convert_checkpoint.py": CONVERT_FLAGS,
    "quantize.py": QUANTIZE_FLAGS,
}
# Flags of our own steps, of Python, mpirun and container programs.
OTHERS = {
    "--source": _l("The checkpoint that is read; it is never written."),
    "--identity": _l("What the checkpoint must be: its hash, or size and time."),
    "--type": _l("Weight type that is written."),
    "--work": _l("Folder of this attempt; nobody sees it until the engine is published."),
    "--target": _l("File that is written."),
    "--model": _l("Engine or model that is looked at."),
    "--threads": _l("Threads that generate, few enough that serving goes on."),
    "--artefact": _l("What was built and will be published."),
    "--plan": _l("What the attempt set out to do, for the manifest."),
    "--engines": _l("Folder of all engines."),
    "--fingerprint": _l("Content address of the engine: its folder's name."),
    "-P": _l("Python imports nothing from the folder it runs in."),
    "-u": _l("Output is written at once, so that the log is live."),
    "-m": _l("The Python module that runs."),
    "-n": _l("How many processes MPI starts: one a rank."),
    "--allow-run-as-root": _l("MPI may run as root, as containers do."),
    "--tag-output": _l("Each line names the rank that wrote it."),
    "--rm": _l("The container is removed when it ends."),
    "--gpus": _l("GPUs that the container sees."),
    "--network": _l("Network that the container has."),
    "--shm-size": _l("Shared memory of the container."),
    "--volume": _l("Folder of the host that the container sees."),
    "-v": _l("Folder of the host that the container sees."),
    "--mount": _l("Folder of the host that the container sees."),
    "--user": _l("User and group that the container runs as."),
    "--workdir": _l("Folder that the command runs in."),
    "--env": _l("Environment variable of the container."),
    "--name": _l("Name of the container, by which it is ended."),
    "--label": _l("Mark by which the container is found again."),
    "--entrypoint": _l("What the container runs instead of its own program."),
    "--ulimit": _l("Limit that the container's processes have."),
    "--ipc": _l("Shared memory that the container uses."),
    "--report": _l("Report of a step, kept beside the engine."),
}


def flags_of(argv: Iterable[str]) -> dict[str, str]:
    """{flag: sentence} for the flags of a command; the program decides which table is read."""
    words = list(argv)
    program = next((name for name in map(_name, words) if name in PROGRAMS), "")
    known: Mapping[str, str] = _table(program) if program else {}
    found = {}
    for word in words:
        flag = word.split("=")[0]
        if flag.startswith("-") and (flag in known or flag in OTHERS):
            found[flag] = known.get(flag) or str(OTHERS[flag])
    return found


def _name(word: str) -> str:
    return PurePath(word).name


@lru_cache(maxsize=8)
def _table(program: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for flag in PROGRAMS[program]:
        text = flag.does
        if flag.default not in (None, ""):
            text = _("%(does)s Default: %(default)s.") % {"does": text, "default": flag.default}
        if flag.unverified:
            text = _("%(does)s Not verified: %(what)s.") % {"does": text, "what": flag.unverified}
        for name in (flag.name, *flag.aliases):
            found[f"--{name}"] = text
    return found
