"""The Python client beside a bare receive loop in C, requests, hf download and Run:ai's streamer; ranks that read their
part beside ranks that read everything over a shaped link; and lazy tensors beside rank files."""

import contextlib
import json
import os

import files
import servers
from measure import (BenchError, LeftOut, at_least, at_most, by_turns, bytes_text, median, median_of, median_ratio,
                     number, ratio, result, table)

MIB = 1 << 20
TP = 8
MODEL = "bench/llama"
LINK_MBIT = 1000
TURNS = 6  # of the ways that take a fraction of a second, in each round
WAYS = {  # name: what the table calls it; the first two into memory that exists, the others into new memory
    "loop": "receive loop in C, 8 threads", "into": "tensord.load_into", "load_file": "tensord.load_file",
    "small_pages": "tensord.load_file, no huge pages",
    "requests": "requests, one Session, safetensors.torch.load", "hub": "snapshot_download + load_file",
    "runai": "Run:ai streamer, S3 port",
    "rank": "tensord.load_rank, vllm, tp 8", "lazy": "lazy tensors, tp 8",
}
# Ways that take turns with one another, and how often in each round.
GROUPS = ((("loop", "into"), TURNS), (("load_file", "small_pages"), TURNS), (("requests", "hub", "runai"), 1),
          (("rank", "lazy"), TURNS))
BEFORE = ("into", "load_file")  # of the client of --client-before


def write_model(root, layers, **shape):
    """Returns the path of the file, the places of its tensors, and where in the file their data begin."""
    folder = os.path.join(root, MODEL)
    places, offset = files.Llama(layers, **{"intermediate": 8192, **shape}).write(folder)
    return os.path.join(folder, "model.safetensors"), places, offset


def serve_hashed(bench, root):
    """Returns a server with an S3 port, in `s3`, whose files are hashed when a context of it is entered."""
    s3 = servers.free_port()
    server = bench.tensord(root=root, options=["--settle", "0", "--hash-threads", "1", "--s3-listen",
                                               "127.0.0.1:%d" % s3])
    server.s3 = s3
    return server


def is_hashed(server):
    return all("sha256" in row for row in json.loads(server.get("/models/" + MODEL)[2])["files"])


def group_round(ask, server, ways, turns, what):
    """Measures ways that take turns within a round. Returns the median of each way's seconds and costs."""
    def way(name):
        def run(_turn):
            cpu = server.cpu_s()
            sample = ask(name, what)
            return {**sample, "server_cpu": server.cpu_s() - cpu}
        return run

    samples = by_turns({(): {name: way(name) for name in ways}}, turns, False)[()]
    return {name: {key: median_of(of, key) for key in of[0]} for name, of in samples.items()}


def measure_ways(bench, peer, server, model, before=None):
    """before: a peer with an older client, whose ways take turns with those of the present one."""
    path, places, offset = model
    nbytes = max(end for _, _, end in places.values())
    what = {"url": "tensord://127.0.0.1:%d/%s" % (server.port, MODEL), "port": server.port, "s3": server.s3,
            "file": "/models/%s/files/model.safetensors" % MODEL, "offset": offset, "model": MODEL, "work": bench.work}
    groups = [(tuple(way for name in ways for way in (name, name + " before") if not way.endswith(" before")
                     or (before and name in BEFORE)), turns) for ways, turns in GROUPS]

    def ask(way, given):
        return (before if way.endswith(" before") else peer).request(do=way.split()[0], **given)

    for one in (peer, before):
        if one:
            one.request(do="prepare", library=bench.program("libreceive_ranges.so"), nbytes=nbytes, tensors=places)
    for way in [way for ways, _ in groups[:3] for way in ways]:  # a round that does not count: bytes are compared
        ask(way, {**what, "keep": True})
        check = way.replace(way.split()[0], "check")
        if ask(check, {"path": path, "ways": [way.split()[0]]})["wrong"]:
            raise BenchError("%s loads other bytes than the file's" % way)
    samples = {way: [] for ways, _ in groups for way in ways}
    for turn in range(bench.options.rounds):
        for ways, turns in groups:
            given = {**what, "tp": TP, "rank": turn % TP} if "rank" in ways else what
            for way, sample in group_round(ask, server, ways, min(turns, 3) if bench.quick else turns, given).items():
                samples[way].append(sample)
    if any(abs(a["bytes"] - b["bytes"]) > 0.01 * b["bytes"] for a, b in zip(samples["lazy"], samples["rank"])):
        raise BenchError("lazy tensors and the rank file do not have the same bytes")
    return samples


def measure_link(bench, root):
    """Returns the slowest rank's seconds of each round, for rank files and for whole downloads."""
    samples, ranks = {"rank": [], "whole": []}, 2 if bench.quick else TP
    with servers.shaped_link(LINK_MBIT) as (near, far), contextlib.ExitStack() as stack:
        server = stack.enter_context(bench.tensord("tensord-far", root=root, options=["--settle", "0"], namespace=near,
                                                   address=servers.FAR_ADDRESS))
        url = "tensord://%s:%d/%s" % (server.address, server.port, MODEL)
        peers = [stack.enter_context(bench.peer("client", namespace=far)) for _ in range(ranks)]
        for turn in range(bench.options.rounds + 1):
            for way in samples:
                for rank, peer in enumerate(peers):
                    peer.begin(url=url, do="rank" if way == "rank" else "load_file", tp=ranks, rank=rank)
                seconds = [peer.end()["seconds"] for peer in peers]
                if turn:
                    samples[way].append(max(seconds))
    return samples


# ---- the report

def beyond_mib(samples):
    """Returns the peak memory beyond the tensors; a way that maps a file has less than the tensors."""
    return max(0, median_of(samples, "extra")) / MIB


def line(samples, way, with_server):
    of, nbytes = samples[way], median_of(samples[way], "bytes")
    name = WAYS[way.split()[0]] + (", the client before" if way.endswith(" before") else "")
    return [name, number(nbytes / median_of(of, "seconds") / 1e9), number(median_of(of, "cpu") / nbytes * 1e9),
            number(median_of(of, "server_cpu") / nbytes * 1e9) if with_server else "-", number(beyond_mib(of), 0),
            number(median_of(of, "faults") / nbytes * 1e9, 0)]


def targets_of(samples, link):
    def faster(mine, other, key="seconds"):
        return median_ratio(samples[other], samples[mine], key)

    yield at_least("load_into / receive loop in C", faster("into", "loop"), 0.9)
    yield at_least("load_file / load_file without huge pages", faster("load_file", "small_pages"), 1)
    yield at_most("page faults of load_file / without huge pages", faster("small_pages", "load_file", "faults"), 0.05)
    yield at_least("load_file / requests", faster("load_file", "requests"), 4)
    yield at_least("load_file / snapshot_download + load_file", faster("load_file", "hub"), 2)
    yield at_least("load_file / Run:ai streamer", faster("load_file", "runai"), 1)
    yield at_most("processor time of load_file / Run:ai streamer", faster("runai", "load_file", "cpu"), 1)
    yield at_most("time of lazy tensors / rank file", faster("rank", "lazy"), 1.15)
    for way in BEFORE:
        if way + " before" in samples:
            yield at_least("%s / the client before" % way, faster(way, way + " before"), 0.97)
    for way in ("into", "load_file", "rank", "lazy"):
        yield at_most("MiB beyond the tensors, %s" % way, beyond_mib(samples[way]), 128, number)
    if link:
        yield at_least("shaped link: 8 whole downloads / 8 ranks, slowest",
                       median([ratio(a, b) for a, b in zip(link["whole"], link["rank"])]), 6)


def run(bench):
    root, link = os.path.join(bench.work, "root"), None
    model = write_model(root, 1 if bench.quick else 16)
    about = ["%s of BF16 in %d tensors, page-cached; each way ends in tensors of torch in the processor's memory; the "
             "client's bytes are copied by the kernel into that memory, as in real use; 8 connections; loopback"
             % (bytes_text(os.path.getsize(model[0])), len(model[1])),
             "into memory that exists and was touched: the first two, the same block; into new memory: the others. "
             "load_file after snapshot_download maps the file and reads nothing more. In each round the first two take "
             "turns %d times, and so do load_file with and without huge pages, and rank files and lazy tensors" % TURNS]
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(bench.peer("client"))
        before = bench.options.client_before and stack.enter_context(
            bench.peer("client", package=bench.options.client_before))
        server = stack.enter_context(serve_hashed(bench, root))
        server.wait_for(lambda: is_hashed(server), "hashed", 300, 0.2)
        samples = measure_ways(bench, peer, server, model, before)
    link_root = os.path.join(bench.work, "link-root")
    link_model = write_model(link_root, 1, **{"vocabulary": 1024, "intermediate": 1024} if bench.quick else {})
    try:
        link = measure_link(bench, link_root)
        about.append("shaped link: tbf of %d Mbit/s between two network namespaces, %s, the slowest rank of a round; "
                     "seconds: rank files %s, whole downloads %s" % (
                         LINK_MBIT, bytes_text(os.path.getsize(link_model[0])),
                         *(number(median(link[way])) for way in ("rank", "whole"))))
    except LeftOut as reason:
        about.append("**shaped link left out**: %s" % reason)
    return result("Python client", about, [table(
        ["way", "GB/s", "client CPU s/GB", "server CPU s/GB", "MiB beyond the tensors", "page faults/GB"],
        [line(samples, way, way not in ("rank", "lazy")) for way in samples])],
        targets_of(samples, link), {"ways": samples, "link": link})
