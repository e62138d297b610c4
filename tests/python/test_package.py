"""The package as users get it: a wheel, installed; its entry points; `python -m tensord`."""
import json
import subprocess
import sys
import zipfile

import pytest
import torch
from conftest import CLIENT, url_of
from safetensors.torch import load_file, save_file

TENSORS = {"a.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4), "b": torch.ones(5, dtype=torch.int64)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, built by pip from a copy of the sources."""
    import shutil

    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(CLIENT, place / "source", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", place,
                    place / "source"], check=True)
    return next(place.glob("*.whl"))


@pytest.fixture
def installed(wheel, tmp_path):
    """run(*arguments) runs Python with the installed wheel, and not with the sources."""
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path / "site", wheel],
                   check=True)

    def run(*arguments, **settings):
        return subprocess.run([sys.executable, *arguments], env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
                              cwd=tmp_path, capture_output=True, text=True, timeout=120, **settings)

    return run


def model_at(serve):
    (serve.root / "m").mkdir()
    save_file(TENSORS, serve.root / "m" / "model.safetensors")
    return serve()


def test_the_wheel_has_types_and_needs_nothing(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "tensord/py.typed" in names
    modules = {str(path.relative_to(CLIENT)) for path in (CLIENT / "tensord").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert needs == [] and "Requires-Python: >=3.9" in metadata


def test_the_core_imports_neither_torch_nor_numpy(installed):
    code = ("import sys, tensord, tensord.__main__, tensord.safetensors.torch, tensord.safetensors.numpy\n"
            "print(sorted(set(sys.modules) & {'torch', 'numpy', 'tqdm', 'requests', 'fsspec'}))")
    result = installed("-c", code)
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_entry_points(installed, serve):
    server = model_at(serve)
    url = f"tensord://127.0.0.1:{server.port}/m/model.safetensors"
    code = f"import fsspec; print(fsspec.open('{url}').open().read(9)[8:])"
    assert installed("-c", code).stdout == "b'{'\n"
    for group, name in (("vllm.general_plugins", "register_vllm"), ("sglang.srt.plugins", "register_sglang")):
        code = f"import importlib.metadata as m; print([p.load() for p in m.entry_points(group='{group}')])"
        assert f"function {name}" in installed("-c", code).stdout


def test_ls_get_and_bench(installed, serve, tmp_path):
    server = model_at(serve)
    url = url_of(server, "m")
    listed = installed("-m", "tensord", "ls", url.rpartition("/")[0])
    assert listed.stdout == "model  size  formats\nm      88 B  safetensors\n"
    listed = installed("-m", "tensord", "ls", url)
    assert listed.stdout.splitlines() == ["tensor    dtype  shape  size", "a.weight  F32    3x4    48 B",
                                          "b         I64    5      40 B", "2 tensors, 88 B"]
    assert json.loads(installed("-m", "tensord", "ls", url, "--json").stdout)["tensors"][1]["shape"] == [5]
    listed = installed("-m", "tensord", "ls", url, "--match", "a.*", "--json")
    assert [row["nbytes"] for row in json.loads(listed.stdout)["tensors"]] == [48]
    assert installed("-m", "tensord", "get", url, "b", "-o", "b.bin").returncode == 0
    assert (tmp_path / "b.bin").read_bytes() == TENSORS["b"].numpy().tobytes()
    assert installed("-m", "tensord", "get", url, "-o", "all.safetensors").returncode == 0
    loaded = load_file(tmp_path / "all.safetensors")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in TENSORS.items())
    for more in ((), ("--device", "cpu", "--ring-bytes", "65536")):
        measured = json.loads(installed("-m", "tensord", "bench", url, "--rounds", "1", "--json", *more).stdout)
        assert measured["bytes"] == 88 and measured["gigabytes_per_second"] > 0


def test_errors_are_one_line(installed, serve):
    url = url_of(model_at(serve), "m")
    for arguments, text in ((("ls", "ftp://x"), "use http://"),
                            (("ls", url + "x"), "404: model \"mx\" not found"),
                            (("get", url, "bb", "-o", "x"), "no tensor 'bb'; did you mean b?"),
                            (("get", url, "-o", "-"), "written to a file"),
                            (("bench", url, "--rounds", "0"), "at least 1"),
                            (("get", url, "b", "-o", "none/x"), "no such directory")):
        result = installed("-m", "tensord", *arguments)
        assert result.returncode == 1 and result.stdout == "" and text in result.stderr, (arguments, result)
        assert result.stderr.startswith("tensord: ") and result.stderr.count("\n") == 1
    assert installed("-m", "tensord").returncode == 2
