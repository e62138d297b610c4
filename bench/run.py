#!/usr/bin/env python3
"""Measures tensord beside nginx, bare loops and other programs, round after round. See README.md beside this file.

Standard library only. Everything listens on 127.0.0.1 or in a network namespace, and lives under one temporary
directory."""

import sys

sys.dont_write_bytecode = True  # leaves no compiled files in the source tree

import argparse  # noqa: E402
import concurrent.futures  # noqa: E402
import contextlib  # noqa: E402
import dataclasses  # noqa: E402
import functools  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
import typing  # noqa: E402

import files  # noqa: E402
import measure  # noqa: E402
import servers  # noqa: E402
from clients import Load, Peer  # noqa: E402
from measure import BenchError, LeftOut  # noqa: E402
from works import commits, connections, datasets, fanout, inspect, loading  # noqa: E402
from works import objects, publishing, pull, pushes, ranges, slices, updates, uploads  # noqa: E402

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclasses.dataclass
class Work:
    """A row of the table: what is measured; the function of a Bench that returns a result or a list of results; the
    servers that take turns; the peers that are compared beside them; the client that asks. in_all: part of --all."""

    what: str
    run: typing.Callable
    servers: str
    peer: str
    client: str
    in_all: bool = True
    before: bool = False  # whether --before takes part


WORKS = {
    "throughput": Work("page-cached rates by range size and connections", ranges.throughput, "of --servers, --also", "",
                       "load_client", before=True),
    "tls": Work("page-cached rates over TLS 1.3", ranges.tls, "nginx, tensord", "", "load_client --tls"),
    "cold": Work("first reads of a file that is not in the page cache", ranges.cold, "of --servers", "read()",
                 "load_client", before=True),
    "memory": Work("anonymous memory per active connection", connections.memory, "of --servers", "", "load_client",
                   before=True),
    "held": Work("10,000 connections held open: accept rate, memory; rates beside idle ones", connections.held,
                 "nginx, tensord", "", "load_client, hold_connections", before=True),
    "tail": Work("latencies of short ranges while other clients stream and make plans", connections.tail,
                 "nginx, tensord", "", "load_client"),
    "hashing": Work("page-cached rates while another file is hashed", ranges.hashing, "tensord", "", "load_client"),
    "slices": Work("parts of tensors and rank files beside contiguous ranges", slices.run, "nginx, tensord",
                   "raw_send --gather, --vectors", "load_client"),
    "scale": Work("2,000 files, 100,000 tensors: time, memory", inspect.scale, "tensord", "", "sockets"),
    "parse": Work("inspect of one file: time, memory", inspect.parse, "", "torch, h5py, safetensors", "spawn_time"),
    "decode": Work("compressed tensors", inspect.decode, "tensord", "h5py, NumPy", "http.client"),
    "client": Work("the Python client; ranks over a shaped link (as root); lazy tensors beside rank files", loading.run,
                   "tensord", "receive_ranges, requests, snapshot_download, Run:ai", "Python client"),
    "datasets": Work("rows: batches, index, shuffled order, cold rows, a DataLoader (15 GB of disk)", datasets.run,
                     "tensord, nginx", "GETs, dd, pread, datasets, webdataset", "http.client, Python client"),
    "pull": Work("one file into a directory", pull.run, "tensord", "curl, aria2c, hf download", "tensord pull", False),
    "fanout": Work("ranks that fetch their own files, over a shaped link", fanout.run, "tensord", "whole downloads",
                   "curl", False),
    "updates": Work("from one version to the next over a shaped link (as root)", updates.run, "tensord",
                    "ModelExpress, gloo", "tensord pull, apply, Python client", False),
    "cache": Work("processor time of nginx that caches slices of tensord", ranges.cache, "nginx", "", "load_client",
                  False),
    "scan": Work("the first scan of 2,000 files, with the sandbox and without", publishing.scan, "tensord", "", "",
                 False),
    "publish": Work("from the beginning of a copy or a rename until the model is served", publishing.publish, "tensord",
                    "", "http.client", False),
    "uploads": Work("PUT of whole files, one and eight at once; a model from memory", uploads.run, "nginx, tensord",
                    "save_model", "curl, Python client", False),
    "objects": Work("PutObject of small and large objects, and uploads in parts", objects.run, "nginx, tensord",
                    "moto", "http.client", False),
    "pushes": Work("a directory of 1,200 small files, and a large file, into a model", pushes.run, "tensord",
                   "aws s3 cp, rclone copy, hf upload", "tensord push", False),
    "commits": Work("commits of one changed file to a model of 500 files", commits.commits, "tensord", "",
                    "http.client", False),
    "trainer": Work("readers that wait for a trainer's steps: from the commit to the first bytes", commits.trainer,
                    "tensord", "", "http.client", False),
    "beside": Work("reading alone, and beside eight uploads", commits.beside, "nginx, tensord", "", "load_client, curl",
                   False),
    "model-bytes": Work("bytes of whole models and of rank files, by plans", fanout.model_bytes, "", "", "tensord plan",
                        False),
}


LONGEST = ("client", "datasets", "parse", "updates")  # in --smoke, whose works otherwise take seconds


class Bench:
    """Gives a work its options and directories, and makes the programs, servers and clients that it needs."""

    def __init__(self, options, work, directory, congestion):
        """work: a directory that is removed after the work; directory: one for large files; congestion: the control in
        force."""
        self.options, self.work, self.directory, self.quick = options, work, directory, options.quick
        self.congestion = congestion
        for folder in (work, directory):
            os.makedirs(folder, exist_ok=True)

    def program(self, name):
        return program(self.options, name)

    def load(self, reader=None, threads=None, more=()):
        reader = reader or self.options.reader
        return Load(self.program("load_client"), self.options.path, threads or self.options.client_threads,
                    "copy" if reader == "both" else reader, more)

    def peer(self, kind, **more):
        python = self.options.python
        if not os.access(python, os.X_OK):
            raise BenchError("no Python with the peers at %s; ./test.sh makes .venv, or --python" % python)
        return Peer(python, kind, **more)

    @functools.cached_property
    def fixture(self):
        """The file of most works. The directory has only this one."""
        root = os.path.join(self.directory, "root")
        os.makedirs(root, exist_ok=True)
        name = "bench-%s.safetensors" % measure.bytes_text(self.options.size).replace(" ", "")
        for other in os.listdir(root):
            if other != name and other.startswith("bench-"):
                os.unlink(os.path.join(root, other))
        if not os.path.exists(os.path.join(root, name)):
            check_room(self.directory, self.options.size)
        return files.write_big(os.path.join(root, name), self.options.size)

    @functools.cached_property
    def pair(self):
        """The servers.Pair of this run."""
        return servers.make_pair(self.work)

    @property
    def chosen_pair(self):
        """The pair with --over-tls, otherwise None."""
        return self.pair if self.options.over_tls else None

    @property
    def transport(self):
        return "over TLS 1.3, %s, a certificate on P-256" % servers.CIPHER if self.options.over_tls else "over HTTP"

    def linked_root(self, name):
        """Returns a directory that has only a link to the fixture's file."""
        root = os.path.join(self.directory, name + "-root")
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(root)
        os.link(self.fixture.path, os.path.join(root, self.fixture.name))
        return root

    def tensord(self, name="tensord", **more):
        return servers.Tensord(self.work, self.of(more), self.options.tensord, name=name, **more)

    def nginx(self, name="nginx", **more):
        return servers.Nginx(self.work, self.of(more), self.options.nginx, name=name, **more)

    def of(self, more):
        """Returns the fixture, for a server that has it or a link to it; None if it has another root."""
        return self.fixture if "root" not in more or "fixture" in self.__dict__ else None

    def servers(self, also=False, connections=None):
        """Returns the servers of --servers and --before. also: and of --also. connections: as many at once as they must
        take, for those that can."""
        chosen = [(name, servers.SERVERS[name], {}) for name in self.options.servers]
        chosen += [("tensord-" + name, servers.ALSO[name], {}) for name in self.options.also if also]
        if self.options.before:
            chosen.append(("before", servers.SERVERS["tensord"], {"about": ""}))
        if connections:
            limits = {"tensord": {"options": ["--max-connections", str(connections), "--max-connections-per-address",
                                              str(connections), "--idle-timeout", "600"]},
                      "nginx": {"connections": connections}}
            chosen = [(name, row, {**more, **limits[row[0]]}) for name, row, more in chosen if row[0] in limits]
        if not chosen:
            raise BenchError("the work needs tensord or nginx among --servers")
        binaries = {"nginx": self.options.nginx, "tensord": self.options.tensord}
        return [kind(self.work, self.fixture, self.options.before if name == "before" else
                     binaries.get(program) or self.program(program), name=name, **{**given, **more})
                for name, (program, kind, given), more in chosen]

    @contextlib.contextmanager
    def started(self, compared):
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(server) for server in compared]


def program(options, name):
    """Returns the path of a program of this folder."""
    places = [options.bin_dir] if options.bin_dir else [os.path.join(TREE, place) for place in (
        "build/bench", "build-bench", "build-bench/bench", "build-dev/bench")]
    for place in places:
        if os.access(os.path.join(place, name), os.X_OK):
            return os.path.join(place, name)
    raise BenchError("%s is not built: cmake -S bench -B build-bench && cmake --build build-bench, or name its "
                     "place with --bin-dir" % name)


def check_room(directory, size):
    with open("/proc/meminfo") as f:
        available = int(f.read().split("MemAvailable:")[1].split()[0]) * 1024
    if size > available * 0.8:
        raise BenchError("--size %d does not fit in the page cache (%d bytes available)" % (size, available))
    if size * 1.1 > shutil.disk_usage(directory).free:
        raise BenchError("not enough room for %d bytes in %s" % (size, directory))


# ---- options

def size_argument(text):
    digits = text.lower().rstrip("ib").rstrip("kmg")
    unit = text.lower().rstrip("ib")[len(digits):]
    if not digits.isdigit() or unit not in UNITS:
        raise argparse.ArgumentTypeError("not a size such as 4096, 64K, 16M or 4G: %s" % text)
    return int(digits) * UNITS[unit]


def list_of(convert, known=None):
    def parse(text):
        items = [convert(item) for item in text.split(",") if item]
        unknown = [item for item in items if known and item not in known]
        if unknown:
            raise argparse.ArgumentTypeError("unknown %s; known: %s" % (", ".join(unknown), ", ".join(known)))
        return items
    return parse


def parse_arguments():
    p = argparse.ArgumentParser(description="Measures tensord beside nginx, bare loops and other programs.")
    group = p.add_argument_group("what to measure (throughput by default; several are possible)")
    for name, work in WORKS.items():
        group.add_argument("--" + name, action="store_true", help=work.what)
    group.add_argument("--all", action="store_true", help="the first %d" % sum(w.in_all for w in WORKS.values()))
    group.add_argument("--quick", action="store_true", help="tiny sizes and one round: compares nothing")
    group.add_argument("--smoke", action="store_true",
                       help="every work (or those named) with --quick, side by side in processes of their own, within "
                            "a minute; prints a line for each, and fails if one cannot run")
    group.add_argument("--list", action="store_true", help="print the table of works, and end")
    p.add_argument("--servers", type=list_of(str, servers.SERVERS), default=list(servers.SERVERS), metavar="NAMES",
                   help="of %s" % ",".join(servers.SERVERS))
    p.add_argument("--tensord", default=os.environ.get("TENSORD", os.path.join(TREE, "build", "tensord")))
    p.add_argument("--before", metavar="BINARY",
                   help="a tensord built from an older commit: it takes turns with --tensord as server 'before', "
                        "for --%s" % ", --".join(name for name, work in WORKS.items() if work.before))
    p.add_argument("--client-before", metavar="DIR",
                   help="a folder with the package of an older Python client, which takes turns in --client")
    p.add_argument("--also", type=list_of(str, servers.ALSO), default=[], metavar="WAYS",
                   help="of %s: tensord with --files immutable, with --leases off, with --sendfile remote, and run by "
                        "a user who does not own the file (takes root), each as one more server of --throughput"
                        % ",".join(servers.ALSO))
    p.add_argument("--nginx", default=servers.find_nginx())
    p.add_argument("--bin-dir", help="where the programs of this folder are (found in build*/bench)")
    p.add_argument("--dir", help="where to put the files, kept for the next run (a temporary directory, removed)")
    p.add_argument("--size", type=size_argument, help="size of the file (4G; 1G without --throughput)")
    p.add_argument("--sizes", type=list_of(size_argument), default=[4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20])
    p.add_argument("--connections", type=list_of(int), default=[8, 64])
    p.add_argument("--rounds", type=int, default=5, help="(5), after one that does not count")
    p.add_argument("--duration", type=float, default=1.0, help="seconds per run")
    p.add_argument("--cold-rounds", type=int, default=3)
    p.add_argument("--held-connections", type=int, metavar="N", help="for --held (10000)")
    p.add_argument("--parse-rounds", type=int, default=50)
    p.add_argument("--python", default=os.path.join(TREE, ".venv", "bin", "python"),
                   help="one that has the peers of --parse, --decode, --client, --datasets and --updates "
                        "(.venv/bin/python)")
    p.add_argument("--path", choices=["files", "tensors"], default="files", help="which URLs of tensord")
    p.add_argument("--reader", choices=("copy", "discard", "both"), default="copy",
                   help="the client copies bodies to user space, as every real one does, and drops them there; or the "
                        "kernel drops them unread, which spares a sendfile server every copy there is; or one after "
                        "the other (both is for --throughput)")
    p.add_argument("--congestion", type=list_of(str), metavar="NAMES",
                   help="congestion controls to measure under, one after the other, such as cubic,bbr: sets the host's "
                        "default during the run, as root (the host's own)")
    p.add_argument("--client-threads", default="auto", metavar="N",
                   help="epoll threads of the load client, or 'connections': blocking ones (auto: the faster way)")
    p.add_argument("--rates", type=list_of(int), metavar="MBIT",
                   help="of the link of --fanout (200,400,800) and --updates (1000); 0: not shaped")
    p.add_argument("--ranks", type=list_of(int), default=[1, 2, 4, 8, 16], help="of --fanout (1,2,4,8,16)")
    p.add_argument("--node", type=int, default=0, metavar="MBIT",
                   help="--fanout from a cold cache on the ranks' host, whose loopback has this rate")
    p.add_argument("--layers", type=int,
                   help="of the model of --fanout (1) and --updates (8), 25 MB each, beside 17 MB")
    p.add_argument("--learning-rates", type=list_of(float), default=[1e-6, 1e-5, 1e-4], metavar="RATES",
                   help="of the steps of --updates (1e-6,1e-5,1e-4)")
    p.add_argument("--frozen", type=int, default=0, metavar="LAYERS",
                   help="first layers of the model of --updates that its steps leave as they are (0)")
    p.add_argument("--commit-count", type=int, default=1000, metavar="N", help="of --commits (1000)")
    p.add_argument("--steps", type=int, default=60, metavar="N", help="of --trainer (60)")
    p.add_argument("--step-seconds", type=float, default=10, metavar="S", help="from step to step of --trainer (10)")
    p.add_argument("--upload-rate", type=size_argument, default=16 << 20, metavar="SIZE",
                   help="bytes per second of each of the uploads of --beside (16M)")
    p.add_argument("--over-tls", action="store_true", help="--uploads and --pushes over TLS 1.3, for all clients")
    p.add_argument("--mtu", type=int, default=1500, help="of the link of --fanout and --updates (1500)")
    p.add_argument("--limit", type=list_of(size_argument), default=[1000 << 20, 100 << 20], metavar="SIZES",
                   help="bytes per second of each connection in later parts of --pull (1000M,100M)")
    p.add_argument("--delay", type=int, default=0, help="ms for each request in one more part of --pull (0: none)")
    p.add_argument("--json", metavar="FILE", help="writes all measurements of every round; - for standard output alone")
    p.add_argument("--markdown", metavar="FILE", help="writes the report as a Markdown page, - for standard output")
    p.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    return p.parse_args()


def settle_arguments(options):
    given = [name for name, work in WORKS.items()
             if getattr(options, name.replace("-", "_")) or (options.all and work.in_all)]
    options.works = given or (list(WORKS) if options.quick or options.smoke else ["throughput"])
    if options.before and not os.access(options.before, os.X_OK):
        raise BenchError("no tensord at %s, which --before names" % options.before)
    if options.before and not all(WORKS[name].before for name in options.works):
        raise BenchError("--before goes with --%s alone"
                         % ", --".join(name for name, work in WORKS.items() if work.before))
    if options.quick:
        options.size = options.size or 64 << 20
        options.sizes, options.connections = [4 << 10, 64 << 10, 1 << 20, 16 << 20], [8]
        options.rounds, options.duration, options.cold_rounds, options.parse_rounds = 1, 0.1, 1, 3
        options.rates, options.ranks, options.limit, options.learning_rates = [0], [2], [1000 << 20], [1e-5]
        if "tensord" in options.servers and "throughput" in options.works:
            options.also = [name for name in servers.ALSO if name != "other-owner" or os.geteuid() == 0]
    if options.also and ("throughput" not in options.works or "tensord" not in options.servers):
        raise BenchError("--also goes with --throughput, and with tensord among the servers")
    if options.size is None:
        options.size = 4 << 30 if "throughput" in options.works else 1 << 30
    if min(options.rounds, options.cold_rounds, options.parse_rounds, *options.connections) < 1 or \
            options.duration <= 0:
        raise BenchError("rounds, connections and duration must be positive")
    if options.held_connections is not None and not 0 < options.held_connections <= connections.MOST_CONNECTIONS:
        raise BenchError("--held-connections must be from 1 to %d" % connections.MOST_CONNECTIONS)


# ---- the run

def run_works(options):
    """Returns the results of all works, and the names of those that failed."""
    results, failed = [], []
    with tempfile.TemporaryDirectory(prefix="tensord-bench-") as top:
        for name, congestion in [(n, c) for n in options.works for c in options.congestion or [None]]:
            try:
                with servers.congestion_control(congestion) as in_force:
                    bench = Bench(options, os.path.join(top, name), options.dir or os.path.join(top, "files"), in_force)
                    found = WORKS[name].run(bench)
                    results += [{"work": name, **result} for result in (found if isinstance(found, list) else [found])]
            except LeftOut as reason:
                print("%s: left out: %s" % (name, reason), file=sys.stderr)
            except BenchError as error:
                print("bench: %s: %s" % (name, error), file=sys.stderr)
                failed.append(name)
            except Exception:  # of one work, which must not cost the results of the others
                print("bench: %s:\n%s" % (name, traceback.format_exc()), file=sys.stderr)
                failed.append(name)
            shutil.rmtree(os.path.join(top, name), ignore_errors=True)
    return results, failed


def write_reports(options, results):
    environment = measure.environment(options.nginx, options.tensord)
    text, plain = measure.report_text(results, environment), measure.json_text(results, environment)
    for path, content in ((options.markdown, text), (options.json, plain)):
        if path and path != "-":
            with open(path, "w") as f:
                f.write(content)
    print(plain if options.json == "-" else text, end="")


def check_clients(options):
    """Checks the load clients, because one that takes errors for answers would measure nothing."""
    for name in ("load_client", "hold_connections"):
        run = subprocess.run([sys.executable, "-B", os.path.join(TREE, "bench", "test_%s.py" % name),
                              program(options, name)], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise BenchError("%s does not pass its test:\n%s" % (name, run.stderr))


def smoke(options, arguments):
    """Runs each work by this program with --quick, as many at once as there are processors. Returns the exit status."""
    arguments = [a for a in arguments if a not in ("--smoke", "--all", *("--" + name for name in WORKS))]

    def one(name):
        """Returns whether the work could run."""
        begin = time.monotonic()
        run = subprocess.run([sys.executable, "-B", __file__, "--quick", "--" + name, *arguments], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        left_out = [line for line in run.stdout.splitlines() if line.startswith(name + ": left out")]
        text = "failed\n" + run.stdout if run.returncode else "".join(left_out)[len(name) + 2:] or "ok"
        print("%-12s %5.1f s  %s" % (name, time.monotonic() - begin, text), flush=True)
        return run.returncode == 0

    begin = time.monotonic()
    check_clients(options)
    works = sorted(options.works, key=lambda name: name not in LONGEST)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        failed = [name for name, good in zip(works, pool.map(one, works)) if not good]
    print("smoke bench: %s, %.1f s" % ("failed: " + ", ".join(failed) if failed else "ok", time.monotonic() - begin))
    return 1 if failed else 0


def works_table():
    return measure.table(["work", "what is measured", "servers", "beside", "client"],
                         [["--" + name, w.what, w.servers, w.peer, w.client] for name, w in WORKS.items()])


def main():
    options = parse_arguments()
    if options.list:
        print(works_table())
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        settle_arguments(options)
        if options.smoke:
            return smoke(options, sys.argv[1:])
        results, failed = run_works(options)
    except BenchError as error:
        print("bench: %s" % error, file=sys.stderr)
        return 1
    if options.quick:  # runs this short cannot be compared
        for r in results:
            r["targets"].clear()
    write_reports(options, results)
    missed = options.check and any(not t["met"] for r in results for t in r["targets"])
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
