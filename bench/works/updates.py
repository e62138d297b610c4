"""From one version of a model to the next over a link: a whole version, the slices of one rank, changed tensors,
patches of elements, a delta that is applied, ModelExpress's receiver, and a broadcast of torch.distributed.

A trainer's host and a host that follows it are two network namespaces with a veth pair, whose trainer's end sends at a
given rate (tbf). The bytes are those that the interface of the other end received. Every way begins with version 0 on
the host that follows, in memory or in a directory, and ends with the version after one step of the trainer."""

import contextlib
import filecmp
import json
import os
import shutil
import subprocess
import time

import files
import servers
from measure import BenchError, by_turns, bytes_text, median_of, median_ratio, number, result, table
from works import fanout

RATES = [1000]  # Mbit/s
LAYERS = 8
TP = 2
FAMILY = "run"
BASE = "weight_v000000"
WAYS = {  # name: what the table calls it
    "whole": "whole version, tensord pull", "into": "whole version, load_into",
    "rank": "slices of a rank of tp %d, load_rank" % TP, "since": "changed tensors, load_into without a patch",
    "patch": "patch, load_into(since=)", "rank patch": "patch of a rank of tp %d, Model.patch" % TP,
    "apply": "delta, tensord pull and apply", "mx full": "whole version, ModelExpress, S3 port",
    "mx delta": "delta, ModelExpress, S3 port", "broadcast": "whole version, broadcast over gloo",
}


def names(step):
    """Returns the names of the version that is this step, and of the delta to it."""
    return "weight_v%06d" % step, "delta_%06d" % step


class Host:
    """The host that follows the trainer, and its ways to each version. A sample of a way has the seconds and the bytes
    that arrived."""

    def __init__(self, bench, root, ends, server, trainer, peer):
        self.bench, self.root, self.trainer, self.peer, self.server = bench, root, trainer, peer, server
        self.far, self.out = ends[1], os.path.join(bench.directory, "updates-out")
        self.url = "tensord://%s:%d/%s" % (server.address, server.port, FAMILY)
        self.checked, self.held = set(), None

    def folder(self, name):
        return os.path.join(self.root, FAMILY, name)

    def weights(self, name):
        return os.path.join(self.folder(name), "model.safetensors")

    def received(self):
        """Returns the bytes that have arrived at this host, with the headers of Ethernet, IP and TCP."""
        run = subprocess.run(["ip", "-n", self.far, "-s", "-j", "link", "show", "v0"], capture_output=True, text=True,
                             check=True)
        return json.loads(run.stdout)[0]["stats64"]["rx"]["bytes"]

    def way(self, name, step):
        """Returns the function of a turn that measures a way to a version, whose result is compared with that version
        in the first turn."""
        def run(turn):
            shutil.rmtree(self.out, ignore_errors=True)
            os.makedirs(self.out)
            self.prepare(name, step)
            before = self.received()
            sample, path = getattr(self, name.replace(" ", "_"))(step, turn)
            sample["bytes"] = self.received() - before
            if (name, step) not in self.checked:
                self.check(name, step, path)
                self.checked.add((name, step))
            return sample
        return run

    def prepare(self, name, step):
        """Brings the memory of both sides to where a way begins."""
        if name in ("into", "since", "patch", "broadcast"):
            self.peer.request(do="base_into", path=self.weights(BASE))
        if name == "rank patch":
            self.peer.request(do="base_ranks", url="%s?version=%s" % (self.url, BASE), tp=TP)
        if name == "broadcast" and self.held != step:
            self.trainer.request(do="hold", path=self.weights(names(step)[0]))
            self.held = step

    def check(self, name, step, path):
        """Compares what a way made with the version. path: the file that it wrote; None: it wrote into the memory; "":
        it made parts of tensors, which tests compare."""
        want = self.weights(names(step)[0])
        if path == "":
            return
        good = filecmp.cmp(path, want, False) if path else not self.peer.request(do="check", path=want)["wrong"]
        if not good:
            raise BenchError("%s does not make %s" % (WAYS[name], want))

    def command(self, *arguments):
        """Runs tensord on this host. Returns the seconds until its end, with its start."""
        begin = time.monotonic()
        run = subprocess.run(["ip", "netns", "exec", self.far, self.bench.options.tensord, *arguments, "--quiet"],
                             capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise BenchError("tensord %s: %s" % (arguments[0], run.stderr.strip()[-300:]))
        return time.monotonic() - begin

    def pull(self, revision):
        """Pulls a version. Returns its directory and the seconds."""
        folder = os.path.join(self.out, revision)
        return folder, self.command("pull", self.server.url(), FAMILY, "--revision", revision, "-o", folder)

    # ---- the ways; each returns a sample, and the path that `check` takes

    def whole(self, step, _turn):
        folder, seconds = self.pull(names(step)[0])
        return {"seconds": seconds}, os.path.join(folder, "model.safetensors")

    def apply(self, step, _turn):
        delta, pull_s = self.pull(names(step)[1])
        made = os.path.join(self.out, "made")
        apply_s = self.command("apply", self.folder(BASE), delta, "-o", made)
        return {"seconds": pull_s + apply_s, "pull_s": pull_s, "apply_s": apply_s}, os.path.join(
            made, "model.safetensors")

    def version_url(self, step):
        return "%s?version=%s" % (self.url, names(step)[0])

    def into(self, step, _turn):
        return self.peer.request(do="into", url=self.version_url(step)), None

    def since(self, step, _turn):
        return self.peer.request(do="since", url=self.version_url(step), since=BASE), None

    def patch(self, step, _turn):
        return self.peer.request(do="patch", url=self.version_url(step), since=BASE), None

    def rank_patch(self, step, turn):
        return self.peer.request(do="rank_patch", url=self.version_url(step), since=BASE, tp=TP, rank=turn % TP), ""

    def rank(self, step, turn):
        return self.peer.request(do="rank", url=self.version_url(step), tp=TP, rank=turn % TP), ""

    def mx(self, step, uri, delta):
        sample = self.peer.request(do="receive", s3="http://%s:%d" % (self.server.address, self.server.s3), number=step,
                                   uri="s3://" + uri, delta=delta, seed=self.folder(BASE),
                                   cache=os.path.join(self.out, "modelexpress"))
        return {"seconds": sample["seconds"]}, os.path.join(sample["path"], "model.safetensors")

    def mx_full(self, step, _turn):
        return self.mx(step, "%s/%s" % (FAMILY, names(step)[0]), False)

    def mx_delta(self, step, _turn):
        return self.mx(step, "deltas/" + names(step)[1], True)

    def broadcast(self, _step, _turn):
        self.trainer.begin(do="broadcast")
        sample = self.peer.request(do="broadcast")
        self.trainer.end()
        return sample, None


def join(trainer, peer):
    """Makes a group of both peers. Returns why it could not be made, else None."""
    address = "tcp://%s:%d" % (servers.FAR_ADDRESS, servers.free_port())
    trainer.begin(do="join", address=address, rank=0)
    mine, other = peer.request(do="join", address=address, rank=1), trainer.end()
    return mine.get("error") or other.get("error")


def measure(bench, root, steps, mbit):
    """Measures all ways and steps at one rate of the link. Returns the samples, and lines for the report."""
    about, left_out = [], set()
    with servers.shaped_link(mbit, mtu=bench.options.mtu) as ends, contextlib.ExitStack() as stack:
        s3 = servers.free_port()
        server = stack.enter_context(fanout.far_tensord(bench.options, bench.work, root, ends[0], [
            "--hash-threads", "1", "--s3-listen", "%s:%d" % (servers.FAR_ADDRESS, s3)]))
        server.s3 = s3
        trainer = stack.enter_context(bench.peer("updates", namespace=ends[0]))
        peer = stack.enter_context(bench.peer("updates", namespace=ends[1]))
        version = peer.request(do="modelexpress", writers=os.path.join(files.TREE, ".venv-writers"))["version"]
        if version:
            about.append("ModelExpress %s, its receiver in a new cache that has version 0" % version)
        else:
            left_out |= {"mx full", "mx delta"}
            about.append("**ModelExpress left out**: it is not installed (./test.sh makes .venv-writers)")
        if fault := join(trainer, peer):
            left_out.add("broadcast")
            about.append("**broadcast left out**: %s" % fault)
        host = Host(bench, root, ends, server, trainer, peer)
        server.wait_for(lambda: fanout.has_digests(ends[1], server), "done with hashing", 300, 0.2)
        cells = {(mbit, rate): {way: host.way(way, step) for way in WAYS if way not in left_out}
                 for step, rate in enumerate(bench.options.learning_rates, 1)}
        samples = by_turns(cells, bench.options.rounds, not bench.quick, "updates, %d Mbit/s" % mbit)
    shutil.rmtree(host.out, ignore_errors=True)
    return samples, about


def layers_of(bench):
    return 1 if bench.quick else bench.options.layers or LAYERS


def make(bench, root):
    """Writes the versions. Returns their bytes, and what changed by learning rate."""
    model = files.Llama(layers_of(bench), **fanout.SHAPE)
    frozen = ["model.layers.%d." % layer for layer in range(bench.options.frozen)]
    shutil.rmtree(root, ignore_errors=True)
    with bench.peer("updates") as peer:
        changes = peer.request(do="make", root=root, shapes=model.shapes(), rates=bench.options.learning_rates,
                               frozen=frozen)["changes"]
    for folder in os.listdir(os.path.join(root, FAMILY)):
        if folder.startswith("weight_v"):
            model.write_config(os.path.join(root, FAMILY, folder))
    return os.path.getsize(os.path.join(root, FAMILY, BASE, "model.safetensors")), changes


def line(cell, way, of, whole):
    """Returns a row of the report. of, whole: the samples of the way, and those of the whole version."""
    seconds = sorted(sample["seconds"] for sample in of)
    return [cell[0] or "none", "%g" % cell[1], WAYS[way], number(median_of(of, "seconds"), 3),
            "%.3f to %.3f" % (seconds[0], seconds[-1]), number(median_of(of, "bytes") / 1e6, 2),
            number(median_ratio(of, whole, "seconds"), 3), number(median_ratio(of, whole, "bytes"), 4)]


def run(bench):
    root = os.path.join(bench.directory, "updates-root")
    nbytes, changes = make(bench, root)
    samples, about = {}, []
    for mbit in bench.options.rates or RATES:
        found, about = measure(bench, root, changes, mbit)
        samples.update(found)
    shutil.rmtree(root)
    about = ["a Llama of %s in BF16, page-cached; medians over the rounds, %d in all; MTU %d, tbf with a burst of "
             "%d KiB and a queue of %d ms" % (bytes_text(nbytes), bench.options.rounds, bench.options.mtu,
                                              servers.BURST_BYTES >> 10, servers.QUEUE_MS),
             "frozen layers: %d of %d" % (bench.options.frozen, layers_of(bench)), *about]
    changed = table(["learning rate", "% elements", "% bytes", "% tensors", "delta, % of the version"], [
        ["%g" % row["rate"], *(number(row[key] * 100, 2) for key in ("elements", "bytes", "tensors", "delta"))]
        for row in changes])
    cells = [line(cell, way, ways[way], ways["whole"]) for cell, ways in samples.items() for way in WAYS if way in ways]
    applied = table(["Mbit/s", "learning rate", "s, pull of the delta", "s, apply"], [
        [cell[0] or "none", "%g" % cell[1], *(number(median_of(ways["apply"], key), 3)
                                                for key in ("pull_s", "apply_s"))] for cell, ways in samples.items()])
    return result("From one version to the next", about, [
        changed, table(["Mbit/s", "learning rate", "way", "s", "lowest to highest", "MB received", "time / pull",
                        "bytes / pull"], cells), applied], rows=changes, samples=samples)
