#!/usr/bin/env bash
# Installs what is missing, builds tensord and serves a directory of models:
#
#   ./serve.sh                   a small demo model in ./models, to which programs of this machine may publish others
#   ./serve.sh DIR [options]     the models below DIR; the options of `tensord serve` (see build/tensord --help)
#
# LISTEN=ADDR:PORT (or TENSORD_LISTEN, or --listen) sets the address (127.0.0.1:8080). TENSORD_ACCESS_LOG or
# --access-log sets the file to which requests are logged (build/requests-PORT.log). Ctrl-C stops the server.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Debian's tools take precedence over others of the same name.
export PATH="/usr/sbin:/usr/bin:/sbin:/bin:$PATH"

fail() { echo "serve.sh: $*" >&2; exit 1; }

dir=
demo=
case ${1-} in
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    '' | -*) ;;
    *) dir=$1; shift ;;
esac
hint="name a directory that holds models, or none for a demo"
[ -z "$dir" ] || [ -e "$dir" ] || fail "$dir does not exist; $hint"
[ -z "$dir" ] || [ -d "$dir" ] || fail "$dir is not a directory; $hint"

bash "$root/scripts/deps.sh" build || exit 1

if [ -z "$dir" ]; then
    dir=$root/models
    demo=demo
    if [ ! -e "$dir/demo/model.safetensors" ]; then
        echo "Writing a demo model to $dir/demo" >&2
        python3 "$root/scripts/demo_model.py" "$dir/demo"
    fi
fi

# An existing build directory keeps its generator.
generator=()
[ -f "$root/build/CMakeCache.txt" ] || generator=(-G Ninja)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Appends a build's output to the log. On a terminal one line shows the current step: "[12/140] Building C ...".
show_progress() {
    local line width=${COLUMNS:-80}
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        if [ -t 2 ] && [[ $line =~ ^\[\ *[0-9]+(/[0-9]+|%)\] ]]; then
            printf '\r\033[K%s' "${line:0:$((width - 1))}" >&2
        fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

began=$SECONDS
if [ -x "$root/build/tensord" ]; then
    echo "Rebuilding build/tensord if its sources changed (cmake, release)" >&2
else
    echo "Building build/tensord from its sources (cmake, release): a minute or two, the first time only" >&2
fi
if ! { cmake -S "$root" -B "$root/build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release &&
    cmake --build "$root/build" --target tensord --parallel; } 2>&1 | show_progress; then
    tail -n 40 "$log" >&2
    fail "the build failed; its last lines are above. If the compiler or directory changed, remove build/ and retry"
fi
rm -f "$log"
trap - EXIT
echo "Built build/tensord in $((SECONDS - began)) s" >&2

[ -z "${LISTEN-}" ] || export TENSORD_LISTEN=$LISTEN

# Prints an option's value, or nothing: from the arguments, else from the environment.
value_of() { # OPTION VARIABLE ARGUMENT...
    local option=$1 value=${!2-} previous='' argument
    shift 2
    for argument in "$@"; do
        [ "$previous" != "$option" ] || value=$argument
        case $argument in "$option"=*) value=${argument#*=} ;; esac
        previous=$argument
    done
    printf '%s\n' "$value"
}

# Programs of this machine may publish to the demo's directory. A directory that the caller names stays as it is.
if [ -n "$demo" ] && [ -z "$(value_of --upstream TENSORD_UPSTREAM "$@")$(value_of --config TENSORD_CONFIG "$@")" ]; then
    export TENSORD_PUBLISH=${TENSORD_PUBLISH-local}
fi
publish=$(value_of --publish TENSORD_PUBLISH "$@")

# Requests are logged to a file, so that they do not mix with the output of this script.
listen=$(value_of --listen TENSORD_LISTEN "$@")
requests=$(value_of --access-log TENSORD_ACCESS_LOG "$@")
s3_listen=$(value_of --s3-listen TENSORD_S3_LISTEN "$@")
listen=${listen:-127.0.0.1:8080}
requests=${requests:-$root/build/requests-${listen##*:}.log}
export TENSORD_ACCESS_LOG=$requests

# Copies the server's standard error, and prints commands to try once the server listens and is ready. It ignores
# Ctrl-C, which is for the server, and ends when the server closes its standard error.
watch() {
    trap '' INT TERM HUP
    local line url='' s3='' ready='' invited=''
    while IFS= read -r line; do
        printf '%s\n' "$line" >&2
        [ -z "$invited" ] || continue
        if [[ $line =~ listening\ on\ (http://[^[:space:]\"]+) ]]; then
            url=$(reachable "${BASH_REMATCH[1]}")
        elif [[ $line =~ listening\ for\ S3\ clients\ on\ (http://[^[:space:]\"]+) ]]; then
            s3=$(reachable "${BASH_REMATCH[1]}")
        elif [[ $line == *' ready: /readyz answers 200'* ]]; then
            ready=yes
        fi
        if [ -n "$url" ] && [ -n "$ready" ] && { [ -n "$s3" ] || [ -z "$s3_listen" ]; }; then
            invited=yes
            invite "$url" "$s3" &
        fi
    done
}

# Prints a URL by which this machine reaches the server, also one that listens on all addresses.
reachable() { # URL
    local url=${1%/}
    url=${url/#"http://0.0.0.0:"/"http://127.0.0.1:"}
    printf '%s\n' "${url/#"http://[::]:"/"http://[::1]:"}"
}

invite() { # URL S3_URL
    exec </dev/null
    trap - INT TERM HUP
    python3 "$root/scripts/curl_lines.py" "$1" "$demo" --requests "$requests" --s3 "$2" --publish "$publish" >&3 || true
}

# exec, so that signals go to the server and the exit status is the server's.
exec 3>&1
exec "$root/build/tensord" serve "$dir" "$@" 2> >(watch) 3>&-
