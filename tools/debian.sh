#!/usr/bin/env bash
# Installs the Debian packages that are missing, or prints the line that would: debian.sh PACKAGE:COMMAND ...
# A package is there when its command is; `PACKAGE:` asks dpkg instead.
set -euo pipefail

missing=()
for pair in "$@"; do
    package="${pair%%:*}" command="${pair#*:}"
    if [[ -n "$command" ]]; then
        command -v "$command" >/dev/null && continue
    elif [[ "$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null)" == installed ]]; then
        continue
    fi
    missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

install="apt-get update && apt-get install --yes --no-install-recommends ${missing[*]}"
if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
    echo "Installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    eval "$install"
else
    echo "These Debian packages are missing: ${missing[*]}. As root, run:" >&2
    echo "    $install" >&2
    exit 1
fi
