"""tensord.save_file and save_model: what they send is what safetensors, huggingface_hub and transformers write."""
import hashlib
import json
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from conftest import url_of
from huggingface_hub import save_torch_state_dict
from publishing import Repo

import tensord
from tensord.publishing.repository import Repository

KIB = 1024
TYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
         "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
         "float8_e8m0fnu", "float4_e2m1fn_x2"]


@pytest.fixture
def server(serve):
    return serve("--publish", "any")


def file_at(server, id, path, revision="main"):
    """A file of a revision, as any client of the Hub gets it."""
    answer = Repo(server.port, f"{id}/resolve/{revision}/{path}", "").ask("GET", "")
    assert answer.status == 200, answer
    return answer.body


def noise(*shape, dtype=torch.float32, seed=0):
    """A tensor of random bytes, which may be NaN."""
    count = int(np.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    data = np.random.default_rng(seed).integers(0, 2 if dtype == torch.bool else 256, count, np.uint8)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape) if count else torch.empty(shape, dtype=dtype)


def test_bytes_are_those_of_safetensors_for_every_type(server):
    tensors = {f"{name}.{shape}": noise(*shape, dtype=getattr(torch, name), seed=len(name))
               for name in TYPES for shape in ((3, 4), (), (0, 2), (7,)) if shape or name[:6] != "float4"}
    tensors |= {"é\n\"\\\x1f\u2028": noise(5), "B": noise(1), "a": noise(1)}
    url = url_of(server, "org/m/model.safetensors")
    for metadata in (None, {}, {"format": "pt"}, {"ü": "\x01"}):
        made = tensord.save_file(tensors, url, metadata)
        assert file_at(server, "org/m", "model.safetensors") == safetensors.torch.save(tensors, metadata)
        assert made.files == 1 and made.bytes == len(safetensors.torch.save(tensors, metadata))
    loaded = tensord.load_file(url_of(server, "org/m"))
    for name, tensor in tensors.items():
        assert same(loaded[name], tensor), name


def test_bytes_are_those_of_safetensors_for_arrays(server):
    types = ["bool", "uint8", "int16", ">i4", "<u8", ">f8", "float16", "complex64", ">c8", ml_dtypes.bfloat16,
             ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu]
    arrays = {str(one): np.arange(24).reshape(2, 3, 4).astype(one) for one in types}
    arrays |= {"scalar": np.array(3.5, np.float32), "empty": np.zeros((0, 3))}
    tensord.save_file(arrays, url_of(server, "org/m/model.safetensors"), {"a": "b"})
    want = {name: array.astype(array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    assert file_at(server, "org/m", "model.safetensors") == safetensors.numpy.save(want, {"a": "b"})


@pytest.mark.parametrize("ring_bytes", [100, 4096, 64 * 1024 * KIB])
def test_other_layouts_are_written_in_order(server, ring_bytes):
    """Whatever the strides are, the bytes are those of the contiguous copy."""
    base = noise(6, 50, 40)
    tensors = {"t": base.transpose(0, 2), "step": noise(6, 50, 40)[::2, ::3], "cut": noise(6, 50)[:, 2:5],
               "expand": noise(1, 3).expand(40, 3), "conj": torch.randn(9, 9, dtype=torch.complex64).conj().t(),
               "neg": torch.randn(5, dtype=torch.complex64).conj().imag, "plain": noise(3),
               "column": noise(4000, 2)[:, 0]}
    url = url_of(server, "org/m/model.safetensors")
    tensord.save_file(tensors, url, ring_bytes=ring_bytes)
    want = {name: tensor.resolve_conj().resolve_neg().contiguous() for name, tensor in tensors.items()}
    assert file_at(server, "org/m", "model.safetensors") == safetensors.torch.save(want)
    arrays = {"t": base.numpy().T, "step": base.numpy()[::2, ::-3], "wide": base.numpy().astype(">f4")[:, 1:],
              "expand": np.broadcast_to(np.arange(3), (40, 3))}
    tensord.save_file(arrays, url, ring_bytes=ring_bytes)
    assert file_at(server, "org/m", "model.safetensors") == safetensors.numpy.save(
        {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()})


@pytest.mark.parametrize("tensors, error, words", [
    ({"x": torch.zeros(2, dtype=torch.complex128)}, ValueError, "'x' is of type torch.complex128"),
    ({"x": np.zeros(2, "complex128")}, ValueError, "'x' is of type complex128"),
    ({"x": np.zeros(2, "O")}, ValueError, "'x' is of type object"),
    ({"x": torch.zeros(2).to_sparse()}, ValueError, "to_dense"),
    ({"x": torch.zeros(2, device="meta")}, ValueError, "meta device"),
    ({"x": [1.0]}, TypeError, "'x' is of type list"),
    ({1: torch.zeros(1)}, TypeError, "the name 1 is not a text"),
    ({"__metadata__": torch.zeros(1)}, ValueError, "__metadata__"),
    ({"\ud800": torch.zeros(1)}, ValueError, "cannot have the name"),
    ([torch.zeros(1)], TypeError, "a dict of tensors")])
def test_what_cannot_be_saved(server, tensors, error, words):
    with pytest.raises(error, match=words):
        tensord.save_file(tensors, url_of(server, "org/m/model.safetensors"))
    assert Repo(server.port, "org/m").ask("GET", "/commits").status == 404


def test_save_file_keeps_the_other_files(server):
    url = url_of(server, "org/m@v1")
    Repository.open(url).commit({"config.json": Repository.open(url).send(b"{}")})
    first = tensord.save_file({"x": noise(3)}, f"{url}/sub/a.safetensors", message="one")
    second = tensord.save_file({"x": noise(4)}, f"{url}/sub/b.safetensors", parent=first.commit)
    assert (second.revision, second.files, second.parent) == ("v1", 3, first.commit)
    with pytest.raises(tensord.ConflictError):
        tensord.save_file({"x": noise(4)}, f"{url}/sub/b.safetensors", parent=first.commit)
    with pytest.raises(tensord.AddressError, match="does not name a file"):
        tensord.save_file({"x": noise(4)}, url)
    with pytest.raises(TypeError, match="metadata"):
        tensord.save_file({"x": noise(4)}, f"{url}/a.safetensors", {"a": 1})


def tied():
    """A module with a tensor under two names, and a buffer that is a part of no other tensor."""
    module = torch.nn.Module()
    module.b = torch.nn.Linear(30, 20)
    module.a = torch.nn.Linear(30, 20)
    module.a.weight = module.b.weight
    module.register_buffer("c", torch.arange(10))
    return module


def tree(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def same(one, other):
    """Whether two tensors have the same bytes."""
    return (one.dtype == other.dtype and one.shape == other.shape and
            one.contiguous().reshape(-1).view(torch.uint8).equal(other.contiguous().reshape(-1).view(torch.uint8)))


def pushed(server, id, made):
    return {file.path: file_at(server, id, file.path, made.commit) for file in made.files}


@pytest.mark.parametrize("size", ["5GB", 3000, "1.5KB", 2400, 1])
def test_files_are_those_of_huggingface_hub(server, tmp_path, size):
    """Names, shards, headers, index: as save_torch_state_dict of huggingface_hub writes them."""
    module = tied()
    (tmp_path / "hub").mkdir()
    save_torch_state_dict(module.state_dict(), str(tmp_path / "hub"), max_shard_size=size)
    made = tensord.save_model(module, url_of(server, "org/m"), max_shard_size=size)
    found, want = pushed(server, "org/m", made), tree(tmp_path / "hub")
    assert set(found) == set(want)
    for name, data in want.items():
        if name.endswith(".json"):
            assert json.loads(found[name]) == json.loads(data)
        else:  # safetensors writes metadata in no order
            head = int.from_bytes(data[:8], "little") + 8
            assert json.loads(found[name][8:head]) == json.loads(data[8:head]) and found[name][head:] == data[head:]
            assert list(json.loads(found[name][8:head])) == list(json.loads(data[8:head]))
    assert {file.path: file.sha256 for file in made.files} == \
        {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
    again = torch.nn.Module()
    again.b, again.a = torch.nn.Linear(30, 20), torch.nn.Linear(30, 20)
    again.a.weight = again.b.weight
    again.register_buffer("c", torch.zeros(10, dtype=torch.int64))
    again.load_state_dict(tensord.load_file(url_of(server, "org/m")), strict=False)
    for name, tensor in module.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)


def test_safetensors_loads_what_save_model_writes(server, tmp_path):
    module = tied()
    made = tensord.save_model(module, url_of(server, "org/m"), files={"notes/README.md": b"# m"},
                              config={"model_type": "x"}, metadata={"step": "5"}, message="m")
    found = pushed(server, "org/m", made)
    assert set(found) == {"model.safetensors", "notes/README.md", "config.json"}
    assert found["notes/README.md"] == b"# m" and json.loads(found["config.json"]) == {"model_type": "x"}
    (tmp_path / "model.safetensors").write_bytes(found["model.safetensors"])
    again = tied()
    assert safetensors.torch.load_model(again, tmp_path / "model.safetensors") == (set(), [])
    assert torch.equal(again.a.weight, module.b.weight)
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "step": "5", "b.weight": "a.weight"}


def test_tensors_that_overlap(server):
    base = noise(64)
    url = url_of(server, "org/m")
    parts = {"a": base[:32], "b": base[32:]}  # of one storage, but apart
    tensord.save_model(parts, url)
    loaded = tensord.load_file(url)
    assert same(loaded["a"], parts["a"]) and same(loaded["b"], parts["b"])
    for names in ({"a": base[:40], "b": base[30:]}, {"w": noise(8, 8)[:4], "v": None}, {"w": base.view(8, 8).t()}):
        if "v" in names:
            names["v"] = names["w"][2:]
        elif "w" in names:
            names["flat"] = base[:60]
        with pytest.raises(RuntimeError, match="share memory"):
            tensord.save_model(names, url)
    with pytest.raises(RuntimeError, match="save_model"):
        tensord.save_file({"a": base, "b": base}, f"{url}/model.safetensors")
    tensord.save_model({"z": base, "y": base.view(8, 8), "x": base[:3]}, url)
    assert set(tensord.load_file(url)) == {"y"}


def test_a_model_in_a_folder_replaces_the_one_before(server):
    url = url_of(server, "org/runs/step-1")
    Repository.open(url_of(server, "org/runs")).commit({"other/model.safetensors": Repository.open(
        url_of(server, "org/runs")).send(b"x")})
    many = {str(i): noise(64, seed=i) for i in range(5)}
    first = tensord.save_model(many, url, max_shard_size=256)
    assert [file.path for file in first.files][:1] == ["model-00001-of-00005.safetensors"]
    tensord.save_model({"0": noise(64)}, url, files={"config.json": b"{}"})
    assert Repository.open(url).names() == {"model.safetensors", "config.json"}
    assert Repository.open(url_of(server, "org/runs")).names() == {"other/", "step-1/"}
    with pytest.raises(ValueError, match="keep=True"):
        tensord.save_model(many, url, keep=False)


@pytest.mark.parametrize("size", ["5GB", 40_000])
def test_transformers_loads_what_save_model_writes(server, tmp_path, size):
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    made = tensord.save_model(model, url_of(server, "org/m"), max_shard_size=size)
    for name, data in pushed(server, "org/m", made).items():
        (tmp_path / name).write_bytes(data)
    again, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert type(again) is LlamaForCausalLM and again.dtype == torch.bfloat16
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert "lm_head.weight" not in tensord.load_file(url_of(server, "org/m"))


def test_the_names_of_safetensors_take_urls(server, tmp_path):
    import tensord.safetensors.numpy
    import tensord.safetensors.torch

    url = url_of(server, "org/m/model.safetensors")
    assert tensord.safetensors.torch.save_file({"x": noise(3)}, url, metadata={"a": "b"}) is None
    assert file_at(server, "org/m", "model.safetensors") == safetensors.torch.save({"x": noise(3)}, {"a": "b"})
    assert tensord.safetensors.torch.load_file(url)["x"].view(torch.int32).equal(noise(3).view(torch.int32))
    tensord.safetensors.torch.save_model(tied(), url, {"k": "v"})
    again = tied()
    assert tensord.safetensors.torch.load_model(again, url) == (set(), [])
    safetensors.torch.save_model(tied(), tmp_path / "real.safetensors", {"k": "v"})
    with safetensors.safe_open(tmp_path / "real.safetensors", "pt") as real:
        data = file_at(server, "org/m", "model.safetensors")
        head = json.loads(data[8:int.from_bytes(data[:8], "little") + 8])
        assert head["__metadata__"] == real.metadata() and set(head) - {"__metadata__"} == set(real.keys())
    tensord.safetensors.numpy.save_file({"x": np.arange(3)}, url)
    assert file_at(server, "org/m", "model.safetensors") == safetensors.numpy.save({"x": np.arange(3)})
    tensord.safetensors.numpy.save_file({"x": np.arange(3)}, tmp_path / "a.safetensors")
    tensord.safetensors.torch.save_file({"x": noise(3)}, tmp_path / "b.safetensors")
    tensord.safetensors.torch.save_model(tied(), str(tmp_path / "c.safetensors"))
    assert (tmp_path / "a.safetensors").read_bytes() == safetensors.numpy.save({"x": np.arange(3)})
    assert (tmp_path / "b.safetensors").read_bytes() == safetensors.torch.save({"x": noise(3)})
    assert set(safetensors.torch.load_file(tmp_path / "c.safetensors")) == {"a.weight", "a.bias", "b.bias", "c"}


MEMORY = """
import resource, sys, torch, tensord
def save(**tensors):
    tensord.save_model(tensors, sys.argv[1], ring_bytes=16 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
big = torch.full((48 * 2**20,), 1.0)  # 192 MiB
columns = torch.full((2, 24 * 2**20), 1.0).t()
before = save(a=torch.ones(2000, 2000), b=torch.ones(2000, 2000).t())
print(save(big=big, columns=columns) - before)
"""


def test_memory_stays_bounded(server):
    """Neither contiguous tensors nor others are copied as a whole."""
    done = subprocess.run([sys.executable, "-c", MEMORY, url_of(server, "org/m")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 32 * KIB, f"{done.stdout} KiB"


def test_two_threads_save_at_once(server):
    faults = []

    def save(number):
        try:
            for step in range(3):
                tensord.save_model({"x": noise(300_000, seed=number)}, url_of(server, f"org/m{number}"),
                                   max_shard_size=100 + step)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults
    for number in range(4):
        assert same(tensord.load_file(url_of(server, f"org/m{number}"))["x"], noise(300_000, seed=number))
