"""Versions for stock clients: huggingface_hub, the newest and 0.36.2, takes one as a revision, skopeo as a tag; and
`tensord pull` and `push`. The expectations are the files that the test wrote."""
import json
import shutil
import subprocess
from pathlib import Path

import pytest

import harness
from client import HUB0, NEWEST, ClientError, Worker, digests
from registry import Box, Layout, titles


def write_version(root, path, salt):
    harness.write_by_hand(root / path / "model.safetensors", [harness.tensor("w", "F32", (30, 40), str(salt))])
    (root / path / "config.json").write_text(json.dumps({"model_type": "llama", "salt": salt}))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("versions") / "root"
    for number in (9, 10, 11):
        write_version(root, f"run/weight_v{number:06}", number)
        write_version(root, f"org/run/step-{number}", f"org {number}")
    harness.age(root)
    return root


@pytest.fixture(scope="module", params=["newest", "0.36.2"])
def hub(request, srv):
    python = HUB0 if request.param == "0.36.2" else NEWEST
    with Worker("calls_hub", python, HF_ENDPOINT=f"http://127.0.0.1:{srv.port}") as w:
        yield w


@pytest.mark.parametrize(("id", "prefix"), [("local/run", "run/weight_v0000"), ("org/run", "org/run/step-")])
def test_snapshots_of_versions(hub, root, tmp_path, id, prefix):
    for number in ("09", "10", "11"):
        folder = f"{prefix}{number if 'weight' in prefix else int(number)}"
        got = hub.snapshot(repo_id=id, revision=folder.split("/")[-1], cache_dir=str(tmp_path))
        assert digests(got) == digests(root / folder)
        by_commit = hub.snapshot(repo_id=id, revision=Path(got).name, cache_dir=str(tmp_path))
        assert by_commit == got
    latest = hub.snapshot(repo_id=id, revision="latest", cache_dir=str(tmp_path))
    assert latest == got
    with pytest.raises(ClientError) as caught:
        hub.snapshot(repo_id=id, revision="step-8", cache_dir=str(tmp_path))
    assert "RevisionNotFoundError" in caught.value.kinds


def test_one_segment_and_main(hub, root, tmp_path):
    got = hub.snapshot(repo_id="run", cache_dir=str(tmp_path))
    assert digests(got) == digests(root / "run/weight_v000011")
    got = hub.snapshot(repo_id="org/run", cache_dir=str(tmp_path))
    assert digests(got) == digests(root / "org/run")


def test_skopeo(srv, root, tmp_path):
    with Box() as box:
        tags = json.loads(box.ok("skopeo", "list-tags", "--tls-verify=false",
                                 f"docker://127.0.0.1:{srv.port}/local/run"))["Tags"]
        assert {"latest", "main", "weight_v000009", "weight_v000010", "weight_v000011"} <= set(tags)
        for tag, folder in (("weight_v000009", "weight_v000009"), ("latest", "weight_v000011")):
            box.ok("skopeo", "copy", "--src-tls-verify=false", "--preserve-digests",
                   f"docker://127.0.0.1:{srv.port}/local/run:{tag}", f"oci:{tmp_path / tag}:copy")
            assert titles(Layout(tmp_path / tag).artifact()) == digests(root / "run" / folder)


def tensord(*args):
    return subprocess.run([harness.tensord_binary(), *map(str, args)], capture_output=True, text=True, timeout=120,
                          check=False)


def test_pull(srv, root, tmp_path):
    for id, version, folder in (("run", "weight_v000009", "run/weight_v000009"),
                                ("run", "latest", "run/weight_v000011"), ("org/run", "step-10", "org/run/step-10")):
        out = tmp_path / folder.replace("/", "-")
        r = tensord("pull", f"http://127.0.0.1:{srv.port}", id, f"--revision={version}", "-o", out)
        assert r.returncode == 0, r
        assert digests(out) == digests(root / folder)
    r = tensord("pull", f"http://127.0.0.1:{srv.port}", "run", "--revision=weight_v7", "-o", tmp_path / "none")
    assert r.returncode != 0 and "weight_v000011" in r.stderr and not (tmp_path / "none").exists(), r


def test_a_push_makes_a_version(tmp_path):
    """Each revision that is pushed is a version, and a request that waits learns of it."""
    (tmp_path / "root").mkdir()
    with harness.hashed_server(tmp_path / "root", "--publish", "local") as s:
        url, tag = f"http://127.0.0.1:{s.port}", None
        for number in (1, 2, 3):
            write_version(tmp_path, "step", number)
            r = tensord("push", tmp_path / "step", url, "run/model", "--revision", f"weight_v{number:06}")
            assert r.returncode == 0, r
            answer = s.get(f"/models/run/model/versions?wait={tag}&timeout=60")
            tag = answer.etag.strip('"')
            listing = answer.json()
            assert listing["latest"] == f"weight_v{number:06}"
            assert [row["number"] for row in listing["versions"] if row["number"] is not None] == list(
                range(1, number + 1))
            r = tensord("pull", url, "run/model", "--revision=latest", "-o", tmp_path / "copy")
            assert r.returncode == 0 and digests(tmp_path / "copy") == digests(tmp_path / "step"), r
            shutil.rmtree(tmp_path / "copy")
        assert s.get("/models/run/model/tensors/w?version=1").body == harness.pattern(4800, "1w")
