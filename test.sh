#!/usr/bin/env bash
# Sets up what the chosen tests need (Debian packages, virtual environments, packages of npm) and runs them, in three
# tiers. README.md has what the tiers cost.
#
#   ./test.sh --quick       before each commit: layout, arrows, unit tests, each interface over a socket
#   ./test.sh               all that must hold: every change is held to this tier
#   ./test.sh --long        fuzzing, soaks and benchmarks that take hours: now and then, on a quiet machine, as root
#   ./test.sh STEP...       only these steps
#   ./test.sh --list        the steps, with their tiers
#
# Two lanes of steps run side by side: those that keep the processors busy, at a low priority, with late steps after
# them, and those that mostly wait. Steps run past failures, and build what they need. The last line is "N passed, N
# failed"; the exit status is 0 only if nothing failed. Each step's output and results stay in build-results/.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root"
# Debian's own tools before others of the same name.
export PATH="/usr/sbin:/usr/bin:/sbin:/bin:$PATH"
# Python keeps compiled modules: each process would else compile them again.
unset PYTHONDONTWRITEBYTECODE
results=$root/build-results
jobs=$(nproc)
# Tests mostly wait, so each processor has two processes.
processes=$((2 * jobs))

# Name, tiers, lane (first: before the others; busy and then late, beside waiting; alone: one after the other), seconds
# it may take, "tests" if it writes JUnit XML to be counted or "one" if it is one check, what it needs beside the Debian
# packages of all steps ("-": nothing), what it does. docker and clients are in one lane: both start Docker engines,
# which undo each other's network rules.
steps="
server    quick,full first    900 one   -            the server by Clang with ASan and UBSan, warnings are errors
gcc       full       first    900 one   -            release build by GCC with tests and bench, warnings are errors
format    quick,full busy     300 one   -            layout of C files, length of lines, words that must be read twice
shell     quick,full busy     120 one   -            bash -n and shellcheck on every script
arrows    quick      busy      60 one   -            which folder may include which, and no circles
units     quick      busy     900 tests -            the unit tests of the ASan build, which this step brings up to date
asan      full       busy    1800 tests -            ASan and UBSan build by Clang, all of CTest: units, arrows, corpora
fuzz      full       busy     900 one   -            libFuzzer targets, each run for 1 s from its corpus
tsan      full       busy    1200 tests venv         ThreadSanitizer build by GCC: catalog, server, uploads by socket
tidy      full       busy    1800 one   -            clang-tidy on what changed in the program since the analysis
lint      quick,full busy     300 one   venv         ruff, and strict types by mypy, on the Python client
bench     full       busy     300 one   venv         every benchmark once, with small sizes: that it runs
smoke     quick      waiting  300 tests venv,node    pytest over a socket, a part of http: ranges, tensors, Hub, S3
python    full       waiting 1800 tests venv,engines pytest of the Python client against the ASan build
http      full       waiting 1800 tests venv,node    pytest over a socket: ASan build; release build for memory
interop   full       late    1200 tests venv,writers pytest with real writers and clients against the ASan build
clients   full       waiting 1200 tests venv,hub0,readers,node pytest with clients of the Hub, S3, datasets: ASan build
pages     full       waiting  600 tests venv,node,browser pytest of the pages in Chromium: ASan build
docker    full       waiting  900 tests venv         the image, built and run by a Docker engine (its own if none runs)
analysis  long       alone   3600 one   -            clang-tidy with all its states, GCC's warnings of tests
fuzzing   long       alone   7200 one   -            libFuzzer targets, each run for 180 s from its corpus and finds
soaks     long       alone   3600 tests venv,node    random and timed loops of tests/http, all their repetitions
history   long       alone   2700 one   venv         files that change: own or not, leases or none, loopback and veth
kills     long       alone   3600 one   venv         1,000 kills of a server that writes its log of digests
image     long       alone   1800 tests venv         docker, with the program compiled inside the image
benchmark long       alone   7200 one   venv         the whole benchmark beside nginx; build-results/benchmark.md
"
needs_of() { # STEP...
    local name
    for name in "$@"; do awk -v name="$name" '$1 == name { printf ",%s,", $6 }' <<<"$steps"; done
}
steps_of() { awk -v tier="$1" 'NF && index($2, tier) { print $1 }' <<<"$steps"; }
lane_of() { awk -v name="$1" '$1 == name { print $3 }' <<<"$steps"; }

generator_for() { [ -f "$1/CMakeCache.txt" ] || echo -GNinja; }

build_preset() { # PRESET CMAKE_BUILD_ARGUMENT...
    cmake --preset "$1"
    cmake --build --preset "$@" --parallel "$jobs"
}
# Builds what a step of pytest tests. In a tier the first lane has built it, and TD_BUILT names the steps that passed: a
# step of the other lane may be building in the same directories.
build_servers() { # STEP...
    local name
    for name in "$@"; do
        if [ -z "${TD_BUILT+set}" ]; then
            "step_$name"
        elif [[ " $TD_BUILT " != *" $name "* ]]; then
            echo "test.sh: the step $name failed, so there is nothing to test" >&2
            return 1
        fi
    done
}

run_ctest() { # STEP BUILD_DIR CTEST_ARGUMENT...
    local step=$1 dir=$2
    shift 2
    # By default AddressSanitizer reuses none of the last 256 MB that were freed: tests touch new memory all the time.
    ASAN_OPTIONS="${ASAN_OPTIONS:-quarantine_size_mb=32}" \
        ctest --test-dir "$dir" --parallel "${parallel:-$jobs}" --timeout 600 --output-on-failure --no-tests=error \
        --output-junit "$results/$step.xml" "$@"
}

# Has one process compile the modules of a folder with many tests. Each process of pytest would else compile them all:
# 50 s of processor time become 30 for tests/http. What fails here fails there again, and is shown.
compile_tests() { # DIRECTORY
    .venv/bin/python -m pytest "$1" --collect-only -q -p no:cacheprovider >/dev/null 2>&1 || true
}
# The processes take one file of tests after the other.
run_pytest() { # STEP DIRECTORY_OR_FILE...
    local step=$1
    shift
    .venv/bin/python -m pytest "$@" -q -ra -p no:cacheprovider --timeout 600 \
        --durations 5 --numprocesses "$processes" --dist loadfile --no-loadscope-reorder --basetemp "${TMPDIR:?}/t" \
        --junitxml "$results/$step.xml"
}

step_format() {
    scripts/check_format.sh
    scripts/check_words.py
}
step_shell() { scripts/check_shell.sh; }
step_lint() { scripts/check_python.sh; }
step_server() { build_preset asan --target tensord upload_server; }
# Tests also need a server without sanitizers: bounds on memory are exact, the sandbox holds, rates are those that users
# see.
# The unit tests run in other builds. Here GCC only compiles those that changed, for its warnings.
# shellcheck disable=SC2046  # one word or none
step_gcc() {
    local targets=(tensord tensord-hostile test_parse_pool bench/all) source sources
    cmake -S . -B build $(generator_for build) -DCMAKE_BUILD_TYPE=Release -DTD_WERROR=ON -DTD_BUILD_TESTS=ON \
        -DTD_BUILD_BENCH=ON
    sources=$(scripts/changed_sources.py tests) # in a line of its own, so that its failure ends the step
    for source in $sources; do
        ! grep -qF "\"$root/$source\"" build/compile_commands.json || targets+=("$root/$source^")
    done
    [ -f build/build.ninja ] || targets=(all) # other generators do not know these targets
    cmake --build build --parallel "$jobs" --target "${targets[@]}"
}
step_tidy() {
    [ -f build-asan/compile_commands.json ] || cmake --preset asan
    scripts/check_tidy.sh build-asan
}
step_analysis() {
    cmake --preset asan
    TD_TIDY_STATES=225000 scripts/check_tidy.sh build-asan --all
    step_gcc
    cmake --build build --parallel "$jobs"
    scripts/changed_sources.py --record
}
step_arrows() {
    /usr/bin/python3 tests/check_arrows.py .
    /usr/bin/python3 tests/check_arrows.py --self-test
}
step_units() {
    build_preset asan
    parallel=$processes run_ctest units build-asan --tests-regex '^unit\.' # nothing else runs beside it for long
}
step_smoke() {
    build_servers server
    TENSORD=$root/build-asan/tensord \
        run_pytest smoke tests/http/test_{openapi,range_conditional,tensors,hub_raw,s3_port}.py
}
step_asan() {
    build_preset asan
    run_ctest asan build-asan
}
fuzz_one() { # RESULTS PRESET SECONDS TARGET
    local output=$1/fuzz-$4.txt
    if tests/fuzz/run.sh "build-$2" "$4" "$3" >"$output" 2>&1; then
        echo "fuzz_$4: $(grep '^Done' "$output")"
    else
        printf 'fuzz_%s FAILED\n%s\n' "$4" "$(tail -n 60 "$output")"
        return 1
    fi
}
# Runs every target, past those that fail. A target has one thread, so each processor runs one.
fuzz_each() { # PRESET SECONDS
    build_preset "$1"
    export -f fuzz_one
    basename -a tests/fuzz/corpus/*/ |
        xargs -n 1 -P "$jobs" bash -o pipefail -c 'fuzz_one "$@"' fuzz_one "$results" "$1" "$2"
}
step_fuzz() { fuzz_each asan 1; }
step_fuzzing() { fuzz_each fuzz 180; }
# An older ThreadSanitizer does not start where the kernel randomises addresses by more than 28 bits.
step_tsan() {
    build_preset tsan --target tsan_tests upload_server tensord
    if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ] && setarch -R true 2>/dev/null; then
        exec setarch -R bash "$root/test.sh" --run-step tsan_tests
    fi
    step_tsan_tests
}
step_tsan_tests() {
    local status=0
    run_ctest tsan build-tsan --label-regex tsan || status=$?
    TENSORD=$root/build-tsan/upload_server run_pytest tsan_uploads tests/http/test_uploads.py || status=$?
    # Left out: 10,000 watches, and a client that is slow against the clock.
    TENSORD=$root/build-tsan/tensord TENSORD_RELEASE=$root/build-tsan/tensord run_pytest tsan_grpc \
        tests/http/test_grpc_listen.py tests/http/test_grpc_attacks.py -k "not many_watches and not too_slow" ||
        status=$?
    return "$status"
}
step_http() {
    build_servers server gcc
    local -x TENSORD=$root/build-asan/tensord TENSORD_RELEASE=$root/build/tensord
    compile_tests tests/http
    run_pytest http tests/http
}
step_interop() {
    build_servers server gcc
    local -x TENSORD=$root/build-asan/tensord TENSORD_RELEASE=$root/build/tensord
    compile_tests tests/interop
    run_pytest interop tests/interop
}
step_clients() {
    build_servers server
    TENSORD=$root/build-asan/tensord run_pytest clients tests/clients
}
# Pictures of the pages stay in build-results/pages. Chromium keeps the processors busy, so each has one process.
step_pages() {
    build_servers server
    rm -rf "$results/pages"
    TENSORD=$root/build-asan/tensord processes=$jobs run_pytest pages tests/pages
}
step_python() {
    build_servers server
    TENSORD=$root/build-asan/tensord run_pytest python tests/python
}
# One process: two private engines at once would undo each other's network rules.
step_docker() {
    build_servers gcc
    processes=1 run_pytest docker tests/docker
}
step_image() {
    TENSORD_COMPILE_IN_IMAGE=1 processes=1 run_pytest image tests/docker
    local inputs
    mapfile -t inputs < <(git ls-files docker/Dockerfile .dockerignore scripts/write_commit.cmake '*CMakeLists.txt' \
        ':!tests' ':!bench')
    sha256sum "${inputs[@]}" >docker/compiled.sha256
}
# Every work of the bench in small. Nothing is compared, so several may run at once.
step_bench() {
    build_servers gcc
    /usr/bin/python3 bench/run.py --smoke
}

# Tests take the second number of harness.repeats(short, long).
step_soaks() {
    build_preset asan
    step_gcc
    local files
    mapfile -t files < <(grep -l 'repeats(' tests/http/test_*.py)
    TENSORD_LONG=1 TENSORD=$root/build-asan/tensord TENSORD_RELEASE=$root/build/tensord run_pytest soaks "${files[@]}"
}
step_history() {
    build_preset asan
    local options
    for options in "" "-- --leases off" "-- --sendfile remote" "--another-user" "--another-user -- --leases off" \
        "--namespace" "--namespace -- --leases off"; do
        echo "history.py --seconds 300 --seed 7 $options"
        # shellcheck disable=SC2086  # no word, or several
        TENSORD_LONG=1 TENSORD=$root/build-asan/tensord \
            .venv/bin/python -B tests/http/history.py --seconds 300 --seed 7 $options
    done
}
step_kills() {
    build_preset asan
    TENSORD=$root/build-asan/tensord .venv/bin/python -B tests/http/kill_digests.py --runs 1000 --seed 7
}
step_benchmark() {
    # Without tests, so that the program has link-time optimisation as users' builds have.
    # shellcheck disable=SC2046  # one word or none
    cmake -S . -B build-benchmark $(generator_for build-benchmark) -DCMAKE_BUILD_TYPE=Release -DTD_BUILD_BENCH=ON
    cmake --build build-benchmark --parallel "$jobs"
    /usr/bin/python3 bench/run.py --tensord build-benchmark/tensord --bin-dir build-benchmark/bench --all \
        --markdown "$results/benchmark.md" --json "$results/benchmark.json"
}

# Whether STAMP says that this LIST is what was installed.
is_up_to_date() { # LIST STAMP
    [ -f "$2" ] && [ "$(cat "$2")" = "$(sha256sum <"$1")" ]
}
# Only modules that tests import are compiled, when they are: compiling all takes 40 s of processor time.
pip_install() { # PYTHON ARGUMENT...
    "$1" -m pip install --quiet --disable-pip-version-check --no-compile "${@:2}"
}
set_up_venv() { # DIRECTORY LIST
    local stamp=$1/requirements.sha256
    if is_up_to_date "$2" "$stamp"; then return; fi
    echo "Setting up $1 with $2" >&2
    [ -x "$1/bin/python" ] || /usr/bin/python3 -m venv "$1" || return
    pip_install "$1/bin/python" -r "$2" || return
    sha256sum <"$2" >"$stamp"
}
# Packages that ask for libraries which tests do without, a GPU's or a cloud's: each alone, none of what it depends on.
set_up_alone() { # DIRECTORY LIST
    local stamp=$1/requirements.sha256
    if is_up_to_date "$2" "$stamp"; then return; fi
    echo "Setting up $1 with $2" >&2
    rm -rf "$1" || return
    pip_install .venv/bin/python --no-deps --target "$1" -r "$2" || return
    sha256sum <"$2" >"$stamp"
}
set_up_node() {
    local list=tests/js/package-lock.json stamp=tests/js/node_modules/package-lock.sha256
    if is_up_to_date "$list" "$stamp"; then return; fi
    echo "Setting up tests/js/node_modules with $list" >&2
    # Node.js trusts only its own list of authorities, so it is given the machine's list too.
    local authorities=/etc/ssl/certs/ca-certificates.crt
    [ ! -f "$authorities" ] || export NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-$authorities}"
    npm ci --prefix tests/js --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel error >&2 || return
    sha256sum <"$list" >"$stamp"
}
set_up_packages() { # NEEDS
    local needs=$1
    case $needs in *,browser,*) bash scripts/deps.sh pages || return ;; esac
    case $needs in *,venv,*) set_up_venv .venv tests/requirements.txt || return ;; esac
    case $needs in *,engines,*) set_up_alone .venv-engines tests/requirements-engines.txt || return ;; esac
    case $needs in *,readers,*) set_up_alone .venv-readers tests/requirements-readers.txt || return ;; esac
    case $needs in *,writers,*) set_up_alone .venv-writers tests/requirements-writers.txt || return ;; esac
    case $needs in *,hub0,*) set_up_venv .venv-hub0 tests/requirements-hub0.txt || return ;; esac
    case $needs in *,node,*) set_up_node || return ;; esac
}

child=
lanes=
packages=
# Waits for the packages that are set up beside the first steps. Fails if the set-up failed.
await_packages() {
    tail -f /dev/null -s 0.2 --pid="$packages"
    [ "$(cat "$results/set-up.status")" = ok ] || {
        echo "test.sh: the set-up failed, and so do all steps that need it" >&2
        return 1
    }
}

scratch=
# A directory for the temporary files of one step, which any user can reach. Its path is short: some tests have sockets
# there, whose paths have 107 bytes at most.
make_scratch() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/td-XXXXXX")
    chmod 1777 "$scratch"
}
remove_scratch() { [ -z "$scratch" ] || rm -rf --one-file-system "$scratch" || true; }
# Ends the steps and the set-up that run, with all that they started, and then this shell.
interrupted() {
    trap '' INT TERM HUP
    local process
    for process in $child $lanes $packages; do
        kill -TERM "$process" 2>/dev/null || true
        wait "$process" || true
    done
    remove_scratch
    [ "$BASHPID" != "$$" ] || echo "interrupted" >&2 # a terminal interrupts the two lanes as well
    exit 130
}

side_by_side=
# Writes a step's output to its log and to standard output, where other steps write too while two lanes run.
log_output() { # NAME
    if [ -n "$side_by_side" ]; then
        tee "$results/$1.log" | sed -u "s/^/$(printf '%-7s' "$1") | /"
    else
        tee "$results/$1.log"
    fi
}
run_step() { # NAME
    local name=$1 lane limit kind needs about began code=0 logger verdict=ok
    local command=(bash "$root/test.sh" --run-step "$name")
    read -r _ _ lane limit kind needs about < <(grep "^$name " <<<"$steps")
    [ -z "$side_by_side" ] || [ "$lane" != busy ] || command=(nice -n 10 "${command[@]}")
    [ "$needs" = - ] || await_packages || command=(false)
    printf '\n==== %s: %s\n' "$name" "$about"
    began=$SECONDS
    rm -f "$results/$name".*
    mkfifo "$results/$name.pipe"
    log_output "$name" <"$results/$name.pipe" &
    logger=$!
    make_scratch
    env --default-signal=INT,QUIT TMPDIR="$scratch" TD_TIMES="$results/$name.times" \
        timeout --kill-after=30 "$limit" "${command[@]}" \
        >"$results/$name.pipe" 2>&1 </dev/null &
    child=$!
    wait "$child" || code=$?
    child=
    # Something that was left running may hold the pipe open; it must not hold this script.
    timeout 5 tail -f /dev/null -s 0.1 --pid="$logger" 2>/dev/null || kill "$logger" 2>/dev/null || true
    wait "$logger" 2>/dev/null || true
    remove_scratch
    rm -f "$results/$name.pipe"
    echo "$code $((SECONDS - began)) $kind" >"$results/$name.status"
    [ $code = 0 ] || verdict=FAILED
    printf '==== %s: %s after %d s\n' "$name" "$verdict" $((SECONDS - began))
}
# Runs the chosen steps of a lane one after the other.
run_lane() { # LANE
    local name
    for name in "${chosen[@]}"; do [ "$(lane_of "$name")" != "$1" ] || run_step "$name"; done
}
run_tier() {
    local lane name
    run_lane first
    export TD_BUILT=
    for name in "${chosen[@]}"; do
        [ "$(lane_of "$name")" != first ] || ! grep -q '^0 ' "$results/$name.status" || TD_BUILT+=" $name"
    done
    side_by_side=yes
    (
        trap interrupted INT TERM HUP
        run_lane busy
        run_lane late
    ) &
    lanes=$!
    (
        trap interrupted INT TERM HUP
        run_lane waiting
    ) &
    lanes="$lanes $!"
    for lane in $lanes; do wait "$lane" || true; done
    lanes=
    side_by_side=
    run_lane alone
}

tier=full
case ${1-} in
    --run-step)
        # For the summary: the processor time of the step and of all that it started.
        [ -z "${TD_TIMES-}" ] || trap 'times >"$TD_TIMES"' EXIT
        "step_$2"
        exit
        ;;
    --set-up-packages)
        set_up_packages "$2" || exit
        echo ok >"$results/set-up.status"
        exit
        ;;
    --list)
        grep . <<<"$steps" | while read -r name tiers _ _ _ _ about; do
            printf '%-10s %-11s %s\n' "$name" "$tiers" "$about"
        done
        exit
        ;;
    -h | --help)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        exit
        ;;
    --quick | --long)
        tier=${1#--}
        shift
        [ $# = 0 ] || { echo "test.sh: --$tier stands alone; name either a tier or steps" >&2; exit 2; }
        ;;
esac
for name in "$@"; do
    grep -q -- "^$name " <<<"$steps" || { echo "test.sh: no step $name; ./test.sh --list shows them" >&2; exit 2; }
done
chosen=("$@")
[ $# -gt 0 ] || mapfile -t chosen < <(steps_of "$tier")

trap interrupted INT TERM HUP
mkdir -p "$results"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
if ! bash scripts/deps.sh test; then
    echo "test.sh: the set-up failed, nothing was run" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
rm -f "$results/set-up.status"
env --default-signal=INT,QUIT timeout --kill-after=30 1800 \
    bash "$root/test.sh" --set-up-packages "$(needs_of "${chosen[@]}")" \
    > >(tee "$results/set-up.log" >&2) 2>&1 </dev/null &
packages=$!
if [ $# -gt 0 ]; then
    for name in "${chosen[@]}"; do run_step "$name"; done
else
    run_tier
fi
/usr/bin/python3 scripts/summarise.py "$results" "$SECONDS" "${chosen[@]}"
