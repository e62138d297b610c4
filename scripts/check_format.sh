#!/usr/bin/env bash
# Checks the layout of every C file against .clang-format; with --fix puts it right.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mode=(--dry-run --Werror)
[ "${1-}" != --fix ] || mode=(-i)
mapfile -t files < <(find api bench catalog core parser server slicing storage tests -name '*.[ch]' 2>/dev/null | sort)
[ "${#files[@]}" -gt 0 ] || { echo "check_format.sh: found no C files" >&2; exit 1; }
if ! clang-format-14 --style=file "${mode[@]}" "${files[@]}"; then
    echo "check_format.sh: scripts/check_format.sh --fix puts this right" >&2
    exit 1
fi
echo "${#files[@]} C files are in the project's layout"
