"""safe_open of the client beside safetensors.safe_open: the same keys, bytes, slices and errors over the same files."""
import itertools

import numpy as np
import pytest
import safetensors
import torch
from conftest import url_of
from safetensors.torch import save_file

import tensord

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64,
          torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]

# Indices for which the two packages may differ, for numpy: safetensors' own crash by SystemError is an error here.
INDICES = ["0", "-1", "3", "4", "-5", "slice(0, 2)", "slice(2, 100)", "slice(-2, None)", "slice(3, 1)", "slice(2, 2)",
           "slice(0, 4, 2)", "slice(None, None, -1)", "slice(0, 2, 0)", "slice('a')", "slice(True, 3)", "...",
           "(..., 0)", "(0, ...)", "(..., ...)", "(0, 0)", "(0, 0, 0)", "()", "[]", "(slice(0, 2), slice(1, 3))",
           "(slice(None), 2)", "(2, slice(None))", "(slice(-100, -50))", "(slice(100, 200),)",
           "(0, slice(None, None, 3))", "(slice(1, 4, 2), slice(0, 5, 4))", "(slice(None), [0, 2])", "[0, 1]", "[3, 1]",
           "[0, -1]", "[0, 9]", "range(0, 2)", "None", "(None, 0)", "(0, None, slice(1, 3))", "True",
           "(slice(None), True)", "1.5", "'x'", "torch.tensor(1)", "torch.tensor([0, 1])", "torch.tensor([0, 9])",
           "np.array([0, 1])", "np.int64(1)", "[True, False, True, False]", "(0, [1, 2])", "([0, 1], [1, 2])",
           "(slice(1, 3), None, [1, 0])", "(..., [1, 3])", "torch.tensor([[True] * 6] * 4)"]


def contents():
    torch.manual_seed(15)
    tensors = {
        "matrix": torch.arange(24, dtype=torch.float32).reshape(4, 6),
        "cube": torch.arange(4 * 6 * 5, dtype=torch.int32).reshape(4, 6, 5),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "line": torch.arange(7, dtype=torch.int64),
        "large": torch.randn(1500, 1024),
        "ünï/name with blanks": torch.ones(2, 2),
    }
    for dtype in DTYPES:
        raw = torch.randint(0, 2, (4, 8 * dtype.itemsize), dtype=torch.uint8)
        tensors[f"type.{dtype}"] = raw.view(dtype)
    return tensors


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The path of a file, and its model's URL."""
    import harness

    root = tmp_path_factory.mktemp("root")
    (root / "m").mkdir()
    save_file(contents(), root / "m" / "model.safetensors", metadata={"format": "pt", "ключ": "значение"})
    harness.age(root)
    with harness.Server(root) as server:
        yield root / "m" / "model.safetensors", url_of(server, "m")


def bits(value):
    """Return what is compared of a result: its kind, type, shape and bytes."""
    if isinstance(value, torch.Tensor):
        raw = value.clone(memory_format=torch.contiguous_format).reshape(-1)
        return "torch", value.dtype, tuple(value.shape), raw.view(torch.uint8).numpy().tobytes()
    return "numpy", value.dtype, value.shape, np.ascontiguousarray(value).tobytes()


def outcome(function):
    """Return ("value", bits) or ("error", type, message)."""
    try:
        return "value", bits(function())
    except Exception as error:  # noqa: BLE001  # the kind of error is what is compared
        return "error", type(error), str(error)


def test_names_metadata_types_and_every_byte(both):
    path, url = both
    with safetensors.safe_open(path, "pt") as local, tensord.safe_open(url, "pt") as remote:
        assert remote.keys() == local.keys()
        assert remote.offset_keys() == local.offset_keys()
        assert remote.metadata() == local.metadata()
        for name in local.keys():
            assert remote.get_slice(name).get_shape() == local.get_slice(name).get_shape(), name
            assert remote.get_slice(name).get_dtype() == local.get_slice(name).get_dtype(), name
            assert bits(remote.get_tensor(name)) == bits(local.get_tensor(name)), name
        together = remote.get_tensors()
        assert together.keys() == local.get_tensors().keys()
        assert all(bits(together[name]) == bits(local.get_tensor(name)) for name in local.keys())


def test_numpy_reads_every_type_that_it_has(both):
    path, url = both
    with safetensors.safe_open(path, "np") as local, tensord.safe_open(url, "np") as remote:
        compared = 0
        for name in local.keys():
            try:
                want = local.get_tensor(name)
            except (AttributeError, TypeError):  # safetensors looks for numpy.float8_e4m3fn
                continue
            assert bits(remote.get_tensor(name)) == bits(want), name
            compared += 1
        assert compared > 15


@pytest.mark.parametrize("name", ["matrix", "cube", "scalar", "empty", "line"])
def test_torch_slices_and_their_errors(both, name):
    path, url = both
    with safetensors.safe_open(path, "pt") as local, tensord.safe_open(url, "pt") as remote:
        for text in INDICES:
            index = eval(text)
            want = outcome(lambda: local.get_slice(name)[index])
            got = outcome(lambda: remote.get_slice(name)[index])
            assert got[:2] == want[:2], (name, text, got, want)


@pytest.mark.parametrize("name", ["matrix", "cube", "scalar", "line"])
def test_numpy_slices_and_their_errors(both, name):
    path, url = both
    with safetensors.safe_open(path, "np") as local, tensord.safe_open(url, "np") as remote:
        for text in INDICES:
            index = eval(text)
            want = outcome(lambda: local.get_slice(name)[index])
            got = outcome(lambda: remote.get_slice(name)[index])
            if want[1] is SystemError:
                assert got[0] == "error" and issubclass(got[1], safetensors.SafetensorError), (text, got)
            elif want[0] == "error" and issubclass(want[1], safetensors.SafetensorError):
                assert got[0] == "error" and issubclass(got[1], safetensors.SafetensorError), (name, text, got, want)
                assert got[2] == want[2], (name, text)
            else:
                assert got[:2] == want[:2], (name, text, got, want)


def test_every_box_of_a_small_tensor(both):
    path, url = both
    with safetensors.safe_open(path, "pt") as local:
        whole = local.get_tensor("matrix")
    bounds = [None, 0, 1, 3, 4, -1]
    pairs = list(itertools.product(itertools.product(bounds, bounds), repeat=2))[::7]
    wanted = [("matrix", (slice(*rows), slice(*columns))) for rows, columns in pairs]
    for (_, index), got in zip(wanted, tensord.read_boxes(url, wanted)):
        assert bits(got) == bits(whole[index]), index


def test_only_the_box_is_sent(both, tmp_path):
    import harness
    from conftest import bytes_of

    path, _ = both
    with harness.Server(path.parent.parent) as server, tensord.safe_open(url_of(server, "m")) as remote:
        view = remote.get_slice("large")
        before = bytes_of(server, "tensors:read")
        view[100:200, ::2]
        assert bytes_of(server, "tensors:read") - before == 100 * 1023 * 4  # the last column of each row is not needed


def test_unknown_names_and_closed_handles(both):
    path, url = both
    with safetensors.safe_open(path, "pt") as local, tensord.safe_open(url, "pt") as remote:
        for method in ("get_tensor", "get_slice"):
            want = outcome(lambda: getattr(local, method)("nope"))
            got = outcome(lambda: getattr(remote, method)("nope"))
            assert issubclass(got[1], want[1]) and got[2] == want[2]
    for method in ("keys", "metadata", "offset_keys"):
        want, got = outcome(getattr(local, method)), outcome(getattr(remote, method))
        assert issubclass(got[1], want[1]) and got[2] == want[2]
    with pytest.raises(ValueError, match="framework xx is invalid"):
        tensord.safe_open(url, "xx")


def test_prefetch_hands_out_each_tensor_once(both):
    path, url = both
    with safetensors.safe_open(path, "pt") as local, tensord.safe_open(url, "pt") as remote:
        plan = {"matrix": None, "large": slice(10, 20), "cube": (slice(1, 3), slice(None), slice(0, 2))}
        with remote.prefetch(plan) as loader:
            assert len(loader) == 3 and loader.names() == list(plan)
            assert torch.equal(loader.take("large"), local.get_slice("large")[10:20])
            with pytest.raises(safetensors.SafetensorError, match="taken already"):
                loader.take("large")
            with pytest.raises(safetensors.SafetensorError, match="not in the prefetch plan"):
                loader.take("line")
            rest = dict(loader)
        assert rest.keys() == {"matrix", "cube"}
        assert torch.equal(rest["cube"], local.get_tensor("cube")[1:3, :, 0:2])
        with remote.prefetch() as loader:
            assert {name for name, _ in loader} == set(local.keys())
        for plan, kind, text in (({"nope": None}, safetensors.SafetensorError, "does not contain"),
                                 ({"matrix": slice(0, 4, 2)}, safetensors.SafetensorError, "step of 1"),
                                 ({"scalar": slice(0, 1)}, safetensors.SafetensorError, "dimensions"),
                                 ({"matrix": 3}, TypeError, "slice"), (["matrix"], TypeError, "dict")):
            with pytest.raises(kind, match=text):
                remote.prefetch(plan)
