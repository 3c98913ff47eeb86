#!/usr/bin/env python
"""Inflight's command line. Every command finds a running installation by INFLIGHT_HOME (default: ./var)."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run one management command with the settings that INFLIGHT_SETTINGS or the default names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
