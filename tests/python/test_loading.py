"""Loads of the client: whole checkpoints, parts, ranks, into memory that exists; what does not fit is refused."""
import pickle

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from conftest import bytes_of, url_of
from safetensors.torch import load_file, save_file

import tensord
from tensord.dcp import TensordReader
from tensord.tensors.reading import Reader


def write_sharded(root):
    """Write a checkpoint of two files and an index, and return its tensors."""
    torch.manual_seed(1)
    one = {"a.weight": torch.randn(300, 700), "a.bias": torch.randn(300).half(), "n": torch.tensor(7)}
    two = {"b.weight": torch.randn(1024, 1024).bfloat16(), "b.empty": torch.zeros(0, 4)}
    (root / "org" / "model").mkdir(parents=True)
    save_file(one, root / "org" / "model" / "model-00001-of-00002.safetensors")
    save_file(two, root / "org" / "model" / "model-00002-of-00002.safetensors")
    tensors = {**one, **two}
    index = {"metadata": {}, "weight_map": {name: f"model-0000{1 if name in one else 2}-of-00002.safetensors"
                                            for name in tensors}}
    import json

    (root / "org" / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    return tensors


def equal(got, want):
    return got.keys() == want.keys() and all(
        got[name].dtype == want[name].dtype and torch.equal(got[name], want[name]) for name in want)


def test_load_file_and_state_dict(serve):
    tensors = write_sharded(serve.root)
    server = serve()
    url = url_of(server, "org/model")
    assert equal(tensord.load_file(url), tensors)
    assert equal(tensord.load_file(f"http://127.0.0.1:{server.port}/models/org/model/", connections=1), tensors)
    part = tensord.state_dict(url, match="a.*")
    assert equal(part, {name: tensors[name] for name in ("a.weight", "a.bias")})
    halved = tensord.state_dict(url, dtype=torch.float16)
    assert halved["b.weight"].dtype == torch.float16 and halved["n"].dtype == torch.int64
    assert torch.equal(halved["b.weight"], tensors["b.weight"].half())
    arrays = tensord.state_dict(url, match="a.*", framework="np")
    assert isinstance(arrays["a.bias"], np.ndarray) and np.array_equal(arrays["a.bias"], tensors["a.bias"].numpy())


def test_other_formats_and_shared_tensors(serve):
    shared = torch.randn(64, 32)
    for name in ("pickle", "array"):
        (serve.root / name).mkdir()
    torch.save({"embed": shared, "head": shared, "turned": torch.arange(12.0).reshape(3, 4).t()},
               serve.root / "pickle" / "pytorch_model.bin")
    np.save(serve.root / "array" / "big-endian.npy", np.arange(5, dtype=">i4"))
    server = serve()
    loaded = tensord.load_file(url_of(server, "pickle"))
    assert torch.equal(loaded["embed"], shared) and torch.equal(loaded["turned"], torch.arange(12.0).reshape(3, 4).t())
    assert loaded["embed"].data_ptr() == loaded["head"].data_ptr()
    arrays = tensord.load_file(url_of(server, "array"))
    assert [tensor.tolist() for tensor in arrays.values()] == [[0, 1, 2, 3, 4]]


def test_load_into_memory_that_exists(serve):
    tensors = write_sharded(serve.root)
    url = url_of(serve(), "org/model")
    target = {name: torch.full_like(tensor, 9) for name, tensor in tensors.items()}
    places = {name: tensor.data_ptr() for name, tensor in target.items()}
    assert tensord.load_into(target, url) == ([], [])
    assert equal(target, tensors) and places == {name: tensor.data_ptr() for name, tensor in target.items()}

    # Gaps, another order of dimensions and another type go through memory of the ring.
    wide = torch.zeros(1024, 3000)
    target = {"b.weight": wide[:, 100:1124], "a.weight": torch.zeros(700, 300, dtype=torch.float64).t()}
    missing, unexpected = tensord.load_into(target, url, strict=False, dtype="any", ring_bytes=1 << 18)
    assert (missing, unexpected) == ([], ["a.bias", "b.empty", "n"])
    assert torch.equal(target["b.weight"], tensors["b.weight"].float())
    assert torch.equal(target["a.weight"], tensors["a.weight"].double())
    assert wide[:, :100].count_nonzero() == 0 and wide[:, 1124:].count_nonzero() == 0

    module = torch.nn.Linear(700, 300)
    module.bias = torch.nn.Parameter(module.bias.detach().half())
    names = {"weight": "a.weight", "bias": "a.bias"}
    assert tensord.load_into(module, url, strict=False, names=names)[0] == []
    assert torch.equal(module.weight, tensors["a.weight"]) and torch.equal(module.bias, tensors["a.bias"])


def test_load_into_refuses_what_does_not_fit(serve):
    tensors = write_sharded(serve.root)
    server = serve()
    url = url_of(server, "org/model")
    target = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    with pytest.raises(tensord.MismatchError, match="missing more; unexpected n; strict=False"):
        tensord.load_into({**{name: target[name] for name in target if name != "n"}, "more": torch.zeros(1)}, url)
    with pytest.raises(tensord.MismatchError, match=r"a.bias has shape \(3,\), the checkpoint \(300,\)"):
        tensord.load_into({**target, "a.bias": torch.zeros(3).half()}, url)
    with pytest.raises(tensord.MismatchError, match="torch.float32, the checkpoint torch.float16.*converts"):
        tensord.load_into({**target, "a.bias": torch.zeros(300)}, url)
    assert all(tensor.count_nonzero() == 0 for tensor in target.values())
    assert bytes_of(server, "tensors:read") + bytes_of(server, "boxes.bin") == 0


def test_read_boxes_in_order_into_given_tensors(serve):
    tensors = write_sharded(serve.root)
    url = url_of(serve(), "org/model")
    out = torch.zeros(10, 20)
    wanted = [("b.weight", (slice(5, 9), slice(None))), ("a.weight", (slice(0, 10), slice(30, 50))), ("n", None),
              ("b.weight", 3), ("a.weight", ([7, 5], slice(0, 2))), ("b.empty", ...)]
    got = tensord.read_boxes(url, wanted, out=[None, out, None, None, None, None])
    assert got[1] is out
    for (name, index), tensor in zip(wanted, got):
        assert torch.equal(tensor, tensors[name][... if index is None else index]), (name, index)
    with pytest.raises(IndexError):
        tensord.read_boxes(url, [("n", 3)])
    with pytest.raises(tensord.MismatchError):
        tensord.read_boxes(url, [("a.bias", None)], out=[torch.zeros(2)])
    with pytest.raises(tensord.NotFoundError, match="did you mean a.weight"):
        tensord.read_boxes(url, [("a.weigth", None)])
    many = [("a.weight", (slice(k % 300, k % 300 + 1), slice(k % 700, k % 700 + 1))) for k in range(5000)]
    got = tensord.read_boxes(url, many)
    assert torch.stack([one.reshape(()) for one in got]).equal(torch.stack(
        [tensors["a.weight"][k % 300, k % 700] for k in range(5000)]))


def test_ranks_get_their_part_only(serve):
    tensors = write_sharded(serve.root)
    server = serve()
    url = url_of(server, "org/model")
    for rank in range(3):
        before = bytes_of(server, "/plans/")
        loaded = tensord.load_rank(url, "fsdp", 3, rank)
        sent = bytes_of(server, "/plans/") - before
        for name, tensor in tensors.items():
            chunks = torch.chunk(tensor, 3) if tensor.dim() else [tensor] * 3
            want = chunks[rank] if rank < len(chunks) else tensor[:0]
            assert torch.equal(loaded[name], want), (name, rank)
        assert sent <= 1.05 * sum(tensor.nbytes for tensor in loaded.values()) + 20000  # the header, the plan's answers
    with pytest.raises(ValueError, match="count from 0"):
        tensord.load_rank(url, "fsdp", 3, 3)
    with pytest.raises(tensord.AnswerError, match="config.json"):
        tensord.load_rank(url, "vllm", 2, 0)


def test_one_load_reads_one_version(serve):
    tensors = write_sharded(serve.root)
    server = serve()
    server.wait_hashed()
    model = tensord.open_model(url_of(server, "org/model"))
    view = model["b.weight"]
    with tensord.safe_open(model, lazy=True) as f:
        lazy = f.get_tensor("a.weight")
    save_file({name: tensor + 1 for name, tensor in tensors.items() if name.startswith("b")},
              serve.root / "org" / "model" / "model-00002-of-00002.safetensors")
    etag, client = model.manifest().etag, tensord.connect(url_of(server, "org/model"))
    server.wait_for(lambda: client.manifest().etag != etag, "the new version is published")
    for read in (lambda: view[0:2], lambda: view[...], model.state_dict, lambda: lazy + 1,
                 lambda: model.names("a.*")):
        with pytest.raises(tensord.ChangedError, match="load again"):
            read()
    model.refresh()
    assert torch.equal(model["b.weight"][0:2], tensors["b.weight"][0:2] + 1)


def test_options_of_a_url_and_of_a_model(serve, monkeypatch):
    """By name, as one Options, or both: for a URL and for a Model that has options of its own."""
    tensors = write_sharded(serve.root)
    url = url_of(serve(), "org/model")
    read, used = Reader.read, []

    def noted(self, *given, **how):
        used.append((self.session.options.connections, self.session.options.token))
        return read(self, *given, **how)

    monkeypatch.setattr(Reader, "read", noted)
    for source in (url, tensord.open_model(url, connections=2, token="own")):
        own = (2, "own") if source is not url else (8, None)
        for given, wanted in (({}, own), ({"connections": 3}, (3, own[1])),
                              ({"options": tensord.Options(token="other")}, (8, "other")),
                              ({"options": tensord.Options(token="other"), "connections": 4}, (4, "other"))):
            equal(tensord.load_file(source, **given), tensors)
            assert used.pop() == wanted and not used, given
            with tensord.safe_open(source, **given) as file:
                equal(file.get_tensors(), tensors)
            assert used.pop() == wanted and not used, given
            target = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
            dcp.load(target, storage_reader=TensordReader(source, **given), no_dist=True)
            equal(target, tensors)
            assert used.pop() == wanted, given
            used.clear()


def test_clients_models_and_views_are_pickled(serve):
    tensors = write_sharded(serve.root)
    client = tensord.connect(f"http://127.0.0.1:{serve().port}")
    assert [row["id"] for row in client.models()] == ["org/model"] and client.models("no*") == []
    model = pickle.loads(pickle.dumps(client)).model("org/model")
    view = pickle.loads(pickle.dumps(model["a.weight"]))
    assert torch.equal(view[1:3], tensors["a.weight"][1:3])
    assert set(client.manifest("org/model").tensors) == set(tensors)
    with pytest.raises(tensord.AddressError, match="no model is named"):
        client.model()


def test_two_servers_share_a_load(serve, tmp_path):
    tensors = write_sharded(serve.root)
    one, two = serve(), serve()
    for server in (one, two):
        server.wait_hashed()  # before, servers cannot know that their files are the same
    both = f"tensord://127.0.0.1:{one.port},127.0.0.1:{two.port}/org/model"

    def share_a_load():  # on a busy machine, one may have answered everything before the client reaches the other
        before = [bytes_of(server, "boxes.bin") for server in (one, two)]
        assert equal(tensord.load_file(both, range_bytes=65536), tensors)
        return all(bytes_of(server, "boxes.bin") > old for server, old in zip((one, two), before))

    assert any(share_a_load() for _ in range(3))
    two.stop()
    assert equal(tensord.load_file(both, range_bytes=65536), tensors)


def test_files_equal_those_of_safetensors(serve):
    write_sharded(serve.root)
    url = url_of(serve(), "org/model")
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        local = load_file(serve.root / "org" / "model" / name)
        assert equal({key: value for key, value in tensord.load_file(url).items() if key in local}, local)
