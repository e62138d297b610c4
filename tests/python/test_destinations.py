"""Memory that loads write to: which tensors take bytes, which do not, and what torch learns of it."""
import copy
import io
import os
import pickle
import threading

import numpy as np
import pytest
import torch
from conftest import url_of
from safetensors.torch import save_file
from test_lazy import lazy_of

import tensord
from tensord.lazy import LazyTensor, deferred


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    import harness

    root = tmp_path_factory.mktemp("root")
    (root / "m").mkdir()
    torch.manual_seed(6)
    packed = torch.randint(0, 256, (6, 4), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    tensors = {"w": torch.randn(64, 48), "c": torch.randn(16, 8, dtype=torch.complex64), "d": torch.randn(6).double(),
               "cube": torch.randn(8, 6, 10), "f4": packed, "four": torch.randn(4, 3, 5, 6)}
    save_file(tensors, root / "m" / "model.safetensors")
    harness.age(root)
    with harness.Server(root) as server:
        model = tensord.open_model(url_of(server, "m"), token="SESAME-17")
        model.plain, model.url = tensors, url_of(server, "m")
        yield model


def test_a_default_device_changes_nothing(model):
    with torch.device("meta"):
        with tensord.safe_open(model) as file:
            part = file.get_slice("w")[2:4]
        boxes = model.read_boxes([("w", slice(0, 2))])
        rank = tensord.load_rank(model.url, "none", 1, 0)
        whole = model.state_dict("w")
    for got, want in ((part, model.plain["w"][2:4]), (boxes[0], model.plain["w"][:2]), (rank["w"], model.plain["w"]),
                      (whole["w"], model.plain["w"])):
        assert got.device.type == "cpu" and torch.equal(got, want)


# shows: security.md python-destinations
def test_the_meta_device_takes_no_bytes(model):
    with torch.device("meta"):
        module = torch.nn.Linear(48, 64, bias=False)
    with pytest.raises(tensord.MismatchError, match=r"meta device.*to_empty\(device"):
        model.load_into(module, strict=False, names={"weight": "w"})
    with pytest.raises(tensord.MismatchError, match="meta device"):
        model.read_boxes([("w", None)], out=[torch.empty(64, 48, device="meta")])


# shows: security.md python-destinations
def test_distributed_tensors_are_refused_or_left_to_torch(model):
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = dist.init_device_mesh("cpu", (1,))
        spread = distribute_tensor(torch.zeros(64, 48), mesh, [Shard(0)])
        with pytest.raises(tensord.MismatchError, match="DTensor: tensord.dcp.TensordReader"):
            model.load_into({"w": spread}, strict=False)
        with pytest.raises(tensord.MismatchError, match="DTensor"):
            model.read_boxes([("w", None)], out=[spread])
        parameter = torch.nn.Parameter(spread, requires_grad=False)
        with pytest.raises(RuntimeError, match="mixed torch.Tensor and DTensor"):
            parameter.copy_(lazy_of(model, "w"))
        with deferred(model):
            parameter.to_local().copy_(lazy_of(model, "w"))
            total = spread.sum().to_local()
        assert torch.equal(spread.to_local(), model.plain["w"]) and torch.equal(total, model.plain["w"].sum())
    finally:
        dist.destroy_process_group()


# shows: security.md python-destinations
def test_conjugate_views_get_the_values(model):
    for fill in (lambda out: model.read_boxes([("c", None)], out=[out]), lambda out: out.copy_(lazy_of(model, "c")),
                 lambda out: model.load_into({"c": out}, strict=False)):
        out = torch.zeros(16, 8, dtype=torch.complex64).conj()
        fill(out)
        assert torch.equal(out, model.plain["c"])


@pytest.mark.parametrize("fill", [lambda model, w: w.copy_(lazy_of(model, "w")),
                                  lambda model, w: model.load_into({"w": w}, strict=False)])
def test_a_gradient_that_needs_old_values_is_refused(model, fill):
    factor, weight = torch.ones(64, 48, requires_grad=True), torch.zeros(64, 48)
    result = (factor * weight).sum()
    fill(model, weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_of_tied_parameters_the_last_counts_as_for_torch(serve):
    (serve.root / "t").mkdir()
    tensors = {"a.weight": torch.full((2, 2), 1.0), "b.weight": torch.full((2, 2), 2.0)}
    save_file(tensors, serve.root / "t" / "model.safetensors")
    ours, theirs = (torch.nn.ModuleDict({name: torch.nn.Linear(2, 2, bias=False) for name in "ab"}) for _ in range(2))
    for module in (ours, theirs):
        module["b"].weight = module["a"].weight
    theirs.load_state_dict(tensors)
    tensord.load_into(ours, url_of(serve(), "t"))
    assert torch.equal(ours["a"].weight, theirs["a"].weight)


INDICES = [(slice(0, 1), slice(2, 4)), (0, 3), (slice(None), slice(None, None, 2)), (Ellipsis, [1, 3]), 5,
           (slice(1, 5), slice(1, 3)), Ellipsis, None]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_packed_pairs_are_indexed_as_torch_counts_them(model, index):
    plain = model.plain["f4"].view(torch.uint8)
    want = plain if index is None else plain[index]
    assert torch.equal(model.read_boxes([("f4", index)])[0].view(torch.uint8), want)
    with tensord.safe_open(model) as file:
        got = file.get_slice("f4")[... if index is None else index]
        assert torch.equal(got.view(torch.uint8), want) and file.get_slice("f4").get_shape() == [6, 8]
    out = torch.zeros(want.shape, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    model.read_boxes([("f4", index)], out=[out])
    assert torch.equal(out.view(torch.uint8), want)


def test_packed_pairs_stay_what_they_are(model):
    loaded = model.state_dict(dtype=torch.float64)
    assert loaded["f4"].dtype == torch.float4_e2m1fn_x2 and loaded["w"].dtype == torch.float64
    lazy = lazy_of(model, "f4")
    assert "shape=(6, 4)" in repr(lazy)
    out = torch.empty(6, 4, dtype=torch.float4_e2m1fn_x2)
    out.copy_(lazy)
    assert torch.equal(out.view(torch.uint8), model.plain["f4"].view(torch.uint8))


def test_a_mask_after_an_ellipsis(model):
    mask = torch.rand(5, 6) > 0.5
    assert torch.equal(model.read_boxes([("four", (..., 0, mask))])[0], model.plain["four"][..., 0, mask])
    assert torch.equal(model.read_boxes([("four", (1, ..., mask))])[0], model.plain["four"][1, ..., mask])


# ---- lazy tensors are tensors


def test_contiguous_parts_are_contiguous(model):
    plain, lazy = model.plain["w"], lazy_of(model, "w")
    part = lazy[:, :24].contiguous()
    assert isinstance(part, LazyTensor) and part.is_contiguous()
    assert torch.equal(part.view(-1), plain[:, :24].contiguous().view(-1))
    assert lazy[:, 2:9].contiguous().numpy().flags["C_CONTIGUOUS"]
    assert torch.equal(lazy[3:5].t().contiguous().view(-1), plain[3:5].t().contiguous().view(-1))


def test_strides_are_those_of_torch(model):
    for view in (lambda x: x.t(), lambda x: x[3:9, 5:], lambda x: x[None, 4], lambda x: x.unsqueeze(-1),
                 lambda x: x[:, 7], lambda x: x[:, 2:9].contiguous()[:, 1:], lambda x: x.mT):
        lazy, plain = view(lazy_of(model, "w")), view(model.plain["w"])
        assert isinstance(lazy, LazyTensor)
        strides = [[step for step, size in zip(x.stride(), x.shape) if size != 1] for x in (lazy, plain)]
        assert strides[0] == strides[1] and lazy.storage_offset() == plain.storage_offset()
        assert lazy.is_contiguous() == plain.is_contiguous()
    joined = lazy_of(model, "cube").view(48, 10)
    assert joined.stride() == (10, 1) and torch.equal(torch.stack(joined.unbind(0)), model.plain["cube"].view(48, 10))


WRITES = [
    lambda x: torch._foreach_zero_([x]), lambda x: torch._foreach_mul_([x], 3.0), lambda x: copy.copy(x).fill_(3),
    lambda x: x.to(torch.float64, False, True).fill_(9), lambda x: x.to(torch.zeros(1).double()).fill_(9),
    lambda x: x.double().fill_(9), lambda x: x.to(x.dtype, copy=True).fill_(9), lambda x: torch.zero_(input=x),
    lambda x: x[1:3].contiguous().fill_(4), lambda x: copy.deepcopy(x).fill_(4),
]


@pytest.mark.parametrize("number", range(len(WRITES)))
def test_writes_reach_what_they_reach_in_torch(model, number):
    lazy, plain = lazy_of(model, "d"), model.plain["d"].clone()
    WRITES[number](lazy)
    WRITES[number](plain)
    assert torch.equal(lazy.clone(), plain)


def test_a_lazy_tensor_cannot_change_its_shape(model):
    lazy = lazy_of(model, "w")
    for change in (lambda: lazy.unsqueeze_(0), lambda: lazy.t_(), lambda: lazy.resize_(3), lambda: lazy.squeeze_(),
                   lambda: setattr(lazy, "data", torch.zeros(1))):
        with pytest.raises(TypeError, match=r"a lazy tensor cannot change its own shape or storage .*materialize"):
            change()
    assert lazy.shape == (64, 48)


CALLS = [
    lambda x: x.detach_(),
    lambda x: x.requires_grad_(requires_grad=False), lambda x: x.permute(dims=(1, 0)),
    lambda x: x.tensor_split(sections=3)[1], lambda x: x.tensor_split(indices=(3, 9))[1], lambda x: x.unsqueeze(axis=0),
    lambda x: x.unbind(axis=0)[3], lambda x: x.float(memory_format=torch.preserve_format),
    lambda x: x.cpu(memory_format=torch.preserve_format), lambda x: torch.relu(input=x), lambda x: x.mT,
    lambda x: x.split(torch.tensor(16))[1],
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_arguments_by_name(model, number):
    assert torch.equal(CALLS[number](lazy_of(model, "w")).clone(), CALLS[number](model.plain["w"]))


# shows: security.md python-tokens
def test_saved_lazy_tensors_hold_their_bytes_and_no_token(model):
    lazy = lazy_of(model, "w")
    file = io.BytesIO()
    torch.save({"w": lazy, "part": lazy[3:5]}, file)
    assert b"SESAME" not in file.getvalue() and b"SESAME" not in pickle.dumps(lazy)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert torch.equal(loaded["w"], model.plain["w"]) and torch.equal(loaded["part"], model.plain["w"][3:5])
    lazy.add_(1)
    assert torch.equal(pickle.loads(pickle.dumps(lazy)), model.plain["w"] + 1)


# shows: security.md python-tokens
def test_the_token_is_not_shown(model):
    assert "SESAME" not in repr(model.options) and model.options.token == "SESAME-17"


# ---- devices, and what is no tensor of torch


def test_a_device_by_number_is_a_gpu(model):
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    for load in (lambda: tensord.load_file(model.url, device=0), lambda: model.state_dict(device=0),
                 lambda: tensord.safe_open(model, device=0).get_tensor("w")):
        with pytest.raises((RuntimeError, AssertionError), match="accelerator|CUDA|cuda"):
            load()


def test_what_numpy_does_not_do_is_refused(model):
    for given in ({"device": "cuda"}, {"dtype": np.float16}, {"device": "junk", "dtype": "junk"}):
        with pytest.raises(ValueError, match='framework="pt"'):
            model.state_dict(match="w", framework="np", **given)
    with pytest.raises(TypeError, match="dtype is a type of torch"):
        model.state_dict(dtype="float32")
    with pytest.raises(TypeError, match="out takes tensors of torch"):
        model.read_boxes([("w", None)], out=[np.zeros((64, 48))])
    with pytest.raises(TypeError, match="tensors of torch"):
        model.load_into({"w": np.zeros((64, 48), dtype=np.float32)}, strict=False)
    with pytest.raises(TypeError, match="a module or a dict"):
        model.load_into([1])
    for wrong in (["w"], ("w", slice(0, 16)), [("w", 1, 2)]):
        with pytest.raises(TypeError, match=r"\(name, slices\) pairs"):
            model.read_boxes(wrong)
    with pytest.raises(TypeError, match="match is a glob"):
        model.state_dict(match=["w", "c"])


# ---- prefetch and forks


def test_two_threads_that_take_one_name(model):
    with tensord.safe_open(model) as file, file.prefetch(threads=2) as loader:
        found = []

        def take():
            try:
                found.append(loader.take("w"))
            except tensord.TensordError as error:
                found.append(str(error))

        threads = [threading.Thread(target=take, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(type(one).__name__ for one in found) == ["Tensor", "str"]
        with pytest.raises(ValueError, match="connections is 'junk'"):
            file.prefetch(threads="junk")


def test_a_closed_loader_says_so(model):
    with tensord.safe_open(model) as file:
        loader = file.prefetch()
        loader.take("w")
        loader.close()
        with pytest.raises(tensord.TensordError, match="the loader is closed"):
            list(loader)
        with pytest.raises(tensord.TensordError, match="the loader is closed"):
            loader.take("c")


def test_a_fork_while_another_thread_reads_the_manifest(model):
    fresh = tensord.open_model(model.url)
    with fresh._lock:  # as that thread has it
        child = os.fork()
        if child == 0:
            os._exit(0 if len(fresh.manifest()) == 6 else 1)
        import time

        for _ in range(200):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            time.sleep(0.1)
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child waits for a lock that nobody holds")
    assert os.waitstatus_to_exitcode(status) == 0


def test_deferred_and_a_write_to_a_part(model):
    target = torch.zeros(64, 48)
    with deferred(model):
        target[:, 3:9].copy_(lazy_of(model, "w")[:, 3:9].contiguous())
    assert torch.equal(target[:, 3:9], model.plain["w"][:, 3:9]) and not target[:, :3].any()
