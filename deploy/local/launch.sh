#!/bin/sh
# Finds a Python that Inflight runs on and hands over to deploy.local. No bytecode is written into the checkout.
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd) || exit 1
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
        cd "$root" && exec "$candidate" -B -m deploy.local "$@"
    fi
done
echo "Inflight needs Python 3.11, 3.12 or 3.13, and ${PYTHON:-python3} is none of them." \
    "Install one (Debian and Ubuntu: apt-get install -y python3 python3-venv libpython3-dev), or name it: make up PYTHON=/path/to/python3.11" >&2
exit 1
