"""Entry point: `python -B -m deploy.local COMMAND`."""

from __future__ import annotations

import sys

from deploy.local.cli import main

sys.exit(main(sys.argv[1:]))
