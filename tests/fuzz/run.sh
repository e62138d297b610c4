#!/bin/sh
# Runs a fuzz target: tests/fuzz/run.sh BUILD_FOLDER TARGET [SECONDS]
# Starts from the committed corpus and leaves it alone; what is found goes to BUILD_FOLDER/fuzz-TARGET/. An input
# that crashes belongs into tests/fuzz/corpus/TARGET/ under a name that says what it showed.
set -eu
build=$1
target=$2
seconds=${3:-180}
here=$(cd "$(dirname "$0")" && pwd)
found=$build/fuzz-$target
mkdir -p "$found"
longest=4096
if [ "$target" = decode ]; then # files of the real writers
    longest=13000
fi
set -- -max_total_time="$seconds" -max_len="$longest" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$found/"
if [ -f "$here/$target.dict" ]; then
    set -- "$@" -dict="$here/$target.dict"
fi
mkdir -p "$found/corpus"
exec "$build/tests/fuzz/fuzz_$target" "$@" "$found/corpus" "$here/corpus/$target"
