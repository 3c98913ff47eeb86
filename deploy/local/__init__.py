"""One machine, one command: preflight, packages, serving environment, supervised processes.

Started by the Makefile through `launch.sh` with the system's Python, before any virtual environment exists, so it
imports the standard library alone. Everything it writes lies under INFLIGHT_HOME (default `var`), but for `.venv`.
The running processes are watched by supervisord out of `.venv`; servers that Inflight started are children of
nobody and outlive it.
"""
