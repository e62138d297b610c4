"""The readers of torch.distributed.checkpoint resume an FSDP run from the server, with another world size than that of
the saving run, by the lines of docs/recipes.md."""
import re
import shutil
import subprocess

import pytest
import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint import FileSystemReader

import harness
import warm_python
from client import NEWEST, HERE, quiet_environment
from test_s3 import s3_port

SAVED_BY = 4        # processes


def run(home, *args, **env):
    done = subprocess.run([*warm_python.command(), str(HERE / "fsdp_run.py"), *map(str, args)],
                          env=quiet_environment(home, **env), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The served root, and the state as torch had it when it was saved: weights, moments and steps."""
    root = tmp_path_factory.mktemp("fsdp") / "root"
    (root / "run").mkdir(parents=True)
    full = root.parent / "saved.pt"
    run(root.parent, "save", SAVED_BY, root / "run/step-3000", full)
    state = torch.load(full)
    assert len(state) == 16 and all(t.is_floating_point() for t in state.values()), state.keys()
    weights = {name.removeprefix("model."): t.contiguous() for name, t in state.items() if name.startswith("model.")}
    (root / "run/weights").mkdir()
    save_file(weights, root / "run/weights/model.safetensors")
    harness.age(root)
    return root, state


@pytest.fixture(scope="module")
def srv(saved):
    with harness.Server(saved[0], "--s3-listen", "127.0.0.1:0") as s:
        yield s


def same(got, want):
    assert got.keys() == want.keys()
    for name, t in want.items():
        assert got[name].dtype == t.dtype and torch.equal(got[name], t), name


def recipe():
    """Return the lines that resume a run, once for every reader of the table below them."""
    text = (harness.REPO / "docs/recipes.md").read_text().partition("## Resume an FSDP run")[2].partition("\n## ")[0]
    code = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)
    return code, re.findall(r"^\| `(FsspecReader\(.*?\))`", text, re.MULTILINE)


def test_the_table_has_every_way_to_the_server():
    code, readers = recipe()
    assert [r[:21] for r in readers] == ['FsspecReader("http://', 'FsspecReader("s3://ru', 'FsspecReader("hf://ru']
    assert f"\nreader = {readers[0]}\n" in code


@pytest.mark.parametrize("row, world_size", [(0, 3), (1, 2), (2, 2)], ids=["http", "s3", "hf"])
def test_a_run_resumes(srv, saved, tmp_path, row, world_size):
    """Every weight, both its moments and its step are as they were saved."""
    _, state = saved
    code, readers = recipe()
    code = code.replace(readers[0], readers[row]).replace(":8080", f":{srv.port}").replace(":8081", f":{s3_port(srv)}")
    run(tmp_path, "load", world_size, code, tmp_path / "full.pt", HF_ENDPOINT=f"http://127.0.0.1:{srv.port}")
    same(torch.load(tmp_path / "full.pt"), state)


def test_the_hugging_face_reader_loads_a_snapshot(srv, saved, tmp_path):
    """This reader opens files on a disk only; huggingface_hub downloads them."""
    _, state = saved
    fetch = "import sys, huggingface_hub; huggingface_hub.snapshot_download('run/weights', local_dir=sys.argv[1])"
    subprocess.run([str(NEWEST), "-c", fetch, str(tmp_path / "weights")], check=True, timeout=120,
                   env=quiet_environment(tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{srv.port}"))
    run(tmp_path, "hf", 2, tmp_path / "weights", tmp_path / "full.pt")
    same(torch.load(tmp_path / "full.pt"), {n: t for n, t in state.items() if n.startswith("model.")})


def test_what_is_there_of_a_run_that_lacks_a_file(saved, tmp_path):
    """?partial=1 lists exactly the tensors that torch can read whole from the existing files, with the same bytes."""
    root, state = saved
    shutil.copytree(root / "run/step-3000", tmp_path / "root/run")
    (tmp_path / "root/run/__3_0.distcp").unlink()
    harness.age(tmp_path / "root")
    saved_as = FileSystemReader(root / "run/step-3000").read_metadata()
    empty = {(name, chunk.offsets) for name, about in saved_as.state_dict_metadata.items()
             for chunk in getattr(about, "chunks", ()) if chunk.sizes.numel() == 0}
    lost = {index.fqn for index, at in saved_as.storage_data.items()
            if at.relative_path == "__3_0.distcp" and (index.fqn, index.offset) not in empty}
    there = {name: t for name, t in state.items() if name not in lost}
    assert there and lost & state.keys(), (there.keys(), lost)
    with harness.Server(tmp_path / "root") as s:
        assert s.get("/models/run/tensors").status == 404
        manifest = s.get("/models/run/tensors?partial=1").json()
        assert manifest["incomplete"]["missing_files"] == ["__3_0.distcp"]
        assert manifest["incomplete"]["missing_tensor_count"] == len(state) - len(there)
        assert {t["name"] for t in manifest["tensors"]} == there.keys()
        assert any("pieces" in t for t in manifest["tensors"])
        for t in manifest["tensors"]:
            assert s.get(t["href"]).body == there[t["name"]].contiguous().numpy().tobytes(), t["name"]
        for name in lost & state.keys():
            answer = s.get(f"/models/run/tensors/{name}?partial=1")
            message = answer.json()["error"]["message"]
            assert answer.status == 404 and '.metadata says that it is in "__3_0.distcp", which is missing' in message
