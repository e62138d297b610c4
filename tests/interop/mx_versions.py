"""ModelExpress's own trainer and receiver, in a process of their own: writes versions with its publication method, and
applies deltas with its receiver.

    mx_versions.py publish DIR STEPS    DIR/full (version "base"), and deltas DIR/1 ... DIR/STEPS
    mx_versions.py receive DIR FULL DELTA ...    applies the deltas in DIR to the full version there
    mx_versions.py read DIR             prints the SHA-256 of each tensor, as its reader of checkpoints finds it

Of its services there is no server: the version is what the test says, and objects go to files."""
import hashlib
import json
import shutil
import sys
import types
from pathlib import Path

import torch
import torch.distributed as dist
from modelexpress_rl import refit_pb2
from modelexpress_rl.inference.receiver import _group_tensors_by_shard, _LocalCheckpoint, _parse_index_manifest
from modelexpress_rl.train.methods.canonical_delta import CanonicalDeltaPublicationMethod
from modelexpress_rl.utils import make_tensor_reader
from modelexpress_rl.version import WeightVersionRef

INDEX = "model.safetensors.index.json"


class Files:
    """Its S3 client, with files below a directory in place of objects."""

    def __init__(self, at):
        self.at = at

    def put(self, *, uri, data):
        path = self.at / uri.removeprefix("s3://bucket/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Service:
    """Its control plane, which says that the version is to be written, and how."""

    def __init__(self, name, base):
        kind = "FULL_HF_CHECKPOINT" if base is None else "XOR_DELTA"
        self.version = refit_pb2.WeightVersion(
            uid=name, model_name="m", payload_format=getattr(refit_pb2, f"WEIGHT_PAYLOAD_FORMAT_{kind}"),
            object_storage={"storage_type": refit_pb2.OBJECT_STORAGE_TYPE_S3, "uri": f"s3://bucket/{name}/{INDEX}"})
        if base is not None:
            self.version.base_version_id = base

    def GetWeightVersion(self, request, timeout):  # noqa: N802
        return refit_pb2.GetWeightVersionResponse(version=self.version)


def publish(at, steps):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    generator = torch.Generator().manual_seed(5)
    weights = {"embed.weight": torch.randn(300, 64, generator=generator).bfloat16(),
               "layers.0.w": torch.randn(64, 64, generator=generator),
               "layers.0.fp8": torch.randn(64, 64, generator=generator).to(torch.float8_e4m3fn),
               "frozen": torch.randn(9, generator=generator)}
    current = {}
    method = CanonicalDeltaPublicationMethod(
        config=types.SimpleNamespace(uri_prefix="s3://bucket", initial_base_version_id="none"), model_name="m",
        service=lambda: current["service"], rpc_timeout_seconds=5, process_group=dist.group.WORLD,
        read_seed_tensor=lambda name: None, s3=Files(at))
    for i in range(steps + 1):
        name, base = (str(i), str(i - 1) if i > 1 else "full") if i else ("full", None)
        current["service"] = Service(name, base)
        if i and i != 3:    # the third step changes nothing
            for key in list(weights)[:2 + i % 2]:
                weights[key] = (weights[key].float() * (1 + 0.05 * torch.randn(weights[key].shape, generator=generator))
                                ).to(weights[key].dtype)
        version = WeightVersionRef(version_id=name)
        staged = method.stage(version=version, hf_tensor_iter=[list(weights.items())])
        method.publish(version=version, staged=staged)
        hashes = {key: hashlib.sha256(w.view(torch.uint8).numpy()).hexdigest() for key, w in weights.items()}
        (at / name / "hashes.json").write_text(json.dumps(hashes))


def receive(at, full, *deltas):
    shutil.copytree(at / full, at / "received")
    receiver = object.__new__(_LocalCheckpoint)
    receiver._set_local_checkpoint(at / "received")
    for delta in deltas:
        base = deltas[deltas.index(delta) - 1] if delta != deltas[0] else full
        metadata, where = _parse_index_manifest(
            (at / delta / INDEX).read_bytes(), is_delta=True,
            version=types.SimpleNamespace(version_id=delta, base_version_id=base))
        receiver._apply_shards({part: ((at / delta / part).read_bytes(), names)
                                for part, names in _group_tensors_by_shard(where).items()}, index_metadata=metadata)


def read(at):
    tensor, metadata = make_tensor_reader(at)
    print(json.dumps({name: hashlib.sha256(tensor(name)).hexdigest() for name in metadata}))


if __name__ == "__main__":
    {"publish": lambda at, steps: publish(at, int(steps)), "receive": receive, "read": read}[sys.argv[1]](
        Path(sys.argv[2]), *sys.argv[3:])
