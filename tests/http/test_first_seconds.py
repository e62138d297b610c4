"""Before the server was ready once: what is not known yet is 503 with Retry-After, on every face, and never 404 or a
list with gaps."""
import os
import re
import time
import xml.etree.ElementTree as ET

import pytest

from harness import age, check_error, safetensors_bytes, tensor
from test_s3_port import S3
from test_tokens import new

SETTLE = 4       # seconds; long, since the machine may be busy while the first requests are sent
XML = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def write(root, name, *files):
    for file in files or ("model.safetensors",):
        path = root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'{"n": 1}\n' if file.endswith("l") or file.endswith("json") else
                         safetensors_bytes([tensor("w", "F32", [4])]))


@pytest.fixture
def root(tmp_path):
    """`old` has settled, `half` in part, all else was written this second."""
    root = tmp_path / "root"
    write(root, "old", "model.safetensors", "config.json")
    write(root, "half", "model.safetensors")
    age(root)
    write(root, "half", "config.json")
    write(root, "org/young")
    write(root, "datasets/rows", "train.jsonl")
    return root


@pytest.fixture
def early(root, start):
    """Start a server, and return it when its first scan has ended."""
    def go(*args, settle=SETTLE, **kw):
        s = start(root, "--s3-listen", "127.0.0.1:0", *args, settle=str(settle), ready=False, **kw)
        s.wait_for(lambda: s.get("/readyz").json()["scan"]["completed"] > 0, "the first scan")
        assert s.get("/readyz").status == 503
        return s
    return go


def s3_get(s, path, method="GET"):
    return S3(s).ask(path, (), method)


# Main port: what names something that is not known, and lists.
UNKNOWN = ["/models/org/young", "/models/org/young/tensors", "/models/org/young/tensors/w", "/models/none",
           "/models/org/young/files/model.safetensors", "/datasets/rows", "/datasets/rows/rows/0", "/datasets/none",
           "/models/old/files/none", "/models/half", "/models/half/tensors", "/models", "/models?match=old",
           "/datasets", "/models/org/young?wait=&timeout=0"]
HUB = ["/api/models", "/api/datasets", "/api/models/org/young", "/api/models/org/young/tree/main", "/api/datasets/rows",
       "/org/young/resolve/main/model.safetensors", "/datasets/rows/resolve/main/train.jsonl", "/api/models/half",
       "/api/models/local/half/revision/main", "/half/resolve/main/config.json", "/none/none/resolve/main/x",
       "/old/resolve/none/model.safetensors"]
OCI = ["/v2/_catalog", "/v2/org/young/tags/list", "/v2/org/young/manifests/latest", "/v2/local/half/tags/list",
       "/v2/org/young/blobs/sha256:" + 64 * "0", "/v2/none/tags/list"]
S3_PATHS = ["/", "/org/young/model.safetensors", "/none", "/none?list-type=2", "/local/old/none", "/local?list-type=2",
            "/local/half/config.json", "/local"]
KNOWN = ["/models/old", "/models/old/tensors", "/models/old/tensors/w", "/models/old/files/config.json",
         "/api/models/old", "/old/resolve/main/config.json", "/v2/", "/v2/local/old/tags/list", "/healthz", "/metrics",
         "/version", "/openapi.json"]


def check_early(answer, what):
    assert answer.status == 503 and int(answer.get("Retry-After")) >= 1, (what, answer)
    assert answer.get("Cache-Control") == "no-store"


def test_what_is_not_known_yet(early):
    """503 in the form of each facade; what is known is answered; and all is, once the server is ready."""
    with early() as s:
        for path in UNKNOWN:
            answer = s.get(path)
            check_early(answer, path)
            check_error(answer, 503, "not ready yet")
        for path in HUB:
            answer = s.get(path)
            check_early(answer, path)
            assert "not ready yet" in answer.json()["error"] and "not ready yet" in answer.get("X-Error-Message")
            assert answer.get("X-Error-Code") is None
        for path in OCI:
            answer = s.get(path)
            check_early(answer, path)
            assert [e["code"] for e in answer.json()["errors"]] == ["UNAVAILABLE"]
        for path in S3_PATHS:
            answer = s3_get(s, path)
            check_early(answer, path)
            error = ET.fromstring(answer.body)
            assert (error.tag, error.findtext("Code")) == ("Error", "ServiceUnavailable")
            assert "not ready yet" in error.findtext("Message")
        for path in UNKNOWN + HUB + OCI:
            check_early(s.request(path, method="HEAD"), path)
        check_early(s3_get(s, "/org/young/model.safetensors", "HEAD"), "HEAD")
        for path in KNOWN:
            assert s.get(path).status == 200, path
        assert s3_get(s, "/local/old/config.json").status == 200
        assert s.get("/readyz").status == 503, "the requests took too long; the test proves nothing"
        s.wait_for(lambda: s.get("/readyz").status == 200, "the server is ready", 30)
        assert s.ids() == ["half", "old", "org/young"]
        assert s.json("/datasets")["datasets"] == [{"id": "rows", "splits": ["train"]}]
        for path in UNKNOWN + HUB + OCI:
            if path.startswith("/v2/") or "/rows/" in path:
                continue
            wanted = 404 if "none" in path else 200
            assert s.get(path).status == wanted, path
        assert s.get("/v2/none/tags/list").status == 404
        names = [b.findtext(XML + "Name") for b in ET.fromstring(s3_get(s, "/").body).iter(XML + "Bucket")]
        assert {"local", "org"} <= set(names)
        assert s3_get(s, "/none").status == 404 and s3_get(s, "/local/half/config.json").status == 200


def test_browsers_do_not_see_half_a_list(early):
    with early() as s:
        for path in ("/", "/models/", "/org/young", "/models/half/"):
            check_early(s.get(path, {"Accept": "text/html"}), path)
        assert s.get("/models/old/", {"Accept": "text/html"}).status == 200


def test_hidden_names_are_not_known_either(early, tmp_path):
    tokens = tmp_path / "tokens.json"
    some = {"Authorization": "Bearer " + new(tokens, "some", "old")}
    with early("--tokens", tokens) as s:
        texts = set()
        for name in ("org/young", "none", "half"):
            answer = s.get(f"/models/{name}", some)
            check_early(answer, name)
            texts.add(answer.body)
        assert len(texts) == 1
        assert s.get("/models/old", some).status == 200
        assert s.get("/models/none").status == 401


def test_later_files_are_404_again(early):
    """Only what was there at the start is waited for."""
    with early(settle=1) as s:
        s.wait_for(lambda: s.get("/readyz").status == 200, "the server is ready", 30)
        write(s.root, "later")
        assert s.get("/models/later").status == 404
        assert "later" not in s.ids()
        s.wait_for(lambda: "later" in s.ids(), "it has settled", 30)


def test_a_file_that_never_settles_is_waited_for_no_longer(early, root):
    """The bound: about the settling time from the first scan on."""
    with early(settle=1) as s:
        began = time.monotonic()
        while s.get("/readyz").status == 503:
            write(root, "org/young")
            time.sleep(0.05)
            assert time.monotonic() - began < 20
        assert "old" in s.ids()
        assert s.get("/models/none").status == 404


def test_a_first_scan_that_takes_long(tmp_path, start):
    """The young file was young when the scan saw it, and is published by the next scan alone."""
    root = tmp_path / "root"
    write(root, "many", *(f"{i}.safetensors" for i in range(3000)))
    age(root)
    write(root, "young")
    os.utime(root / "young/model.safetensors", (time.time() + 9999,) * 2)   # settles when it was seen long enough
    with start(root, settle="0.1", ready=False) as s:
        s.wait_for(lambda: s.get("/readyz").status == 200, "the server is ready", 60, every=0.005)
        assert "young" in s.ids()
        took = float(re.search(r"indexed .* in ([0-9.]+) s", s.stderr())[1])
        assert took > 0.1, "the first scan was too short; the test proves nothing"


def test_too_few_models(tmp_path, start):
    """A volume that was forgotten: a missing name is 503 until --require-models was met once. Lists show the models
    that are there."""
    root = tmp_path / "root"
    root.mkdir()
    with start(root, "--require-models", "2", ready=False) as s:
        s.wait_for(lambda: s.get("/readyz").json()["state"] == "too few models", "the first scan")
        for path in ("/models/a", "/datasets/a", "/a/resolve/main/x", "/v2/a/tags/list", "/models/a?wait=&timeout=0"):
            answer = s.get(path)
            check_early(answer, path)
            assert "--require-models" in answer.body.decode(), answer.body
        assert s.ids() == [] and s.json("/datasets")["datasets"] == [] and s.json("/api/models") == []
        write(root, "a")
        age(root)
        s.wait_for(lambda: s.get("/models").status == 200 and s.ids() == ["a"], "the first model")
        assert s.get("/models/a").status == 200
        check_early(s.get("/models/b"), "b")
        write(root, "b")
        age(root)
        s.wait_for(lambda: s.get("/readyz").status == 200, "the second model")
        assert s.get("/models/c").status == 404
        for name in ("a", "b"):
            (root / name / "model.safetensors").unlink()
        s.wait_for(lambda: s.get("/readyz").json()["state"] == "too few models", "they are gone", 30)
        assert s.get("/models/a").status == 404 and s.ids() == []    # it was ready once
