#!/usr/bin/env bash
# Checks every shell script with bash -n and shellcheck.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t files < <({
    find . -name '*.sh' -not -path './.venv*/*' -not -path '*/node_modules/*' -not -path './build*'
    grep -rIlE --exclude-dir=node_modules --include='*' '^#!.*(ba)?sh$' .ci scripts tests bench docker 2>/dev/null |
        sed 's,^,./,'
} | sort -u)
for file in "${files[@]}"; do bash -n "$file"; done
shellcheck "${files[@]}"
echo "${#files[@]} shell scripts checked"
