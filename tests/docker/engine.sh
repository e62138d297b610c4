#!/usr/bin/env bash
# A Docker engine that lives as long as this script's standard input stays open.
#
# Where an engine answers already, that one is used. Otherwise a private one is started from Debian's packages, with a
# Debian 12 base image made by mmdebstrap (no registry needed), and removed again without a trace: containers, networks,
# mounts, iptables, files. Since the caller holds the other end of standard input, that happens even if it is killed.
#
# Standard output, one line each:   DOCKER=/usr/bin/docker   DOCKER_HOST=unix://...   BASE_IMAGE=localbase:ci   ready
# DOCKER_HOST and BASE_IMAGE only for a private engine. Everything else goes to standard error.
# A private engine needs root; without it the script runs itself again with sudo.
set -euo pipefail
trap '' INT TERM HUP PIPE
export PATH="/usr/sbin:/usr/bin:/sbin:/bin:$PATH"
base_image=localbase:ci
owner_gid=${1:-$(id -g)}
docker=$(command -v docker) || { echo "engine.sh: no docker: apt-get install docker.io" >&2; exit 1; }

say() { echo "engine.sh: $*" >&2; }

if "$docker" version >/dev/null 2>&1; then
    say "using the engine that runs here"
    echo "DOCKER=$docker"
    echo ready
    cat >/dev/null
    exit 0
fi

if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { say "no engine answers, and starting one needs root"; exit 1; }
    exec sudo -- bash "${BASH_SOURCE[0]}" "$owner_gid"
fi

missing=
for tool in dockerd mmdebstrap iptables-save iptables-restore ip setsid; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
done
if [ -n "$missing" ]; then
    say "missing:$missing; apt-get install docker.io mmdebstrap iptables iproute2"
    exit 1
fi

work=$(mktemp -d /tmp/tdeng.XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
export DOCKER_HOST="unix://$work/sock"
unset DOCKER_CONTEXT
engine_pid=

# The network devices an engine makes: its bridges, and pairs with its hardware addresses (02:42:...).
devices() {
    {
        ip -o link show type bridge
        ip -o link show type veth | grep 'link/ether 02:42:' || true
    } 2>/dev/null | sed -E 's/^[0-9]+: ([^:@]+).*/\1/' | sort
}
# Empty cgroup directories that engines leave behind.
cgroups() { find /sys/fs/cgroup -maxdepth 2 -type d -name docker 2>/dev/null | sort; }

devices_before=$(devices)
cgroups_before=$(cgroups)
forward_before=$(cat /proc/sys/net/ipv4/ip_forward)
iptables-save >"$work/iptables"
# A table that was empty is not in the dump: restoring it means emptying it.
for table in filter nat; do
    grep -qx "\*$table" "$work/iptables" && continue
    case $table in
        filter) chains="INPUT FORWARD OUTPUT" ;;
        nat) chains="PREROUTING INPUT OUTPUT POSTROUTING" ;;
    esac
    {
        echo "*$table"
        for chain in $chains; do echo ":$chain ACCEPT [0:0]"; done
        echo COMMIT
    } >>"$work/iptables"
done

teardown() {
    set +e
    local ids pid waited=0 name path
    if [ -n "$engine_pid" ]; then
        ids=$(timeout 30 "$docker" ps -aq 2>/dev/null)
        # shellcheck disable=SC2086  # a list of ids
        [ -n "$ids" ] && timeout 60 "$docker" rm -fv $ids >/dev/null 2>&1
        pid=$(cat "$work/pid" 2>/dev/null || echo "$engine_pid")
        kill -TERM "$pid" 2>/dev/null
        while kill -0 "$pid" 2>/dev/null; do
            sleep 0.1
            waited=$((waited + 1))
            [ "$waited" -lt 300 ] || { kill -KILL "$pid"; break; }
        done
        wait "$engine_pid" 2>/dev/null
        # Its containerd goes with it; one left behind by a killed engine is ended by its own pid file.
        pid=$(cat "$work/exec/containerd/containerd.pid" 2>/dev/null)
        [ -n "$pid" ] && kill -TERM "$pid" 2>/dev/null && sleep 1
    fi
    comm -13 <(echo "$devices_before") <(devices) | while read -r name; do
        case $name in docker0 | br-* | veth*) ip link del "$name" ;; esac
    done
    awk -v w="$work/" 'index($2, w) == 1 { print $2 }' /proc/mounts | sort -r | while read -r path; do
        umount "$path" || umount -l "$path"
    done
    iptables-restore <"$work/iptables"
    echo "$forward_before" >/proc/sys/net/ipv4/ip_forward
    comm -13 <(echo "$cgroups_before") <(cgroups) | while read -r path; do
        find "$path" -depth -type d -exec rmdir {} + 2>/dev/null
    done
    # Never across a mount that would not go away.
    rm -rf --one-file-system "$work"
    say "engine removed"
}
trap teardown EXIT

say "starting a private engine in $work"
# The engine and its containers must not inherit this script's ignored signals.
env --default-signal=INT,QUIT,TERM,HUP,PIPE setsid dockerd --data-root "$work/data" \
    --exec-root "$work/exec" --pidfile "$work/pid" --group "$owner_gid" -H "$DOCKER_HOST" >"$work/log" 2>&1 </dev/null &
engine_pid=$!
tries=0
until "$docker" version >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ] || ! kill -0 "$engine_pid" 2>/dev/null; then
        say "the engine did not start; the end of its log:"
        tail -n 20 "$work/log" >&2
        exit 1
    fi
    sleep 0.1
done

say "making the base image"
# Debian's own mirrors as this machine knows them; without that file mmdebstrap takes its own choice.
mirrors=()
if [ -f /etc/apt/sources.list.d/debian.sources ]; then
    mirrors=(/etc/apt/sources.list.d/debian.sources)
fi
# shellcheck disable=SC2016  # "$1" is for mmdebstrap's shell
if ! mmdebstrap --variant=minbase --mode=root --include=usr-is-merged \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --aptopt='Dir::Cache::pkgcache ""' --aptopt='Dir::Cache::srcpkgcache ""' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*' \
    bookworm "$work/base.tar" "${mirrors[@]}" >"$work/base.log" 2>&1; then
    say "mmdebstrap failed; the end of its log:"
    tail -n 20 "$work/base.log" >&2
    exit 1
fi
"$docker" import --change 'CMD ["bash"]' "$work/base.tar" "$base_image" >/dev/null
rm -f "$work/base.tar"

echo "DOCKER=$docker"
echo "DOCKER_HOST=$DOCKER_HOST"
echo "BASE_IMAGE=$base_image"
echo ready
cat >/dev/null
