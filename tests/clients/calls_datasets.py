"""The calls of datasets and fsspec that tests make."""
import datasets
import fsspec


def rows(name, cache_dir, **kw):
    return [dict(r) for r in datasets.load_dataset(name, split="train", cache_dir=cache_dir, **kw)]


def streamed(name):
    return [dict(r) for r in datasets.load_dataset(name, split="train", streaming=True)]


def splits(name, cache_dir):
    return {k: len(v) for k, v in datasets.load_dataset(name, cache_dir=cache_dir).items()}


def http_ls(url):
    return sorted(fsspec.filesystem("http").ls(url, detail=False))


def http_glob(url):
    return sorted(fsspec.filesystem("http").glob(url))


def http_find(url):
    return sorted(fsspec.filesystem("http").find(url))


def http_read(url, at=0, n=-1):
    with fsspec.open(url, "rb", block_size=1000) as f:
        f.seek(at)
        return f.read(n).hex()


def http_info(url):
    got = fsspec.filesystem("http").info(url)
    return {"size": got["size"], "etag": got.get("ETag"), "partial": got.get("partial", True)}
