"""?digests=1: the SHA-256 of each tensor in manifests, and of each rank's tensors in rank-{r}.json. Every digest is
compared with hashlib's over what a GET of the tensor, or of the rank file, answers."""
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fixtures import stuck_disk
from harness import REPO, Server, age, check_error, enc, tensor, write_by_hand

DATA = Path(__file__).resolve().parents[1] / "data"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def manifest(s, model, query=""):
    r = s.get(f"/models/{enc(model, '/')}/tensors?digests=1{query}", timeout=120)
    assert r.status == 200, r
    return r.json()


# ------------------------------------------------------------------------------------------------ every format

@pytest.fixture(scope="module")
def formats(tmp_path_factory):
    """Every file of tests/data, each a model of its own; split and distributed ones stay together."""
    root = tmp_path_factory.mktemp("formats")
    for folder in ("gguf", "hdf5", "keras", "npy", "npz", "onnx", "pickle", "pt2", "torch"):
        for path in sorted((DATA / folder).rglob("*")):
            if path.is_file() and path.suffix not in (".txt", ".patch"):
                target = root / folder / (path.stem if "-of-" not in path.stem else "split")
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target / path.name)
    for path in sorted((DATA / "dcp").iterdir()):
        if path.is_dir():
            shutil.copytree(path, root / "dcp" / path.name)
    age(root)
    return root


ENDLESS = 1 << 40  # tensors of more bytes, which no file holds: arrays of fill values


def test_every_tensor_of_every_format(formats):
    """Direct, gathered, swapped, decoded and joined tensors: the digest is that of the body of a GET. A tensor whose
    bytes cannot be served has none."""
    count, access = 0, set()
    with Server(formats, hash_threads=1) as s:
        for model in s.json("/models?page_size=10000")["models"]:
            target = f"/models/{enc(model['id'], '/')}"
            for checkpoint in s.json(target)["checkpoints"]:
                query = "checkpoint=" + enc(checkpoint["id"])
                plain = s.json(f"{target}/tensors?{query}")["tensors"]
                if any(row["nbytes"] > ENDLESS for row in plain):
                    plain = [row for row in plain if row["nbytes"] <= ENDLESS]
                    names = [enc(row["name"]) for row in plain]
                    rows = [manifest(s, model["id"], f"&{query}&match={name}")["tensors"][0] for name in names]
                else:
                    rows = manifest(s, model["id"], "&" + query)["tensors"]
                assert [{k: v for k, v in row.items() if k != "sha256"} for row in rows] == plain
                for row in rows:
                    if row.get("addressable") is False:
                        assert "sha256" not in row, row
                        continue
                    body = s.get(row["href"])
                    assert body.status == 200 and sha256(body.body) == row["sha256"], (model["id"], row)
                    count += 1
                    access.add(row.get("access", "direct"))
    assert count > 300 and access == {"direct", "gathered", "swapped", "decoded"}, (count, access)


def test_tensors_in_pieces_in_several_files(tmp_path, start):
    """A checkpoint of four ranks: the digests of the whole tensors, as torch has them."""
    made = tmp_path / "made"
    subprocess.run([sys.executable, REPO / "tests" / "interop" / "make_dcp.py", made], check=True)
    whole = torch.load(tmp_path / "made.whole.pt", weights_only=True)
    shutil.copytree(made, tmp_path / "root" / "m")
    age(tmp_path / "root")
    s = start(tmp_path / "root", hash_threads=1)
    answer = manifest(s, "m")
    assert any(len(row.get("pieces", [])) > 1 for row in answer["tensors"])
    assert sums_of(answer) == {name: sha256(bytes_of(t)) for name, t in whole.items()}


# ------------------------------------------------------------------------------------------------ one model

@pytest.fixture
def root(tmp_path):
    """A Llama of two shards as safetensors and as a pickle of torch, with the same values."""
    root = tmp_path / "root"
    hidden, vocab = 64, 96
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocab, hidden)}
    layer = "model.layers.0."
    for name, shape in (("self_attn.q_proj", (64, 64)), ("self_attn.k_proj", (64, 64)), ("self_attn.v_proj", (64, 64)),
                        ("self_attn.o_proj", (64, 64)), ("mlp.gate_proj", (128, 64)), ("mlp.up_proj", (128, 64)),
                        ("mlp.down_proj", (64, 128)), ("input_layernorm", (64,)), ("post_attention_layernorm", (64,))):
        shapes[f"{layer}{name}.weight"] = shape
    generator = torch.Generator().manual_seed(1)
    tensors = {n: torch.randn(s, generator=generator).to(torch.bfloat16) for n, s in shapes.items()}
    names = sorted(tensors)
    model = root / "org" / "m"
    model.mkdir(parents=True)
    parts = {"model-00001-of-00002.safetensors": names[:6], "model-00002-of-00002.safetensors": names[6:]}
    for file, some in parts.items():
        safetensors.torch.save_file({n: tensors[n] for n in some}, model / file, {"format": "pt"})
    (model / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {n: file for file, some in parts.items() for n in some}}))
    (model / "config.json").write_text(json.dumps(
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": 128,
         "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": vocab}))
    torch.save(tensors, root / "org" / "m" / "pytorch_model.bin")
    age(root)
    return root


def bytes_of(t):
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def reference(root, model="org/m"):
    """Return {name: SHA-256} of what the safetensors package reads from the model's files."""
    out = {}
    for path in sorted((root / model).glob("*.safetensors")):
        out.update({name: sha256(bytes_of(t)) for name, t in safetensors.torch.load_file(path).items()})
    return out


def sums_of(answer):
    return {row["name"]: row["sha256"] for row in answer["tensors"]}


def test_digests_are_those_of_the_packages(root, start):
    s = start(root, hash_threads=1)
    want = reference(root)
    assert sums_of(manifest(s, "org/m")) == want
    by_torch = torch.load(root / "org" / "m" / "pytorch_model.bin", weights_only=True)
    assert sums_of(manifest(s, "org/m", "&checkpoint=pytorch")) == {n: sha256(bytes_of(t)) for n, t in by_torch.items()}


def test_pages_and_filters(root, start):
    s = start(root, hash_threads=1)
    want, seen, token = reference(root), {}, ""
    while True:
        page = manifest(s, "org/m", f"&page_size=5&page_token={token}")
        assert len(page["tensors"]) <= 5
        seen.update(sums_of(page))
        token = enc(page["next_page_token"])
        if not token:
            break
    assert seen == want
    assert sums_of(manifest(s, "org/m", "&match=*norm*")) == {n: d for n, d in want.items() if "norm" in n}
    assert sums_of(manifest(s, "org/m", "&dtype=BF16")) == want
    assert manifest(s, "org/m", "&dtype=F32")["tensors"] == []
    page = manifest(s, "org/m", "&match=*proj*&page_size=3")
    assert sums_of(page) == {n: want[n] for n in sorted(n for n in want if "proj" in n)[:3]}


def test_without_the_parameter_no_row_has_one(root, start):
    s = start(root, hash_threads=1)
    manifest(s, "org/m")
    for target in ("tensors", "tensors?match=*", "shards/fsdp/tp2/rank-0.json"):
        assert all("sha256" not in row for row in s.json(f"/models/org/m/{target}")["tensors"])


def test_entity_tags(root, start):
    s = start(root, hash_threads=1)
    s.wait_hashed()
    with_digests, plain = s.get("/models/org/m/tensors?digests=1"), s.get("/models/org/m/tensors")
    assert with_digests.etag and with_digests.etag != plain.etag
    r = s.get("/models/org/m/tensors?digests=1", {"If-None-Match": with_digests.etag})
    assert r.status == 304 and r.body == b""
    r = s.get("/models/org/m/tensors?digests=1", {"If-None-Match": plain.etag})
    assert r.status == 200 and r.body == with_digests.body
    r = s.head("/models/org/m/tensors?digests=1")
    assert r.status == 200 and r.length == len(with_digests.body) and r.etag == with_digests.etag
    r = s.get("/models/org/m/tensors?digests=1", {"Range": "bytes=10-99"})
    assert r.status == 206 and r.body == with_digests.body[10:100]


@pytest.mark.parametrize("value", ["0", "", "2", "11", "true", "sha256", "1%20", "%31%00"])
def test_other_values(root, start, value):
    s = start(root, hash_threads=1)
    for target in ("tensors", "shards/fsdp/tp2/rank-0.json"):
        r = s.get(f"/models/org/m/{target}?digests={value}")
        check_error(r, 400)
    r = s.get("/models/org/m/tensors?digests=1&digests=1")
    assert r.status == 400, r


@pytest.mark.parametrize("target", ["tensors/lm_head.weight", "shards/fsdp/tp2/rank-0.safetensors", "model.safetensors",
                                    "", "files/config.json"])
def test_where_it_is_no_parameter(root, start, target):
    s = start(root, hash_threads=1)
    assert s.get(f"/models/org/m/{target}?digests=1".replace("m/?", "m?")).status == 400


# ------------------------------------------------------------------------------------------------ ranks

def results_of(data):
    """Return {name: bytes} of a safetensors file."""
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: data[8 + n + h["data_offsets"][0]:8 + n + h["data_offsets"][1]] for name, h in header.items()}


@pytest.mark.parametrize("path", ["vllm/tp2", "vllm@0.13/tp4", "fsdp/tp8", "none/tp1"])
def test_digests_of_a_ranks_tensors(root, start, path):
    s = start(root, hash_threads=1)
    for rank in range(int(path[-1])):
        r = s.get(f"/models/org/m/shards/{path}/rank-{rank}.safetensors")
        assert r.status == 200, r.body[:300]
        want = {n: sha256(data) for n, data in results_of(r.body).items()}
        target = f"/models/org/m/shards/{path}/rank-{rank}.json"
        answer = s.json(target + "?digests=1")
        assert sums_of(answer) == want
        plain = s.json(target)
        assert [{k: v for k, v in row.items() if k != "sha256"} for row in answer["tensors"]] == plain["tensors"]
    if path == "none/tp1":
        assert want == reference(root)


def test_digests_of_a_plans_tensors(root, start):
    """Slices, joins, stacks, rows in another order, padding, constants: what the rank file has."""
    s = start(root, hash_threads=1)
    part = {"count": 4, "unit": 16}
    for spec in (
        {"ranks": [{"tensors": [{"name": "lm_head.weight", "slice": "1:9,3:60", "as": "a"},
                                {"name": "model.norm.weight"}]},
                   {"tensors": [{"name": "lm_head.weight", "slice": "95,:"}]}]},
        {"tp_size": 2, "rules": [{"match": "lm_head.weight", "dim": 1},
                                 {"match": "**.q_proj.weight", "out": "**.qk", "slot": 0, "parts": [part]},
                                 {"match": "**.k_proj.weight", "out": "**.qk", "slot": 1, "parts": [part]},
                                 {"match": "**.v_proj.weight", "dim": 1, "parts": [part], "groups": 2},
                                 {"match": "**.norm.weight", "out": "**.scale", "constant": 2.5},
                                 {"match": "model.embed_tokens.weight", "pad_to": 128},
                                 {"match": "**", "whole": True}]},
    ):
        r = s.post("/models/org/m/plans", spec)
        assert r.status == 201, r.body
        plan = r.json()
        target = f"/models/org/m/plans/{plan['id']}"
        assert s.get(target + "?digests=1").status == 400
        for rank in range(len(plan["ranks"])):
            want = {n: sha256(d) for n, d in results_of(s.get(f"{target}/rank-{rank}.safetensors").body).items()}
            assert len(want) > 0 and sums_of(s.json(f"{target}/rank-{rank}.json?digests=1")) == want


# ------------------------------------------------------------------------------------------------ what is kept

RECORD_BYTES, HEADER_BYTES = 112, 16  # rank/virtual_digests.h, catalog/digests/record_log.h


def stored(state):
    """Return how many digests the log has."""
    data = (state / "virtual-digests").read_bytes()
    assert len(data) % RECORD_BYTES == HEADER_BYTES
    return len(data) // RECORD_BYTES


def test_a_restart_keeps_them(root, start, tmp_path):
    """A server that hashes nothing answers from what an earlier one kept; without it, it says what to change."""
    state = tmp_path / "state"
    s = start(root, "--state-dir", state, hash_threads=1)
    before = s.get("/models/org/m/tensors?digests=1")
    ranks = s.get("/models/org/m/shards/vllm/tp2/rank-1.json?digests=1")
    assert before.status == ranks.status == 200
    s.stop()
    s = start(root, "--state-dir", state, hash_threads=0)
    assert sums_of(s.json("/models/org/m/tensors?digests=1")) == sums_of(before.json()) == reference(root)
    assert sums_of(s.json("/models/org/m/shards/vllm/tp2/rank-1.json?digests=1")) == sums_of(ranks.json())
    s.stop()
    s = start(root, hash_threads=0)
    check_error(s.get("/models/org/m/tensors?digests=1"), 422, "--hash-threads")


def test_a_changed_file_drops_them(root, start, tmp_path):
    """The same size and other bytes: other digests, of the tensors in the file that changed."""
    s = start(root, "--state-dir", tmp_path / "state", hash_threads=1)
    before = sums_of(manifest(s, "org/m"))
    path = root / "org" / "m" / "model-00002-of-00002.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    age(root)
    s.wait_for(lambda: sums_of(manifest(s, "org/m")) != before, "the change is seen")
    after = sums_of(manifest(s, "org/m"))
    assert after == reference(root)
    assert len([n for n in after if after[n] != before[n]]) == 1


def test_models_that_share_files_share_digests(root, start, tmp_path):
    """Files that are symbolic links to those of another model, pages, and the whole tensors of a plan: nothing is
    hashed again."""
    state, other = tmp_path / "state", root / "linked"
    other.mkdir()
    for path in (root / "org" / "m").iterdir():
        (other / path.name).symlink_to(f"../org/m/{path.name}")
    s = start(root, "--state-dir", state, hash_threads=1)
    want = reference(root)
    assert sums_of(manifest(s, "org/m", "&match=*norm*")) == {n: d for n, d in want.items() if "norm" in n}
    assert sums_of(manifest(s, "org/m")) == want
    s.wait_for(lambda: stored(state) == len(want), "the digests are stored")
    assert sums_of(manifest(s, "linked", "&page_size=2")) == {n: want[n] for n in sorted(want)[:2]}
    assert sums_of(manifest(s, "linked")) == want
    assert sums_of(s.json("/models/linked/shards/none/tp1/rank-0.json?digests=1")) == want
    s.stop()
    assert stored(state) == len(want)


# ------------------------------------------------------------------------------------------------ hashing takes long

def write_sparse(path, tensors):
    """A checkpoint of {name: size} of zeros that take no room on the disk."""
    header, at = {}, 0
    for name, nbytes in tensors.items():
        header[name] = {"dtype": "U8", "shape": [nbytes], "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)


def ask_in_thread(s, target, answers):
    def ask():
        answers.append(s.get(target, timeout=120))
    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.fixture
def stuck(place):
    """A root on a file system whose reads hang while the second value, a path, exists."""
    write_by_hand(place / "source/m/model.safetensors", [tensor("w", "F32", [1024, 1024]), tensor("x", "F32", [7])])
    with stuck_disk(place) as disk:
        yield disk


def test_slow_hashing_is_503_and_then_200(stuck, start):
    """While the disk does not answer, the answer says when to come again; hashing continues without the request."""
    mount_point, hold = stuck
    s = start(mount_point, hash_threads=1)
    hold.touch()
    try:
        r = s.get("/models/m/tensors?digests=1", timeout=120)
        check_error(r, 503, "0 of 2 tensors", "being hashed")
        assert int(r.get("Retry-After")) >= 1
        assert s.get("/healthz").status == 200
    finally:
        hold.unlink()
    s.wait_for(lambda: s.get("/models/m/tensors?digests=1", timeout=120).status == 200, "the digests", 60)
    rows = s.json("/models/m/tensors?digests=1")["tensors"]
    assert [row["sha256"] for row in rows] == [sha256(s.get(row["href"]).body) for row in rows]


def test_a_file_that_changes_while_it_is_hashed(tmp_path, start):
    """The request that waits is answered at once, and no digest of it is kept. Other models, and small parts of this
    one, do not wait behind it."""
    root, state = tmp_path / "root", tmp_path / "state"
    write_sparse(root / "large" / "model.safetensors", {"big": 1 << 40, "small": 1000})
    write_by_hand(root / "other" / "model.safetensors", [tensor("a", "F32", [5])])
    age(root)
    s = start(root, "--state-dir", state, hash_threads=1)
    answers = []
    thread = ask_in_thread(s, "/models/large/tensors?digests=1", answers)
    s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") >= 2, "the request waits")
    assert sums_of(manifest(s, "other"))["a"] == sha256(s.get("/models/other/tensors/a").body)
    assert sums_of(manifest(s, "large", "&match=small")) == {"small": sha256(bytes(1000))}
    assert answers == []
    with open(root / "large" / "model.safetensors", "r+b") as f:
        f.seek(-1, os.SEEK_END)
        f.write(b"x")
    thread.join()
    check_error(answers[0], 503, "changed")


def test_one_client_does_not_take_all_places(tmp_path):
    """A client asks for many parts of a model whose hashing takes long: 32 wait, the others are 503 at once, and
    another model is still hashed."""
    root, answers = tmp_path / "root", []
    write_sparse(root / "large" / "model.safetensors", {f"t{i}": 1 << 34 for i in range(40)})
    write_by_hand(root / "other" / "model.safetensors", [tensor("a", "F32", [5])])
    age(root)
    with Server(root, hash_threads=1) as s:
        threads = [ask_in_thread(s, f"/models/large/tensors?digests=1&match=t{i}", answers) for i in range(40)]
        s.wait_for(lambda: len(answers) >= 8, "refusals", 60)
        assert sums_of(manifest(s, "other"))["a"] == sha256(s.get("/models/other/tensors/a").body)
        for r in answers[:8]:
            check_error(r, 503, "32 files of this model wait")
            assert int(r.get("Retry-After")) >= 1
        s.term()
        for thread in threads:
            thread.join()
        assert {r.status for r in answers} == {503}


def test_as_many_tensors_as_a_server_gives_at_once(tmp_path, start):
    """More than 131,072 rows are refused with what to do, and pages of them are given."""
    header = {f"t{i:06d}": {"dtype": "U8", "shape": [0 if i else 3], "data_offsets": [3 if i else 0, 3]}
              for i in range(131073)}
    text = json.dumps(header).encode()
    path = tmp_path / "root" / "m" / "model.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"abc")
    age(tmp_path / "root")
    s = start(tmp_path / "root", hash_threads=1)
    check_error(s.get("/models/m/tensors?digests=1", timeout=120), 422, "131072", "page_size")
    rows = s.get("/models/m/tensors?digests=1&page_size=10000", timeout=120).json()["tensors"]
    assert len(rows) == 10000 and rows[0]["sha256"] == sha256(b"abc")
    assert {row["sha256"] for row in rows[1:]} == {sha256(b"")}


def test_an_incomplete_checkpoint(root, start):
    (root / "org" / "m" / "model-00002-of-00002.safetensors").unlink()
    (root / "org" / "m" / "pytorch_model.bin").unlink()
    s = start(root, hash_threads=1)
    assert sums_of(manifest(s, "org/m", "&partial=1")) == reference(root)
