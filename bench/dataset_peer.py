"""Reads an epoch of rows through torch's DataLoader in the ways that --datasets compares, one for each line of standard
input. Needs torch, datasets and requests; webdataset and streaming (mosaicml-streaming) where they are there."""

import functools
import glob
import json
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients", "python"))

import peer  # noqa: E402

BATCH = 256
SHARD_ROWS = 8192
BUFFER_ROWS = 1000


class Peer:
    def prepare(self, request):
        """Writes the rows in the forms of the other libraries, and returns the ways that there are."""
        import datasets

        self.root, self.lines = request["root"], request["path"]
        self.rows = [json.loads(line) for line in open(self.lines, "rb")]
        self.arrow = os.path.join(self.root, "arrow")
        if not os.path.exists(self.arrow):
            datasets.Dataset.from_list(self.rows).save_to_disk(self.arrow)
        ways, about = ["map", "iterable", "local"], ["datasets " + datasets.__version__]
        for way, package, write in (("webdataset", "webdataset", self.write_tars),
                                    ("mosaic", "streaming", self.write_mds)):
            if not peer.missing([package]):
                write()
                ways.append(way)
                about.append("%s %s" % (package, sys.modules[package].__version__))
        return {"ways": ways, "about": ", ".join(about)}

    def write_tars(self):
        import webdataset

        folder = os.path.join(self.root, "tars")
        if os.path.exists(folder):
            return
        os.makedirs(folder)
        for first in range(0, len(self.rows), SHARD_ROWS):
            with webdataset.TarWriter(os.path.join(folder, "%05d.tar" % (first // SHARD_ROWS))) as out:
                for row in self.rows[first:first + SHARD_ROWS]:
                    out.write({"__key__": row["id"], "json": row})

    def write_mds(self):
        from streaming import MDSWriter

        folder = os.path.join(self.root, "mds")
        if not os.path.exists(folder):
            with MDSWriter(out=folder, columns={"id": "str", "text": "str"}, size_limit=8 << 20) as out:
                for row in self.rows:
                    out.write(row)

    def epoch(self, request):
        """Reads all rows once, with everything that comes before the first batch; compares them if asked to."""
        begin, kept, count, first = time.perf_counter(), [], 0, None
        for batch in getattr(self, request["way"])(request, request["workers"]):
            first = first or time.perf_counter() - begin
            count += len(batch["id"])
            if request["check"]:
                kept += zip(batch["id"], batch["text"])
        seconds = time.perf_counter() - begin
        same = count == len(self.rows) and (
            not request["check"] or sorted(kept) == [(row["id"], row["text"]) for row in self.rows])
        return {"seconds": seconds, "first": first, "same": same}

    # ---- the ways; each returns what yields the batches

    def map(self, request, workers):
        import tensord

        dataset = tensord.Dataset(request["url"], decode="json", progress=False)
        return loader(dataset, workers, sampler=tensord.ShuffleSampler(dataset, seed=request["seed"]))

    def iterable(self, request, workers):
        import tensord

        return loader(tensord.IterableDataset(request["url"], shuffle=True, seed=request["seed"], batch_size=BATCH,
                                              decode="json", progress=False), workers)

    def local(self, request, workers):
        import datasets

        return loader(datasets.load_from_disk(self.arrow), workers, shuffle=True)

    def webdataset(self, request, workers):
        import webdataset

        names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(self.root, "tars", "*.tar")))
        urls = [request["nginx"] + "/tars/" + name for name in names]
        rows = webdataset.WebDataset(urls, shardshuffle=len(urls), seed=request["seed"], empty_check=False)
        return loader(rows.shuffle(BUFFER_ROWS).decode().map(member), workers)

    def mosaic(self, request, workers):
        import streaming
        from streaming.base.storage import download

        download.DOWNLOADER_MAPPINGS["http"] = http_downloader(download.CloudDownloader)
        streaming.base.util.clean_stale_shared_memory()
        cache = tempfile.mkdtemp(dir=self.root)
        try:
            dataset = streaming.StreamingDataset(remote=request["nginx"] + "/mds", local=cache, shuffle=True,
                                                 shuffle_seed=request["seed"] % 1000, batch_size=BATCH)
            yield from loader(dataset, workers)
        finally:
            shutil.rmtree(cache)


def http_downloader(base):
    """Returns a class that gets files over HTTP, which mosaicml-streaming has none for."""
    import requests

    class HttpDownloader(base):
        session = owner = None

        @staticmethod
        def _client_identifier():
            return "http"

        def clean_up(self):
            self.session = self.owner = None

        def _download_file_impl(self, remote, local, timeout):
            if self.owner != os.getpid():  # a session that came by fork has the parent's connections
                self.session, self.owner = requests.Session(), os.getpid()
            answer = self.session.get(remote, timeout=timeout)
            answer.raise_for_status()
            with open(local + ".part", "wb") as out:
                out.write(answer.content)
            os.rename(local + ".part", local)

    return HttpDownloader


def member(sample):
    return sample["json"]


def loader(dataset, workers, **how):
    import torch.utils.data

    return torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=workers, **how)


def answer(state, request):
    return getattr(state, request["do"])(request)


if __name__ == "__main__":
    peer.serve(["torch", "datasets", "requests"], functools.partial(answer, Peer()))
