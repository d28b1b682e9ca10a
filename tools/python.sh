#!/usr/bin/env bash
# Prints the first Python that can hold twinkle: $PYTHON if it is set, else what is on the path.
set -euo pipefail

for python in ${PYTHON:+"$PYTHON"} python3 python3.11 python3.12 python3.13 python3.14; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        # Debian ships venv without the pip that it would install.
        "$python" -c 'import ensurepip' 2>/dev/null || "$(dirname "$0")/debian.sh" python3-venv: >&2
        command -v "$python"
        exit
    fi
done
echo "twinkle needs Python 3.11 or newer; found: $(python3 --version 2>&1 || echo 'no python3')." \
    "Name one with: make PYTHON=/path/to/python" >&2
exit 1
