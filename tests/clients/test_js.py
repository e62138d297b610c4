"""@huggingface/hub and @huggingface/gguf, from npm, against tensord in the place of the Hub."""
import hashlib
import json
import shutil
import subprocess

import gguf
import numpy as np
import pytest

import harness
from client import digests, quiet_environment, sha256, wait_hashed
from signing import TokensFile

JS = harness.REPO / "tests/js"
NAMES = ["config.json", "name with space.txt", "é/ü+plus.txt", "a+b.txt", "sub/deeper/file.bin"]


def write_gguf(path, tokens):
    """Write with the reference writer. With enough tokens the header is longer than the 2 MB that the client requests
    at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    w = gguf.GGUFWriter(path, "llama")
    w.add_token_list([f"token-{i:06d}" for i in range(tokens)])
    w.add_tensor("blk.0.attn_q.weight", np.arange(96, dtype=np.float32).reshape(8, 12))
    w.add_tensor("output.weight", np.ones((3, 5), dtype=np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("js") / "root"
    for name in NAMES:
        (root / "ns/plain" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "ns/plain" / name).write_bytes(harness.pattern(3000, name))
    harness.write_by_hand(root / "ns/plain/model.safetensors", [harness.tensor("w", "F32", (20, 30))], {"format": "pt"})
    for name in ("one", "two"):
        harness.write_by_hand(root / f"ns/sharded/model-{name}.safetensors", [harness.tensor(name, "F32", (1000, 400))])
    (root / "ns/data").mkdir()
    (root / "ns/data/train.jsonl").write_text('{"a": 1}\n')
    write_gguf(root / "ns/gguf/small model.gguf", 10)
    write_gguf(root / "ns/gguf/long.gguf", 130_000)
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.Server(root) as s:
        wait_hashed(s, "ns/plain", "ns/sharded", "ns/gguf")
        yield s


def run_node(tmp_path, script, *args):
    """Return the script's output, read as JSON. Runs /usr/bin/node on Debian, else the node of PATH."""
    got = subprocess.run([shutil.which("node"), JS / script, *args], cwd=tmp_path, env=quiet_environment(tmp_path),
                         capture_output=True, text=True, timeout=120, check=False)
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout)


@pytest.fixture(scope="module")
def out(srv, tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    return run_node(folder, "hub.mjs", f"http://127.0.0.1:{srv.port}", str(folder / "cache"))


def test_uploads(tmp_path):
    """Small files, large ones, one in parts, a deletion, a branch, a commit of several operations; with a token."""
    tokens = TokensFile(tmp_path / "tokens.json").add("writer", ["org/*"], rights=("read", "write"))
    root = tmp_path / "root"
    root.mkdir()
    with harness.Server(root, "--publish", "any", "--tokens", tokens) as s:
        out = run_node(tmp_path, "hub_upload.mjs", f"http://127.0.0.1:{s.port}", tokens.text("writer"))
        assert out["before"] == ["config.json", "d/large.bin", "d/small.txt", "parts.bin"]
        assert out["main"] == ["config.json", "d/large.bin", "parts.bin"]
        for path in out["main"]:
            answer = s.get(f"/org/js/resolve/main/{path}", tokens.bearer("writer"))
            assert hashlib.sha256(answer.body).hexdigest() == out["digests"][path], path
        assert s.log().count("range=") == 4       # three parts, and the other large file in one


def test_list_files(out, root):
    files = [f for f in out["files"] if f[1] == "file"]
    assert {f[0]: f[3] for f in files} == digests(root / "ns/plain")
    assert all(f[2] == (root / "ns/plain" / f[0]).stat().st_size for f in files)
    assert sorted(f[0] for f in out["files"] if f[1] == "directory") == ["sub", "sub/deeper", "é"]
    assert out["folder"] == ["sub/deeper/file.bin"]


def test_downloads(out, root):
    want = digests(root / "ns/plain")
    assert out["downloads"] == {n: want[n] for n in out["downloads"]} and len(out["downloads"]) == 5
    assert out["slice"] == (root / "ns/plain/model.safetensors").read_bytes()[100:200].hex()
    assert out["cached"] == want["a+b.txt"]
    assert digests(out["snapshot"]) == digests(root / "ns/sharded")


def test_download_info(out, root):
    assert out["info"]["size"] == 3000
    assert out["info"]["etag"] == '"' + sha256(root / "ns/plain/a+b.txt") + '"'
    assert out["missing"] is None
    assert out["exists"] == [True, False]


def test_info_and_lists(out):
    assert out["model"]["name"] == "ns/plain" and len(out["model"]["sha"]) == 40 and out["model"]["private"] is False
    assert out["dataset"]["name"] == "ns/data"
    assert out["models"] == ["ns/plain"] and out["datasets"] == ["ns/data"]
    assert sorted(out["paths"]) == ["a+b.txt", "sub", "é/ü+plus.txt"]
    assert out["repos"] == [True, False]


def test_safetensors(out):
    assert out["safetensors"]["sharded"] is False
    assert out["safetensors"]["header"]["w"]["shape"] == [20, 30]


def test_errors(out):
    assert out["noRepo"]["status"] == 404 and out["noRevision"]["status"] == 404
    assert out["noWriting"]["status"] == 405 and "POST is not allowed here" in out["noWriting"]["message"], out[
        "noWriting"]
    assert "use rank0 to rank1" in out["noRank"]["message"], out["noRank"]
    for name in ("noRepo", "noRevision", "noRank", "noWriting"):
        assert "object" not in out[name]["message"], "a message that people can read"


def test_gguf(srv, root, tmp_path):
    """Both headers as the reference reader sees them, the long one by several ranges."""
    base = f"http://127.0.0.1:{srv.port}/ns/gguf/resolve/main/"
    files = [root / "ns/gguf/small model.gguf", root / "ns/gguf/long.gguf"]
    for path, got in zip(files, run_node(tmp_path, "gguf.mjs", *(base + harness.enc(p.name) for p in files))):
        want = gguf.GGUFReader(path)
        assert got["dataOffset"] == want.data_offset
        assert got["tensors"] == [[t.name, t.shape.tolist(),
                                   int(t.data_offset - want.data_offset)] for t in want.tensors]
        assert got["metadata"]["general.architecture"] == "llama"
        tokens = got["metadata"]["tokenizer.ggml.tokens"]
        assert tokens[-1] == want.get_field("tokenizer.ggml.tokens").contents(-1)
    assert len(tokens) == 130_000
