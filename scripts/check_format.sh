#!/usr/bin/env bash
# Checks the layout of every C file against .clang-format; with --fix puts it right.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t files < <(find api bench catalog core parser server slicing storage tests -name '*.[ch]' -not -path '*/node_modules/*' 2>/dev/null | sort)
[ "${#files[@]}" -gt 0 ] || { echo "check_format.sh: found no C files" >&2; exit 1; }
if [ "${1-}" = --fix ]; then
    exec clang-format-14 --style=file -i "${files[@]}"
fi
bad=0
for file in "${files[@]}"; do
    # The first lines tell what is the matter; the rest is more of it.
    difference=$(clang-format-14 --style=file "$file" | diff -u --label "$file" "$file" --label "as .clang-format has it" - |
        head -n 12) || bad=$((bad + 1))
    [ -z "$difference" ] || printf '%s\n' "$difference"
done
if [ "$bad" -gt 0 ]; then
    echo "check_format.sh: $bad of ${#files[@]} C files are not in the project's layout; scripts/check_format.sh --fix" >&2
    exit 1
fi
echo "${#files[@]} C files are in the project's layout"
