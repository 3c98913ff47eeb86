"""Stands in for a build step until its identity is on the row: waits on a pipe, then becomes the step.

Run as a script with `python -I -S gate.py FD PARENT`. Reads {"argv", "env", "cwd", "nice"} as JSON up to the end of
the pipe; where its writer died before it wrote all of it, nothing is started.
"""

import ctypes
import json
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOT_STARTED = 75  # EX_TEMPFAIL of sysexits.h


def main() -> None:
    """Tie this process to its parent's life, wait, then exec: pid, session and start time stay the same."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        # It died before the call; nothing would tell us any more.
        sys.exit(NOT_STARTED)
    with os.fdopen(descriptor, "rb") as pipe:
        data = pipe.read()
    try:
        command = json.loads(data)
    except ValueError:
        sys.exit(NOT_STARTED)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(command["nice"])
    os.chdir(command["cwd"])
    try:
        os.execve(command["argv"][0], command["argv"], command["env"])  # noqa: S606 - an argv list from a plan
    except OSError as error:
        os.write(2, f"{command['argv'][0]} cannot be started: {error.strerror}\n".encode())
        sys.exit(127)


if __name__ == "__main__":
    main()
