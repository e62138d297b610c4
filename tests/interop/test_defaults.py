"""Which checkpoint of a model is the default: the one that from_pretrained of transformers and diffusers loads when no
variant is asked for, and of GGUF files a model."""
import json

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

NAME = "layer.weight"


def diffusers_config():
    return {"_class_name": "DiffusersModel", "_diffusers_version": "0.0.0", "size": 2}


def transformers_config():
    return {"model_type": "tiny", "architectures": ["TransformersModel"]}


def write(folder, name, value):
    """Writes weights that are all `value`; "A index of B" writes the index A, which names B."""
    if " index of " in name:
        index, shard = name.split(" index of ")
        (folder / index).write_text(json.dumps({"metadata": {"total_size": 16}, "weight_map": {NAME: shard}}))
        return
    weight = {NAME: torch.full((2, 2), float(value))}
    if name.endswith(".bin"):
        torch.save(weight, folder / name)
    else:
        save_file(weight, folder / name, {"format": "pt"})


D, P, M = "diffusion_pytorch_model", "pytorch_model", "model"
ONE = "-00001-of-00001"
# Each file, or index, of a folder; its weights are its place in the list, from 1 on.
CASES = {
    "diffusers, half": ("DiffusersModel", [f"{D}.fp16.safetensors", f"{D}.safetensors"]),
    "diffusers, three": ("DiffusersModel", [f"{D}.bf16.safetensors", f"{D}.non_ema.safetensors", f"{D}.safetensors"]),
    "diffusers, a word of one's own": ("DiffusersModel", [f"{D}.aaa.safetensors", f"{D}.safetensors"]),
    "diffusers, shards of each": ("DiffusersModel", [
        f"{D}.bf16{ONE}.safetensors", f"{D}.safetensors.index.bf16.json index of {D}.bf16{ONE}.safetensors",
        f"{D}{ONE}.safetensors", f"{D}.safetensors.index.json index of {D}{ONE}.safetensors"]),
    "diffusers, the variant's word behind the numbers": ("DiffusersModel", [
        f"{D}{ONE}.fp16.safetensors", f"{D}.safetensors.index.fp16.json index of {D}{ONE}.fp16.safetensors",
        f"{D}.safetensors"]),
    "diffusers, a sharded one beside a variant": ("DiffusersModel", [
        f"{D}.fp16.safetensors", f"{D}{ONE}.safetensors", f"{D}.safetensors.index.json index of {D}{ONE}.safetensors"]),
    "diffusers, a file and shards": ("DiffusersModel", [
        f"{D}.safetensors", f"{D}{ONE}.safetensors", f"{D}.safetensors.index.json index of {D}{ONE}.safetensors"]),
    "diffusers, a pickle beside a variant": ("DiffusersModel", [f"{D}.fp16.safetensors", f"{D}.bin"]),
    "diffusers, pickles": ("DiffusersModel", [f"{D}.aa.bin", f"{D}.bf16.bin", f"{D}.bin"]),
    "diffusers, pickles and safetensors": ("DiffusersModel", [f"{D}.bin", f"{D}.fp16.bin", f"{D}.safetensors"]),
    "transformers, half": ("TransformersModel", [f"{M}.fp16.safetensors", f"{M}.safetensors"]),
    "transformers, a pickle beside a variant": ("TransformersModel", [f"{M}.fp16.safetensors", f"{P}.bin"]),
    "transformers, a sharded pickle beside a variant": ("TransformersModel", [
        f"{M}.fp16.safetensors", f"{P}{ONE}.bin", f"{P}.bin.index.json index of {P}{ONE}.bin"]),
    "transformers, pickles": ("TransformersModel", [f"{P}.bf16.bin", f"{P}.bin"]),
    "transformers, a sharded variant": ("TransformersModel", [
        f"{M}.fp32{ONE}.safetensors", f"{M}.safetensors.index.fp32.json index of {M}.fp32{ONE}.safetensors",
        f"{M}.safetensors"]),
    "transformers, a variant's file beside shards": ("TransformersModel", [
        f"{M}.fp16.safetensors", f"{M}{ONE}.safetensors", f"{M}.safetensors.index.json index of {M}{ONE}.safetensors"]),
    "transformers, a file and shards": ("TransformersModel", [
        f"{M}{ONE}.safetensors", f"{M}.safetensors.index.json index of {M}{ONE}.safetensors", f"{M}.safetensors"]),
}


def default_of(server, model):
    """Returns the weights and the file of the default checkpoint, which model.safetensors must have too."""
    entry = next(t for t in server.json(f"/models/{model}/tensors")["tensors"] if t["name"] == NAME)
    body = server.get(entry["href"]).body
    assert server.get(f"/models/{model}/model.safetensors").body.endswith(body)
    return np.frombuffer(body, "f4").reshape(entry["shape"]), entry["file"]


def test_the_weights_that_from_pretrained_takes(serve):
    import default_models

    want = {}
    for number, (what, (kind, files)) in enumerate(CASES.items()):
        folder = serve.root / f"org/m{number}"
        folder.mkdir(parents=True)
        config = diffusers_config() if kind == "DiffusersModel" else transformers_config()
        (folder / "config.json").write_text(json.dumps(config))
        for place, name in enumerate(files):
            write(folder, name, place + 1)
        loaded = getattr(default_models, kind).from_pretrained(folder, use_safetensors=None)
        want[f"org/m{number}"] = (what, loaded.state_dict()[NAME].numpy())
    server = serve()
    for model, (what, weights) in want.items():
        got, file = default_of(server, model)
        assert (got == weights).all(), f"{what}: {file} has {got[0][0]}, from_pretrained takes {weights[0][0]}"


@pytest.mark.parametrize("named", ["dir/a.safetensors", "./a.safetensors", "dir/./a.safetensors", ".//a.safetensors"])
def test_an_index_names_paths_as_transformers_resolves_them(serve, named):
    from default_models import TransformersModel

    folder = serve.root / "m"
    (folder / named).parent.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(transformers_config()))
    save_file({NAME: torch.full((2, 2), 7.0)}, folder / named, {"format": "pt"})
    write(folder, f"model.safetensors.index.json index of {named}", 0)
    loaded = TransformersModel.from_pretrained(folder)
    assert (loaded.state_dict()[NAME] == 7).all()
    weights, file = default_of(serve(), "m")
    assert (weights == 7).all() and (folder / file).samefile(folder / named)


def write_gguf(path, architecture, kind=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    if kind is not None:
        writer.add_type(kind)
    writer.add_tensor("w", np.arange(32, dtype="f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("beside, architecture, kind", [
    ("mmproj-a-f16.gguf", "clip", "mmproj"), ("a-vision.gguf", "clip", None), ("a-imatrix.gguf", "llama", None),
    ("a.gguf", "llama", "imatrix"), ("a-lora.gguf", "llama", "adapter"), ("a-draft-Q8_0.gguf", "llama", "model"),
    ("a-mtp-Q8_0.gguf", "llama", "model"), ("a-control.gguf", "controlvector", None)])
def test_a_gguf_that_is_no_model_is_not_the_default(serve, beside, architecture, kind):
    write_gguf(serve.root / "m" / beside, architecture, kind)
    write_gguf(serve.root / "m/model-Q4_K_M.gguf", "llama", "model")
    write_gguf(serve.root / "alone" / beside, architecture, kind)
    server = serve()
    assert [t["file"] for t in server.json("/models/m/tensors")["tensors"]] == ["model-Q4_K_M.gguf"]
    assert [c["id"] for c in server.json("/models/m")["checkpoints"]] == ["model-Q4_K_M.gguf", beside]
    assert [t["file"] for t in server.json("/models/alone/tensors")["tensors"]] == [beside]


@pytest.mark.parametrize("state", ["optimizer.pt", "rng_state_0.pth", "random_states_0.pt", "optim.pth"])
def test_the_state_of_a_trainer_is_not_the_default(serve, state):
    (serve.root / "m").mkdir()
    torch.save({"moment": torch.ones(2)}, serve.root / "m" / state)
    torch.save({"weight": torch.ones(2)}, serve.root / "m/weights.pt")
    assert [t["file"] for t in serve().json("/models/m/tensors")["tensors"]] == ["weights.pt"]
