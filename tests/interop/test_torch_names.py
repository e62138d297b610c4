"""Checkpoint files under the other names that people give them: read by their bytes, as torch.load and safetensors do.
Other files with such names stay what they are."""
import io
import pickle
import tarfile
import zipfile

import pytest
import torch
from safetensors.torch import save

STATE = {"epoch": 7, "state_dict": {"fc.weight": torch.arange(12.0).reshape(3, 4)}}
WANT = STATE["state_dict"]["fc.weight"].numpy().tobytes()
NAMES = ["model_best.pth.tar", "best.tar", "a.pt.tar", "a.ckpt.tar", "demucs.th", "mobile.ptl", "stylegan.pkl",
         "a.pickle", "tts.model", "a.mdl", "x.pyth", "MODEL.PT", "Model.PTH", "A.CKPT", "PYTORCH_MODEL.BIN", "A.TH",
         "BEST.PTH.TAR"]


def saved(zipped=True):
    out = io.BytesIO()
    torch.save(STATE, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


def write(root, path, data):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)


def tar_of(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def test_files_of_torch_save_under_other_names(serve):
    for i, name in enumerate(NAMES):
        for form, data in (("zip", saved()), ("legacy", saved(False))):
            write(serve.root, f"{form}{i}/{name}", data)
            assert torch.load(serve.root / f"{form}{i}/{name}", weights_only=True)["epoch"] == 7
    script = torch.jit.script(torch.nn.Linear(4, 3))
    script._save_for_lite_interpreter(str(serve.root / "lite.ptl"))
    write(serve.root, "lite/mobile.ptl", (serve.root / "lite.ptl").read_bytes())
    (serve.root / "lite.ptl").unlink()
    server = serve()
    for i, name in enumerate(NAMES):
        for form in ("zip", "legacy"):
            about = server.json(f"/models/{form}{i}")
            assert about["errors"] == [] and len(about["checkpoints"]) == 1, (name, about)
            entry = next(t for t in server.json(f"/models/{form}{i}/tensors")["tensors"]
                         if t["name"] == "state_dict.fc.weight")
            assert entry["file"] == name and server.get(entry["href"]).body == WANT, name
    lite = {t["name"]: t for t in server.json("/models/lite/tensors")["tensors"]}
    assert server.get(lite["weight"]["href"]).body == script.weight.detach().numpy().tobytes()
    assert server.json("/datasets")["datasets"] == []


@pytest.mark.parametrize("name", ["ae.sft", "model.SAFETENSORS", "tts.model", "x.SFT", "best.tar"])
def test_safetensors_under_other_names(serve, name):
    write(serve.root, f"m/{name}", save({"w": STATE["state_dict"]["fc.weight"]}))
    write(serve.root, "m/config.json", b"{}")
    server = serve()
    entry = server.json("/models/m/tensors")["tensors"][0]
    assert server.json("/models/m/tensors")["format"] == "safetensors" and server.get(entry["href"]).body == WANT
    assert server.get("/models/m/model.safetensors").status == 200


# Files that have such names and are no checkpoints.
OTHERS = {
    "tokenizer.model": b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02\x0a\x0a\x0a\x03<s>",
    "vocab.pkl": pickle.dumps({"a": 1}), "old.pkl": pickle.dumps([1, 2], protocol=0),
    "config.pickle": pickle.dumps({"a": 1}, protocol=2), "notes.th": b"torch 7", "x.sft": b"not a header at all",
    "zipped.model": zip_of({"a/b.txt": b"hello"}), "zip.pth.tar": zip_of({"data.pkl": b"at the root"}),
    "empty.tar": b"", "short.model": b"\x01", "random.mdl": bytes(range(256)), "cut.pkl": pickle.dumps({"a": 1})[:4],
    "dataset.tar": tar_of({"a.txt": b"x", "a.json": b"{}"}), "source.pth.tar": tar_of({"readme.txt": b"hello"}),
}


def test_other_files_with_such_names_are_no_checkpoints(serve):
    write(serve.root, "m/model.safetensors", save({"w": torch.ones(2)}))
    for name, data in OTHERS.items():
        write(serve.root, f"m/{name}", data)
        write(serve.root, f"alone-{name}/{name}", data)
        write(serve.root, f"alone-{name}/config.json", b"{}")
    server = serve()
    about = server.json("/models/m")
    assert [c["id"] for c in about["checkpoints"]] == ["safetensors"] and about["errors"] == []
    for name, data in OTHERS.items():
        assert server.get(f"/models/m/files/{name}").body == data, name
        alone = server.json(f"/models/alone-{name}")
        assert alone["checkpoints"] == [] and alone["errors"] == [], (name, alone)


def test_a_damaged_checkpoint_under_such_a_name_is_reported(serve):
    write(serve.root, "m/model_best.pth.tar", saved()[:-200])
    write(serve.root, "n/best.tar", saved()[:-200])
    server = serve()
    for model in "mn":
        about = server.json(f"/models/{model}")
        assert about["checkpoints"] == [] and len(about["errors"]) == 1, about


def test_a_tar_of_a_dataset_stays_a_dataset(serve):
    shard = tar_of({f"{i:03}.{ext}": b"x" for i in range(4) for ext in ("txt", "cls")})
    write(serve.root, "shards/train-000.tar", shard)
    write(serve.root, "datasets/d/train-000.tar", shard)
    write(serve.root, "datasets/d/weights.tar", saved())
    server = serve()
    assert {d["id"] for d in server.json("/datasets")["datasets"]} == {"shards", "d"}
    assert server.get("/models/shards").status == 404
    about = server.json("/datasets/d")
    assert sum(split["file_count"] for split in about["splits"]) == 1 and about.get("errors", []) == [], about


def test_what_cannot_be_opened_is_no_checkpoint(serve):
    write(serve.root, "d/train-000.tar", tar_of({"0.txt": b"x"}))
    (serve.root / "d/train-001.tar").symlink_to("nowhere")
    server = serve()
    assert server.get("/models/d").status == 404
    assert [d["id"] for d in server.json("/datasets")["datasets"]] == ["d"]


def test_the_revision_without_pickles_has_none_of_them(serve):
    for name in ("a.pth.tar", "b.tar", "c.th", "d.pkl", "e.model"):
        write(serve.root, f"org/m/{name}", saved())
    for name in ("tokenizer.model", "notes.th"):
        write(serve.root, f"org/m/{name}", OTHERS[name])
    write(serve.root, "org/m/model.safetensors", save({"w": torch.ones(2)}))
    files = {f["path"] for f in serve().json("/api/models/org/m/tree/safetensors")}
    assert files == {"model.safetensors", "tokenizer.model"}
