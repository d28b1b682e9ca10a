#!/usr/bin/env bash
# Prints a Python that can hold twinkle: $PYTHON if it is set, else the first on the path that is new enough.
set -euo pipefail

candidates=(python3 python3.11 python3.12 python3.13 python3.14)
[[ -z "${PYTHON:-}" ]] || candidates=("$PYTHON")
for python in "${candidates[@]}"; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        # Debian ships venv without the pip that it would install.
        "$python" -c 'import ensurepip' 2>/dev/null || "$(dirname "$0")/debian.sh" python3-venv: >&2
        command -v "$python"
        exit
    fi
done
found="$("${candidates[0]}" --version 2>/dev/null || true)"
echo "twinkle needs Python 3.11 or newer, and ${candidates[0]} is ${found:-not there}." \
    "Name another with: make PYTHON=/path/to/python" >&2
exit 1
