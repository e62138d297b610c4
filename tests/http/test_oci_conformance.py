"""The OCI distribution specification 1.1.1 for a registry that is pulled from: each test names the section of spec.md
that it checks. The conformance suite itself is not in Debian, and its sources need a newer Go; its
expectations of pulling and of discovery are among these."""
import hashlib
import json
import re

import gguf
import numpy as np
import pytest

import harness

NAME = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(\/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CODES = {"BLOB_UNKNOWN", "BLOB_UPLOAD_INVALID", "BLOB_UPLOAD_UNKNOWN", "DIGEST_INVALID", "MANIFEST_BLOB_UNKNOWN",
         "MANIFEST_INVALID", "MANIFEST_UNKNOWN", "NAME_INVALID", "NAME_UNKNOWN", "SIZE_INVALID", "UNAUTHORIZED",
         "DENIED", "UNSUPPORTED", "TOOMANYREQUESTS"}
REPO = "/v2/ns/model"
NOT_THERE = "sha256:" + hashlib.sha256(b"nothing has this digest").hexdigest()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("conformance") / "root"
    harness.write_by_hand(root / "ns/model/model.safetensors", [harness.tensor("w", "F32", (300, 40))])
    harness.write_by_hand(root / "ns/other/model.safetensors", [harness.tensor("w", "F32", (300, 41))])
    (root / "ns/model/config.json").write_text('{"model_type": "llama"}')
    w = gguf.GGUFWriter(root / "ns/model/model-Q4_K_M.gguf", "llama")
    w.add_tensor("output.weight", np.ones((16, 16), dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.hashed_server(root) as s:
        yield s


@pytest.fixture(scope="module")
def tags(srv):
    made = srv.json(f"{REPO}/tags/list")
    assert set(made) == {"name", "tags"} and made["name"] == "ns/model"
    return made["tags"]


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def manifest(srv, reference):
    r = srv.get(f"{REPO}/manifests/{reference}")
    assert r.status == 200, r
    return r


def descriptors(srv, tags):
    """Return digest -> size of everything that the manifests of all tags refer to: ("manifests" or "blobs", digest)."""
    found, left = {}, [manifest(srv, tag) for tag in tags]
    while left:
        made = json.loads(left.pop().body)
        for child in made.get("manifests", []):
            found["manifests", child["digest"]] = child["size"]
            left.append(manifest(srv, child["digest"]))
        for child in [made["config"], *made["layers"]] if "layers" in made else []:
            found["blobs", child["digest"]] = child["size"]
    return found


def check_failure(r, status, code):
    """Section "Error Codes": a JSON body has this form, and codes of the table alone."""
    assert r.status == status, r
    if r.body:
        errors = json.loads(r.body)["errors"]
        assert errors and all(set(e) <= {"code", "message", "detail"} and e["code"] in CODES for e in errors), r
        assert errors[0]["code"] == code, r


def test_determining_support(srv):
    """Section "Determining Support"."""
    assert srv.get("/v2/").status == srv.head("/v2/").status == 200


def test_listing_tags(tags):
    """Section "Listing Tags": well-formed, each once, in lexical order. 1.1.1 explains that as case-insensitive; the
    text after it allows the order of bytes, too, by which the suite cuts the list in two."""
    assert set(tags) == {"main", "flat", "image", "latest", "Q4_K_M"} and all(TAG.fullmatch(tag) for tag in tags)
    assert tags in (sorted(tags), sorted(tags, key=str.lower)) and len(set(tags)) == len(tags)


def test_listing_tags_in_pages(srv, tags):
    """Section "Listing Tags": `n`, `last` and `Link`, until the last page, which has no link."""
    for n in range(1, len(tags) + 2):
        target, found = f"{REPO}/tags/list?n={n}", []
        while target:
            r = srv.get(target)
            page = r.json()["tags"]
            assert r.status == 200 and len(page) <= n
            found += page
            link = r.get("Link")
            assert link or len(page) < n or found == tags
            target = link and re.fullmatch(r'<(/v2/[^>]*)>; *rel="?next"?', link)[1]
        assert found == tags
    for i, tag in enumerate(tags):
        assert srv.json(f"{REPO}/tags/list?last={tag}")["tags"] == tags[i + 1:]
        assert srv.json(f"{REPO}/tags/list?n=1&last={tag}")["tags"] == tags[i + 1:i + 2]


def test_listing_no_tags(srv):
    """Section "Listing Tags": "When `n` is zero, this endpoint MUST return an empty list, and MUST NOT include a `Link`
    header"."""
    r = srv.get(f"{REPO}/tags/list?n=0")
    assert r.status == 200 and r.json()["tags"] == [] and r.get("Link") is None


def test_pulling_manifests(srv, tags):
    """Section "Pulling manifests": 200, a type without parameters that is the manifest's own, and its digest."""
    for tag in tags:
        by_tag = manifest(srv, tag)
        digest = by_tag.get("Docker-Content-Digest")
        assert digest == digest_of(by_tag.body)
        assert by_tag.get("Content-Type") == json.loads(by_tag.body)["mediaType"] and ";" not in by_tag.get(
            "Content-Type")
        by_digest = manifest(srv, digest)
        assert by_digest.body == by_tag.body and by_digest.get("Docker-Content-Digest") == digest


@pytest.mark.parametrize("accept", [
    [], ["*/*"], [MANIFEST], [INDEX, MANIFEST], [f"{MANIFEST}, {INDEX};q=0.5, */*;q=0.1"],
    ["application/vnd.docker.distribution.manifest.v2+json"]])
def test_pulling_manifests_whatever_is_accepted(srv, tags, accept):
    """Section "Pulling manifests": a tag has one manifest, which clients get whole or refuse by its type; several
    Accept lines are one list (RFC 9110, 5.2)."""
    want = manifest(srv, "main")
    got = srv.get(f"{REPO}/manifests/main", [("Accept", a) for a in accept])
    assert (got.status, got.body, got.get("Content-Type")) == (200, want.body, want.get("Content-Type"))


def test_pulling_blobs(srv, tags):
    """Section "Pulling blobs": whatever a manifest refers to is there, and is what it is said to be."""
    found = descriptors(srv, tags)
    assert len(found) >= 9
    for (kind, digest), size in found.items():
        r = srv.get(f"{REPO}/{kind}/{digest}")
        assert r.status == 200 and digest_of(r.body) == digest == r.get("Docker-Content-Digest")
        assert len(r.body) == size == r.length


def test_pulling_blobs_by_range(srv, tags):
    """Section "Pulling blobs": "A registry SHOULD support the `Range` request header in accordance with RFC 9110"."""
    for (kind, digest), size in descriptors(srv, tags).items():
        if kind != "blobs" or size < 3:
            continue
        url = f"{REPO}/blobs/{digest}"
        whole = srv.get(url)
        assert whole.get("Accept-Ranges") == "bytes"
        for first, last in ((0, 0), (1, size - 2), (size - 1, size - 1), (size // 2, size + 100)):
            r = srv.get(url, [("Range", f"bytes={first}-{last}")])
            assert r.status == 206 and r.body == whole.body[first:last + 1]
            assert r.get("Content-Range") == f"bytes {first}-{min(last, size - 1)}/{size}"
        r = srv.get(url, [("Range", f"bytes={size}-")])
        assert r.status == 416 and r.get("Content-Range") == f"bytes */{size}"


def test_checking_if_content_exists(srv, tags):
    """Section "Checking if content exists in the registry": HEAD has the digest and the length."""
    for (kind, digest), size in descriptors(srv, tags).items():
        r = srv.head(f"{REPO}/{kind}/{digest}")
        assert (r.status, r.length, r.get("Docker-Content-Digest")) == (200, size, digest)
    for tag in tags:
        r, whole = srv.head(f"{REPO}/manifests/{tag}"), manifest(srv, tag)
        assert (r.status, r.length, r.get("Docker-Content-Digest"), r.get("Content-Type")) == \
            (200, len(whole.body), digest_of(whole.body), whole.get("Content-Type"))


@pytest.mark.parametrize("path, code", [
    (f"blobs/{NOT_THERE}", "BLOB_UNKNOWN"), (f"manifests/{NOT_THERE}", "MANIFEST_UNKNOWN"),
    ("manifests/.INVALID_MANIFEST_NAME", None), ("manifests/no-such-tag", "MANIFEST_UNKNOWN"),
    ("manifests/" + "a" * 128, "MANIFEST_UNKNOWN")])
def test_content_that_is_not_there(srv, path, code):
    """Sections "Pulling manifests" and "Pulling blobs": 404. The suite asks for a manifest of an invalid name, too, and
    takes 400 or 404."""
    for r in (srv.get(f"{REPO}/{path}"), srv.head(f"{REPO}/{path}")):
        if code is None:
            assert r.status in (400, 404), r
        else:
            check_failure(r, 404, code)


def test_a_name_that_is_not_there(srv, tags):
    """Section "Endpoints": 404 of each endpoint; "Error Codes": NAME_UNKNOWN."""
    for path in ("tags/list", "manifests/main", f"blobs/{NOT_THERE}"):
        check_failure(srv.get(f"/v2/ns/nothing/{path}"), 404, "NAME_UNKNOWN")


def test_a_blob_of_another_name(srv, tags):
    """Section "Pulling blobs": 404 "if the blob is not found in the repository"."""
    mine = descriptors(srv, tags)
    theirs = json.loads(srv.get("/v2/ns/other/manifests/main").body)["layers"]
    digest, = (one["digest"] for one in theirs if ("blobs", one["digest"]) not in mine)
    assert srv.get(f"/v2/ns/other/blobs/{digest}").status == 200
    check_failure(srv.get(f"{REPO}/blobs/{digest}"), 404, "BLOB_UNKNOWN")


@pytest.mark.parametrize("digest", ["sha256:123", "sha256:" + "g" * 64, "sha256:" + "A" * 64, "sha256",
                                    "md5:" + "0" * 32])
def test_a_digest_that_is_none(srv, digest):
    """Sections "Endpoints" and "Error Codes": a failure in the specification's form, never 200."""
    r = srv.get(f"{REPO}/blobs/{digest}")
    assert r.status in (400, 404), r
    check_failure(r, r.status, json.loads(r.body)["errors"][0]["code"])


def test_listing_referrers(srv, tags):
    """Section "Listing Referrers": an empty index of its own type, also for an unknown digest; 400 for a text that is
    not a digest."""
    for digest in (digest_of(manifest(srv, "main").body), NOT_THERE):
        for query in ("", "?artifactType=application/vnd.example.sbom.v1"):
            r = srv.get(f"{REPO}/referrers/{digest}{query}")
            made = json.loads(r.body)
            assert (r.status, r.get("Content-Type")) == (200, INDEX)
            assert (made["schemaVersion"], made["mediaType"], made["manifests"]) == (2, INDEX, [])
            assert r.get("Link") is None
    assert srv.get(f"{REPO}/referrers/sha256:123").status == 400


@pytest.mark.parametrize("method, path", [
    ("POST", "blobs/uploads/"), ("POST", f"blobs/uploads/?digest={NOT_THERE}"), ("PATCH", "blobs/uploads/1"),
    ("POST", f"blobs/uploads/?mount={NOT_THERE}&from=ns/other"), ("PUT", f"blobs/uploads/1?digest={NOT_THERE}"),
    ("PUT", "manifests/main"), ("DELETE", "manifests/main"), ("DELETE", f"blobs/{NOT_THERE}")])
def test_nothing_can_be_pushed_or_deleted(srv, method, path):
    """Sections "Endpoints" and "Error Codes": the operation is unsupported."""
    with srv.conn() as c:
        r = c.request(f"{REPO}/{path}", [], method, body=b"" if method in ("POST", "PUT", "PATCH") else None)
    check_failure(r, 405, "UNSUPPORTED")


def test_names(root, tmp_path):
    """Section "Pulling manifests": each name in the catalogue matches the specification's expression."""
    odd = ["A", "a..b", "--a--", "a___b", ".hidden.d", "Ünïcode", "a b/c d", "x/y/z", "A.B_C-D", "é", "a/-b-/_c_"]
    for i, name in enumerate(odd):
        harness.write_by_hand(tmp_path / "odd" / name / "model.safetensors", [harness.tensor("w", "U8", (8,), str(i))])
    harness.age(tmp_path)
    with harness.hashed_server(tmp_path / "odd") as s:
        names = s.json("/v2/_catalog")["repositories"]
        assert names and all(NAME.fullmatch(name) and len(name) <= 229 for name in names)
        for name in names:
            assert s.get(f"/v2/{name}/manifests/main").status == 200, name
