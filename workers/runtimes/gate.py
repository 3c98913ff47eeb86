"""Stands in for a server until its identity is on the row: waits on a pipe, then becomes the server.

Run as a script with `python -I -S gate.py FD`. Reads {"argv": [...], "env": {...}, "cwd": ...} as JSON up to the
end of the pipe. Where the writer died before it wrote all of it, nothing is started: no process without a row.
"""

import json
import os
import sys


def main() -> None:
    """Read the command whole, then exec it: pid, session and start time stay the same."""
    with os.fdopen(int(sys.argv[1]), "rb") as pipe:
        data = pipe.read()
    try:
        command = json.loads(data)
    except ValueError:
        sys.exit(75)
    os.chdir(command["cwd"])
    try:
        os.execve(command["argv"][0], command["argv"], command["env"])  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"{command['argv'][0]} cannot be started: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
