#!/usr/bin/env bash
# Checks the layout of every C file against .clang-format, and the length of every line. With --fix formats C files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
longest=120
mapfile -t files < <(
    find api bench catalog core http parser rank server slicing storage work tests \
        -name '*.[ch]' -not -path '*/node_modules/*' | sort
)
[ "${#files[@]}" -gt 0 ] || { echo "check_format.sh: found no C files" >&2; exit 1; }
if [ "${1-}" = --fix ]; then
    exec clang-format-14 --style=file -i "${files[@]}"
fi
# Prints the first 12 lines of how the layout of each file differs.
check_layout() { # FILE...
    local file bad=0
    ! clang-format-14 --style=file --dry-run -Werror "$@" 2>/dev/null || return 0 # one process for all
    for file in "$@"; do
        clang-format-14 --style=file "$file" |
            diff -u --label "$file" "$file" --label "as .clang-format has it" - | head -n 12 || bad=1
    done
    return "$bad"
}
export -f check_layout
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 20 bash -o pipefail -c 'check_layout "$@"' _ || {
    echo "check_format.sh: not all C files are in the project's layout; run scripts/check_format.sh --fix" >&2
    exit 1
}
echo "${#files[@]} C files are in the project's layout"

# Code, comments and prose have one limit. In Markdown, tables and blocks of code may be longer.
mapfile -t texts < <(
    find . \( -name .git -o -name node_modules -o -name '.venv*' -o -name 'build*' -o -path ./tests/data \) -prune -o \
        -type f \( -name '*.[ch]' -o -name '*.sh' -o -name '*.md' -o -name CMakeLists.txt -o -name '*.cmake' \
        -o -name '*.yaml' -o -name '*.py' \) -print | sort
)
LC_ALL=C.UTF-8 python3 - "$longest" "${texts[@]}" <<'PYTHON'
import sys

longest, found = int(sys.argv[1]), 0
for path in sys.argv[2:]:
    in_code = False
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if path.endswith(".md"):
            in_code ^= line.lstrip().startswith("```")
            if in_code or line.lstrip().startswith("|"):
                continue
        if len(line) > longest:
            found += 1
            print(f"{path}:{number}: {len(line)} characters; the limit is {longest}")
if found:
    sys.exit(f"check_format.sh: {found} lines are too long")
print(f"no line of {len(sys.argv) - 2} files is longer than {longest} characters")
PYTHON
