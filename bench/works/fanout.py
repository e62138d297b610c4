"""Ranks over a link: whole downloads beside rank files, between two hosts in network namespaces with a veth pair whose
server's end sends at a given rate (tbf), and N curl transfers at once. N ranks of tp N fetch their own rank files;
beside them N clients fetch the whole. With --node the ranks read from a cold cache on their host (tensord serve
--upstream), which fetches the whole over the link. Also the bytes of both, by `tensord plan`."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(HERE))

import files  # noqa: E402
import servers  # noqa: E402
from measure import BenchError, LeftOut, bytes_text, first_line, median, number, result, table  # noqa: E402

MODEL = "bench/llama"
SHAPE = {"hidden": 1024, "kv_heads": 16, "head_dim": 64, "intermediate": 2816, "vocabulary": 4096}
# 16 ranks can share these heads and this vocabulary
RATES = [200, 400, 800]  # Mbit/s
TURNS = {"ranks": 5, "whole": 1}  # in each round, whose median counts: a rank file takes a fraction of a second
PRIVATE = "mount -t tmpfs tmpfs /run && ip link set lo up && exec \"$@\""
NEEDED = ("tensord", "rates", "ranks", "rounds", "node", "layers", "congestion", "mtu")


def plan_of(tensord, root, model, ranks, engine="vllm"):
    """Returns what `tensord plan` says of the rank files at tp `ranks`."""
    run = subprocess.run([tensord, "plan", root, model, "--engine", engine, "--tp", str(ranks), "--json"],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise BenchError("plan of %s: %s" % (model, run.stderr.strip()))
    return json.loads(run.stdout)


def curl(namespace, server, *arguments):
    run = subprocess.run(["ip", "netns", "exec", namespace, "curl", "--silent", "--show-error", "--noproxy", "*",
                          *arguments], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise BenchError("curl: %s; server: %s" % (run.stderr.strip(), server.last_log()))
    return run.stdout


def ask(namespace, server, path):
    """Returns the status of a GET, and the text of the answer."""
    text, _, status = curl(namespace, server, "--write-out", "\\n%{http_code}", server.url(path)).rpartition("\n")
    return int(status), text


def has_digests(namespace, server):
    """Returns whether the server has published the SHA-256 of all its files."""
    digests = json.loads(ask(namespace, server, "/readyz")[1])["digests"]
    return digests["published_files"] == digests["files"]


def fetch(namespace, server, paths, lengths):
    """Fetches all paths at once, each over a connection of its own, and returns the seconds that the slowest took."""
    outputs = [word for path in paths for word in ("--output", "/dev/null", server.url(path))]
    text = curl(namespace, server, "--fail", "--parallel", "--parallel-immediate", "--parallel-max", str(len(paths)),
                "--write-out", "%{urlnum} %{size_download} %{time_total}\\n", *outputs)
    rows = [line.split() for line in text.splitlines()]
    got = {int(row[0]): int(row[1]) for row in rows}
    if got != dict(enumerate(lengths)):
        raise BenchError("curl got %s bytes, not %s" % (got, lengths))
    return max(float(row[2]) for row in rows)


def far_tensord(options, work, root, namespace, more=()):
    return servers.Tensord(work, None, options.tensord, "tensord-far", root, ["--settle", "0", *more],
                           namespace=namespace, address=servers.FAR_ADDRESS)


def rank_paths(ranks):
    return ["/models/%s/shards/vllm/tp%d/rank-%d.safetensors" % (MODEL, ranks, rank) for rank in range(ranks)]


def measure(options, server, clients, row):
    """Measures ranks and whole downloads by turns."""
    lengths = {"ranks": row["rank_bytes"], "whole": [row["whole_bytes"]] * row["ranks"]}
    paths = {"ranks": rank_paths(row["ranks"]), "whole": ["/models/%s/files/model.safetensors" % MODEL] * row["ranks"]}
    seconds, cpu = {way: [] for way in paths}, {way: [] for way in paths}
    fetch(clients, server, paths["ranks"], lengths["ranks"])  # plans are made here; it does not count
    for _ in range(options.rounds):
        for way, turns in TURNS.items():
            before = server.cpu_s()
            seconds[way].append(median([fetch(clients, server, paths[way], lengths[way]) for _ in range(turns)]))
            cpu[way].append((server.cpu_s() - before) / turns / sum(lengths[way]) * 1e9)
    return {"bytes_ratio": sum(lengths["ranks"]) / sum(lengths["whole"]), "seconds": seconds, "cpu": cpu,
            "time_ratio": median([a / b for a, b in zip(seconds["ranks"], seconds["whole"])])}


def measure_node(options, server, clients, row):
    """Measures ranks that read from a cold cache on their host. In each round "node" are the seconds from the first
    request to the end of the last rank, "fetched" those until the cache had the whole model."""
    seconds, cpu, paths = {"fetched": [], "node": []}, {"fetched": [], "node": []}, rank_paths(row["ranks"])
    server.wait_for(lambda: has_digests(clients, server), "done with hashing", step_s=0.05)
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="tensord-bench-") as work, tempfile.TemporaryDirectory(
                prefix="tensord-bench-") as root, servers.Tensord(
                    work, None, options.tensord, "tensord-near", root, ["--settle", "0", "--upstream", server.url()],
                    namespace=clients) as cache:
            began, cpu_began = time.monotonic(), cache.cpu_s()
            status, text = ask(clients, cache, paths[0])
            if status != 503:
                raise BenchError("a cold cache answers a rank file with %d, not 503: %s" % (status, text[:200]))
            cache.wait_for(lambda: "indexed 1 model" in cache.log_text(), "published")
            fetched, cpu_fetched = time.monotonic() - began, cache.cpu_s()
            seconds["fetched"].append(fetched)
            seconds["node"].append(fetched + fetch(clients, cache, paths, row["rank_bytes"]))
            cpu["fetched"].append((cpu_fetched - cpu_began) / row["whole_bytes"] * 1e9)
            cpu["node"].append((cache.cpu_s() - cpu_fetched) / sum(row["rank_bytes"]) * 1e9)
    return {"node_mbit": options.node, "seconds": seconds, "cpu": cpu}


def measure_case(options, root, mbit, ranks):
    """Measures one rate and one number of ranks. Returns a row for the report."""
    plan = plan_of(options.tensord, root, MODEL, ranks)
    row = {"mbit": mbit, "ranks": ranks, "rank_bytes": [rank["nbytes"] for rank in plan["ranks"]],
           "whole_bytes": os.path.getsize(os.path.join(root, MODEL, "model.safetensors")),
           **{key: plan["total"][key] for key in ("repeated_bytes", "constant_bytes", "header_bytes", "padding_bytes")}}
    with servers.shaped_link(mbit, options.congestion, options.mtu, options.node) as (near, far), \
            tempfile.TemporaryDirectory(prefix="tensord-bench-") as work, far_tensord(
                options, work, root, near, ["--hash-threads", "1"] if options.node else []) as server:
        found = (measure_node if options.node else measure)(options, server, far, row)
    return {**row, **found, "cpu_s_per_gb": {way: median(values) for way, values in found["cpu"].items()}}


def measure_all(options):
    with tempfile.TemporaryDirectory(prefix="tensord-bench-") as root:
        files.Llama(options.layers, **SHAPE).write(os.path.join(root, MODEL))
        return [measure_case(options, root, mbit, ranks) for mbit in options.rates for ranks in options.ranks]


def in_private_namespaces(options):
    """Runs measure_all where namespaces have no names outside, so that the kernel removes them when it ends, however it
    ends. A user who is not root becomes it in a user namespace."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    run = subprocess.run(["unshare", *user, "--mount", "--net", "sh", "-c", PRIVATE, "sh", sys.executable, "-B",
                          __file__, json.dumps({name: getattr(options, name) for name in NEEDED})],
                         capture_output=True, text=True, check=False)
    if run.returncode == 3:
        raise LeftOut(run.stderr.strip())
    if run.returncode != 0:
        raise BenchError(run.stderr.strip())
    return json.loads(run.stdout)


def run(bench):
    options = argparse.Namespace(**{name: getattr(bench.options, name) for name in NEEDED})
    options.tensord = os.path.abspath(options.tensord)
    options.rates, options.layers = options.rates or RATES, options.layers or 1
    options.congestion = bench.congestion if options.congestion else "cubic"
    servers.allow_congestion_control(options.congestion)
    rows = in_private_namespaces(options)
    ways = ("fetched", "node") if options.node else ("ranks", "whole")
    columns = ["Mbit/s", "ranks", "MB, ranks", "MB, whole", "MB repeated", *("s, " + way for way in ways),
               *("s/GB, " + way for way in ways)] + ([] if options.node else ["time ratio", "bytes ratio", "1/ranks"])
    cells = [[row["mbit"] or "none", row["ranks"], number(sum(row["rank_bytes"]) / 1e6, 1),
              number(row["whole_bytes"] * (1 if options.node else row["ranks"]) / 1e6, 1),
              number(row["repeated_bytes"] / 1e6, 3), *(number(median(row["seconds"][way]), 3) for way in ways),
              *(number(row["cpu_s_per_gb"][way], 3) for way in ways),
              *([] if options.node else [number(row["time_ratio"], 4), number(row["bytes_ratio"], 4),
                                         number(1 / row["ranks"], 4)])] for row in rows]
    about = ["congestion control %s, MTU %d, tbf with a burst of %d KiB and a queue of %d ms, a file of %s; %s"
             % (options.congestion, options.mtu, servers.BURST_BYTES >> 10, servers.QUEUE_MS,
                bytes_text(rows[0]["whole_bytes"]), first_line(["curl", "--version"])),
             "medians of %d rounds, each with a cold cache at %d Mbit/s from its ranks; seconds since the first "
             "request; s/GB is the cache's processor time" % (options.rounds, options.node) if options.node else
             "medians of %d rounds, each with %d fetches of the rank files; the slowest of the transfers at once; "
             "s/GB is the server's processor time" % (options.rounds, TURNS["ranks"])]
    return result("Ranks over a link", about, [table(columns, cells)], rows=rows,
                  samples=None) | {"mtu": options.mtu}


# ---- the bytes of whole models and of their rank files, by plans of sparse files

MODELS = {  # of Llama 3: hidden size, layers, heads, intermediate size
    "8B": (4096, 32, 32, 14336), "70B": (8192, 80, 64, 28672), "405B": (16384, 126, 128, 53248),
}
GB = 1e9


def model_bytes(bench):
    cells = []
    for model, (hidden, layers, heads, intermediate) in MODELS.items():
        files.Llama(layers, hidden, heads, intermediate=intermediate, vocabulary=128256).write(
            os.path.join(bench.work, model), sparse=True)
        for tp in (2, 4, 8, 16):
            plan = plan_of(bench.options.tensord, bench.work, model, tp)
            whole, ranks = plan["checkpoint_bytes"], [rank["nbytes"] for rank in plan["ranks"]]
            cells.append([model, tp, number(whole / GB, 2), number(max(ranks) / GB, 2),
                          number(max(ranks) * tp / whole, 4), number(sum(ranks) / GB, 2),
                          number(plan["total"]["repeated_bytes"] / GB, 3)])
    return result("Bytes of models and rank files", ["shapes of Llama 3 in BF16, vLLM's rules"], [table(
        ["Llama 3", "tp", "whole GB", "rank file GB", "x tp / whole", "all ranks GB", "GB repeated"], cells)],
        rows=cells)


if __name__ == "__main__":
    try:
        print(json.dumps(measure_all(argparse.Namespace(**json.loads(sys.argv[1])))))
    except (BenchError, LeftOut) as error:
        print(error, file=sys.stderr)
        sys.exit(3 if isinstance(error, LeftOut) else 1)
