"""Copies that wait in `deferred`: all operations of torch before its end see the same bytes as without it."""
import gc

import numpy as np
import pytest
import torch
from conftest import url_of
from safetensors.torch import save_file
from test_lazy import lazy_of

import tensord
from tensord.lazy import deferred


@pytest.fixture
def model(serve):
    (serve.root / "m").mkdir()
    torch.manual_seed(5)
    save_file({"w": torch.randn(64, 48), "v": torch.randn(64, 48)}, serve.root / "m" / "model.safetensors")
    server = serve()
    model = tensord.open_model(url_of(server, "m"), retry_for=1)
    model.plain = model.state_dict()
    model.server = server
    return model


LOOKS = {
    "half": lambda t: t.half(), "bfloat16": lambda t: t.bfloat16(), "double": lambda t: t.double(),
    "list": lambda t: t[[0, 5]], "index": lambda t: t[torch.tensor([1, 3])], "mask": lambda t: t[t > 0],
    "numpy": lambda t: torch.from_numpy(t.numpy().copy()), "clone": lambda t: t.clone(),
    "bytes": lambda t: torch.frombuffer(bytearray(bytes(t.untyped_storage())), dtype=torch.float32),
    "view": lambda t: t[1:5, ::2].t().sum(0), "item": lambda t: torch.tensor(t[3, 4].item()),
    "elsewhere": lambda t: torch.arange(5.0)[t.abs().long().clamp(0, 4)], "sparse": lambda t: t.to_sparse().to_dense(),
    "dlpack": lambda t: torch.from_dlpack(torch.utils.dlpack.to_dlpack(t)).clone(),
    "mkldnn": lambda t: t.to_mkldnn().to_dense(), "add": lambda t: 1 + t, "str": lambda t: torch.tensor(len(str(t))),
}


@pytest.mark.parametrize("name", LOOKS)
def test_whatever_looks_at_waiting_memory_finds_the_bytes(model, name):
    target = torch.zeros(64, 48)
    with deferred(model):
        target.copy_(lazy_of(model, "w"))
        found = LOOKS[name](target)
    assert torch.equal(found, LOOKS[name](model.plain["w"]))


def test_views_and_attributes_wait(model):
    target = torch.zeros(64, 48)
    with deferred(model):
        target.copy_(lazy_of(model, "w"))
        view = target.t()[3:5].unsqueeze(0).detach()
        assert target.shape == (64, 48) and not target.requires_grad
        assert model.server.whole_log().count("tensors:read") == 1  # state_dict's own
    assert torch.equal(view[0], model.plain["w"].t()[3:5])


def test_the_last_of_overlapping_copies_counts(model):
    """In an order that is not the file's, of one model and of two, and through memory that has two storages."""
    rows, first, second = torch.zeros(48), torch.zeros(64, 48), torch.zeros(64, 48)
    array = np.zeros((64, 48), dtype=np.float32)
    one, two = torch.from_numpy(array), torch.from_numpy(array)
    other = tensord.open_model(url_of(model.server, "m"))
    with deferred(model):
        rows.copy_(lazy_of(model, "w")[6])
        rows.copy_(lazy_of(model, "w")[5])
        first.copy_(lazy_of(model, "w"))
        first.copy_(lazy_of(other, "v"))
        second.copy_(lazy_of(other, "w"))
        second.copy_(lazy_of(model, "v"))
        one[:32].copy_(lazy_of(model, "w")[32:])
        two[:32].copy_(lazy_of(model, "w")[:32])
        two[32:].copy_(lazy_of(model, "v")[32:])
        one[32:].mul_(2)
    plain = model.plain
    assert torch.equal(rows, plain["w"][5]) and torch.equal(first, plain["v"]) and torch.equal(second, plain["v"])
    assert torch.equal(one[:32], plain["w"][:32]) and torch.equal(two[32:], 2 * plain["v"][32:])


def test_sparse_tensors_are_no_fault(model):
    target, sparse = torch.zeros(64, 48), torch.eye(64).to_sparse()
    with deferred(model):
        target.copy_(lazy_of(model, "w"))
        product = torch.sparse.mm(sparse, torch.ones(64, 2))
    assert torch.equal(target, model.plain["w"]) and torch.equal(product, torch.ones(64, 2))


def test_an_error_that_was_caught_is_raised_at_the_end(model):
    target, caught = torch.zeros(64, 48), []
    with pytest.raises(tensord.ConnectError):
        with deferred(model):
            target.copy_(lazy_of(model, "w"))
            model.server.stop()
            try:
                target.sum()
            except tensord.ConnectError as error:
                caught.append(error)
            with pytest.raises(tensord.ConnectError):
                target.copy_(lazy_of(model, "w"))
    assert caught


def test_many_copies_into_one_parameter(model):
    """20,000 of them: each looks at its neighbours, not at all others."""
    import time

    target, lazy = torch.zeros(20000, 48), lazy_of(model, "w")
    with deferred(model):
        began = time.thread_time()
        for row in range(5000):
            target[row].copy_(lazy[row % 64])
        some = time.thread_time() - began
        began = time.thread_time()
        for row in range(5000, 19000):
            target[row].copy_(lazy[row % 64])
        more = time.thread_time() - began
    assert more < 3 * 2.8 * some
    assert torch.equal(target[:19000], model.plain["w"][torch.arange(19000) % 64])
    gc.collect()
