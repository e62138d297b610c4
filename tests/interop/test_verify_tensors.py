"""tensord verify PATH URL MODEL compares the tensors of a local checkpoint with the SHA-256 that a server states.
Expectations are hashlib's, over the bytes that the tests have written or that safetensors reads."""
import hashlib
import json
import resource
import shutil
import signal
import struct
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy
import pytest
from pulls import environment, pull, shown_on_terminal

from harness import Server, age, enc, release_binary, tensor, tensord_binary, write_by_hand

DATA = Path(__file__).resolve().parents[1] / "data"
GIB = 1 << 30


def verify(*args, code=0, binary=None, env=None, **kw):
    p = subprocess.run([str(binary or tensord_binary()), "verify", *map(str, args)], capture_output=True, text=True,
                       timeout=120, env=environment(**(env or {})), **kw)
    assert p.returncode == code, p
    assert "Sanitizer" not in p.stderr and "runtime error" not in p.stderr, p
    return p


def as_json(*args, code=0):
    return json.loads(verify(*args, "--json", code=code).stdout)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def tensors_of_model():
    return [tensor("model.embed.weight", "BF16", [64, 16]), tensor("model.norm.weight", "F32", [16]),
            tensor("scalar", "F64", []), tensor("nothing", "U8", [0, 3]), tensor("odd\n\"name\"/é", "I8", [7])]


NAMES = sorted(t.name for t in tensors_of_model())


def stated(tensors, **more):
    """Return an answer of the server, as docs/files.md describes it, with hashlib's digests."""
    return {"model": "m", "checkpoint": "safetensors", "etag": "t", "tensors": [
        {"name": t.name, "dtype": t.dtype, "shape": list(t.shape), "nbytes": len(t.data), "file": "model.safetensors",
         "sha256": sha256(t.data)} for t in tensors], "next_page_token": "", **more}


@pytest.fixture
def local(tmp_path):
    """A model's directory."""
    folder = tmp_path / "local" / "m"
    write_by_hand(folder / "model.safetensors", tensors_of_model())
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def recorded(tmp_path):
    """recorded(answer) returns the path of a file with it."""
    def write(answer):
        path = tmp_path / "digests.json"
        path.write_text(answer if isinstance(answer, str) else json.dumps(answer))
        return path

    return write


# --------------------------------------------------------------------------------------------- digests in a file

def test_tensors_that_are_as_stated(local, recorded):
    digests = recorded(stated(tensors_of_model()))
    size = sum(len(t.data) for t in tensors_of_model())
    for path in (local, local / "model.safetensors"):
        assert as_json(path, "--digests", digests) == {
            "problems": [], "checkpoint": "safetensors", "tensors": 5, "bytes": size, "compared": 5, "not_compared": 0,
            "mismatches": 0, "missing": 0, "extra": 0, "unreadable": 0, "not_compared_tensors": []}
    p = verify(local, "--digests", digests)
    assert p.stderr == "" and p.stdout.startswith("5 tensors, ") and p.stdout.count("\n") == 1
    assert ": 5 compared, 0 not compared; 0 mismatches, 0 missing, 0 extra, 0 unreadable" in p.stdout


def test_every_difference_is_named(local, recorded):
    """One byte, one type with the same bytes, one shape with the same bytes; one more tensor here, and one there."""
    there = tensors_of_model()
    there[0].data = bytes([there[0].data[0] ^ 1]) + there[0].data[1:]
    answer = stated(there[:-1] + [tensor("gone", "U8", [3])])
    rows = {row["name"]: row for row in answer["tensors"]}
    rows["model.norm.weight"]["dtype"] = "I32"
    rows["scalar"]["shape"] = [1]
    out = as_json(local, "--digests", recorded(answer), code=1)
    here = {t.name: t for t in tensors_of_model()}
    problems = {(p["problem"], p["tensor"]): (p.get("expected"), p.get("found")) for p in out["problems"]}
    assert problems == {
        ("digest", "model.embed.weight"): (sha256(there[0].data), sha256(here["model.embed.weight"].data)),
        ("form", "model.norm.weight"): ("I32 [16], 64 bytes", "F32 [16], 64 bytes"),
        ("form", "scalar"): ("F64 [1], 8 bytes", "F64 [], 8 bytes"),
        ("extra", there[-1].name): (None, None), ("missing", "gone"): (None, None)}
    assert [out[key] for key in ("compared", "mismatches", "missing", "extra", "unreadable")] == [4, 3, 1, 1, 0]
    p = verify(local, "--digests", recorded(answer), code=1)
    lines = p.stdout.splitlines()
    assert [line.split()[0] for line in sorted(lines[:-1])] == ["EXTRA", "MISMATCH", "MISMATCH", "MISMATCH", "MISSING"]
    assert lines[-1].endswith("4 compared, 0 not compared; 3 mismatches, 1 missing, 1 extra, 0 unreadable")
    assert f"stated as {sha256(there[0].data)}, but it hashes to {sha256(here['model.embed.weight'].data)}" in p.stdout
    assert 'odd\\x0a"name"/é' in p.stdout, "a name cannot forge a line"
    assert p.stderr.count("\n") == 1 and "fetch the model again" in p.stderr


def test_bit_rot_in_the_local_file(local, recorded):
    """Each byte counts: the first and the last one of each tensor."""
    path = local / "model.safetensors"
    tensors = tensors_of_model()
    write_by_hand(path, tensors)
    good = path.read_bytes()
    digests = recorded(stated(tensors))
    for t in tensors:
        for place in {t.offset, t.offset + len(t.data) - 1} if t.data else ():
            bad = bytearray(good)
            bad[place] ^= 0x80
            path.write_bytes(bad)
            out = as_json(path, "--digests", digests, code=1)
            assert [(p["problem"], p["tensor"]) for p in out["problems"]] == [("digest", t.name)]


def test_tensors_without_a_digest(local, recorded):
    """Nothing is compared with them. If none has one, the exit code is 3."""
    answer = stated(tensors_of_model())
    del answer["tensors"][1]["sha256"]
    out = as_json(local, "--digests", recorded(answer))
    assert (out["compared"], out["not_compared"], out["not_compared_tensors"]) == (4, 1, ["model.norm.weight"])
    assert verify(local, "--digests", recorded(answer)).stdout.startswith("not compared: model.norm.weight\n4 tensors")
    for row in answer["tensors"]:
        row.pop("sha256", None)
    p = verify(local, "--digests", recorded(answer), code=3)
    assert "nothing was compared: no SHA-256 is stated" in p.stderr and "?digests=1" in p.stderr
    assert as_json(local, "--digests", recorded(answer), code=3)["not_compared_tensors"] == NAMES


def test_a_selection_says_nothing_of_others(local, recorded):
    """An answer with match= has matched_count, so tensors that it lacks are not extra."""
    out = as_json(local, "--digests", recorded(stated(tensors_of_model()[:2], matched_count=2)))
    assert (out["compared"], out["extra"], out["missing"]) == (2, 0, 0)
    assert as_json(local, "--digests", recorded(stated(tensors_of_model()[:2])), code=1)["extra"] == 3


@pytest.mark.parametrize("answer, message", [
    ("", "JSON ends too early"), ("[]", "a list of digests, an object"), ("{}", 'needs "tensors"'),
    ('{"tensors":[]}', 'needs "tensors" and "etag"'), ('{"etag":"t","tensors":[1]}', "holds objects alone"),
    ('{"etag":"t","tensors":[{"name":"a"}]}', "no name, dtype, shape or nbytes"),
    ('{"etag":"t","tensors":[{"name":"a","dtype":"F32","shape":[1,-1],"nbytes":4}]}', "number"),
    ('{"etag":"t","tensors":[{"name":"a","dtype":"F32","shape":["1"],"nbytes":4}]}', "a shape holds numbers alone"),
    ('{"etag":"t","tensors":[{"name":"a","dtype":"F32","shape":[' + ",".join("1" * 65) + '],"nbytes":4}]}',
     "more than 64 dimensions"),
    ('{"etag":"t","tensors":[{"name":"a","dtype":"F32","shape":[],"nbytes":18446744073709551616}]}', "2^64"),
    ('{"etag":"t","tensors":[{"name":"a\\u0000","dtype":"F32","shape":[],"nbytes":4}]}', "NUL"),
    ('{"etag":"t","tensors":[{"name":"a","dtype":"' + "F" * 99 + '","shape":[],"nbytes":4}]}', "longer"),
    ('{"etag":"t","tensors":[{"name":"a","dtype":"F32","shape":[],"nbytes":4,"sha256":"' + "A" * 64 + '"}]}',
     "64 lower-case hexadecimal digits"),
    ('{"etag":"t","tensors":[{"name":"a","dtype":"F32","shape":[],"nbytes":4,"sha256":"ab"}]}', "64 lower-case"),
    ('{"etag":"t","tensors":[' + "[" * 500, "object"), ('{"etag":"t","x":' + "[" * 500, "nest"),
    ('{"etag":"t","tensors":[],"next_page_token":"n"}', "one page of a longer list"),
    (json.dumps(stated([tensor("a", "U8", [1]), tensor("a", "U8", [2])])), 'two tensors have the name "a"'),
])
def test_files_that_are_no_answers(local, recorded, answer, message):
    p = verify(local, "--digests", recorded(answer), code=1)
    assert p.stdout == "" and "digests.json" in p.stderr and message in p.stderr, p.stderr


# ------------------------------------------------------------------------------------------------- on a server

def copied(root, name):
    folder = root / name
    write_by_hand(folder / "model.safetensors", tensors_of_model())
    return folder


def test_a_model_on_a_server(local, tmp_path):
    copied(tmp_path / "served", "org/m")
    age(tmp_path / "served")
    with Server(tmp_path / "served", hash_threads=1) as s:
        url = f"http://127.0.0.1:{s.port}"
        assert as_json(local, url, "org/m")["compared"] == 5
        out = as_json(local, url, "org/m", "--match", "*norm*")
        assert (out["compared"], out["extra"]) == (1, 0)
        assert verify(local, url, "org/m", "--match", "no*such", code=3).stderr.count("there is no such tensor") == 1
        data = bytearray((local / "model.safetensors").read_bytes())
        data[-1] ^= 1
        (local / "model.safetensors").write_bytes(data)
        out = as_json(local, url, "org/m", code=1)
        assert out["mismatches"] == 1 and out["problems"][0]["problem"] == "digest"
        p = verify(local, url, "org/no", code=1)
        assert 'model "org/no" not found' in p.stderr and p.stdout == ""
        p = verify(local, f"http://127.0.0.1:1,{url}", "org/m", "--retry-for", "1s", code=1)
        assert "1 mismatch" in p.stdout, "the other server is asked when one does not answer"


def test_another_format_with_the_same_tensors(tmp_path):
    arrays = {"a": numpy.arange(60, dtype=numpy.float32).reshape(5, 12), "b": numpy.arange(9, dtype=numpy.int16)}
    here = tmp_path / "here"
    here.mkdir()
    numpy.savez_compressed(here / "weights.npz", a=numpy.asfortranarray(arrays["a"]), b=arrays["b"].astype(">i2"))
    there = [tensor("a", "F32", [5, 12]), tensor("b", "I16", [9])]
    for t in there:
        t.data = arrays[t.name].tobytes()
    write_by_hand(tmp_path / "served" / "m" / "model.safetensors", there)
    age(tmp_path / "served")
    with Server(tmp_path / "served", hash_threads=1) as s:
        out = as_json(here, f"http://127.0.0.1:{s.port}", "m")
    assert (out["compared"], out["problems"]) == (2, [])


def test_every_format(tmp_path):
    """The files of tests/data: whatever a server reads, verify reads. tests/http/test_tensor_digests.py compares the
    server's digests with hashlib's."""
    root = tmp_path / "served"
    for pattern in ("gguf/*.gguf", "hdf5/*.h5", "npz/*.npz", "torch/*.pt", "onnx/*.onnx", "pickle/*.pkl"):
        for path in sorted(DATA.glob(pattern))[:4]:
            (root / path.parent.name / path.stem).mkdir(parents=True)
            shutil.copy(path, root / path.parent.name / path.stem)
    for path in sorted((DATA / "dcp").iterdir())[:4]:
        if path.is_dir():
            shutil.copytree(path, root / "dcp" / path.name)
    age(root)
    compared = 0
    with Server(root, hash_threads=1) as s:
        for model in s.json("/models?page_size=1000")["models"]:
            rows = s.get(f"/models/{enc(model['id'], '/')}/tensors?digests=1", timeout=60).json().get("tensors", [])
            known = [row for row in rows if "sha256" in row and row["nbytes"] < GIB]
            if not known or len(known) < len(rows) and any(row["nbytes"] >= GIB for row in rows):
                continue
            out = as_json(root / model["id"], f"http://127.0.0.1:{s.port}", model["id"])
            assert out["problems"] == [] and out["compared"] == len(known), (model["id"], out)
            compared += out["compared"]
    assert compared > 50


def test_versions(tmp_path):
    root = tmp_path / "served"
    for number in (1, 2):
        write_by_hand(root / "run" / f"step-{number}" / "model.safetensors", [tensor("w", "F32", [8], str(number))])
    age(root)
    with Server(root, hash_threads=1) as s:
        url = f"http://127.0.0.1:{s.port}"
        for revision in ("latest", "step-2", "2"):
            out = as_json(root / "run" / "step-2", url, "run", "--revision", revision)
            assert (out["version"], out["compared"]) == ("step-2", 1)
            out = as_json(root / "run" / "step-1", url, "run", f"--revision={revision}", code=1)
            assert (out["version"], out["mismatches"]) == ("step-2", 1)
        assert "compared with version step-2, " in verify(root / "run/step-2", url, "run", "--revision=latest").stdout
        assert "version" not in as_json(root / "run" / "step-1", url, "run/step-1", "--revision=main")
        assert '"step-3"' in verify(root / "run" / "step-1", url, "run", "--revision=step-3", code=1).stderr
        p = verify(root / "run", url, "run", "--revision=latest", code=1)
        assert "has 2 models (step-1, step-2): give the directory or the file of one" in p.stderr
        p = verify(tmp_path, url, "run", "--revision=latest", "--checkpoint", "pytorch", code=1)
        assert p.stdout == ""


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 64,
          "tie_word_embeddings": False}


def llama():
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [64, 16], "lm_head.weight": [64, 16], "model.norm.weight": [16],
              layer + "input_layernorm.weight": [16], layer + "post_attention_layernorm.weight": [16],
              layer + "self_attn.q_proj.weight": [16, 16], layer + "self_attn.k_proj.weight": [8, 16],
              layer + "self_attn.v_proj.weight": [8, 16], layer + "self_attn.o_proj.weight": [16, 16],
              layer + "mlp.gate_proj.weight": [32, 16], layer + "mlp.up_proj.weight": [32, 16],
              layer + "mlp.down_proj.weight": [16, 32]}
    return [tensor(name, "BF16", shape) for name, shape in shapes.items()]


@pytest.mark.parametrize("engine, name", [("vllm", "model-rank-1-part-0.safetensors"),
                                          ("fsdp", "rank-1.safetensors")])
def test_the_file_of_a_rank(tmp_path, engine, name):
    root, out = tmp_path / "served", tmp_path / "out"
    write_by_hand(root / "m" / "model.safetensors", llama())
    (root / "m" / "config.json").write_text(json.dumps(CONFIG))
    age(root)
    with Server(root, hash_threads=1) as s:
        url = f"http://127.0.0.1:{s.port}"
        rank = ("--engine", engine, "--tp", 2, "--rank", 1)
        pull(url, *rank, "-o", out, model="m")
        data = bytearray((out / name).read_bytes())
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:begin])
        header.pop("__metadata__", None)
        for path in (out, out / name):
            found = as_json(path, url, "m", *rank)
            assert found["problems"] == [] and found["compared"] == len(header) > 5
        bad = sorted(header)[3]
        place = begin + header[bad]["data_offsets"][0]
        was = sha256(data[place:begin + header[bad]["data_offsets"][1]])
        data[place] ^= 1
        (out / name).write_bytes(data)
        problem, = as_json(out, url, "m", *rank, code=1)["problems"]
        assert problem == {"problem": "digest", "tensor": bad, "expected": was,
                           "found": sha256(data[place:begin + header[bad]["data_offsets"][1]])}
        assert as_json(out / name, url, "m", "--engine", engine, "--tp", 2, "--rank", 0, code=1)["mismatches"] > 1
        p = verify(out, url, "m", "--engine", engine, "--tp", 2, "--rank", 0, code=1)
        assert "has neither model-rank-0-part-0.safetensors nor rank-0.safetensors" in p.stderr
        assert '"no-engine"' in verify(out / name, url, "m", "--engine", "no-engine", "--tp", 2, "--rank", 0,
                                       code=1).stderr


def test_a_snapshot_of_a_hugging_face_cache(tmp_path):
    """Files are links to blobs outside the directory; a single one can be named, too."""
    folder = tmp_path / "hub" / "models--org--m"
    commit = "a" * 40
    write_by_hand(folder / "blobs" / "x.safetensors", tensors_of_model())
    blob = sha256((folder / "blobs" / "x.safetensors").read_bytes())
    (folder / "blobs" / "x.safetensors").rename(folder / "blobs" / blob)
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / commit / "model.safetensors").symlink_to(f"../../blobs/{blob}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    age(folder.parent)
    with Server(folder.parent, hash_threads=1) as s:
        for path in (folder, folder / "snapshots" / commit, folder / "snapshots" / commit / "model.safetensors"):
            assert as_json(path, f"http://127.0.0.1:{s.port}", "org/m")["compared"] == 5


def test_models_below_a_model(local, tmp_path, recorded):
    """Repositories have other weights in folders, such as onnx/: those are models of their own."""
    write_by_hand(local / "onnx" / "model.safetensors", [tensor("other", "U8", [3])])
    write_by_hand(local / "0" / "model.safetensors", [tensor("other", "U8", [3])])
    digests = recorded(stated(tensors_of_model()))
    assert as_json(local, "--digests", digests)["compared"] == 5
    cache = tmp_path / "hub" / "models--org--m" / "snapshots" / ("a" * 40)
    shutil.copytree(local, cache)
    (cache.parents[1] / "refs").mkdir()
    (cache.parents[1] / "refs" / "main").write_text("a" * 40)
    for path in (cache, cache.parents[1]):
        assert as_json(path, "--digests", digests)["compared"] == 5
    (local / "model.safetensors").unlink()
    p = verify(local, "--digests", digests, code=1)
    assert "has 2 models (0, onnx): give the directory or the file of one" in p.stderr


def test_files_that_cannot_be_read_or_are_not_there(local, tmp_path, recorded):
    """A broken shard: its tensors are missing, and the file is named. Other paths are refused with a reason."""
    folder = tmp_path / "shards"
    halves = [tensors_of_model()[:2], tensors_of_model()[2:]]
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for name, half in zip(names, halves):
        write_by_hand(folder / name, half)
    index = {t.name: name for name, half in zip(names, halves) for t in half}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    digests = recorded(stated(tensors_of_model()))
    assert as_json(folder, "--digests", digests)["compared"] == 5
    (folder / names[1]).write_bytes(b"\xff" * 100)
    out = as_json(folder, "--digests", digests, code=1)
    assert sorted(p["tensor"] for p in out["problems"] if p["problem"] == "missing") == sorted(
        t.name for t in halves[1])
    broken = [p for p in out["problems"] if p["problem"] == "unreadable"]
    assert broken and broken[0]["file"] == names[1]
    assert (out["compared"], out["unreadable"]) == (2, len(broken))
    (tmp_path / "empty").mkdir()
    for path, message in ((tmp_path / "no", "does not exist"), (tmp_path / "empty", "there is no checkpoint in"),
                          (folder / names[1], "model-00002-of-00002.safetensors"),
                          (local / "config.json", "its name is not that of a checkpoint file")):
        p = verify(path, "--digests", digests, code=1)
        assert message in p.stderr and p.stdout == "" and p.stderr.count("\n") == 1, p.stderr


def test_a_token(local, tmp_path):
    copied(tmp_path / "served", "m")
    age(tmp_path / "served")
    tokens = tmp_path / "tokens"
    made = subprocess.run([tensord_binary(), "token", "new", "reader", "--tokens", tokens, "--json"],
                          capture_output=True, text=True, check=True)
    with Server(tmp_path / "served", "--tokens", tokens, hash_threads=1) as s:
        url = f"http://127.0.0.1:{s.port}"
        assert "give it by --token-file FILE or TENSORD_TOKEN" in verify(local, url, "m", code=1).stderr
        verify(local, url, "m", env={"TENSORD_TOKEN": json.loads(made.stdout)["token"]})


# ------------------------------------------------------------------------------------- servers that are not honest

class Fake(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        asked = self.server.asked
        if self.path == "/version":
            status, body, fields = 200, {"name": self.server.kind}, {}
        else:
            asked.append(self.path)
            status, body, fields = self.server.answer(len(asked), self.path)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def fake():
    """fake(answer) starts a server that calls answer(number of the request, its target), which returns status, body
    and fields; it returns the server, with its `url` and the targets that were `asked`."""
    servers = []

    def start(answer, kind="tensord"):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Fake)
        server.daemon_threads = True
        server.answer, server.kind, server.asked = answer, kind, []
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def unready(known):
    return {"error": {"code": 503, "message": f"the SHA-256 of {known} of 5 tensors is known so far, and the others "
                      "(1.00 GB) are being hashed; try again"}}


def test_a_server_that_hashes_for_longer_than_the_patience(local, fake):
    """As long as more tensors are hashed from answer to answer, --retry-for does not end it; else it does."""
    server = fake(lambda n, _: (503, unready(n), {"Retry-After": "1"}) if n < 5 else (200, stated(tensors_of_model()),
                                                                                       {}))
    assert as_json(local, server.url, "m", "--retry-for=0", "--quiet")["compared"] == 5
    assert len(server.asked) == 5
    server = fake(lambda n, _: (503, unready(3), {"Retry-After": "1"}))
    p = verify(local, server.url, "m", "--retry-for=1s", code=1)
    assert "the SHA-256 of 3 of 5 tensors is known so far" in p.stderr and "gave up" in p.stderr


def test_pages(local, fake):
    """The pages of a list follow one another, with the same parameters."""
    tensors = sorted(tensors_of_model(), key=lambda t: t.name.encode())

    def answer(n, target):
        return 200, stated([tensors[n - 1]], next_page_token="" if n == 5 else f"to ken/{n}"), {}

    server = fake(answer)
    assert as_json(local, server.url, "a b/m", "--checkpoint=safetensors")["compared"] == 5
    assert all(t.startswith("/models/a%20b/m/tensors?digests=1&page_size=1000&checkpoint=safetensors")
               for t in server.asked)
    assert [t.partition("&page_token=")[2] for t in server.asked] == ["", *(f"to%20ken/{n}" for n in range(1, 5))]


def test_a_model_that_changes_between_its_pages(local, fake):
    """The list is read again; after four changes the command ends."""
    tensors = tensors_of_model()

    def answer(n, target):
        first = "page_token" not in target
        return 200, stated(tensors[:2] if first else tensors[2:], next_page_token="n" if first else "",
                           etag="t" if first or n > 4 else f"t{n}"), {}

    server = fake(answer)
    assert as_json(local, server.url, "m")["compared"] == 5 and len(server.asked) == 6
    server = fake(lambda n, target: (200, stated([], next_page_token="n", etag=f"t{n}"), {}))
    p = verify(local, server.url, "m", code=1)
    assert "changed on" in p.stderr and "while its digests were read, 4 times" in p.stderr and len(server.asked) == 10


@pytest.mark.parametrize("answer, message", [
    ((200, b"{", {}), "the digests of http"), ((200, b"\0" * 99, {}), "the digests of http"),
    ((404, {"error": {"message": "no such model here"}}, {}), "no such model here"),
    ((200, stated([tensor("a", "U8", [1])] * 2), {}), "two tensors have the name"),
    ((403, {"error": {"message": "not for you"}}, {}), "not for you"),
])
def test_wrong_answers(local, fake, answer, message):
    p = verify(local, fake(lambda n, _: answer).url, "m", "--retry-for=0", code=1)
    assert message in p.stderr and p.stdout == "" and p.stderr.count("\n") == 1, p.stderr


def test_a_server_that_is_no_tensord(local, fake):
    p = verify(local, fake(lambda n, _: (200, {}, {}), kind="other").url, "m", code=1)
    assert "is no tensord, and only a tensord has digests of tensors" in p.stderr


def test_names_of_a_server_are_safe_to_print(local, fake):
    answer = stated([tensor("\x1b[2J\nMISMATCH  x", "U8", [1])], version="\x1b[2Jv")
    p = verify(local, fake(lambda n, _: (200, answer, {})).url, "m", code=1)
    assert "\x1b" not in p.stdout + p.stderr and p.stdout.count("\n") == 7


# --------------------------------------------------------------------------------------------- large files, signals

@pytest.fixture
def large(tmp_path):
    """A sparse file with one tensor of 3 GiB, and its digests; without a digest nothing would be read."""
    path = tmp_path / "large" / "model.safetensors"
    path.parent.mkdir()
    nbytes = 3 * GIB
    header = json.dumps({"w": {"dtype": "U8", "shape": [nbytes], "data_offsets": [0, nbytes]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + nbytes)
    digests = tmp_path / "large.json"
    answer = stated([tensor("w", "U8", [1])])
    answer["tensors"][0].update(shape=[nbytes], nbytes=nbytes)
    digests.write_text(json.dumps(answer))
    return path, digests


def test_bounded_memory(large):
    """A tensor of 3 GiB with 192 MiB of memory of its own."""
    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (192 << 20, 192 << 20))

    out = json.loads(verify(large[0], "--digests", large[1], "--json", code=1, binary=release_binary(),
                            preexec_fn=limit).stdout)
    zeros = hashlib.sha256()
    for _ in range(3 * 64):
        zeros.update(bytes(16 << 20))
    assert (out["bytes"], out["problems"][0]["found"]) == (3 * GIB, zeros.hexdigest())


def test_a_signal_ends_it(large):
    p = subprocess.Popen([str(tensord_binary()), "verify", str(large[0]), "--digests", str(large[1])],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    time.sleep(0.5)
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=60)
    assert (p.returncode, out, err) == (1, "", "tensord: stopped by a signal\n")


def test_progress_in_bytes_on_a_terminal(large):
    seen = shown_on_terminal(["verify", large[0], "--digests", large[1]], b"of 3.00 GiB", environment())
    assert b"tensord: verifying, " in seen


@pytest.mark.parametrize("args, message", [
    (["a", "http://h:1"], "there is also http://h:1"), (["a", "http://h:1", "m", "x"], "there is also x"),
    (["a", "http://h:1,", "http://g:1", "m"], "no space may be after the comma"),
    (["a", "http://h:1", "m", "--digests=f"], "give --digests or a server, not both"),
    (["a", "--digests=f", "--match=x"], "--digests has the tensors of one answer"),
    (["a", "--match=x"], "give its URL and a model, or --digests FILE"),
    (["a", "http://h:1", "m", "--state-dir=s"], "--state-dir has digests of files"),
    (["a", "http://h:1", "m", "--engine=vllm"], "are given together"),
    (["a", "http://h:1", "m", "--engine=vllm", "--tp=2", "--rank=2"], "--rank takes a number from 0"),
    (["a", "http://h:1", "m", "--engine=vllm", "--tp=0", "--rank=0"], "--tp takes the number of ranks"),
    (["a", "http://h:1", "m", "--engine=vllm", "--tp=2", "--rank=0", "--match=x"], "--match cannot be given"),
    (["a", "ftp://h", "m"], "ftp"), (["a", "http://h:1", "m", "--cert=x"], "--cert and --key"),
    (["a", "http://h:1", "m", "--no-such"], "unknown option"), (["a", "--digests"], "--digests"),
])
def test_usage(args, message):
    p = verify(*args, code=2)
    assert message in p.stderr and p.stdout == "", p.stderr
