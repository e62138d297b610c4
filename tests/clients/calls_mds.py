"""The calls of mosaicml-streaming that tests make. It imports torchvision for classes of images, which these calls do
not use; an empty module stands in for that."""
import importlib.machinery
import sys
import types

for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
sys.modules["torchvision.datasets"].VisionDataset = object
sys.modules["torchvision.transforms.functional"].to_tensor = None

import streaming  # noqa: E402


def sample(n):
    return {"n": n, "text": f"row {n} é", "raw": bytes(range(n % 100))}


def write(folder, count):
    """Write shards of 4 KB."""
    columns = {"n": "int", "text": "str", "raw": "bytes"}
    with streaming.MDSWriter(out=folder, columns=columns, size_limit=4096) as writer:
        for n in range(count):
            writer.write(sample(n))


def read(remote, local, numbers=None, **kw):
    """Return the numbers of the samples that were read, each as it was written: those at `numbers`, or all."""
    data = streaming.StreamingDataset(remote=remote, local=local, batch_size=1, **kw)
    got = [data[n] for n in numbers] if numbers is not None else list(data)
    assert all(dict(s) == sample(s["n"]) for s in got)
    return [int(s["n"]) for s in got]
