"""tensord.safetensors beside safetensors: the same results for a file and for its URL, and under `patch`."""
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from conftest import url_of

import harness
import tensord
import tensord.safetensors
from tensord.safetensors import numpy as ours_numpy
from tensord.safetensors import torch as ours_torch

KEPT = (safetensors.safe_open,)  # where no patch finds it


class Tied(torch.nn.Module):
    """A model whose embedding and head are one tensor; save_model writes it once."""

    def __init__(self, wider=False):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.inner = torch.nn.Linear(8, 8, bias=not wider)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight
        if wider:
            self.extra = torch.nn.Linear(2, 2)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """{name: (path, URL)} of three files: "m" (many types), "np" (numpy's types) and "tied" (by save_model)."""
    root = tmp_path_factory.mktemp("root")
    torch.manual_seed(16)
    kinds = [torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool]
    plain = {f"t.{kind}": torch.randint(0, 2, (4, 6)).to(kind) for kind in kinds}
    plain.update(scalar=torch.tensor(2.5), empty=torch.zeros(0, 3), large=torch.randn(900, 1024))
    for name in ("m", "np", "tied", "m2"):
        (root / name).mkdir()
    metadata = {"format": "pt", "who": "a test"}
    half = {"half": torch.ones(3, 5, dtype=torch.bfloat16), "eighth": torch.ones(4).to(torch.float8_e4m3fn)}
    safetensors.torch.save_file({**plain, **half}, root / "m" / "model.safetensors", metadata)
    safetensors.torch.save_file(plain, root / "np" / "model.safetensors")
    safetensors.torch.save_model(Tied(), root / "tied" / "model.safetensors")
    for number, name in enumerate(("model.safetensors", "other.safetensors")):
        safetensors.torch.save_file({f"only.{number}": torch.full((3,), number)}, root / "m2" / name, metadata)
    harness.age(root)
    with harness.Server(root) as server:
        yield {name: (root / name / "model.safetensors", url_of(server, name)) for name in ("m", "np", "tied", "m2")}


@pytest.fixture(autouse=True)
def nothing_stays_patched():
    yield
    assert safetensors.safe_open is safetensors.torch.safe_open is safetensors.numpy.safe_open is KEPT[0]


def same(got, wanted):
    assert got.keys() == wanted.keys() and len(got) > 0
    for name, tensor in wanted.items():
        assert type(got[name]) is type(tensor) and got[name].shape == tensor.shape, name
        assert got[name].dtype == tensor.dtype, name
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(got[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), name
        else:
            assert np.array_equal(got[name], tensor), name


def outcome(function):
    try:
        return "value", function()
    except Exception as error:  # noqa: BLE001  # the kind of error is what is compared
        return "error", type(error), str(error)


def test_load_file_of_paths_and_urls(both):
    path, url = both["m"]
    wanted = safetensors.torch.load_file(path)
    for name in (path, str(path), url, url.replace("tensord://", "http://").replace("/m", "/models/m")):
        same(ours_torch.load_file(name), wanted)
        same(ours_torch.load_file(name, "cpu", backend="pread"), wanted)
    assert ours_torch.load_file(url, device="meta")["large"].device.type == "meta"
    path, url = both["np"]
    for name in (path, str(path), url):
        same(ours_numpy.load_file(name), safetensors.numpy.load_file(path))
        same(ours_numpy.load_file(name, backend="mmap"), safetensors.numpy.load_file(path))


@pytest.mark.parametrize("framework", ["pt", "np", "numpy", "torch"])
def test_safe_open_of_paths_and_urls(both, framework):
    path, url = both["np"]
    with KEPT[0](path, framework) as real:
        for name in (path, url):
            with tensord.safetensors.safe_open(name, framework=framework, device="cpu") as file:
                assert file.keys() == real.keys() and file.metadata() == real.metadata()
                assert file.offset_keys() == real.offset_keys()
                same(file.get_tensors(), real.get_tensors())
                same({"row": file.get_slice("large")[5:7]}, {"row": real.get_slice("large")[5:7]})
                assert file.get_slice("large").get_shape() == [900, 1024]
                with pytest.raises(safetensors.SafetensorError, match="File does not contain tensor nope"):
                    file.get_tensor("nope")


def test_options_are_for_urls(both):
    path, url = both["m"]
    assert len(ours_torch.load_file(url, token="x", connections=2)) == len(ours_torch.load_file(path))
    with pytest.raises(TypeError):
        ours_torch.load_file(path, token="x")


def test_errors_are_caught_by_code_for_safetensors(both):
    path, url = both["m"]
    assert tensord.safetensors.SafetensorError is safetensors.SafetensorError
    for name in (path, url):
        with pytest.raises(safetensors.SafetensorError, match="framework xx is invalid"):
            tensord.safetensors.safe_open(name, "xx")
    for name in (str(path) + "x", url + "x", url + "/model.safetensorsx", url + "/none.safetensors"):
        with pytest.raises(FileNotFoundError):
            ours_torch.load_file(name)
    with pytest.raises(tensord.NotFoundError, match='404: model "mx" not found') as caught:
        ours_torch.load_file(url + "x")
    assert caught.value.status == 404
    with pytest.raises(OSError):
        ours_torch.load_file("tensord://127.0.0.1:1/m", retry_for=0.1)


@pytest.mark.parametrize("make", [Tied, lambda: Tied(wider=True)])
@pytest.mark.parametrize("strict", [True, False])
def test_load_model_of_paths_and_urls(both, make, strict):
    path, url = both["tied"]
    results = []
    for function, name in ((safetensors.torch.load_model, path), (ours_torch.load_model, path),
                           (ours_torch.load_model, url)):
        torch.manual_seed(1)
        module = make()
        results.append((outcome(lambda: function(module, name, strict=strict)), module.state_dict()))
    assert results[0][0] == results[1][0] == results[2][0]
    same(results[2][1], results[0][1])
    assert (results[0][0][0] == "error") == (strict and make is not Tied)


def test_the_other_names_are_those_of_safetensors():
    for ours, real in ((tensord.safetensors, safetensors), (ours_torch, safetensors.torch),
                       (ours_numpy, safetensors.numpy)):
        own = {"safe_open", "load_file", "load_model", "save_file", "save_model"}  # which take URLs
        for name in {name for name in vars(real) if not name.startswith("_")} - own:
            if not isinstance(getattr(real, name), types.ModuleType) and name not in ("Any", "Dict", "List", "Tuple"):
                assert getattr(ours, name) is getattr(real, name), name
        with pytest.raises(AttributeError):
            ours.nope
    data = ours_torch.save({"a": torch.ones(3)})
    assert data == safetensors.torch.save({"a": torch.ones(3)})
    assert torch.equal(ours_torch.load(data)["a"], torch.ones(3))
    assert tensord.safetensors.__version__ == safetensors.__version__


def test_a_url_of_a_file_is_the_checkpoint_of_that_file(both):
    path, url = both["m2"]
    for file in ("model.safetensors", "other.safetensors"):
        same(ours_torch.load_file(f"{url}/{file}"), safetensors.torch.load_file(path.parent / file))


def test_patch_makes_safetensors_take_urls_and_is_undone(both):
    path, url = both["m"]
    early = types.ModuleType("imported_before")
    early.open_it, early.load_file = KEPT[0], safetensors.torch.load_file
    sys.modules["imported_before"] = early
    try:
        wanted = safetensors.torch.load_file(path)
        with tensord.safetensors.patch(connections=2):
            exec("from safetensors import safe_open", late := {})
            sys.modules["imported_late"] = late_module = types.ModuleType("imported_late")
            late_module.safe_open = late["safe_open"]
            for name in (path, url):
                same(safetensors.torch.load_file(name), wanted)
                same(early.load_file(name), wanted)
                for function in (safetensors.safe_open, early.open_it, late_module.safe_open):
                    with function(name, framework="pt") as file:
                        assert file.metadata() == {"format": "pt", "who": "a test"}
            assert len(safetensors.numpy.load_file(both["np"][1])) == 10
            torch.manual_seed(1)
            assert safetensors.torch.load_model(Tied(), both["tied"][1]) == (set(), [])
        assert early.open_it is late_module.safe_open is safetensors.safe_open is KEPT[0]
        with pytest.raises(FileNotFoundError):
            safetensors.torch.load_file(url)
    finally:
        sys.modules.pop("imported_before"), sys.modules.pop("imported_late", None)


def test_patches_may_overlap(both):
    _, url = both["m"]
    first, second = tensord.safetensors.patch(), tensord.safetensors.patch(token="bad\n")
    with pytest.raises(ValueError, match="has a space.* HTTP does not allow"):
        safetensors.torch.load_file(url)
    first.undo()
    first.undo()
    assert safetensors.safe_open is not KEPT[0]
    with tensord.safetensors.patch():
        assert len(safetensors.torch.load_file(url)) == 12
        with pytest.raises(ZeroDivisionError), tensord.safetensors.patch():
            1 / 0
    second.undo()
    assert safetensors.safe_open is KEPT[0]
    with pytest.raises(TypeError, match="unknown option 'tokn'"):
        tensord.safetensors.patch(tokn="x")


def test_patches_of_many_threads(both):
    _, url = both["m2"]
    faults = []

    def work():
        try:
            for _ in range(5):
                with tensord.safetensors.patch():
                    assert len(safetensors.torch.load_file(url, device="cpu")) == 1
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_libraries_read_urls_under_patch(both):
    """The functions by which accelerate, diffusers and transformers read a file of safetensors."""
    import accelerate.utils.modeling
    import diffusers.models.model_loading_utils
    import transformers.modeling_utils

    path, url = both["m"]
    for module in (accelerate.utils.modeling, diffusers.models.model_loading_utils, transformers.modeling_utils):
        wanted = module.load_state_dict(str(path))
        with tensord.safetensors.patch():
            same(module.load_state_dict(f"{url}/model.safetensors"), wanted)
        with pytest.raises(OSError):
            module.load_state_dict(f"{url}/model.safetensors")


@pytest.mark.parametrize("code, loaded", [
    ("import tensord.safetensors.torch, tensord.safetensors.numpy", set()),
    ("from tensord.safetensors import safe_open; safe_open(URL, 'np').get_tensors()", {"numpy"}),
    ("from tensord.safetensors.numpy import load_file; load_file(URL)", {"numpy"}),
    ("import tensord.safetensors; tensord.safetensors.patch()", set()),
    ("from tensord.safetensors.torch import load_file; load_file(URL)", {"numpy", "torch"}),
])
def test_nothing_is_imported_before_it_is_needed(both, code, loaded):
    code = (f"URL = {both['np'][1]!r}\n{code}\nimport sys\n"
            "print(sorted({'numpy', 'torch', 'safetensors.torch', 'safetensors.numpy'} & set(sys.modules)))")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == (f"{sorted(loaded)}\n", "")


def test_without_safetensors_urls_are_read(both):
    path, url = both["np"]
    code = ("import sys; sys.modules['safetensors'] = None\n"
            "from tensord.safetensors.torch import load_file\n"
            "from tensord.safetensors import SafetensorError, safe_open\n"
            f"assert len(load_file({url!r})) == 10\n"
            f"try: safe_open({url!r}, 'pt').get_tensor('nope')\nexcept SafetensorError: print('caught')\n"
            f"try: load_file({str(path)!r})\nexcept ImportError: print('needs it')\n")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == ("caught\nneeds it\n", "")
