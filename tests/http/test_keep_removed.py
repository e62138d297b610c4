"""--keep-removed: a model that is being read outlives its folder, by every URL that it had, and then frees its disk.
The cases are those of docs/files.md."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import harness
import publishing
from harness import Server, check_error, hashed_server, tensor, write_by_hand

KEEP = 3


def write_version(folder, salt, shards=2, elements=2000):
    """Writes a sharded model and returns path -> bytes. The index comes last."""
    staged = folder.parent / f".{folder.name}"
    staged.mkdir(parents=True)
    names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    for i, name in enumerate(names):
        write_by_hand(staged / name, [tensor(f"w{i}", "F32", (elements,), salt)])
    (staged / "config.json").write_text(json.dumps({"model_type": "x", "salt": salt}))
    (staged / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {f"w{i}": name for i, name in enumerate(names)}}))
    harness.age(staged)
    staged.rename(folder)
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def held_below(server, folder):
    """Returns the descriptors and mappings that the server has of files below this folder, also of removed ones."""
    place = f"/proc/{server.pid}"
    found = []
    for fd in os.listdir(f"{place}/fd"):
        try:
            found.append(os.readlink(f"{place}/fd/{fd}"))
        except FileNotFoundError:
            continue
    found += [line.split(maxsplit=5)[5].strip() for line in Path(f"{place}/maps").read_text().splitlines()
              if len(line.split(maxsplit=5)) == 6]
    return [path for path in found if path.startswith(f"{folder}/")]


def files_of(s, id):
    return s.json(f"/models/{id}")["files"]


@pytest.fixture
def run(tmp_path):
    """A server over two versions, and their files."""
    root = tmp_path / "root"
    files = {v: write_version(root / "run" / v, v) for v in ("v1", "v2")}
    with hashed_server(root, "--keep-removed", str(KEEP), "--s3-listen", "127.0.0.1:0") as s:
        yield s, root, files


def read(s, id, name="config.json", headers=(), method="GET"):
    return s.request(f"/models/{id}/files/{name}", headers, method)


def remove(s, root, id):
    """Removes a folder as another program does, and waits until the list lacks the model."""
    shutil.rmtree(root / id)
    s.wait_for(lambda: id not in s.ids(), f"{id} is removed")


def test_a_model_that_was_read_outlives_its_folder(run):
    s, root, files = run
    manifest = s.get("/models/run/v1/tensors")
    plan = s.post("/models/run/v1/plans", json.dumps({"engine": "none", "tp_size": 2}).encode())
    assert plan.status == 201, plan
    plan = plan.json()
    shard = s.get("/models/run/v1/shards/none/tp1/rank-0.safetensors")
    rank = s.get(f"/models/run/v1/plans/{plan['id']}/rank-1.safetensors")
    hub = s.json("/api/models/run/v1")
    manifests = "/v2/run/v1/manifests/main"
    kinds = [("Accept", "application/vnd.oci.image.manifest.v1+json")]
    oci = json.loads(s.get(manifests, kinds).body)
    tags = {name: read(s, "run/v1", name, method="HEAD").etag for name in files["v1"]}
    assert shard.status == rank.status == 200
    read(s, "run/v1")
    remove(s, root, "run/v1")

    for name, data in files["v1"].items():                  # also those that nobody has read
        r = read(s, "run/v1", name)
        assert r.status == 200 and r.body == data and r.etag == tags[name], (name, r)
        assert read(s, "run/v1", name, [("Range", "bytes=5-60"), ("If-Range", tags[name])]).body == data[5:61]
        assert read(s, "run/v1", name, [("If-None-Match", tags[name])]).status == 304
        assert read(s, "run/v1", name, method="HEAD").status == 200
        assert s.get(f"/run/v1/resolve/main/{name}").body == data
        assert s.get(f"/run/v1/resolve/{hub['sha']}/{name}").body == data
        with harness.Conn(harness.s3_port(s)) as c:
            assert c.request(f"/run/v1/{name}").body == data
    again = s.get("/models/run/v1/tensors")
    assert again.status == 200 and again.body == manifest.body and again.etag == manifest.etag
    for i in range(2):
        want = tensor(f"w{i}", "F32", (2000,), "v1").data
        assert s.get(f"/models/run/v1/tensors/w{i}").body == want
        assert s.get(f"/models/run/v1/tensors/w{i}?slice=10:20&format=raw").body == want[40:80]
    etag = manifest.json()["etag"]
    both = s.post("/models/run/v1/tensors:read",
                  json.dumps({"tensors": [{"name": "w0"}, {"name": "w1"}], "manifest": etag}).encode())
    assert both.status == 200 and tensor("w1", "F32", (2000,), "v1").data in both.body, both
    assert s.get("/models/run/v1/shards/none/tp1/rank-0.safetensors").body == shard.body
    assert s.get(f"/models/run/v1/plans/{plan['id']}/rank-1.safetensors").body == rank.body
    assert s.get(f"/models/run/v1/plans/{plan['id']}/rank-0.safetensors").status == 200
    assert s.json("/models/run/v1")["id"] == "run/v1"
    assert s.json("/api/models/run/v1")["sha"] == hub["sha"]
    assert json.loads(s.get(manifests, kinds).body) == oci
    for layer in oci["layers"]:
        blob = s.get(f"/v2/run/v1/blobs/{layer['digest']}")
        assert "sha256:" + hashlib.sha256(blob.body).hexdigest() == layer["digest"]


def test_it_is_in_no_list_and_waits_end(run):
    s, root, _ = run
    etag = s.get("/models/run/v1").etag.strip('"')
    waited = []
    thread = threading.Thread(target=lambda: waited.append(s.get(f"/models/run/v1?wait={etag}&timeout=20")))
    thread.start()
    read(s, "run/v1")
    remove(s, root, "run/v1")
    thread.join(20)
    assert [r.status for r in waited] == [404]
    assert s.get(f"/models/run/v1?wait={etag}&timeout=1").status == 404
    assert read(s, "run/v1").status == 200
    assert s.ids() == ["run/v2"]
    assert [m["id"] for m in s.json("/api/models")] == ["run/v2"]
    assert "run/v1" not in s.get("/v2/_catalog").body.decode()
    with harness.Conn(harness.s3_port(s)) as c:
        listed = c.request("/run?list-type=2").body.decode()
    assert "v2/config.json" in listed and "v1/" not in listed


def test_it_ends_when_nobody_reads(run):
    s, root, _ = run
    read(s, "run/v1")
    s.get("/models/run/v2/tensors/w0")
    assert len(held_below(s, root / "run/v1")) >= 4
    remove(s, root, "run/v1")
    began = time.monotonic()
    while time.monotonic() - began < 1.5 * KEEP:            # each read extends it
        assert read(s, "run/v1", "model.safetensors.index.json").status == 200
        time.sleep(0.1)
    read_at = time.monotonic()
    while s.get("/models/run/v1").status == 200:            # a description is no body, and does not extend it
        assert read(s, "run/v1", method="HEAD").status in (200, 404)
        time.sleep(0.05)
    assert KEEP - 0.5 < time.monotonic() - read_at < 2 * KEEP
    check_error(read(s, "run/v1"), 404)
    s.wait_for(lambda: not held_below(s, root / "run/v1"), "all its files are closed")
    assert read(s, "run/v2").status == 200


def test_what_was_not_read_is_gone_at_once(run):
    s, root, _ = run
    s.get("/models/run/v1/tensors")                         # no body
    s.head("/models/run/v1/files/config.json")
    remove(s, root, "run/v1")
    check_error(read(s, "run/v1"), 404)
    read(s, "run/v2")
    time.sleep(KEEP + 1)
    assert not held_below(s, root / "run/v1") and read(s, "run/v2", method="HEAD").status == 200
    remove(s, root, "run/v2")                               # its last body is too long ago
    check_error(read(s, "run/v2"), 404)
    assert not held_below(s, root)


def test_a_new_folder_counts_at_once(run):
    s, root, files = run
    old = read(s, "run/v1")
    manifest = s.json("/models/run/v1/tensors")["etag"]
    remove(s, root, "run/v1")
    assert read(s, "run/v1").body == files["v1"]["config.json"]
    fresh = write_version(root / "run/v1", "again", shards=3)
    s.wait_for(lambda: "run/v1" in s.ids(), "the new folder is there")
    assert read(s, "run/v1").body == fresh["config.json"]
    assert read(s, "run/v1", headers=[("If-Match", old.etag)]).status == 412
    assert read(s, "run/v1", "model-00001-of-00002.safetensors").status == 404
    r = s.post("/models/run/v1/tensors:read",
               json.dumps({"tensors": [{"name": "w0"}], "manifest": manifest}).encode())
    assert r.status == 412, r
    s.wait_for(lambda: not [p for p in held_below(s, root / "run/v1") if p.endswith("(deleted)")], "the old is closed")


def test_a_folder_that_is_moved_away_and_back(run):
    s, root, files = run
    read(s, "run/v1")
    (root / "run/v1").rename(root.parent / "aside")
    s.wait_for(lambda: s.ids() == ["run/v2"], "it is gone")
    assert read(s, "run/v1", "model-00002-of-00002.safetensors").body == files["v1"]["model-00002-of-00002.safetensors"]
    (root.parent / "aside").rename(root / "run/v1")
    s.wait_for(lambda: "run/v1" in s.ids(), "it is back")
    assert read(s, "run/v1").body == files["v1"]["config.json"]


def test_more_than_n(tmp_path):
    root = tmp_path / "root"
    files = {f"v{i}": write_version(root / f"v{i}", f"v{i}") for i in range(4)}
    with hashed_server(root, "--keep-removed", "60", "--keep-removed-models", "2") as s:
        for v in files:
            read(s, v)
        for v in ("v2", "v0", "v1"):
            remove(s, root, v)
        assert read(s, "v0").body == files["v0"]["config.json"] and read(s, "v1").body == files["v1"]["config.json"]
        check_error(read(s, "v2"), 404)                     # the one that was removed first
        s.wait_for(lambda: not held_below(s, root / "v2"), "its files are closed")
        assert held_below(s, root / "v0") and held_below(s, root / "v1")


def test_a_folder_is_removed_file_by_file(run):
    """Between the first file and the last, every file and tensor of the model stays readable."""
    s, root, files = run
    s.get("/models/run/v1/tensors/w0")
    manifest = s.get("/models/run/v1/tensors")
    for name in ("model.safetensors.index.json", "model-00001-of-00002.safetensors", "config.json",
                 "model-00002-of-00002.safetensors"):
        (root / "run/v1" / name).unlink()
        for _ in range(20):
            for i in range(2):
                r = s.get(f"/models/run/v1/tensors/w{i}")
                assert r.status == 200 and r.body == tensor(f"w{i}", "F32", (2000,), "v1").data, (name, r)
            for path, data in files["v1"].items():
                assert read(s, "run/v1", path).body == data, (name, path)
            batch = json.dumps({"tensors": [{"name": "w1"}], "manifest": manifest.json()["etag"]}).encode()
            assert s.post("/models/run/v1/tensors:read", batch).status == 200
            time.sleep(0.02)
    (root / "run/v1").rmdir()
    assert s.get("/models/run/v1/tensors").body == manifest.body


def test_a_file_that_is_removed_alone_goes(tmp_path):
    """A folder that loses a file and then no more is no removed folder."""
    root = tmp_path / "root"
    files = write_version(root / "m", "m")
    with hashed_server(root, "--keep-removed", "60") as s:
        read(s, "m")
        (root / "m/config.json").unlink()
        s.wait_for(lambda: "config.json" not in [f["path"] for f in files_of(s, "m")], "it is not listed")
        assert read(s, "m").body == files["config.json"]
        s.wait_for(lambda: read(s, "m", method="HEAD").status == 404, "it is gone", timeout=20)
        assert s.get("/models/m/tensors/w0").status == 200


@pytest.mark.parametrize("target, headers", [
    ("/models/run/v1/files/model-00001-of-00002.safetensors", [("Range", "bytes=0-9")]),
    ("/models/run/v1/tensors/w1?slice=0:1", []), ("/models/run/v1/tensors/w1?slice=0:1&format=npy", []),
    ("/models/run/v1/model.safetensors", [("Range", "bytes=5-9")]),
    ("/models/run/v1/shards/none/tp1/rank-0.safetensors", []), ("/run/v1/resolve/main/config.json", []),
    ("/run/v1/resolve/tp1-rank0-none/model.safetensors", [("Range", "bytes=5-9")])])
def test_each_body_counts(run, target, headers):
    s, root, files = run
    assert s.get(target, headers).status in (200, 206)
    remove(s, root, "run/v1")
    assert read(s, "run/v1", "model-00002-of-00002.safetensors").body == files["v1"]["model-00002-of-00002.safetensors"]


def test_bodies_of_other_interfaces_count(run):
    s, root, files = run
    kinds = [("Accept", "application/vnd.oci.image.manifest.v1+json")]
    manifest = json.loads(s.get("/v2/run/v1/manifests/main", kinds).body)
    index = json.loads(s.get("/v2/run/v2/manifests/image").body)
    image = json.loads(s.get(f"/v2/run/v2/manifests/{index['manifests'][0]['digest']}").body)
    assert s.get(f"/v2/run/v1/blobs/{manifest['layers'][0]['digest']}").status == 200
    assert s.get(f"/v2/run/v2/blobs/{image['layers'][0]['digest']}").status == 200
    batch = json.dumps({"tensors": [{"name": "w0"}]}).encode()
    for v in ("v1", "v2"):
        remove(s, root, f"run/{v}")
        assert s.post(f"/models/run/{v}/tensors:read", batch).status == 200
        for name, data in files[v].items():
            with harness.Conn(harness.s3_port(s)) as c:
                assert c.request(f"/run/{v}/{name}").body == data


def test_a_version_of_a_family(run):
    """It is read by its name and its number, and is never the latest."""
    s, root, files = run
    kinds = [("Accept", "application/vnd.oci.image.manifest.v1+json")]
    by_name = ["/models/run/files/config.json?version=v2", "/models/run/files/config.json?version=2",
               "/run/resolve/v2/config.json"]
    by_latest = ["/models/run/files/config.json?version=latest", "/run/resolve/latest/config.json",
                 "/run/resolve/main/config.json"]
    for target in by_name + by_latest:
        assert s.get(target).body == files["v2"]["config.json"], target
    newest = s.get("/v2/run/manifests/v2", kinds)
    assert s.get("/v2/run/manifests/latest", kinds).body == newest.body
    read(s, "run/v1")
    remove(s, root, "run/v2")
    for target in by_name:
        r = s.get(target)
        assert r.status == 200 and r.body == files["v2"]["config.json"], (target, r)
    assert s.get(by_name[1]).get("X-Tensord-Version") == "v2"
    again = s.get("/v2/run/manifests/v2", kinds)
    assert again.body == newest.body, again
    for target in by_latest:
        assert s.get(target).body == files["v1"]["config.json"], target
    listed = s.json("/models/run/versions")
    assert [v["version"] for v in listed["versions"]] == ["v1"] and listed["latest"] == "v1"
    remove(s, root, "run/v1")
    for target in by_latest + ["/v2/run/manifests/latest", "/v2/run/manifests/main", "/models/run/versions"]:
        assert s.get(target, kinds).status == 404, target
    assert s.get(by_name[0]).body == files["v2"]["config.json"]


def test_off_by_default(tmp_path):
    root = tmp_path / "root"
    write_version(root / "m", "m")
    write_version(root / "n", "n")
    with hashed_server(root) as s:
        read(s, "m")
        remove(s, root, "m")
        check_error(read(s, "m"), 404)
        s.wait_for(lambda: not held_below(s, root / "m"), "its files are closed")


def test_answers_under_way_end(run):
    """A reader that began before the removal gets all bytes."""
    s, root, _ = run
    big = write_version(root / "run/big", "big", elements=6_000_000)
    s.wait_for(lambda: "run/big" in s.ids(), "it is there")
    name = "model-00001-of-00002.safetensors"
    transfer = harness.Transfer(s, f"/models/run/big/files/{name}", rcvbuf=1 << 16)
    transfer.read(1 << 16)
    remove(s, root, "run/big")
    assert read(s, "run/big", name, [("Range", "bytes=-100")]).body == big[name][-100:]
    is_whole, data = transfer.finish()
    assert is_whole and data == big[name]


def test_tokens(tmp_path):
    """A client that may not see a model does not see it after its folder is removed, either."""
    root, tokens = tmp_path / "root", tmp_path / "tokens.json"
    for v in ("v1", "v2"):
        write_version(root / "run" / v, v)

    def new(name, glob):
        done = subprocess.run([harness.tensord_binary(), "token", "new", name, "--models", glob, "--json", "--tokens",
                               tokens], capture_output=True, text=True, check=True)
        return [("Authorization", f"Bearer {json.loads(done.stdout)['token']}")]
    all_of, only = new("all", "*"), new("only", "run/v2")
    with Server(root, "--tokens", tokens, "--keep-removed", "60") as s:
        assert read(s, "run/v1", headers=all_of).status == 200
        shutil.rmtree(root / "run/v1")
        s.wait_for(lambda: [m["id"] for m in s.get("/models", all_of).json()["models"]] == ["run/v2"], "it is gone")
        assert read(s, "run/v1", headers=all_of).status == 200
        never = s.get("/models/run/v9/files/config.json", only)
        hidden = read(s, "run/v1", headers=only)
        assert hidden.status == never.status == 404
        assert hidden.body.replace(b"v1", b"v9") == never.body
        assert s.get("/models/run/v1", only).status == 404 and read(s, "run/v1").status == 401


def test_a_repository_with_files_above_the_versions(tmp_path):
    """The Hub's repository is then the folder above, and a version a folder of it."""
    root = tmp_path / "root"
    files = write_version(root / "run/v1", "v1")
    write_version(root / "run/v2", "v2")
    (root / "run/latest.txt").write_text("v2")
    harness.age(root)
    with hashed_server(root, "--keep-removed", "60") as s:
        sha = s.json("/api/models/local/run")["sha"]
        assert s.get("/local/run/resolve/main/v1/config.json").body == files["config.json"]
        remove(s, root, "run/v1")
        name = "model-00002-of-00002.safetensors"
        assert s.get(f"/local/run/resolve/main/v1/{name}").body == files[name]
        assert s.get(f"/local/run/resolve/{sha}/v1/{name}").body == files[name]
        assert s.get(f"/local/run/resolve/{sha}/v9/{name}").status == 404
        assert s.json("/api/models/local/run")["sha"] != sha


def test_a_delete_through_the_server_removes_at_once(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with Server(root, "--publish", "local", "--keep-removed", "60") as s:
        data = harness.safetensors_bytes([tensor("w", "F32", (10,))])
        repo = publishing.Repo(s.port, "org/m")
        put = repo.ask("PUT", "/files/model.safetensors", data)
        assert put.status in (200, 201), put
        assert s.get("/models/org/m/files/model.safetensors").body == data
        assert repo.ask("DELETE").status == 204
        check_error(s.get("/models/org/m/files/model.safetensors"), 404)
        s.wait_for(lambda: not held_below(s, root / "models--org--m"), "its files are closed")


@pytest.mark.parametrize("client", ["native", "hub"])
def test_readers_of_versions_that_a_trainer_prunes(tmp_path, client):
    """8 readers of 4 versions, while the trainer keeps only one: no reader fails, every byte is right, and the disk is
    free within the time plus one second."""
    keep = 3
    root = tmp_path / "root"
    versions = [f"step-{i}" for i in range(4)]
    files = {v: write_version(root / "run" / v, v, shards=6, elements=50_000) for v in versions[:1]}
    started = threading.Barrier(3)
    failures = []

    def read_version(s, version, number):
        try:
            if client == "hub":
                out = tmp_path / f"out-{version}-{number}"
                call = f"snapshot_download('run/{version}', local_dir={str(out)!r}, max_workers=1)"
                env = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
                subprocess.run([sys.executable, "-c", f"from huggingface_hub import snapshot_download; {call}"],
                               env=env | {"HF_ENDPOINT": f"http://127.0.0.1:{s.port}", "HF_HOME": str(out) + "-home"},
                               check=True, timeout=120, capture_output=True)
                assert {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == files[version]
                return
            for name, data in sorted(files[version].items()):
                r = read(s, f"run/{version}", name)
                assert r.status == 200 and r.body == data, (version, name, r)
                if name == "config.json":
                    started.wait(30)                        # the trainer continues when both have begun
                time.sleep(0.1)
        except subprocess.CalledProcessError as e:
            failures.append(e.stderr.decode()[-2000:])
        except Exception as e:  # noqa: BLE001  all are reported
            failures.append(repr(e)[:2000])

    with hashed_server(root, "--keep-removed", str(keep)) as s:
        threads = []
        for i, version in enumerate(versions):
            if i > 0:
                files[version] = write_version(root / "run" / version, version, shards=6, elements=50_000)
                s.wait_for(lambda v=version: f"run/{v}" in s.ids(), version)
            if i > 0 and client == "native":
                shutil.rmtree(root / "run" / versions[i - 1])
            mine = [threading.Thread(target=read_version, args=(s, version, n)) for n in range(2)]
            for t in mine:
                t.start()
            threads += mine
            if client == "native":
                started.wait(30)
            elif i < 3:
                done = read(s, f"run/{version}", method="GET")
                assert done.status == 200
                s.wait_for(lambda v=version: any((tmp_path / f"out-{v}-{n}").exists() for n in range(2)), "begun", 60)
                shutil.rmtree(root / "run" / version)
        for t in threads:
            t.join(120)
        assert not failures, failures
        s.wait_for(lambda: not [p for p in held_below(s, root) if p.endswith("(deleted)")], "the disk is free",
                   timeout=keep + 5)
        assert s.ids() == ["run/step-3"]


def test_refused_options(tmp_path):
    for options in (["--keep-removed", "86401"], ["--keep-removed-models", "0"],
                    ["--keep-removed", "5", "--upstream", "http://127.0.0.1:1"]):
        done = subprocess.run([harness.tensord_binary(), "serve", tmp_path, *options], capture_output=True, text=True,
                              timeout=30)
        assert done.returncode != 0 and "--keep-removed" in done.stderr, done
