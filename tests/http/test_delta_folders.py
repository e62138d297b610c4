"""Folders of deltas, as slime (slime/utils/disk_delta.py) and ModelExpress (canonical_delta.py) write them: they are
shown as deltas on every interface, and their files are served as they are. The cases are those of docs/models.md."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

import harness
from harness import Tensor, check_error, pattern, tensor, write_by_hand

BASE = [tensor("w", "F32", (8, 4)), tensor("b", "BF16", (6,))]
SHARD = "model-00000-of-00001.safetensors"


def frame(name, size):
    """Returns a tensor as such a folder has it: one frame of zstd's, as bytes, under the name of the changed tensor."""
    return Tensor(name, "U8", (size,), b"\x28\xb5\x2f\xfd" + pattern(size - 4, name))


def write_delta(folder, base="000001", tensors=("w",), encoding="xor", **more):
    """Writes a delta, the index last."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [frame(name, 40) for name in tensors]
    if names:
        write_by_hand(folder / SHARD, names, {name: "0" * 32 for name in tensors})
    metadata = {"version": "000002", "base_version": base, "delta_encoding": encoding, "compression_format": "zstd",
                "checksum_format": "xxh3-128"}
    index = {"metadata": {k: v for k, v in metadata.items() if v is not None} | more,
             "weight_map": {name: SHARD for name in tensors}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("deltas") / "root"
    for version in ("weight_v000001", "weight_v000004"):
        (root / "run" / version).mkdir(parents=True)
        write_by_hand(root / "run" / version / "model.safetensors", BASE)
    write_delta(root / "run/weight_v000002")
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (root / "run/weight_v000002/config.json").write_text(json.dumps(config))
    write_delta(root / "run/weight_v000003", "000002", ())
    write_delta(root / "run/weight_v000005", "base of somebody")
    write_delta(root / "run/weight_v000006", None)
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.hashed_server(root, "--s3-listen", "127.0.0.1:0") as s:
        yield s


def command(*args, ok=True):
    done = subprocess.run([harness.tensord_binary(), *args], capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) == ok, done
    return done


def new_token(tokens, name, glob):
    return json.loads(command("token", "new", name, "--models", glob, "--json", "--tokens", tokens).stdout)["token"]


DELTAS = {"run/weight_v000002": "weight_v000001", "run/weight_v000003": "weight_v000002",
          "run/weight_v000005": "base of somebody", "run/weight_v000006": None}


def test_lists_and_descriptions_say_delta(srv):
    rows = {row["id"]: row for row in srv.json("/models")["models"]}
    assert set(rows) == {*DELTAS, "run/weight_v000001", "run/weight_v000004"}
    for id, base in DELTAS.items():
        for row in (rows[id], srv.json(f"/models/{id}")):
            assert (row["kind"], row["base"], row["checkpoints"], row["total_bytes"]) == ("delta", base, [], 0), row
            assert "parts" not in row and row["file_bytes"] > 0
    for id in ("run/weight_v000001", "run/weight_v000004"):
        for row in (rows[id], srv.json(f"/models/{id}")):
            assert not {"kind", "base"} & set(row) and len(row["checkpoints"]) == 1, row
    assert srv.json("/models/run/weight_v000002")["errors"] == []


def test_files_are_served_as_they_are(srv, root):
    for path in (root / "run/weight_v000002").iterdir():
        r = srv.get(f"/models/run/weight_v000002/files/{path.name}")
        assert r.status == 200 and r.body == path.read_bytes(), r
    r = srv.get(f"/models/run/weight_v000002/files/{SHARD}", [("Range", "bytes=3-9")])
    assert r.status == 206 and r.body == (root / "run/weight_v000002" / SHARD).read_bytes()[3:10]


RESOURCES = ["tensors", "tensors/w", "tensors?partial=1", "tensors?match=*", "tensors/w?slice=0:1", "model.safetensors",
             "plans/" + "0" * 32, "plans/" + "0" * 32 + "/rank-0.safetensors", "shards/vllm/tp1/rank-0.safetensors",
             "shards/vllm/tp2/rank-0.json"]


@pytest.mark.parametrize("resource", RESOURCES)
def test_what_reads_tensors_is_refused(srv, resource):
    for id, base in DELTAS.items():
        r = srv.get(f"/models/{id}/{resource}")
        check_error(r, 422, "delta", "tensord apply", base or "another version")
        assert r.json()["error"]["status"] == "FAILED_PRECONDITION"
        assert srv.head(f"/models/{id}/{resource}").status == 422
    assert srv.request(f"/models/run/weight_v000002/{resource}", method="DELETE").status == 405


@pytest.mark.parametrize("resource, body", [("plans", {"engine": "vllm", "tp": 2}),
                                            ("tensors:read", {"tensors": [{"name": "w"}]})])
def test_posts_that_read_tensors_are_refused(srv, resource, body):
    r = srv.post(f"/models/run/weight_v000002/{resource}", json.dumps(body).encode())
    check_error(r, 422, "weight_v000001", "tensord apply")


def test_the_hub_shows_files_and_no_tensors(srv, root):
    info = srv.json("/api/models/run/weight_v000002")
    assert {"safetensors", "gguf"} & set(info) == set() and "safetensors" not in info["tags"], info
    assert {s["rfilename"] for s in info["siblings"]} == {SHARD, "model.safetensors.index.json", "config.json"}
    rows = srv.json("/api/models?expand=safetensors&expand=tags")
    told = {row["id"]: row for row in rows}
    assert "safetensors" not in told["run/weight_v000002"] and "safetensors" in told["run/weight_v000001"]
    refs = srv.json("/api/models/run/weight_v000002/refs")
    assert [b["name"] for b in refs["branches"]] == ["main"]
    for revision in ("safetensors", "tp2-rank0-vllm"):
        assert srv.get(f"/api/models/run/weight_v000002/revision/{revision}").status == 404
    r = srv.get(f"/run/weight_v000002/resolve/main/{SHARD}")
    assert r.status == 200 and r.body == (root / "run/weight_v000002" / SHARD).read_bytes()


def test_registries_show_files_and_no_tensors(srv, root):
    base = "/v2/run/weight_v000002"
    kinds = [("Accept", "application/vnd.oci.image.manifest.v1+json")]
    manifest = json.loads(srv.get(f"{base}/manifests/main", kinds).body)
    config = json.loads(srv.get(f"{base}/blobs/{manifest['config']['digest']}").body)
    assert not {"format", "paramSize", "precision"} & set(config["config"]), config
    layers = [srv.get(f"{base}/blobs/{layer['digest']}").body for layer in manifest["layers"]]
    assert sorted(layers) == sorted(p.read_bytes() for p in (root / "run/weight_v000002").iterdir())
    assert not [t for t in srv.json(f"{base}/tags/list")["tags"] if t.startswith(("safetensors", "tp"))]


def test_s3_shows_files(srv, root):
    port = harness.s3_port(srv)
    with harness.Conn(port) as c:
        r = c.request(f"/run/weight_v000002/{SHARD}")
        assert r.status == 200 and r.body == (root / "run/weight_v000002" / SHARD).read_bytes()
    with harness.Conn(port) as c:
        listed = c.request("/run?list-type=2&prefix=weight_v000002/").body.decode()
    assert listed.count("<Key>") == 3


def test_pages_say_delta(srv):
    page = srv.get("/models/run/weight_v000002/", [("Accept", "text/html")]).body.decode()
    said = re.sub("<[^>]*>", "", page)
    assert "the changes to version weight_v000001." in said and "/tensors" not in page
    assert ">delta<" in srv.get("/models/", [("Accept", "text/html")]).body.decode()


def test_pull_takes_the_files(srv, root, tmp_path):
    out = tmp_path / "out"
    command("pull", f"http://127.0.0.1:{srv.port}", "run/weight_v000002", "-o", out)
    assert {p.name: p.read_bytes() for p in out.iterdir() if not p.name.startswith(".")} == {
        p.name: p.read_bytes() for p in (root / "run/weight_v000002").iterdir()}


def test_commands_say_delta(root):
    shown = command("inspect", root).stdout
    assert "changes to version weight_v000001" in shown and "U8" not in shown
    whole = json.loads(command("inspect", root, "--json").stdout)
    assert {m["model"] for m in whole["models"]} == {"run/weight_v000001", "run/weight_v000004"}
    plan = command("plan", root, "run/weight_v000002", "--engine", "vllm", "--tp", "2", ok=False)
    assert "tensord apply" in plan.stderr


def test_a_stock_hub_client_takes_the_files(srv, root, tmp_path):
    """`hf download` of huggingface_hub."""
    out = tmp_path / "hub"
    env = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
    call = f"snapshot_download('run/weight_v000002', local_dir={str(out)!r})"
    code = f"from huggingface_hub import snapshot_download; {call}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120,
                   env=env | {"HF_ENDPOINT": f"http://127.0.0.1:{srv.port}", "HF_HOME": str(tmp_path / "home")})
    assert {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == {
        p.name: p.read_bytes() for p in (root / "run/weight_v000002").iterdir()}


def write_skyrl(folder, *payloads, manifest=True):
    """Writes a delta with the names that SkyRL's trainer gives (create_delta_files and publish, in
    skyrl/backends/skyrl_train/weight_sync/delta/checkpoint.py), the manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in payloads:
        write_by_hand(folder / name, [frame(name, 40)])
    if manifest:
        (folder / "manifest.json").write_text(json.dumps({"version": 2, "base_version": 1, "tensors": []}))


SKYRL = "delta-rank00000-file000000.safetensors"


def test_skyrl(tmp_path):
    """Its deltas are deltas, also before the manifest is there, and never the latest version."""
    run = tmp_path / "root/run"
    (run / "step-1").mkdir(parents=True)
    write_by_hand(run / "step-1/model.safetensors", BASE)
    write_skyrl(run / "delta-00000002", SKYRL, "delta-rank00000-file000001.safetensors")
    write_skyrl(run / "delta-00000003", SKYRL, manifest=False)
    write_skyrl(run / "other", SKYRL)
    write_skyrl(run / "delta-00000004", SKYRL, "delta-rank0000-file000001.safetensors")     # no name of SkyRL's
    write_skyrl(run / "delta-00000005", SKYRL)
    write_by_hand(run / "delta-00000005" / "model.safetensors", BASE)                       # a model beside it
    harness.age(tmp_path / "root")
    with harness.hashed_server(tmp_path / "root") as s:
        rows = {row["id"]: (row.get("kind"), row.get("base")) for row in s.json("/models")["models"]}
        assert rows == {"run/step-1": (None, None), "run/delta-00000002": ("delta", "step-1"),
                        "run/delta-00000003": ("delta", "delta-00000002"), "run/other": ("delta", None),
                        "run/delta-00000004": (None, None), "run/delta-00000005": (None, None)}
        row = s.json("/models/run/delta-00000002")
        assert (row["checkpoints"], row["total_bytes"], row["errors"]) == ([], 0, [])
        check_error(s.get("/models/run/delta-00000002/tensors"), 422, "delta", "tensord apply", "step-1")
        assert s.get(f"/models/run/delta-00000002/files/{SKYRL}").body == (run / "delta-00000002" / SKYRL).read_bytes()
        kinds = {row["version"]: row["kind"] for row in s.json("/models/run/versions")["versions"]}
        assert kinds["delta-00000002"] == kinds["delta-00000003"] == "delta"
    for name in ("delta-00000004", "delta-00000005"):
        shutil.rmtree(run / name)
    with harness.hashed_server(tmp_path / "root") as s:
        assert s.json("/models/run/versions")["latest"] == "step-1"


def test_a_base_comes_and_goes(tmp_path):
    """The list and the description have another tag when the base does, though the delta's own files stay."""
    root = tmp_path / "root"
    write_delta(root / "run/step-2", "1")
    harness.age(root)
    with harness.hashed_server(root) as s:
        def seen(base):
            return s.json("/models/run/step-2")["base"] == base
        assert seen("1")
        tags = [s.get(target).etag for target in ("/models", "/models/run/step-2")]
        (root / "run/step-1").mkdir()
        write_by_hand(root / "run/step-1/model.safetensors", BASE)
        s.wait_for(lambda: seen("step-1"), "the base is found")
        for target, tag in zip(("/models", "/models/run/step-2"), tags, strict=True):
            assert s.get(target, [("If-None-Match", tag)]).status == 200
        shutil.rmtree(root / "run/step-1")
        s.wait_for(lambda: seen("1"), "the base is gone")


def test_a_folder_becomes_a_delta_and_a_model_again(tmp_path):
    root = tmp_path / "root"
    (root / "m").mkdir(parents=True)
    write_by_hand(root / "m" / SHARD, BASE)
    harness.age(root)
    with harness.Server(root) as s:
        assert s.json("/models/m")["total_bytes"] > 0
        write_delta(root / "m", tensors=("w", "b"))
        s.wait_for(lambda: s.json("/models/m").get("kind") == "delta", "it is a delta")
        (root / "m/model.safetensors.index.json").unlink()
        s.wait_for(lambda: s.json("/models/m")["checkpoints"], "it is a model")


@pytest.mark.parametrize("metadata, says", [({"base_version": ["a"]}, "base_version"),
                                            ({"base_version": "v" * 256}, "longer than 255 bytes")])
def test_hostile_indexes_are_refused(tmp_path, metadata, says):
    """The index is refused, and the shards beside it are shown as nothing."""
    root = tmp_path / "root"
    write_delta(root / "m", **metadata)
    harness.age(root)
    with harness.Server(root) as s:
        about = s.json("/models/m")
        assert about["checkpoints"] == [] and [e for e in about["errors"] if says in e["message"]], about


def test_a_delta_that_lacks_a_file_says_so(tmp_path):
    root = tmp_path / "root"
    write_delta(root / "m")
    (root / "m" / SHARD).unlink()
    harness.age(root)
    with harness.Server(root) as s:
        about = s.json("/models/m")
        assert about["kind"] == "delta"
        assert [e for e in about["errors"] if SHARD in e["message"] and "cannot be applied" in e["message"]], about


def test_tokens_do_not_show_a_hidden_base(tmp_path):
    """A delta whose base the caller may not see has its base as the index names it."""
    root = tmp_path / "root"
    (root / "run/v1").mkdir(parents=True)
    write_by_hand(root / "run/v1/model.safetensors", BASE)
    write_delta(root / "run/v2", "0001")
    harness.age(root)
    tokens = tmp_path / "tokens.json"
    secrets = {base: new_token(tokens, base, glob) for base, glob in (("v1", "*"), ("0001", "run/v2"))}
    with harness.Server(root, "--tokens", tokens) as s:
        for base, token in secrets.items():
            assert s.get("/models/run/v2", [("Authorization", f"Bearer {token}")]).json()["base"] == base
