#!/usr/bin/env python3
"""Runs nginx, tensord and a raw sender side by side on one file and compares them. See README.md beside this file.

Standard library only. Everything listens on 127.0.0.1 and lives under one temporary directory."""

import sys

sys.dont_write_bytecode = True  # leaves no compiled files in the source tree

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

import bench_client  # noqa: E402
import bench_cold  # noqa: E402
import bench_datasets  # noqa: E402
import bench_decode  # noqa: E402
import bench_fixture  # noqa: E402
import bench_hashing  # noqa: E402
import bench_held  # noqa: E402
import bench_memory  # noqa: E402
import bench_parse  # noqa: E402
import bench_report  # noqa: E402
import bench_scale  # noqa: E402
import bench_servers  # noqa: E402
import bench_slices  # noqa: E402
import bench_tail  # noqa: E402
import bench_throughput  # noqa: E402
import bench_tls  # noqa: E402
from bench_load import Load  # noqa: E402
from bench_servers import BenchError  # noqa: E402

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ALL_SERVERS = ["nginx", "nginx-nopush", "tensord", "raw", "sendfile"]
ALSO = {"immutable": bench_servers.TensordImmutable, "leases-off": bench_servers.TensordLeasesOff,
        "sendfile-remote": bench_servers.TensordSendfileRemote, "other-owner": bench_servers.TensordOtherOwner}
OF_TENSORD = ("scale", "parse", "slices", "hashing", "decode", "tail", "client",
              "datasets")  # modes without another server
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size_argument(text):
    digits = text.lower().rstrip("ib").rstrip("kmg")
    unit = text.lower().rstrip("ib")[len(digits):]
    if not digits.isdigit() or unit not in UNITS:
        raise argparse.ArgumentTypeError("not a size such as 4096, 64K, 16M or 4G: %s" % text)
    return int(digits) * UNITS[unit]


def list_of(convert):
    return lambda text: [convert(item) for item in text.split(",")]


def parse_arguments():
    p = argparse.ArgumentParser(description="Compares tensord with nginx and with a raw send loop.")
    modes = p.add_argument_group("what to measure (throughput by default; several are possible)")
    modes.add_argument("--throughput", action="store_true", help="page-cached rates by range size and connections")
    modes.add_argument("--tls", action="store_true", help="page-cached rates over TLS 1.3 beside nginx")
    modes.add_argument("--cold", action="store_true", help="first reads of a file that is not in the page cache")
    modes.add_argument("--memory", action="store_true", help="anonymous memory per active connection")
    modes.add_argument("--scale", action="store_true", help="2,000 files, 100,000 tensors: time, memory")
    modes.add_argument("--parse", action="store_true", help="inspect beside torch, h5py and safetensors: time, memory")
    modes.add_argument("--slices", action="store_true", help="parts of tensors and rank files beside contiguous ranges")
    modes.add_argument("--hashing", action="store_true", help="page-cached rates while another file is hashed")
    modes.add_argument("--decode", action="store_true", help="compressed tensors beside h5py and NumPy")
    modes.add_argument("--held", action="store_true",
                       help="10,000 connections that clients hold open: accept rate, memory; rates beside idle ones")
    modes.add_argument("--tail", action="store_true",
                       help="latencies of short ranges while other clients stream and make plans")
    modes.add_argument("--client", action="store_true",
                       help="the Python client beside a receive loop in C, requests, hf download and Run:ai's "
                            "streamer; ranks over a shaped link (as root); lazy tensors beside rank files")
    modes.add_argument("--datasets", action="store_true",
                       help="rows of datasets: batches beside single GETs, the index beside dd, a shuffled order "
                            "entered at 90%% of 100,000,000 rows, cold rows beside pread, and a DataLoader beside "
                            "datasets, webdataset and mosaicml-streaming (takes 15 GB of disk)")
    modes.add_argument("--all", action="store_true", help="all thirteen")
    modes.add_argument("--quick", action="store_true",
                       help="a small run of all thirteen in about a minute, or of those named, that only checks that "
                            "nothing fails")
    p.add_argument("--servers", type=list_of(str), default=ALL_SERVERS, help="of %s" % ",".join(ALL_SERVERS))
    p.add_argument("--tensord", default=os.environ.get("TENSORD", os.path.join(TREE, "build", "tensord")))
    p.add_argument("--before", metavar="BINARY",
                   help="a tensord built from an older commit: it takes turns with --tensord as server 'before', "
                        "for --throughput and --held")
    p.add_argument("--also", type=list_of(str), default=[], metavar="WAYS",
                   help="of %s: tensord with --files immutable, with --leases off, with --sendfile remote, and run by "
                        "a user who does not own the file (takes root), each as one more server of --throughput"
                        % ",".join(ALSO))
    p.add_argument("--nginx", default=bench_servers.find_nginx())
    p.add_argument("--bin-dir", help="where load_client and raw_send are (found in build*/bench)")
    p.add_argument("--dir", help="where to put the files, kept for the next run (a temporary directory, removed)")
    p.add_argument("--size", type=size_argument, help="size of the tensor (4G; 1G for --memory and --cold alone)")
    p.add_argument("--sizes", type=list_of(size_argument), default=[4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20])
    p.add_argument("--connections", type=list_of(int), default=[8, 64])
    p.add_argument("--rounds", type=int, default=5, help="(5), after one that does not count")
    p.add_argument("--duration", type=float, default=1.0, help="seconds per run")
    p.add_argument("--cold-rounds", type=int, default=3)
    p.add_argument("--held-connections", type=int, metavar="N", help="for --held (10000)")
    p.add_argument("--parse-rounds", type=int, default=50)
    p.add_argument("--python",
                   help="one that has torch, h5py and safetensors, for --parse, --decode, --client "
                        "and --datasets (.venv/bin/python)")
    p.add_argument("--path", choices=["files", "tensors"], default="files", help="which URLs of tensord")
    p.add_argument("--reader", choices=("copy", "discard", "both"), default="copy",
                   help="the client copies bodies to user space, as every real one does, and drops them there; or the "
                        "kernel drops them unread, which spares a sendfile server every copy there is; or one after "
                        "the other (both is for --throughput)")
    p.add_argument("--congestion", type=list_of(str), metavar="NAMES",
                   help="congestion controls to measure under, such as cubic,bbr: sets the host's default during the "
                        "run, as root (the host's own; for --throughput, --slices and --tls)")
    p.add_argument("--client-threads", default="auto", metavar="N",
                   help="epoll threads of the load client, or 'connections': blocking ones (auto: the faster way)")
    p.add_argument("--json", metavar="FILE", help="writes all measurements of every round")
    p.add_argument("--markdown", metavar="FILE", help="writes the report as a Markdown page, - for standard output")
    p.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    return p.parse_args()


def settle_arguments(options):
    unknown = [s for s in options.servers if s not in ALL_SERVERS]
    if unknown:
        raise BenchError("unknown server %s; known: %s" % (", ".join(unknown), ", ".join(ALL_SERVERS)))
    unknown = [a for a in options.also if a not in ALSO]
    if unknown:
        raise BenchError("unknown in --also: %s; known: %s" % (", ".join(unknown), ", ".join(ALSO)))
    if options.before and not os.access(options.before, os.X_OK):
        raise BenchError("no tensord at %s, which --before names" % options.before)
    modes = ("throughput", "cold", "memory", "scale", "parse", "slices", "hashing", "decode", "held",
             "tail", "client", "datasets", "tls")
    given = [m for m in modes if getattr(options, m) or options.all]
    options.modes = given or (list(modes) if options.quick else ["throughput"])
    if options.quick:
        options.size = options.size or 64 << 20
        options.sizes, options.connections = [4 << 10, 64 << 10, 1 << 20, 16 << 20], [8]
        options.rounds, options.duration, options.cold_rounds = 1, 0.25, 1
        if "tensord" in options.servers and "throughput" in options.modes:
            options.also = [a for a in ALSO if a != "other-owner" or os.geteuid() == 0]
    if options.before and not set(options.modes) <= {"throughput", "held"}:
        raise BenchError("--before goes with --throughput and --held alone")
    if options.also and ("throughput" not in options.modes or "tensord" not in options.servers):
        raise BenchError("--also goes with --throughput, and with tensord among the servers")
    if options.size is None:
        options.size = 4 << 30 if "throughput" in options.modes else 1 << 30
    if min(options.rounds, options.cold_rounds, options.parse_rounds, min(
            options.connections)) < 1 or options.duration <= 0:
        raise BenchError("rounds, connections and duration must be positive")
    if options.held_connections is not None and not 0 < options.held_connections <= bench_held.MOST_CONNECTIONS:
        raise BenchError("--held-connections must be from 1 to %d" % bench_held.MOST_CONNECTIONS)


def find_binaries(options, names=("load_client", "raw_send")):
    places = [options.bin_dir] if options.bin_dir else [
        os.path.join(TREE, place) for place in ("build/bench", "build-bench", "build-bench/bench", "build-dev/bench")]
    for place in places:
        if all(os.access(os.path.join(place, n), os.X_OK) for n in names):
            return place
    raise BenchError(" and ".join(names) + " are not built: cmake -S bench -B build-bench && "
                     "cmake --build build-bench, or name their place with --bin-dir")


def make_servers(options, work, fixture, binaries, connections=None):
    """connections: as many at once as the servers must take, for those that can; None: as in an ordinary run."""
    servers, extra = [], []
    if connections is not None:
        extra = ["--max-connections", str(connections), "--max-connections-per-address", str(connections),
                 "--idle-timeout", "600"]
    for name in options.servers:
        if name.startswith("nginx"):
            if not options.nginx:
                raise BenchError("nginx is not installed (Debian: apt install nginx-light); or leave it out: --servers")
            kind = bench_servers.Nginx if name == "nginx" else bench_servers.NginxNopush
            servers.append(kind(work, fixture, options.nginx, connections or 4096))
        elif name == "tensord":
            if not os.access(options.tensord, os.X_OK):
                raise BenchError("no tensord at %s; build it or name it with --tensord" % options.tensord)
            servers.append(bench_servers.Tensord(work, fixture, options.tensord, options=extra))
        elif connections is None:
            kind = bench_servers.Raw if name == "raw" else bench_servers.RawSendfile
            servers.append(kind(work, fixture, os.path.join(binaries, "raw_send")))
    if options.before:
        servers.append(bench_servers.TensordBefore(work, fixture, options.before, options=extra))
    return servers


def slice_servers(options, work, binaries):
    if not options.nginx:
        raise BenchError("nginx is not installed (Debian: apt install nginx-light)")
    raw_send = os.path.join(binaries, "raw_send")
    return lambda root, path: [
        bench_servers.Nginx(work, bench_fixture.Folder(root), options.nginx),
        bench_servers.Tensord(work, None, options.tensord, root),
        bench_servers.RawGather(work, path, raw_send), bench_servers.RawVectors(work, path, raw_send)]


def tail_servers(options, work, fixture, root):
    servers = [bench_servers.Tensord(work, fixture, options.tensord, root)]
    if "nginx" in options.servers:
        servers.insert(0, bench_servers.Nginx(work, fixture, options.nginx))
    return servers


def check_room(directory, size):
    with open("/proc/meminfo") as f:
        available = int(f.read().split("MemAvailable:")[1].split()[0]) * 1024
    if size > available * 0.8:
        raise BenchError("--size %d does not fit in the page cache (%d bytes available)" % (size, available))
    if size * 1.1 > shutil.disk_usage(directory).free:
        raise BenchError("not enough room for %d bytes in %s" % (size, directory))


def make_fixture(options, directory):
    root = os.path.join(directory, "root")
    os.makedirs(root, exist_ok=True)
    name = "bench-%s.safetensors" % bench_report.bytes_text(options.size).replace(" ", "")
    path = os.path.join(root, name)
    for other in os.listdir(root):  # a file of another size: the root must hold only this file
        if other != name and other.startswith("bench-"):
            os.unlink(os.path.join(root, other))
    if not os.path.exists(path):
        check_room(directory, options.size)
    start = time.monotonic()
    fixture = bench_fixture.write_big(path, options.size)
    print("%s ready after %.1f s" % (name, time.monotonic() - start), file=sys.stderr)
    return fixture


def run_modes(options, work, directory):
    results = []
    load = fixture = servers = None
    if not set(options.modes) <= {"scale", "parse", "decode", "client", "datasets"}:
        binaries = find_binaries(options)
        load = Load(os.path.join(binaries, "load_client"), options.path, options.client_threads,
                    "copy" if options.reader == "both" else options.reader)
    if not set(options.modes) <= {"scale", "parse", "slices", "decode", "client", "datasets"}:
        fixture = make_fixture(options, directory)
        servers = make_servers(options, work, fixture, binaries)
    for mode in options.modes:
        if mode in OF_TENSORD and "tensord" not in options.servers:
            print("%s: left out, it is about tensord alone" % mode, file=sys.stderr)
        elif mode == "parse":
            binaries = find_binaries(options, ("spawn_time",))
            results.append(bench_parse.run(os.path.join(binaries, "spawn_time"), work, options))
        elif mode == "slices":
            for congestion in options.congestion or [None]:
                with bench_servers.congestion_control(congestion) as name:
                    results.append(bench_slices.run(load, options, work, slice_servers(options, work, binaries), name))
        elif mode == "client":
            library = os.path.join(find_binaries(options, ("libreceive_ranges.so",)), "libreceive_ranges.so")
            results.append(bench_client.run(library, work, options))
        elif mode == "datasets":
            results.append(bench_datasets.run(work, directory, options))
        elif mode == "decode":
            results.append(
                bench_decode.run(
                    lambda root: bench_servers.Tensord(work, None, options.tensord, root, ["--settle", "0"]), work,
                    options))
        elif mode == "held":
            binary = os.path.join(find_binaries(options, ("hold_connections",)), "hold_connections")
            results.append(bench_held.run(load, lambda n: make_servers(options, work, fixture, binaries, n), binary,
                                          fixture, options))
        elif mode == "tls":
            client = os.path.join(find_binaries(options, ("tls_load",)), "tls_load")
            if not options.nginx:
                raise BenchError("nginx is not installed (Debian: apt install nginx-light)")
            for congestion in options.congestion or [None]:
                with bench_servers.congestion_control(congestion) as name:
                    results.append(bench_tls.run(client, work, fixture, options, name))
        elif mode == "hashing":
            results.append(bench_hashing.run(load, options, work, directory, fixture))
        elif mode == "tail":
            streams = Load(load.binary, options.path, options.client_threads.replace("auto", str(os.cpu_count() or 1)),
                           load.reader)
            results.append(bench_tail.run(load, streams, lambda root: tail_servers(options, work, fixture, root),
                                          directory, fixture, options))
        elif mode == "scale":
            results.append(bench_scale.run(
                lambda root, extra: bench_servers.Tensord(work, fixture, options.tensord, root, extra),
                work, options))
        elif mode == "throughput":
            servers_also = servers + [ALSO[name](work, fixture, options.tensord) for name in options.also]
            for congestion in options.congestion or [None]:
                with bench_servers.congestion_control(congestion) as name:
                    for load.reader in ["copy", "discard"] if options.reader == "both" else [options.reader]:
                        results.append(bench_throughput.run(load, servers_also, fixture, options, name))
        else:
            module = {"cold": bench_cold, "memory": bench_memory}[mode]
            results.append(module.run(load, servers, fixture, options))
            if results[-1] is None:
                print("%s: left out, the files lie in memory (tmpfs)" % mode, file=sys.stderr)
    return [r for r in results if r is not None]


def report_text(results, environment):
    parts = [bench_report.environment_text(environment)]
    for r in results:
        parts += ["## " + r["title"], "\n".join("- " + line for line in r["about"]), r["table"]]
        if r["targets"].rows:
            parts.append(r["targets"].text())
    return "\n\n".join(parts) + "\n"


def write_reports(options, results, environment):
    text = report_text(results, environment)
    if options.markdown and options.markdown != "-":
        with open(options.markdown, "w") as f:
            f.write(text)
    print(text, end="")
    if options.json:
        plain = [{k: (v.rows if k == "targets" else v) for k, v in r.items() if k != "table"} for r in results]
        with open(options.json, "w") as f:
            json.dump({"environment": environment, "results": plain}, f, indent=1)
            f.write("\n")


def check_clients(options):
    """Checks the load clients, because one that takes errors for answers would measure nothing."""
    for name in ("load_client", "hold_connections"):
        test = os.path.join(TREE, "bench", "test_%s.py" % name)
        client = os.path.join(find_binaries(options, (name,)), name)
        run = subprocess.run([sys.executable, "-B", test, client], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise BenchError("%s does not pass its test:\n%s" % (name, run.stderr))


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        settle_arguments(options)
        if options.quick:
            check_clients(options)
        with tempfile.TemporaryDirectory(prefix="tensord-bench-") as work:
            directory = options.dir or work
            os.makedirs(directory, exist_ok=True)
            environment = bench_report.environment(
                options.nginx if any(s.startswith("nginx") for s in options.servers) else None,
                options.tensord if "tensord" in options.servers else None)
            results = run_modes(options, work, directory)
    except BenchError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 1
    if options.quick:  # runs this short cannot be compared
        for r in results:
            r["targets"].rows.clear()
    write_reports(options, results, environment)
    if options.quick:
        print("quick bench: ok")
    return 0 if not options.check or all(r["targets"].all_met() for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
