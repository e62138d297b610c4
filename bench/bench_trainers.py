"""Compares rows through torch's DataLoader: tensord's Dataset with an exact shuffle over HTTP, datasets' random access
of local files, webdataset over nginx with a buffer, and mosaicml-streaming over nginx with a cold cache."""

import json
import os

import bench_rows
import bench_servers
from bench_parse import Lines, find_python
from bench_report import median, median_ratio, number, times
from bench_servers import BenchError, Tensord

HERE = os.path.dirname(os.path.abspath(__file__))
MINE = {"map": "tensord.Dataset, ShuffleSampler", "iterable": "tensord.IterableDataset, shuffle"}
OTHERS = {"local": "datasets, load_from_disk, local file", "webdataset": "webdataset over nginx, buffer of 1,000",
          "mosaic": "mosaicml-streaming over nginx, cold cache"}
BY_NGINX = ("webdataset", "mosaic")
WANTED = {"local": 0.8, "webdataset": 1, "mosaic": 3}
WORKERS = (0, 2)


class Peer(Lines):
    def __init__(self, python):
        quiet = ["env", "HF_HUB_OFFLINE=1", "HF_DATASETS_DISABLE_PROGRESS_BARS=1", "PYTHONWARNINGS=ignore",
                 "TOKENIZERS_PARALLELISM=false"]
        super().__init__([*quiet, python, "-B", os.path.join(HERE, "dataset_peer.py")])
        self.about = json.loads(self.read())

    def request(self, **what):
        return json.loads(self.ask(json.dumps(what)))


def run(work, directory, count, options, about):
    """Returns {workers: {way: samples}}, empty where no Python has the libraries, which `about` then says."""
    python = find_python(options)
    if python is None:
        about.append("**no trainers compared**: no Python with torch and datasets; ./test.sh makes .venv, or --python")
        return {}
    rows = bench_rows.write_lines(os.path.join(directory, "datasets-bench", "trained"), count)
    with Peer(python) as peer:
        if peer.about["missing"]:
            about.append("**no trainers compared**: %s has no %s" % (python, ", ".join(peer.about["missing"])))
            return {}
        known = peer.request(do="prepare", path=rows.path, root=rows.root)
        about.append("trainers: an epoch of %s rows of JSON in batches of 256 with default collation, from the opening "
                     "of the dataset on; %s; left out, as not installed: %s"
                     % (number(count, 0), known["about"], ", ".join(w for w in OTHERS if w not in known["ways"])
                        or "nothing"))
        return measure(work, peer, rows, known["ways"], options)


def measure(work, peer, rows, ways, options):
    nginx = None
    ways = [way for way in ways if way not in BY_NGINX or options.nginx]
    samples = {workers: {way: [] for way in ways} for workers in (WORKERS[:1] if options.quick else WORKERS)}
    with Tensord(work, rows, options.tensord, rows.root, ["--settle", "0"]) as server:
        what = {"url": "tensord://127.0.0.1:%d/datasets/%s" % (server.port, bench_rows.DATASET)}
        if options.nginx:
            nginx = bench_servers.Nginx(work, rows, options.nginx).start()
            what["nginx"] = "http://127.0.0.1:%d" % nginx.port
        try:
            for turn in range(options.rounds + 1):
                for workers in samples:
                    for way in ways if turn % 2 == 0 else reversed(ways):
                        sample = peer.request(do="epoch", way=way, workers=workers, seed=turn, check=turn == 0, **what)
                        if not sample["same"]:
                            raise BenchError("%s reads other rows than the file's" % {**MINE, **OTHERS}[way])
                        if turn:
                            samples[workers][way].append(sample)
        finally:
            if nginx:
                nginx.stop()
    return samples


def cells_of(found, count):
    """Returns the lines of the table: tensord's rows/s, the other's, tensord's in the other's."""
    cells = []
    for workers, samples in found.items():
        for mine, name in MINE.items():
            for way, other in OTHERS.items():
                if way in samples:
                    rates = [number(count / median([s["seconds"] for s in samples[w]]), 0) + " rows/s"
                             for w in (mine, way)]
                    cells.append(["%s; %s; %d workers" % (name, other, workers), *rates,
                                  times(median_ratio(samples[way], samples[mine], "seconds"))])
    return cells


def set_targets(targets, found):
    for workers, samples in found.items():
        for way, wanted in WANTED.items():
            if way in samples:
                best = max(median_ratio(samples[way], samples[mine], "seconds") for mine in MINE)
                what = "rows/s into a DataLoader, %d workers: the faster of tensord's / %s" % (workers, way)
                targets.at_least(what, best, wanted)
