"""/models/{id}/changes?format=patch, compared with what numpy finds of two versions: every type, ranks of engines and
plans; hostile parameters; what is kept, and what a restart finds."""
import hashlib
import json
import os
import struct
import threading

import numpy
import pytest
import torch

from harness import age, check_error
from signing import TokensFile
from test_changes import save, save_huge_versions

BITS = {1: numpy.uint8, 2: numpy.uint16, 4: numpy.uint32, 8: numpy.uint64}
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
         "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8, "C64": 8}
PATH = "/models/run/changes?format=patch&"


def write(folder, tensors, name="model.safetensors"):
    """Write a safetensors file: for each name its type, its shape, and an array of its bits."""
    folder.mkdir(parents=True, exist_ok=True)
    header, body = {}, b""
    for key, (dtype, shape, bits) in tensors.items():
        data = bits.tobytes()
        header[key] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + body)


def parse(body):
    """Return the metadata and the tensors, as type, shape and bytes, of a safetensors file whose bytes have no gap."""
    n = struct.unpack_from("<Q", body)[0]
    rows = json.loads(body[8:8 + n])
    about = rows.pop("__metadata__", {})
    at = 0
    out = {}
    for name, row in sorted(rows.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = row["data_offsets"]
        assert begin == at
        at = end
        out[name] = row["dtype"], row["shape"], body[8 + n + begin:8 + n + end]
        size = {"I32": 4, "I64": 8, **SIZES}[row["dtype"]]
        assert (8 + n + begin) % size == 0 and (end - begin) == size * row["shape"][0]
    assert 8 + n + at == len(body)
    return about, out


def expected(old, new):
    """Return what numpy finds for tensors as in `write`: {name: (indices, values)}, the names to read whole, and those
    that are gone."""
    found, whole = {}, []
    for name, (dtype, shape, bits) in new.items():
        if name not in old or (dtype, tuple(shape)) != (old[name][0], tuple(old[name][1])):
            whole.append(name)
            continue
        places = numpy.flatnonzero(old[name][2].reshape(-1) != bits.reshape(-1))
        if len(places) == 0:
            continue
        if len(places) * (4 + bits.itemsize) >= bits.nbytes:
            whole.append(name)
        else:
            found[name] = places, bits.reshape(-1)[places]
    return found, whole, [name for name in old if name not in new]


def check_patch(body, old, new, since, version):
    about, tensors = parse(body)
    found, whole, removed = expected(old, new)
    assert about["format"] == "patch" and (about["since"], about["version"]) == (since, version)
    assert sorted(json.loads(about["whole"])) == sorted(whole)
    assert sorted(json.loads(about["removed"])) == sorted(removed)
    assert set(tensors) == {f"{name}.{end}" for name in found for end in ("indices", "values")}
    for name, (places, values) in found.items():
        dtype, shape, data = tensors[name + ".indices"]
        assert (dtype, shape) == ("I32", [len(places)])
        assert numpy.array_equal(numpy.frombuffer(data, "<i4"), places)
        dtype, shape, data = tensors[name + ".values"]
        assert (dtype, shape) == (new[name][0], [len(places)]) and data == values.tobytes()
    return tensors


def of_every_type(seed, shape=(37, 53)):
    rng = numpy.random.default_rng(seed)
    made = {}
    for dtype, size in SIZES.items():
        bits = rng.integers(0, 2 if dtype == "BOOL" else 2 ** (8 * size) - 1, shape, dtype=BITS[size])
        made[f"t.{dtype}"] = dtype, shape, bits
    return made


def changed(tensors, share, seed, names=None):
    """Return tensors with about that share of other elements."""
    rng = numpy.random.default_rng(seed)
    out = {}
    for name, (dtype, shape, bits) in tensors.items():
        bits = bits.copy()
        if names is None or name in names:
            where = rng.random(bits.shape) < share
            bits[where] ^= 1
        out[name] = dtype, shape, bits
    return out


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def get(s, query):
    """Return the answer with the patch, once it is made."""
    while True:
        r = s.get(PATH + query, timeout=120)
        if r.status != 503:
            assert r.status == 200, (r, r.body[:300])
            return r


@pytest.mark.parametrize("share", [0.0, 0.002, 0.05, 1.0])
def test_every_type(root, start, share):
    old = of_every_type(1)
    new = changed(old, share, 2)
    write(root / "run" / "step-1", old)
    write(root / "run" / "step-2", new)
    age(root)
    s = start(root, hash_threads=0)
    r = get(s, "since=step-1&version=step-2")
    tensors = check_patch(r.body, old, new, "step-1", "step-2")
    assert bool(tensors) == (share in (0.002, 0.05))
    check_patch(get(s, "since=2&version=1").body, new, old, "step-2", "step-1")
    check_patch(get(s, "since=1").body, old, new, "step-1", "step-2")
    assert parse(get(s, "since=2").body)[1] == {}


def test_single_elements_and_edges(root, start):
    """One element: the first, the last, those beside the borders of blocks and windows; tensors of one element, of none
    and of one dimension; NaNs of other bits, and zeros of other signs."""
    rng = numpy.random.default_rng(4)
    size = 300_000
    old = {"empty": ("F32", (0, 4), numpy.zeros((0, 4), numpy.uint32)), "scalar": ("F32", (), numpy.array(7, "<u4"))}
    new = dict(old, scalar=("F32", (), numpy.array(8, "<u4")))
    for place in (0, 31, 32, 63, 64, 65535, 65536, 131071, 131072, size - 2, size - 1):
        for dtype in ("U8", "BF16", "F32", "F64"):
            bits = rng.integers(0, 250, size, dtype=BITS[SIZES[dtype]])
            old[f"{dtype}.{place}"] = dtype, (size,), bits
            after = bits.copy()
            after[place] += 1
            new[f"{dtype}.{place}"] = dtype, (size,), after
    nan = numpy.full(100, 0x7fc0, numpy.uint16)
    nan[50] = 0x8000
    after = nan.copy()
    after[3], after[50] = 0x7fc1, 0
    old["nan"], new["nan"] = ("BF16", (10, 10), nan), ("BF16", (10, 10), after)
    write(root / "run" / "1", old)
    write(root / "run" / "2", new)
    age(root)
    s = start(root)
    tensors = check_patch(get(s, "since=1&version=2").body, old, new, "1", "2")
    assert numpy.frombuffer(tensors["nan.indices"][2], "<i4").tolist() == [3, 50]
    assert tensors["nan.values"][2] == struct.pack("<2H", 0x7fc1, 0)
    assert "scalar" in json.loads(parse(get(s, "since=1&version=2").body)[0]["whole"])


def test_forms_that_differ(root, start):
    """Tensors that are new, that are gone, that have another type or shape; types without elements of whole bytes."""
    base = {"same": ("F32", (50,), numpy.arange(50, dtype="<u4")), "w": ("F32", (50,), numpy.arange(50, dtype="<u4"))}
    w = base["w"][2].copy()
    w[7] = 99
    old = base | {"type": ("F32", (8,), numpy.zeros(8, "<u4")), "shape": ("F32", (4, 2), numpy.zeros(8, "<u4")),
                  "gone/ \"x\"": ("U8", (3,), numpy.zeros(3, "u1")), "f4": ("F4", (64,), numpy.zeros(32, "u1")),
                  "f4.same": ("F4", (64,), numpy.zeros(32, "u1"))}
    f4 = old["f4"][2].copy()
    f4[5] = 1
    new = base | {"w": ("F32", (50,), w), "type": ("I32", (8,), numpy.zeros(8, "<u4")),
                  "shape": ("F32", (2, 4), numpy.zeros(8, "<u4")), "new\u00e9": ("U8", (3,), numpy.zeros(3, "u1")),
                  "f4": ("F4", (64,), f4), "f4.same": old["f4.same"]}
    write(root / "run" / "1", old)
    write(root / "run" / "2", new)
    age(root)
    about, tensors = parse(get(start(root), "since=1").body)
    assert set(tensors) == {"w.indices", "w.values"} and tensors["w.indices"][2] == struct.pack("<i", 7)
    assert set(json.loads(about["whole"])) == {"type", "shape", "new\u00e9", "f4"}
    assert json.loads(about["removed"]) == ["gone/ \"x\""]


def test_it_is_a_resource(root, start):
    """The length, the entity tag, which is the SHA-256 of the bytes, ranges, HEAD and conditions."""
    old = of_every_type(1)
    new = changed(old, 0.01, 2)
    for number, tensors in ((1, old), (2, new)):
        write(root / "run" / str(number), tensors)
    age(root)
    s = start(root)
    r = get(s, "since=1")
    assert r.etag == '"' + hashlib.sha256(r.body).hexdigest() + '"'
    head = s.head(PATH + "since=1")
    assert head.status == 200 and head.length == len(r.body) and head.etag == r.etag
    part = s.get(PATH + "since=1", {"Range": "bytes=100-299", "If-Match": r.etag})
    assert part.status == 206 and part.body == r.body[100:300]
    assert s.get(PATH + "since=1", {"If-None-Match": r.etag}).status == 304
    assert s.get(PATH + "since=1", {"If-Match": '"0"'}).status == 412
    check_error(s.post(PATH + "since=1", {}), 405)


def llama(layers, seed, share=None):
    """A small model of the Llama architecture, in BF16."""
    g = torch.Generator().manual_seed(seed)
    d, kv, mlp, vocabulary = 64, 32, 96, 128
    shapes = {"model.embed_tokens.weight": (vocabulary, d), "lm_head.weight": (vocabulary, d),
              "model.norm.weight": (d,)}
    for i in range(layers):
        p = f"model.layers.{i}."
        shapes |= {p + "self_attn.q_proj.weight": (d, d), p + "self_attn.k_proj.weight": (kv, d),
                   p + "self_attn.v_proj.weight": (kv, d), p + "self_attn.o_proj.weight": (d, d),
                   p + "mlp.gate_proj.weight": (mlp, d), p + "mlp.up_proj.weight": (mlp, d),
                   p + "mlp.down_proj.weight": (d, mlp), p + "input_layernorm.weight": (d,),
                   p + "post_attention_layernorm.weight": (d,)}
    return {name: torch.randn(shape, generator=g).bfloat16() for name, shape in shapes.items()}


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 128,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


@pytest.fixture
def trained(root):
    old = llama(2, 1)
    g = torch.Generator().manual_seed(5)
    new = {name: torch.where(torch.rand(t.shape, generator=g) < 0.01, t + 1, t) for name, t in old.items()}
    for number, tensors in ((1, old), (2, new)):
        save(root / "run" / f"step-{number}", tensors)
        (root / "run" / f"step-{number}" / "config.json").write_text(json.dumps(CONFIG))
    age(root)
    return root


def bits_of(body):
    _, tensors = parse_any(body)
    return {name: (dtype, shape, numpy.frombuffer(data, BITS[SIZES[dtype]])) for name, (dtype, shape, data)
            in tensors.items()}


def parse_any(body):
    n = struct.unpack_from("<Q", body)[0]
    rows = json.loads(body[8:8 + n])
    about = rows.pop("__metadata__", {})
    return about, {name: (row["dtype"], row["shape"], body[8 + n:][slice(*row["data_offsets"])])
                   for name, row in rows.items()}


@pytest.mark.parametrize("engine, size", [("vllm", 1), ("vllm", 2), ("vllm@0.13", 2), ("fsdp", 3)])
def test_ranks_of_engines(trained, start, engine, size):
    """The patch of a rank brings the rank's file of one version to that of the other."""
    s = start(trained)
    for rank in range(size):
        files = [bits_of(s.get(f"/models/run/step-{n}/shards/{engine}/tp{size}/rank-{rank}.safetensors").body)
                 for n in (1, 2)]
        r = get(s, f"since=1&version=2&engine={engine}&tp_size={size}&tp_rank={rank}")
        assert check_patch(r.body, *files, "step-1", "step-2")


def test_ranks_of_plans(trained, start):
    """A plan with parts of tensors under names that the client gives."""
    s = start(trained)
    items = [{"name": "lm_head.weight", "as": "0", "slice": "3:40,:"}, {"name": "lm_head.weight", "as": "1"},
             {"name": "model.layers.1.mlp.down_proj.weight", "as": "2", "slice": ":,48:96"}]
    plan = s.post("/models/run/plans?version=step-2", {"ranks": [{"tensors": items}]}).json()["id"]
    files = [bits_of(s.get(f"/models/run/step-{n}/plans/{plan}/rank-0.safetensors").body) for n in (1, 2)]
    assert set(files[0]) == {"0", "1", "2"}
    r = get(s, f"since=1&version=2&plan={plan}")
    check_patch(r.body, *files, "step-1", "step-2")
    assert get(s, f"since=1&version=2&plan={plan}&tp_rank=0").body == r.body


def test_manifests(trained, start):
    """manifest and since_manifest bind the request to what the client has read of both versions."""
    s = start(trained, hash_threads=1)
    first = [s.json(f"/models/run/step-{n}/tensors")["etag"] for n in (1, 2)]
    s.wait_hashed()
    for old, new in (first, [s.json(f"/models/run/step-{n}/tensors")["etag"] for n in (1, 2)]):
        get(s, f"since=1&version=2&since_manifest={old}&manifest={new}")
        check_error(s.get(PATH + f"since=1&version=2&since_manifest={new}"), 412)
        check_error(s.get(PATH + f"since=1&version=2&manifest={old}"), 412)
        check_error(s.get(PATH + f"since=1&version=2&manifest={'x' * 2000}"), 412)


@pytest.mark.parametrize("query, status, needles", [
    ("", 400, ["since"]), ("since=", 404, []), ("since=9", 404, ["step-1"]), ("since=1&version=9", 404, ["step-2"]),
    ("since=1&format=patch", 400, []), ("since=1&engine=vllm", 400, ["tp_size", "tp_rank"]),
    ("since=1&engine=vllm&tp_rank=0", 400, ["tp_size"]), ("since=1&engine=vllm&tp_size=0&tp_rank=0", 400, ["tp_size"]),
    ("since=1&engine=vllm&tp_size=5000&tp_rank=0", 400, ["tp_size"]),
    ("since=1&engine=vllm&tp_size=2&tp_rank=2", 400, ["tp_rank"]),
    ("since=1&engine=vllm&tp_size=2&tp_rank=-1", 400, ["tp_rank"]),
    ("since=1&engine=vllm&tp_size=99999999999999999999&tp_rank=0", 400, ["tp_size"]),
    ("since=1&engine=x&tp_size=2&tp_rank=0", 404, ["vllm"]),
    ("since=1&engine=vllm&tp_size=3&tp_rank=0", 422, []), ("since=1&tp_size=2", 400, ["engine"]),
    ("since=1&tp_rank=0", 400, ["engine"]), ("since=1&plan=0123456789abcdef", 404, ["plan"]),
    ("since=1&plan=" + "x" * 500, 404, []), ("since=1&plan=a&engine=vllm&tp_size=1&tp_rank=0", 400, ["plan"]),
    ("since=1&plan=a&tp_size=1", 400, []), ("since=1&color=red", 400, ["color"]),
])
def test_hostile_parameters(trained, start, query, status, needles):
    s = start(trained)
    check_error(s.get(PATH + query), status, *needles)
    assert s.get("/healthz").status == 200


def test_without_format(trained, start):
    """Parameters of a part belong to format=patch alone."""
    s = start(trained)
    for extra in ("engine=vllm", "tp_size=1", "tp_rank=0", "plan=x", "manifest=x", "since_manifest=x"):
        check_error(s.get(f"/models/run/changes?since=1&{extra}"), 400, "format=patch")
    check_error(s.get("/models/run/changes?since=1&format=html"), 400, "patch")
    check_error(s.get("/models/run/step-1/changes?since=1&format=patch"), 404, "no versions")
    plan = s.post("/models/run/plans?version=1", {"boxes": [{"name": "lm_head.weight"}]}).json()["id"]
    check_error(s.get(PATH + f"since=1&plan={plan}"), 400, "ranks")


def test_types_without_a_name(root, start):
    """A model with a tensor that safetensors cannot hold has no patch."""
    for number in (1, 2):
        folder = root / "run" / str(number)
        folder.mkdir(parents=True)
        numpy.savez(folder / "weights.npz", a=numpy.array(["x", "y"]), b=numpy.zeros(3))
    age(root)
    check_error(start(root).get(PATH + "since=1"), 422)


def test_deltas_and_removed_versions(trained, start):
    s = start(trained)
    get(s, "since=1&version=2")
    os.rename(trained / "run" / "step-1", trained / "away")
    s.wait_for(lambda: s.get(PATH + "since=1&version=2").status == 404, "the version is gone")
    os.rename(trained / "away", trained / "run" / "step-1")
    s.wait_for(lambda: s.get(PATH + "since=1&version=2").status == 200, "the version is back")


def test_a_version_that_changes(root, start):
    """Another content under the same name is another patch."""
    old = {"w": ("F32", (1000,), numpy.arange(1000, dtype="<u4"))}
    new = changed(old, 0.01, 1)
    newer = changed(old, 0.02, 2)
    write(root / "run" / "1", old)
    write(root / "run" / "2", new)
    age(root)
    s = start(root)
    before = get(s, "since=1&version=2")
    check_patch(before.body, old, new, "1", "2")
    write(root / "run" / "next", newer)
    os.replace(root / "run" / "next" / "model.safetensors", root / "run" / "2" / "model.safetensors")
    os.rmdir(root / "run" / "next")
    s.wait_for(lambda: get(s, "since=1&version=2").etag != before.etag, "the new content is seen")
    check_patch(get(s, "since=1&version=2").body, old, newer, "1", "2")


def test_linked_files(root, start):
    """Versions that are links to the same file have the same tensors, and nothing is read."""
    write(root / "run" / "1", of_every_type(1))
    (root / "run" / "2").mkdir()
    (root / "run" / "2" / "model.safetensors").symlink_to("../1/model.safetensors")
    age(root)
    about, tensors = parse(get(start(root), "since=1&version=2").body)
    assert tensors == {} and about["whole"] == about["removed"] == "[]"


def test_large_sparse_tensors(root, start):
    """A tensor of 256 MiB, most of it a hole in the file."""
    size = 1 << 27
    for number in (1, 2):
        folder = root / "run" / str(number)
        folder.mkdir(parents=True)
        text = json.dumps({"w": {"dtype": "BF16", "shape": [size], "data_offsets": [0, 2 * size]}}).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / "model.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            begin = f.tell()
            f.truncate(begin + 2 * size)
            if number == 2:
                for place in (0, 12345, size // 2, size - 1):
                    f.seek(begin + 2 * place)
                    f.write(b"\1\2")
    age(root)
    s = start(root, hash_threads=0)
    _, tensors = parse(get(s, "since=1").body)
    assert numpy.frombuffer(tensors["w.indices"][2], "<i4").tolist() == [0, 12345, size // 2, size - 1]
    assert tensors["w.values"][2] == b"\1\2" * 4


def patches_in(state):
    return sorted(path for path in state.rglob("patches/*"))


def test_kept_over_a_restart(trained, start, tmp_path):
    """With --state-dir a patch is a file, which the next start finds; one that is damaged is made again."""
    state = tmp_path / "state"
    s = start(trained, "--state-dir", state)
    body = get(s, "since=1&version=2").body
    (file,) = patches_in(state)
    assert file.read_bytes() == body + hashlib.sha256(body).digest() and file.stat().st_mode & 0o777 == 0o600
    made = file.stat().st_ino
    assert get(s, "since=1&version=2").body == body
    s.stop()
    (file.parent / "new-0000000000000001").write_bytes(b"x" * 100)
    (file.parent / "README").write_bytes(b"x")
    s = start(trained, "--state-dir", state)
    assert get(s, "since=1&version=2").body == body
    assert [path.name for path in patches_in(state)] == [file.name] and file.stat().st_ino == made
    s.stop()
    damaged = bytearray(file.read_bytes())
    damaged[len(body) // 2] ^= 1
    file.write_bytes(damaged)
    s = start(trained, "--state-dir", state)
    assert get(s, "since=1&version=2").body == body
    assert file.read_bytes()[:-32] == body


def test_without_a_state_directory(trained, start, tmp_path):
    """The files have no names, and nothing is left of them."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    s = start(trained, env={"TMPDIR": str(folder)})
    get(s, "since=1&version=2")
    assert list(folder.iterdir()) == []
    folder.rmdir()
    s = start(trained, env={"TMPDIR": str(folder)})
    check_error(s.get(PATH + "since=1&version=2"), 422, "--state-dir")


def test_many_at_once(trained, start):
    """Requests for one patch share the work; requests for many are refused beyond a client's share, with 503."""
    s = start(trained)
    answers = []

    def ask(query):
        answers.append((query, s.get(PATH + query, timeout=120)))

    queries = ["since=1&version=2"] * 8 + [f"since={a}&version={3 - a}&engine=fsdp&tp_size={n}&tp_rank={n - 1}"
                                           for a in (1, 2) for n in range(1, 25)]
    threads = [threading.Thread(target=ask, args=(query,)) for query in queries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {r.status for _, r in answers} <= {200, 503, 429}
    assert len({r.body for query, r in answers if query == queries[0] and r.status == 200}) == 1
    for query, r in answers:
        if r.status == 503:
            assert int(r.get("Retry-After")) >= 1
    for query in queries:
        s.wait_for(lambda: s.get(PATH + query).status == 200, "the patch is made")


def test_tokens(trained, start, tmp_path):
    """A token sees the patches of versions that it sees, also when they are made already."""
    tokens = TokensFile(tmp_path / "tokens.json")
    both = tokens.add("both", ["run/step-1", "run/step-2"]).bearer("both")
    one = tokens.add("one", ["run/step-2"]).bearer("one")
    s = start(trained, "--tokens", tokens)
    r = s.get(PATH + "since=1&version=2", both)
    assert r.status == 200 and parse(r.body)[1]
    check_error(s.get(PATH + "since=1&version=2", one), 404)
    check_error(s.get(PATH + "since=1&version=2"), 401)
    plan = s.post("/models/run/plans?version=2", {"ranks": [{"tensors": [{"name": "lm_head.weight"}]}]}, both)
    assert parse(s.get(PATH + f"since=1&plan={plan.json()['id']}", both).body)[1]


def test_long_work_is_503(root, start):
    """503 with when to come again, and the server serves on, and stops at once."""
    save_huge_versions(root)
    s = start(root)
    r = s.get(PATH + "since=1", timeout=120)
    check_error(r, 503, "GB are still to be compared")
    assert int(r.get("Retry-After")) >= 1 and s.get("/healthz").status == 200
