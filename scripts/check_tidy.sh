#!/usr/bin/env bash
# Runs clang-tidy over the program's C files (not the tests') that changed_sources.py names, over all, or over some:
#   [TD_TIDY_STATES=N] scripts/check_tidy.sh [BUILD_DIR [--all | FILE...]]
# BUILD_DIR (build-asan by default) must be configured with Clang. Sanitizers are off here, so that clang-tidy reads the
# code that users run. The analyzer visits at most N states of a function. Clang's own bound, 225000, takes 2.3 times
# the time of 75000, the bound here, which one function in seven reaches. 30000 takes half the time, and reports
# faults that do not exist.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build-asan}
[ -f "$build/compile_commands.json" ] || {
    echo "check_tidy.sh: $build is not configured by Clang: cmake --preset asan" >&2
    exit 1
}
program=(api catalog core http parser rank server slicing storage work)
files=("${@:2}")
case ${2-} in
    "")
        names=$(scripts/changed_sources.py "${program[@]}") # in a line of its own, so that its failure ends this script
        mapfile -t files < <(printf %s "$names")
        ;;
    --all)
        mapfile -t files < <(find "${program[@]}" -name '*.c' | sort)
        [ "${#files[@]}" -gt 0 ] || { echo "check_tidy.sh: found no C files" >&2; exit 1; }
        ;;
esac
options=(--quiet -p "$build")
for option in -fno-sanitize=all -Xclang -analyzer-config -Xclang "max-nodes=${TD_TIDY_STATES:-75000}"; do
    options+=("--extra-arg=$option")
done
# Checks the files that standard input names, with a zero byte after each name. Each file has a process of its own: the
# analyzer of Clang 14 keeps names of functions from one file to the next, and then misses what they do.
check() { # OPTION...
    xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 "${options[@]}" "$@" \
        2> >(grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed' >&2)
}
# Sources that name no va_list do without the checks of va_list, which take an eighth of the time.
with=() without=()
for file in "${files[@]}"; do
    if grep -qwE 'va_(list|start|copy|arg|end)' "$file"; then with+=("$file"); else without+=("$file"); fi
done
status=0
[ "${#with[@]}" = 0 ] || printf '%s\0' "${with[@]}" | check || status=1
[ "${#without[@]}" = 0 ] || printf '%s\0' "${without[@]}" | check '--checks=-clang-analyzer-valist*' || status=1
[ "$status" = 0 ] || exit 1
echo "${#files[@]} C files are clean$([ -n "${2-}" ] || echo "; the others are as they were when all were analyzed")"
