"""Lazy tensors: whatever is done to one gives what torch gives; only the box that is copied is sent."""
import contextlib
import logging
import random

import pytest
import torch
from conftest import bytes_of, url_of
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

import tensord
from tensord.lazy import LazyTensor, deferred, noted


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server, a model of it, and the model's tensors."""
    import harness

    root = tmp_path_factory.mktemp("root")
    (root / "m").mkdir()
    torch.manual_seed(3)
    tensors = {"w": torch.randn(64, 48), "cube": torch.randn(8, 6, 10), "v": torch.randn(96), "s": torch.tensor(2.5),
               "one": torch.randn(1), "q": torch.randint(-100, 100, (32, 8), dtype=torch.int32),
               "f8": torch.randn(64, 64).to(torch.float8_e4m3fn), "large": torch.randn(2048, 1024)}
    save_file(tensors, root / "m" / "model.safetensors")
    harness.age(root)
    with harness.Server(root) as server:
        yield server, tensord.open_model(url_of(server, "m")), tensors


def lazy_of(model, name):
    return LazyTensor.of(model, model.manifest()[name])


STEPS = [
    lambda x, r: x.narrow(d := r.randrange(x.dim()), a := r.randint(0, x.shape[d]), r.randint(0, x.shape[d] - a)),
    lambda x, r: r.choice(x.chunk(r.randint(1, 5), r.randrange(x.dim()))),
    lambda x, r: r.choice(x.split(r.randint(1, 7), r.randrange(-x.dim(), 0))),
    lambda x, r: r.choice(torch.tensor_split(x, r.randint(1, 5), dim=r.randrange(x.dim()))),
    lambda x, r: x[r.randrange(x.shape[0])] if x.shape[0] else x[:],
    lambda x, r: x[..., r.randint(-3, 3):],
    lambda x, r: x[None, 1:],
    lambda x, r: x.select(d := r.randrange(x.dim()), r.randrange(x.shape[d])) if 0 not in x.shape else x,
    lambda x, r: x.unsqueeze(r.randrange(-x.dim() - 1, x.dim() + 1)),
    lambda x, r: x.squeeze(),
    lambda x, r: x.transpose(r.randrange(x.dim()), r.randrange(x.dim())),
    lambda x, r: x.permute(*r.sample(range(x.dim()), x.dim())),
    lambda x, r: x.reshape([n for n in x.shape if n != 1]),
    lambda x, r: x.reshape(1, *x.shape),
    lambda x, r: x.unbind(0)[0] if x.shape[0] else x,
    lambda x, r: x.detach(),
    lambda x, r: x.to(x.dtype),
]


def test_random_operations_give_what_torch_gives(served):
    _, model, tensors = served
    chance = random.Random(15)
    recorded = 0
    for _ in range(400):
        name = chance.choice(["w", "cube", "v", "q", "one"])
        lazy, plain = lazy_of(model, name), tensors[name]
        for _ in range(chance.randint(1, 5)):
            if plain.dim() == 0:
                break
            step, seed = chance.choice(STEPS), chance.random()
            plain = step(plain, random.Random(seed))
            lazy = step(lazy, random.Random(seed))
            assert tuple(lazy.shape) == tuple(plain.shape) and lazy.dtype == plain.dtype, STEPS.index(step)
        recorded += isinstance(lazy, LazyTensor)
        target = torch.zeros(plain.shape, dtype=plain.dtype)
        target.copy_(lazy)
        assert torch.equal(target, plain), name
    assert recorded > 350


def test_only_the_box_is_sent(served):
    server, model, tensors = served
    before = bytes_of(server, "/models/m/")
    target = torch.zeros(16, 12)
    target.copy_(lazy_of(model, "w").chunk(4, 0)[2].narrow(1, 6, 12))
    assert bytes_of(server, "/models/m/") - before == target.nbytes
    assert torch.equal(target, tensors["w"][32:48, 6:18])


def test_everything_else_reads_the_tensor_and_says_so_once(served, caplog):
    _, model, tensors = served
    caplog.set_level(logging.WARNING, "tensord")
    lazy = lazy_of(model, "w")
    assert torch.equal(torch.special.expm1(lazy[:4]), torch.special.expm1(tensors["w"][:4]))
    assert torch.equal(torch.special.expm1(lazy), torch.special.expm1(tensors["w"]))
    assert len([one for one in caplog.records if "expm1" in one.getMessage()]) == 1
    assert lazy_of(model, "s").item() == 2.5 and float(lazy_of(model, "one")) == float(tensors["one"])
    assert torch.equal(torch.cat([lazy, lazy], 1), torch.cat([tensors["w"]] * 2, 1))
    assert (lazy.numpy() == tensors["w"].numpy()).all()
    assert torch.equal(lazy_of(model, "f8").to(torch.float32), tensors["f8"].to(torch.float32))
    assert torch.equal(lazy.view(-1), tensors["w"].view(-1))
    assert torch.equal(lazy[tensors["w"][:, 0] > 0], tensors["w"][tensors["w"][:, 0] > 0])
    assert torch.equal(lazy[::2], tensors["w"][::2])
    assert lazy.tolist() == tensors["w"].tolist() and [row.sum() for row in lazy][3] == tensors["w"][3].sum()


def test_attributes_read_nothing(served):
    server, model, tensors = served
    before = bytes_of(server, "/models/m/")
    lazy, plain = lazy_of(model, "cube"), tensors["cube"]
    for text in ("x.shape", "x.dtype", "x.size()", "x.size(1)", "x.dim()", "x.ndim", "x.numel()", "x.element_size()",
                 "x.is_floating_point()", "len(x)", "x.device", "x.requires_grad", "x.nbytes", "x.itemsize",
                 "x[0].shape", "x.is_contiguous()", "isinstance(x, torch.Tensor)"):
        assert eval(text, {"x": lazy, "torch": torch}) == eval(text, {"x": plain, "torch": torch}), text
    repr(lazy)
    assert bytes_of(server, "/models/m/") == before


def test_errors_are_those_of_torch(served):
    _, model, tensors = served
    for text in ("x.narrow(0, 60, 10)", "x.narrow(5, 0, 1)", "x[100]", "x[0, 0, 0]", "x.chunk(0)", "x.split([1, 2])",
                 "x.permute(0, 0)", "x.select(0, 64)", "torch.zeros(3, 3).copy_(x)", "x.reshape(7)"):
        errors = []
        for tensor in (tensors["w"], lazy_of(model, "w")):
            with pytest.raises(Exception) as caught:
                eval(text, {"x": tensor, "torch": torch})
            errors.append((type(caught.value), str(caught.value)))
        assert errors[0] == errors[1], text


def test_copies_convert_broadcast_and_heed_gradients(served):
    _, model, tensors = served
    half = torch.zeros(64, 48, dtype=torch.float16)
    half.copy_(lazy_of(model, "w"))
    assert torch.equal(half, tensors["w"].half())
    rows = torch.zeros(5, 96)
    rows.copy_(lazy_of(model, "v"))
    assert torch.equal(rows, tensors["v"].expand(5, 96))
    parameter = torch.nn.Parameter(torch.zeros(64, 48))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        parameter.copy_(lazy_of(model, "w"))
    parameter.data.copy_(lazy_of(model, "w"))
    assert torch.equal(parameter, tensors["w"])
    strided = torch.zeros(48, 128)[:, ::2]
    strided.t().copy_(lazy_of(model, "w"))
    assert torch.equal(strided, tensors["w"].t())
    parameter[:2].data[:] = lazy_of(model, "w")[2:4]
    assert torch.equal(parameter[:2], tensors["w"][2:4])


def test_deferred_copies_are_read_together_and_never_late(served):
    server, model, tensors = served
    requests = server.whole_log().count("\n")
    target = torch.zeros(64, 48)
    with deferred(model):
        for row in range(64):
            target[row].copy_(lazy_of(model, "w")[row])
        target.narrow(0, 0, 1)  # a view reads nothing
    assert torch.equal(target, tensors["w"])
    assert server.whole_log().count("\n") - requests <= 8

    with deferred(model):
        target.zero_()
        target[:32].copy_(lazy_of(model, "w")[32:])
        assert torch.equal(target[:32], tensors["w"][32:])  # any other operation waits for the bytes
        target[:32].copy_(lazy_of(model, "w")[:32])
        target[0].mul_(2)
        target[1].copy_(lazy_of(model, "w")[5])  # the later of two copies into the same memory counts
        target[1].copy_(lazy_of(model, "w")[6])
        target.data[2] = target[1]
        number = target[1, 0].item()
    assert number == tensors["w"][6, 0]
    assert torch.equal(target[0], tensors["w"][0] * 2) and torch.equal(target[1], tensors["w"][6])
    assert torch.equal(target[2], tensors["w"][6]) and torch.equal(target[3:32], tensors["w"][3:32])

    large = torch.zeros(2048, 1024)
    with deferred(model):
        large[:, :512].copy_(lazy_of(model, "large")[:, 512:])
        large[:, 512:].copy_(lazy_of(model, "large")[:, :512])
    assert torch.equal(large, torch.cat([tensors["large"][:, 512:], tensors["large"][:, :512]], 1))


WRITES = [
    lambda x, n: x.zero_(), lambda x, n: x.mul_(2), lambda x, n: x.copy_(torch.full(x.shape, 3.0)),
    lambda x, n: x.__setitem__(0, 7.0), lambda x, n: torch.add(x, 1, out=x), lambda x, n: x.view(x.shape).neg_(),
    lambda x, n: x.reshape(-1).add_(1), lambda x, n: x.expand(x.shape).add_(1), lambda x, n: x[::2].fill_(5),
    lambda x, n: x.contiguous().fill_(n), lambda x, n: x.float().fill_(n), lambda x, n: x.clone().fill_(n),
    lambda x, n: x.to(torch.float64).fill_(n), lambda x, n: x.detach().fill_(n), lambda x, n: x.data.fill_(n),
    lambda x, n: x.numpy().fill(n), lambda x, n: x.flatten().fill_(n),
    lambda x, n: x.t().fill_(n) if x.dim() < 3 else x,
]


@pytest.mark.parametrize("write", range(len(WRITES)))
def test_writes_reach_what_they_reach_in_torch(served, write):
    """Views made before and after a write, of the tensor that is written to or of another part of it."""
    _, model, tensors = served
    for name in ("w", "cube"):
        for cut in (lambda x: x, lambda x: x[2:4], lambda x: x.narrow(1, 1, 2), lambda x: x[0],
                    lambda x: x.chunk(2)[1]):
            results = []
            for whole in (lazy_of(model, name), tensors[name].clone()):
                before = whole.narrow(0, 0, 3)
                part = cut(whole)
                WRITES[write](part, 9.0)
                target = torch.zeros(part.shape)
                target.copy_(part)
                results.append([target, before + 0, whole.narrow(0, 1, 2) + 0, torch.zeros(whole.shape).copy_(whole)])
            assert all(torch.equal(a, b) for a, b in zip(*results))


def test_joined_dimensions_are_recorded(served):
    server, model, tensors = served
    plain = tensors["cube"]
    a, b, c = plain.shape
    before = bytes_of(server, "/models/m/")
    for step in (lambda x: x.view(a, -1), lambda x: x.flatten(1), lambda x: x.reshape(a * b, c), lambda x: x.view(-1),
                 lambda x: x[:, 1:].reshape(a, -1)[:, :c], lambda x: x.view(a, b * c)[1:, c : 2 * c].t(),
                 lambda x: x[1].reshape(-1), lambda x: x.view(a, 1, b, c).flatten(2)):
        target = torch.zeros(step(plain).shape)
        target.copy_(step(lazy_of(model, "cube")))
        assert torch.equal(target, step(plain))
        assert isinstance(step(lazy_of(model, "cube")), LazyTensor)
        assert bytes_of(server, "/models/m/") - before == target.nbytes
        before = bytes_of(server, "/models/m/")
    for step in (lambda x: x.view(a, -1)[:, 1:3], lambda x: x[:, :, 1:].reshape(a, -1),
                 lambda x: x.transpose(0, 1).reshape(-1)):
        target = torch.zeros(step(plain).shape)
        target.copy_(step(lazy_of(model, "cube")))
        assert torch.equal(target, step(plain))


class Counter(TorchDispatchMode):
    """Counts the elements that are copied, as vLLM's CopyCounter does."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.copy_.default:
            assert args[0].numel() == args[1].numel()
            self.count += args[0].numel()
        return func(*args, **(kwargs or {}))


META_WRITES = {  # each to rows 0 to 15 of a tensor of 64 x 48, and how many elements it copies
    "copy_": (lambda to, lazy: to[:16].copy_(lazy[:16]), 768),
    "copy_ of another order": (lambda to, lazy: to[:16].t().copy_(lazy.t()[:, :16]), 768),
    "copy_ of another type": (lambda to, lazy: to[:16].to(torch.float16).copy_(lazy[:16]), 768),
    "aten": (lambda to, lazy: torch.ops.aten.copy_.default(to[:16], lazy[:16]), 768),
    "assignment": (lambda to, lazy: to.__setitem__(slice(16), lazy[:16]), 768),
    "data": (lambda to, lazy: to.data.__setitem__((slice(16), ...), lazy[:16]), 768),
    "foreach": (lambda to, lazy: torch._foreach_copy_([to[0], to[1]], [lazy[0], lazy[1]]), 0),
    "add_": (lambda to, lazy: to[:16].add_(lazy[:16]), 0),
    "to": (lambda to, lazy: to[:16].copy_(lazy[:16].to("meta")), 768),
    "to by name": (lambda to, lazy: to[:16].copy_(lazy[:16].to(device="meta", dtype=torch.float64)), 768),
    "to as another": (lambda to, lazy: to[:16].copy_(lazy[:16].to(to)), 768),
}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", META_WRITES)
def test_a_write_to_the_meta_device_reads_nothing(served, name, together):
    """vLLM's reload counts elements in this way, before it copies them."""
    server, model, _ = served
    model.manifest()
    before, (write, count) = bytes_of(server, "/models/m/"), META_WRITES[name]
    with deferred(model) if together else contextlib.nullcontext(), noted(model) as boxes:
        with Counter() as counter:
            write(torch.empty(64, 48, device="meta"), lazy_of(model, "w"))
    assert counter.count >= count, counter.count
    assert bytes_of(server, "/models/m/") == before
    rows = [(box.name, box.start, box.sizes) for box in boxes]
    assert rows == ([("w", (0, 0), (1, 48)), ("w", (1, 0), (1, 48))] if name == "foreach" else
                    [("w", (0, 0), (16, 48))])


def test_a_lazy_tensor_of_the_meta_device_reads_nothing(served):
    server, model, tensors = served
    model.manifest()
    before = bytes_of(server, "/models/m/")
    lazy = LazyTensor.of(model, model.manifest()["w"], "meta")
    assert (lazy + 1).is_meta and lazy.materialize().shape == tensors["w"].shape
    assert bytes_of(server, "/models/m/") == before


def test_notes_are_of_one_model_and_thread(served):
    server, model, _ = served
    other = tensord.open_model(url_of(server, "m"))
    with noted(model) as boxes:
        torch.empty(64, 48).copy_(lazy_of(model, "w"))
        torch.empty(8, 6, 10).copy_(lazy_of(other, "cube"))
        lazy_of(model, "v").sum()
        with noted(model) as inner:
            assert inner is boxes
    torch.empty(1).copy_(lazy_of(model, "one"))
    assert [box.name for box in boxes] == ["w", "v"]
