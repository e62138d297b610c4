#!/usr/bin/env bash
# Installs the Debian packages that this project needs and that are missing.
#
#   scripts/deps.sh build     to build and serve
#   scripts/deps.sh test      to run the tests as well; services that the packages bring are not started
#   scripts/deps.sh pages     the browser of the tests of pages, which no other test needs
set -euo pipefail

build_packages="gcc libc6-dev cmake ninja-build pkg-config libcjson-dev libcurl4-openssl-dev libdeflate-dev
    libgnutls28-dev liblz4-dev libmd4c-dev libmicrohttpd-dev libnghttp2-dev libprotobuf-dev libseccomp-dev libssl-dev
    libxxhash-dev libyaml-dev libzstd-dev protobuf-compiler zlib1g-dev python3 python3-yaml curl"
test_packages="clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev lld-14 llvm-14 libcmocka-dev
    python3-venv nginx-light slowhttptest strace procps iproute2 shellcheck ca-certificates
    docker.io docker-compose mmdebstrap iptables awscli rclone s3cmd
    haproxy openssl prometheus systemd man-db golang-github-opencontainers-image-spec-dev
    skopeo podman runc containerd docker-registry busybox-static"
# Some machines have a newer Node.js with its own npm. Debian's npm cannot be installed beside it.
command -v node >/dev/null && command -v npm >/dev/null || test_packages="$test_packages nodejs npm"

pages_packages="chromium-headless-shell fonts-dejavu-core"

case ${1:-build} in
    build) wanted=$build_packages ;;
    test) wanted="$build_packages $test_packages" ;;
    pages) wanted=$pages_packages ;;
    *) echo "usage: scripts/deps.sh build|test|pages" >&2; exit 2 ;;
esac
# Line breaks are removed, so that users can paste the list from messages.
wanted=$(echo "$wanted" | tr -s ' \n' ' ')

if ! command -v dpkg >/dev/null || ! command -v apt-get >/dev/null; then
    echo "This script installs Debian 12 packages, and there is no apt-get here. Elsewhere, install instead:" \
        "$wanted" >&2
    exit 1
fi

missing=
for package in $wanted; do
    # shellcheck disable=SC2016  # dpkg-query's variable
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=
    [ "$status" = installed ] || missing="$missing $package"
done
missing=${missing# }
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Packages are missing, and this user is not root and has no sudo to install them. As root, run:" >&2
        echo "    apt-get update && apt-get install -y --no-install-recommends $missing" >&2
        exit 1
    fi
    sudo=sudo
fi

log=$(mktemp)
policy=/usr/sbin/policy-rc.d
own_policy=
finish() {
    rm -f "$log"
    [ -z "$own_policy" ] || $sudo rm -f "$policy"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# Debian's services ask policy-rc.d before they start; 101 forbids the start. A policy of the machine's own stays.
if [ "${1:-build}" = test ] && [ ! -e "$policy" ]; then
    own_policy=yes
    printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
    $sudo chmod 755 "$policy"
fi

echo "Installing with ${sudo:+sudo }apt-get: $missing" >&2
# shellcheck disable=SC2086  # a list of names
if ! { $sudo apt-get update -qq &&
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } \
    >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    echo "apt-get failed; its last lines are above. Packages still needed: $missing" >&2
    exit 1
fi

# The services must not start at the next boot either: the tests run private ones.
if command -v systemctl >/dev/null; then
    for pair in nginx-light:nginx.service haproxy:haproxy.service prometheus:prometheus.service \
        docker.io:docker.service docker.io:docker.socket docker.io:containerd.service \
        docker-registry:docker-registry.service podman:podman.socket podman:podman.service \
        podman:podman-restart.service podman:podman-auto-update.service podman:podman-auto-update.timer; do
        case " $missing " in
            *" ${pair%%:*} "*) $sudo systemctl disable "${pair#*:}" >/dev/null 2>&1 || true ;;
        esac
    done
fi
