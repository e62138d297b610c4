#!/usr/bin/env python3
"""Whole downloads beside rank files over a shaped link: two hosts in network namespaces, a veth pair between them whose
server's end sends at a given rate (tbf), and N curl transfers at once. N ranks of tp N fetch their own rank files;
beside them N clients fetch the whole. With --node the ranks read from a cold cache on their host (tensord serve
--upstream), which fetches the whole over the link. Standard library alone. Needs iproute2, curl, and root or user
namespaces.

    bench/bench_fanout.py build/tensord                                  # 200, 400 and 800 Mbit/s, 1 to 16 ranks
    bench/bench_fanout.py build/tensord --rates 500 --ranks 8 --json     # what the test runs
    bench/bench_fanout.py build/tensord --rates 200 --ranks 8 --node 200 # and this
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import bench_link  # noqa: E402
from bench_report import bytes_text, median, number, table  # noqa: E402
from bench_servers import BenchError  # noqa: E402
from bench_slices import write_tensors  # noqa: E402

MODEL = "bench/llama"
TURNS = {"ranks": 5, "whole": 1}  # in each round, of which the median counts: a rank file takes a fraction of a second
HIDDEN, HEADS, HEAD_DIM, INTERMEDIATE, VOCAB = 1024, 16, 64, 2816, 4096
PRIVATE = "mount -t tmpfs tmpfs /run && ip link set lo up && exec \"$@\""


def enter_private_namespaces():
    """Starts this program again where its namespaces have no names outside, so that the kernel removes them when it
    ends, however it ends. Who is not root becomes it in a user namespace."""
    if os.environ.get("TENSORD_FANOUT_PRIVATE") == "yes":
        return
    os.environ["TENSORD_FANOUT_PRIVATE"] = "yes"
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    os.execvp("unshare", ["unshare", *user, "--mount", "--net", "sh", "-c", PRIVATE, "sh", sys.executable, *sys.argv])


def write_model(root, layers):
    """Writes a Llama in BF16 whose heads and vocabulary 16 ranks can share, and returns the length of its file."""
    folder = os.path.join(root, MODEL)
    os.makedirs(folder)
    path = os.path.join(folder, "model.safetensors")
    shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "lm_head.weight": [VOCAB, HIDDEN],
              "model.norm.weight": [HIDDEN]}
    for layer in range(layers):
        prefix = "model.layers.%d." % layer
        shapes.update({prefix + "self_attn.%s_proj.weight" % name: [HEADS * HEAD_DIM, HIDDEN] for name in "qkvo"})
        shapes.update({prefix + "mlp.gate_proj.weight": [INTERMEDIATE, HIDDEN],
                       prefix + "mlp.up_proj.weight": [INTERMEDIATE, HIDDEN],
                       prefix + "mlp.down_proj.weight": [HIDDEN, INTERMEDIATE],
                       prefix + "input_layernorm.weight": [HIDDEN],
                       prefix + "post_attention_layernorm.weight": [HIDDEN]})
    write_tensors(path, shapes)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": HEADS,
                   "num_key_value_heads": HEADS, "head_dim": HEAD_DIM, "hidden_size": HIDDEN,
                   "intermediate_size": INTERMEDIATE, "vocab_size": VOCAB}, file)
    return os.path.getsize(path)


def plan_of(tensord, root, ranks):
    """Returns what `tensord plan` says of the rank files of vLLM at tp `ranks`."""
    run = subprocess.run([tensord, "plan", root, MODEL, "--engine", "vllm", "--tp", str(ranks), "--json"],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise BenchError("plan: %s" % run.stderr.strip())
    return json.loads(run.stdout)


def ask(namespace, server, path):
    """Returns the status of a GET, and the text of the answer."""
    run = subprocess.run(["ip", "netns", "exec", namespace, "curl", "--silent", "--show-error", "--noproxy", "*",
                          "--write-out", "\\n%{http_code}", server.url(path)],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise BenchError("curl: %s; server: %s" % (run.stderr.strip(), server.last_log()))
    text, _, status = run.stdout.rpartition("\n")
    return int(status), text


def fetch(namespace, server, paths, lengths):
    """Fetches all paths at once, each over a connection of its own, and returns the seconds that the slowest took."""
    command = ["ip", "netns", "exec", namespace, "curl", "--silent", "--show-error", "--fail", "--noproxy", "*",
               "--parallel", "--parallel-immediate", "--parallel-max", str(len(paths)), "--write-out",
               "%{urlnum} %{size_download} %{time_total}\\n"]
    for path in paths:
        command += ["--output", "/dev/null", server.url(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise BenchError("curl: %s; server: %s" % (run.stderr.strip(), server.last_log()))
    rows = [line.split() for line in run.stdout.splitlines()]
    got = {int(row[0]): int(row[1]) for row in rows}
    if got != dict(enumerate(lengths)):
        raise BenchError("curl got %s bytes, not %s" % (got, lengths))
    return max(float(row[2]) for row in rows)


def measure(options, root, whole_bytes, mbit, ranks):
    """Measures one rate and one number of ranks, the two ways by turns. Returns a row for the report."""
    plan = plan_of(options.tensord, root, ranks)
    lengths = {"ranks": [rank["nbytes"] for rank in plan["ranks"]], "whole": [whole_bytes] * ranks}
    paths = {"ranks": rank_paths(ranks), "whole": ["/models/%s/files/model.safetensors" % MODEL] * ranks}
    seconds, cpu = {way: [] for way in paths}, {way: [] for way in paths}
    with bench_link.shaped_link(mbit, options.congestion, options.mtu) as (servers, clients), \
            tempfile.TemporaryDirectory(prefix="tensord-bench-") as work, \
            bench_link.FarTensord(work, options.tensord, root, servers) as server:
        fetch(clients, server, paths["ranks"], lengths["ranks"])  # plans are made here; it does not count
        for _ in range(options.rounds):
            for way, turns in TURNS.items():
                before = server.cpu_s()
                seconds[way].append(median([fetch(clients, server, paths[way], lengths[way]) for _ in range(turns)]))
                cpu[way].append((server.cpu_s() - before) / turns / sum(lengths[way]) * 1e9)
    return {**bytes_of(plan, whole_bytes, ranks), "mbit": mbit,
            "bytes_ratio": sum(lengths["ranks"]) / (ranks * whole_bytes),
            "seconds": seconds, "cpu_s_per_gb": {way: median(values) for way, values in cpu.items()},
            "time_ratio": median([a / b for a, b in zip(seconds["ranks"], seconds["whole"])])}


def rank_paths(ranks):
    return ["/models/%s/shards/vllm/tp%d/rank-%d.safetensors" % (MODEL, ranks, rank) for rank in range(ranks)]


def bytes_of(plan, whole_bytes, ranks):
    """Returns the part of a row that is about bytes."""
    total = plan["total"]
    return {"ranks": ranks, "whole_bytes": whole_bytes, "rank_bytes": [rank["nbytes"] for rank in plan["ranks"]],
            "repeated_bytes": total["repeated_bytes"], "constant_bytes": total["constant_bytes"],
            "header_bytes": total["header_bytes"],
            "padding_bytes": total["padding_bytes"]}


def measure_node(options, root, whole_bytes, mbit, ranks):
    """Measures ranks that read from a cold cache on their host. Returns a row for the report; in each round "node" are
    the seconds from the first request to the end of the last rank, "fetched" those until the model was whole there."""
    plan = plan_of(options.tensord, root, ranks)
    row = {**bytes_of(plan, whole_bytes, ranks), "mbit": mbit, "node_mbit": options.node}
    seconds, cpu = {"fetched": [], "node": []}, {"fetched": [], "node": []}
    with bench_link.shaped_link(mbit, options.congestion, options.mtu, options.node) as (servers, clients), \
            tempfile.TemporaryDirectory(prefix="tensord-bench-") as work, \
            bench_link.FarTensord(work, options.tensord, root, servers, ["--hash-threads", "1"]) as server:
        server.wait_for(lambda: has_digests(clients, server), "done with hashing", step_s=0.05)
        for _ in range(options.rounds):
            measure_cold_cache(options, (server, clients), row, seconds, cpu)
    return {**row, "seconds": seconds, "cpu_s_per_gb": {name: median(values) for name, values in cpu.items()}}


def has_digests(namespace, server):
    digests = json.loads(ask(namespace, server, "/readyz")[1])["digests"]
    return digests["published_files"] == digests["files"]


def measure_cold_cache(options, hosts, row, seconds, cpu):
    """Starts a cache without models, and adds a sample to each list of `seconds` and `cpu`."""
    server, clients = hosts
    paths = rank_paths(row["ranks"])
    with tempfile.TemporaryDirectory(prefix="tensord-bench-") as work, \
            bench_link.NearCache(work, options.tensord, clients, server) as cache:
        began, cpu_began = time.monotonic(), cache.cpu_s()
        status, text = ask(clients, cache, paths[0])
        if status != 503:
            raise BenchError("a cold cache answers a rank file with %d, not 503: %s" % (status, text[:200]))
        cache.wait_for(lambda: cache.log_has("indexed 1 model"), "published")
        fetched, cpu_fetched = time.monotonic() - began, cache.cpu_s()
        seconds["fetched"].append(fetched)
        seconds["node"].append(fetched + fetch(clients, cache, paths, row["rank_bytes"]))
        cpu["fetched"].append((cpu_fetched - cpu_began) / row["whole_bytes"] * 1e9)
        cpu["node"].append((cache.cpu_s() - cpu_fetched) / sum(row["rank_bytes"]) * 1e9)


def report_node(result):
    rows = [[row["mbit"] or "none", row["node_mbit"], row["ranks"], number(row["whole_bytes"] / 1e6, 1),
             number(sum(row["rank_bytes"]) / 1e6, 1), number(median(row["seconds"]["fetched"]), 3),
             number(median(row["seconds"]["node"]), 3), number(row["cpu_s_per_gb"]["fetched"], 2),
             number(row["cpu_s_per_gb"]["node"], 2)] for row in result["rows"]]
    columns = ["Mbit/s", "of the node", "ranks", "MB, fetched", "MB, ranks", "s, fetched", "s, ranks",
               "s/GB, fetched", "s/GB, ranks"]
    return conditions(result) + ("\n- medians of %d rounds, each with a cold cache; seconds since the first request; "
                                 "s/GB is the cache's processor time\n\n" % result["rounds"]) + table(columns, rows)


def conditions(result):
    return ("- congestion control %s, MTU %d, tbf with a burst of %d KiB and a queue of %d ms, a file of %s; curl %s"
            % (result["congestion"], result["mtu"], bench_link.BURST_BYTES >> 10, bench_link.QUEUE_MS,
               bytes_text(result["whole_bytes"]), result["curl"]))


def report(result):
    lines = [conditions(result),
             "- medians of %d rounds, in each of which rank files are fetched %d times; the slowest of the transfers "
             "at once; s/GB is the server's processor time" % (result["rounds"], TURNS["ranks"])]
    rows = []
    for row in result["rows"]:
        rows.append([row["mbit"] or "none", row["ranks"], number(sum(row["rank_bytes"]) / 1e6, 1),
                     number(row["ranks"] * row["whole_bytes"] / 1e6, 1),
                     number(row["repeated_bytes"] / 1e6, 3), number(median(row["seconds"]["ranks"]), 3),
                     number(median(row["seconds"]["whole"]), 3), number(row["time_ratio"], 4),
                     number(row["bytes_ratio"], 4), number(1 / row["ranks"], 4),
                     number(row["cpu_s_per_gb"]["ranks"], 3), number(row["cpu_s_per_gb"]["whole"], 3)])
    columns = ["Mbit/s", "ranks", "MB, ranks", "MB, whole", "MB repeated", "s, ranks", "s, whole", "time ratio",
               "bytes ratio", "1/ranks", "s/GB, ranks", "s/GB, whole"]
    return "\n".join(lines) + "\n\n" + table(columns, rows)


def numbers(text):
    return [int(part) for part in text.split(",")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("tensord", type=os.path.abspath, help="the program, a release build")
    parser.add_argument("--rates", type=numbers, default=[200, 400, 800],
                        help="of the link in Mbit/s; 0: not shaped (200,400,800)")
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4, 8, 16], help="each also the tp (1,2,4,8,16)")
    parser.add_argument("--rounds", type=int, default=3, help="of ranks and whole downloads by turns (3)")
    parser.add_argument("--node", type=int, default=0, metavar="MBIT",
                        help="measure a cold cache on the ranks' host, whose loopback has this rate in Mbit/s")
    parser.add_argument("--layers", type=int, default=1, help="of the model, 25 MB each, beside 17 MB (1)")
    parser.add_argument("--congestion", default="cubic", help="congestion control of both hosts (cubic)")
    parser.add_argument("--mtu", type=int, default=1500, help="of the link (1500)")
    parser.add_argument("--json", action="store_true", help="print all samples")
    return parser.parse_args()


def main():
    options = parse_arguments()
    if not os.access(options.tensord, os.X_OK):
        sys.exit("bench_fanout: no tensord at %s" % options.tensord)
    enter_private_namespaces()
    try:
        with tempfile.TemporaryDirectory(prefix="tensord-bench-") as root:
            whole = write_model(root, options.layers)
            way = measure_node if options.node else measure
            rows = [way(options, root, whole, mbit, ranks) for mbit in options.rates for ranks in options.ranks]
    except (BenchError, bench_link.NoLink) as error:
        sys.exit("bench_fanout: %s" % error)
    version = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    result = {"congestion": options.congestion, "mtu": options.mtu, "rounds": options.rounds, "curl": version,
              "whole_bytes": whole, "burst_bytes": bench_link.BURST_BYTES, "queue_ms": bench_link.QUEUE_MS,
              "rows": rows}
    print(json.dumps(result, indent=1) if options.json else (report_node if options.node else report)(result))


if __name__ == "__main__":
    main()
