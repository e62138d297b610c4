"""Runs of the load client against a server, with the costs of both."""

import json
import subprocess

import bench_servers
from bench_report import connections_text
from bench_servers import BenchError


LARGE_BYTES = 1 << 20


class Load:
    """Runs the load client. threads: a number of epoll workers, "connections" for a blocking thread per connection,
    or "auto": in trials every server, raw and nginx alike, was fastest with one epoll worker per processor below
    1 MiB and with blocking threads from there up."""

    def __init__(self, binary, kind="files", threads="auto", reader="discard"):
        self.binary, self.kind, self.threads, self.reader = binary, kind, threads, reader
        self.softirq_pids = bench_servers.ksoftirqd_pids()

    def reader_text(self):
        """Returns what the client does with the bytes of bodies, for reports."""
        return "copies bodies to its memory" if self.reader == "copy" else "lets the kernel drop bodies unread"

    def command(self, server, range_bytes, connections, extra=(), seed=1):
        path, size, _ = server.target(self.kind)
        command = [self.binary, "--port", str(server.port), "--path", path, "--file-size", str(size),
                   "--range-size", str(range_bytes), "--connections", str(connections), "--seed", str(seed)]
        large = range_bytes == 0 or range_bytes >= LARGE_BYTES
        if self.threads == "connections" or (self.threads == "auto" and large):
            command += ["--threads", str(connections)]
        elif self.threads != "auto":
            command += ["--threads", str(self.threads)]
        if self.reader == "copy":
            command.append("--copy")
        return command + [str(x) for x in extra]

    def run(self, server, range_bytes, connections, extra=(), seed=1):
        before = self._clocks(server)
        run = subprocess.run(self.command(server, range_bytes, connections, extra, seed), capture_output=True,
                             text=True, check=False)
        after = self._clocks(server)
        what = "%s, %d bytes, %s" % (server.name, range_bytes, connections_text(connections))
        try:
            result = json.loads(run.stdout)
        except ValueError as error:
            raise BenchError("load_client against %s: %s" % (what, run.stderr.strip() or "no answer")) from error
        if result["errors"] or not result["requests"]:
            raise BenchError("%s: %d errors, %d answers; first: %s; server: %s" % (
                what, result["errors"], result["requests"], result["first_error"], server.last_log()))
        return self._with_costs(result, *[b - a for a, b in zip(before, after)])

    def _clocks(self, server):
        softirq = sum(bench_servers.process_cpu_s(pid) for pid in self.softirq_pids)
        return server.cpu_s(), softirq, bench_servers.machine_busy_s()

    @staticmethod
    def _with_costs(result, server_s, softirq_s, busy_s):
        gb = result["bytes"] / 1e9
        result["server_cpu_s_per_gb"] = server_s / gb
        result["client_cpu_s_per_gb"] = result["client_cpu_s"] / gb
        result["softirq_cpu_s_per_gb"] = softirq_s / gb
        result["server_cpu_us_per_request"] = server_s / result["requests"] * 1e6
        result["client_cpu_us_per_request"] = result["client_cpu_s"] / result["requests"] * 1e6
        result["server_processors"] = server_s / result["seconds"]
        result["client_processors"] = result["client_cpu_s"] / result["seconds"]
        other_s = busy_s - server_s - softirq_s - result["client_cpu_s"]
        result["other_processors"] = max(0.0, other_s) / result["seconds"]
        return result


def disturbed_note(samples, limit=0.15):
    """Returns a line when other programs used part of the machine, else None."""
    shares = [s["other_processors"] for s in samples if s["seconds"] >= 0.2]  # /proc/stat counts in steps of 10 ms
    bad = sum(1 for s in shares if s > limit)
    if not bad:
        return None
    return ("%d of %d runs were disturbed: something else used more than %.2f processors (worst %.2f)"
            % (bad, len(shares), limit, max(shares)))
