"""The calls of the Run:ai streamer and of tensorizer that tests make. Their environment says where S3 is."""
import hashlib
import os

import torch
from runai_model_streamer import SafetensorsStreamer, list_safetensors, pull_files
from tensorizer import TensorDeserializer, TensorSerializer, stream_io


def digest(t):
    return [list(t.shape), str(t.dtype), hashlib.sha256(t.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()]


def runai_list(path):
    return sorted(list_safetensors(path))


def runai_pull(path, folder, **kw):
    pull_files(path, folder, **kw)


def runai_stream(paths):
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(paths)
        return {name: digest(t) for name, t in streamer.get_tensors()}


def tensorizer_write(path):
    """Write a module's tensors with tensorizer. Return their digests."""
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(128, 3))
    writer = TensorSerializer(path)
    writer.write_module(module)
    writer.close()
    return {name: digest(t) for name, t in module.state_dict().items()}


def tensorizer_read(uri, readers=1):
    s3 = {}
    if uri.startswith("s3:"):
        s3 = {"s3_access_key_id": "any", "s3_secret_access_key": "any", "force_http": True,
              "s3_endpoint": os.environ["AWS_ENDPOINT_URL"]}
    with stream_io.open_stream(uri, "rb", **s3) as f, TensorDeserializer(f, device="cpu",
                                                                         num_readers=readers) as tensors:
        return {name: digest(tensors[name]) for name in list(tensors)}
