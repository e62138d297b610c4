"""The clients: runs of the load client against a server, with the costs of both, and programs that answer lines."""

import json
import os
import subprocess

import servers
from measure import BenchError, connections_text

HERE = os.path.dirname(os.path.abspath(__file__))
LARGE_BYTES = 1 << 20
ENVIRONMENT = {  # of kinds of peers. Allocations are mapped and unmapped each time, so that new memory is new each time
    "client": {"MALLOC_MMAP_THRESHOLD_": "65536", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1",
               "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"},
    "rows": {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "PYTHONWARNINGS": "ignore",
             "TOKENIZERS_PARALLELISM": "false"},
    "updates": {"GLOO_SOCKET_IFNAME": "v0", "TORCH_CPP_LOG_LEVEL": "ERROR", "AWS_ACCESS_KEY_ID": "any",
                "AWS_SECRET_ACCESS_KEY": "any", "AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "*"},
}


class Load:
    """Runs the load client. threads: a number of epoll workers, "connections" for a blocking thread per connection,
    or "auto": in trials every server, raw and nginx alike, was fastest with one epoll worker per processor below
    1 MiB and with blocking threads from there up."""

    def __init__(self, program, kind="files", threads="auto", reader="copy", more=()):
        """more: options of the client for every run."""
        self.program, self.kind, self.threads, self.reader, self.more = program, kind, threads, reader, list(more)
        self.softirq_pids = servers.ksoftirqd_pids()

    def reader_text(self):
        """Returns what the client does with the bytes of bodies, for reports."""
        return "the client copies bodies to its memory" if self.reader == "copy" else \
            "the client lets the kernel drop bodies unread"

    def command(self, server, range_bytes, connections, extra=(), seed=1, part=None):
        """part: path and length of what to ask for, if it is not the server's file."""
        path, size = part or server.target(self.kind)[:2]
        command = [self.program, "--port", str(server.port), "--path", path, "--file-size", str(size),
                   "--range-size", str(range_bytes), "--connections", str(connections), "--seed", str(seed)]
        large = range_bytes == 0 or range_bytes >= LARGE_BYTES
        if self.threads == "connections" or (self.threads == "auto" and large):
            command += ["--threads", str(connections)]
        elif self.threads != "auto":
            command += ["--threads", str(self.threads)]
        if self.reader == "copy":
            command.append("--copy")
        return command + self.more + [str(x) for x in extra]

    def run(self, server, range_bytes, connections, extra=(), seed=1, part=None):
        """Returns what the client measured, with the processor time of both sides. Raises BenchError for errors."""
        before = self._clocks(server)
        run = subprocess.run(self.command(server, range_bytes, connections, extra, seed, part), capture_output=True,
                             text=True, check=False)
        after = self._clocks(server)
        what = "%s, %d bytes, %s" % (server.name, range_bytes, connections_text(connections))
        return self._with_costs(checked(run, server, what), *[b - a for a, b in zip(before, after)])

    def _clocks(self, server):
        softirq = sum(servers.process_cpu_s(pid) for pid in self.softirq_pids)
        return server.cpu_s(), softirq, servers.machine_busy_s()

    @staticmethod
    def _with_costs(result, server_s, softirq_s, busy_s):
        gb = result["bytes"] / 1e9
        for name, seconds in (("server", server_s), ("client", result["client_cpu_s"])):
            result[name + "_cpu_s_per_gb"] = seconds / gb
            result[name + "_cpu_us_per_request"] = seconds / result["requests"] * 1e6
            result[name + "_processors"] = seconds / result["seconds"]
        result["softirq_cpu_s_per_gb"] = softirq_s / gb
        other_s = busy_s - server_s - softirq_s - result["client_cpu_s"]
        result["other_processors"] = max(0.0, other_s) / result["seconds"]
        return result


def checked(run, server, what, counted="requests"):
    """Returns the result of a load client that has ended. Raises BenchError if it counted an error, or nothing."""
    try:
        result = json.loads(run.stdout)
    except ValueError as error:
        raise BenchError("load client against %s: %s" % (what, run.stderr.strip() or "no answer")) from error
    if result["errors"] or not result[counted]:
        raise BenchError("%s: %d errors, %d answers; first: %s; server: %s" % (
            what, result["errors"], result["requests"], result["first_error"], server.last_log()))
    return result


def disturbed_note(samples, limit=0.15):
    """Returns a line when other programs used part of the machine, else None. samples: as by_turns returns them."""
    shares = [s["other_processors"] for ways in samples.values() for of in ways.values() for s in of
              if s["seconds"] >= 0.2]  # /proc/stat counts in steps of 10 ms
    bad = sum(1 for s in shares if s > limit)
    if not bad:
        return None
    return ("%d of %d runs were disturbed: something else used more than %.2f processors (worst %.2f)"
            % (bad, len(shares), limit, max(shares)))


class Lines:
    """A program that answers each line of input with a line."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise BenchError("%s ended before its answer" % " ".join(self.process.args))
        return line

    def write(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line):
        self.write(line)
        return self.read()


class Peer(Lines):
    """One kind of peers.py in a Python that has its packages. It has imported everything and continues to run; each
    request is a line of JSON, and so is its answer. namespace: the network that it is in. package: the folder of the
    Python client to use in place of the tree's."""

    def __init__(self, python, kind, namespace=None, package=None):
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        super().__init__([*inside, python, "-B", os.path.join(HERE, "peers.py"), kind, *([package] if package else [])],
                         ENVIRONMENT.get(kind))
        about = json.loads(self.read())
        if about["missing"]:
            self.__exit__()
            raise BenchError("%s has no %s (./test.sh makes .venv; --python names another Python)"
                             % (python, ", ".join(about["missing"])))
        self.python = about["python"]

    def begin(self, **request):
        self.write(json.dumps(request))

    def end(self):
        return json.loads(self.read())

    def request(self, **request):
        self.begin(**request)
        return self.end()
