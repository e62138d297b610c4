"""Pushing to the registry. The first table has the cases of the conformance suite of the OCI distribution specification
for pushing, content discovery and content management, by the names that the suite's report gives them; each function
checks what the specification says about that case."""
import hashlib
import json
import os
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import harness
from oci_push_kit import (INDEX, MANIFEST, MODEL_PATH, NOTHING, PLAIN, TITLE, Repo, code_of, described, digest_of,
                          index_of, layer, manifest_of)
from signing import TokensFile

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def noise(size, seed=0):
    return random.Random(f"{size} {seed}").randbytes(size)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("push") / "root"
    root.mkdir()
    harness.write_by_hand(root / "ns/owned/model.safetensors", [harness.tensor("w", "F32", (30, 40))])
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.Server(root, "--publish", "local") as s:
        yield s


@pytest.fixture
def repo(srv, request):
    """A repository of this test's own."""
    return Repo(srv, "t/" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:60])


def check_blob(repo, data):
    """The blob can be pulled, whole and in parts."""
    path = f"blobs/{digest_of(data)}"
    head, whole = repo.ask("HEAD", path), repo.get(path)
    assert head.status == whole.status == 200 and whole.body == data and head.length == len(data), (head, whole)
    assert head.get("Docker-Content-Digest") == digest_of(data)
    if len(data) > 10:
        part = repo.get(path, {"Range": "bytes=3-7"})
        assert part.status == 206 and part.body == data[3:8]
        assert part.get("Content-Range") == f"bytes 3-7/{len(data)}"


def is_made(r, repo, data):
    assert r.status == 201 and r.get("Location").endswith(f"/v2/{repo.name}/blobs/{digest_of(data)}"), r
    check_blob(repo, data)


# ---- the conformance suite's cases of blobs --------------------------------------------------------------

def get_missing(repo):
    r = repo.get(f"blobs/{digest_of(b'nothing has this')}")
    assert r.status == 404 and code_of(r) in ("BLOB_UNKNOWN", "NAME_UNKNOWN"), r


def post_only(repo):
    data = noise(512)
    is_made(repo.ask("POST", f"blobs/uploads/?digest={digest_of(data)}", data), repo, data)


def post_put(repo):
    data = noise(513)
    is_made(repo.finish(repo.begin(), data, data), repo, data)


def chunked_single(repo):
    data = noise(514)
    location = repo.begin()
    r = repo.patch(location, data, 0)
    assert r.status == 202 and r.get("Range") == "0-513" and r.get("Location"), r
    is_made(repo.finish(r.get("Location"), data), repo, data)


def send_chunks(repo, data, sizes, last_by_put=False, out_of_order=False):
    location, at = repo.begin(), 0
    for i, size in enumerate(sizes):
        if out_of_order:
            wrong = repo.patch(location, data[at + 1:at + 2], at + 1)
            assert wrong.status == 416 and UUID.search(wrong.get("Location")), wrong
            status = repo.get(location)
            assert status.status == 204 and status.get("Range") == f"0-{max(at - 1, 0)}", status
            location = status.get("Location")
        chunk = data[at:at + size]
        if last_by_put and i == len(sizes) - 1:
            return repo.finish(location, data, chunk, **{"Content-Range": f"{at}-{at + size - 1}"})
        r = repo.patch(location, chunk, at)
        at += size
        assert r.status == 202 and r.get("Range") == f"0-{at - 1}", r
        location = r.get("Location")
    return repo.finish(location, data)


def chunked_multi(repo):
    data = noise(3 * 1024 - 5)
    is_made(send_chunks(repo, data, [1024, 1024, 1019]), repo, data)


def chunked_multi_put(repo):
    data = noise(3 * 1024 - 6)
    is_made(send_chunks(repo, data, [1024, 1024, 1018], last_by_put=True), repo, data)


def chunked_disorder(repo):
    data = noise(3 * 1024 - 7)
    is_made(send_chunks(repo, data, [1024, 1024, 1017], out_of_order=True), repo, data)


def chunked_disorder_put(repo):
    data = noise(3 * 1024 - 8)
    is_made(send_chunks(repo, data, [1024, 1024, 1016], last_by_put=True, out_of_order=True), repo, data)


def send_streamed(repo, method, path, data):
    """Send a body of unknown length."""
    with repo.srv.conn() as conn:
        conn.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for at in range(0, len(data), 99999):
            chunk = data[at:at + 99999]
            conn.send(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        conn.send(b"0\r\n\r\n")
        return conn.read_response(method)


def stream(repo):
    data, location = noise(700000), repo.begin()
    r = send_streamed(repo, "PATCH", location.split(f":{repo.srv.port}", 1)[1], data)
    assert r.status == 202 and r.get("Range") == f"0-{len(data) - 1}", r
    is_made(repo.finish(r.get("Location"), data), repo, data)


def post_cancel(repo):
    location = repo.begin()
    assert repo.ask("DELETE", location).status == 204
    assert repo.ask("GET", location).status == 404 and repo.patch(location, b"x", 0).status == 404
    r = repo.ask("DELETE", location)
    assert r.status == 404 and code_of(r) == "BLOB_UPLOAD_UNKNOWN"


def mount(repo):
    data, other = noise(515), Repo(repo.srv, f"{repo.name}-source")
    other.blob(data)
    r = repo.ask("POST", f"blobs/uploads/?mount={digest_of(data)}&from={other.name}", b"")
    is_made(r, repo, data)


def mount_anonymous(repo):
    """Which repository has the blob is not said: the upload begins."""
    data, other = noise(516), Repo(repo.srv, f"{repo.name}-source")
    other.blob(data)
    r = repo.ask("POST", f"blobs/uploads/?mount={digest_of(data)}", b"")
    assert r.status == 202, r
    is_made(repo.finish(r.get("Location"), data, data), repo, data)


def mount_missing(repo):
    data, other = noise(517), Repo(repo.srv, f"{repo.name}-source")
    other.blob(noise(1))
    r = repo.ask("POST", f"blobs/uploads/?mount={digest_of(data)}&from={other.name}", b"")
    assert r.status == 202 and UUID.search(r.get("Location")), r
    is_made(repo.finish(r.get("Location"), data, data), repo, data)


def range_requests(repo):
    data = noise(2048)
    repo.blob(data)
    path = f"blobs/{digest_of(data)}"
    for span, first, last in (("500-1499", 500, 1499), ("500-", 500, 2047), ("-500", 1548, 2047),
                              ("2000-5000", 2000, 2047)):
        r = repo.get(path, {"Range": f"bytes={span}"})
        assert r.status == 206 and r.body == data[first:last + 1], r
        assert r.get("Content-Range") == f"bytes {first}-{last}/2048" and r.length == last - first + 1
    assert repo.get(path, {"Range": "bytes=500-0"}).status in (200, 416)
    assert repo.get(path, {"Range": "bytes=5000-10000"}).status == 416


def empty(repo):
    is_made(repo.finish(repo.begin(), b"", b""), repo, b"")


def empty_json(repo):
    is_made(repo.finish(repo.begin(), NOTHING, NOTHING), repo, NOTHING)


def is_wrong(r):
    assert r.status == 400 and code_of(r) == "DIGEST_INVALID", r


def bad_digest_post_only(repo):
    is_wrong(repo.ask("POST", f"blobs/uploads/?digest={digest_of(b'other')}", noise(600)))
    assert repo.get(f"blobs/{digest_of(b'other')}").status == 404


def bad_digest_post_put(repo):
    is_wrong(repo.finish(repo.begin(), b"other", noise(601)))


def bad_digest_chunked(repo):
    location = repo.begin()
    repo.patch(location, noise(602), 0)
    is_wrong(repo.finish(location, b"other"))
    assert repo.get(location).status == 404


def bad_digest_chunked_put(repo):
    location = repo.begin()
    repo.patch(location, noise(603), 0)
    is_wrong(repo.finish(location, b"other", noise(9), **{"Content-Range": "603-611"}))


def bad_digest_stream(repo):
    location = repo.begin()
    repo.patch(location, noise(604))
    is_wrong(repo.finish(location, b"other"))


def blob_delete(repo):
    """Blobs cannot be deleted: 405, which the specification asks for where deletion is disabled. A blob may be the file
    of a commit, or be found by a client that is about to name it (OCI_API_BLOBS_DELETE=false)."""
    digest = repo.blob(noise(605))
    r = repo.ask("DELETE", f"blobs/{digest}")
    assert r.status == 405 and code_of(r) == "UNSUPPORTED" and r.get("Allow") == "GET, HEAD"
    assert repo.ask("DELETE", f"blobs/{digest_of(b'nothing')}").status == 404


# ---- of manifests, tags and referrers --------------------------------------------------------------------

def check_manifest(repo, reference, text, kind=MANIFEST):
    head, whole = repo.ask("HEAD", f"manifests/{reference}"), repo.get(f"manifests/{reference}")
    assert head.status == whole.status == 200 and whole.body == text, (head, whole)
    for r in (head, whole):
        assert r.get("Content-Type") == kind and r.get("Docker-Content-Digest") == digest_of(text)
        assert r.length == len(text)


def image(repo, seed=0, **more):
    """Push the blobs of an image. Return its manifest."""
    data, config = noise(700, f"{repo.name}{seed}"), json.dumps({"architecture": "amd64", "seed": seed}).encode()
    repo.blob(data), repo.blob(config)
    return manifest_of(described(data, "application/vnd.oci.image.layer.v1.tar+gzip"), config=config, **more)


def pushes(repo, text, tag, kind=MANIFEST):
    by_digest, by_tag = repo.put(digest_of(text), text, kind), repo.put(tag, text, kind)
    for r in (by_digest, by_tag):
        assert r.status == 201 and r.get("Docker-Content-Digest") == digest_of(text), r
        assert r.get("Location").endswith(f"/manifests/{digest_of(text)}")
    check_manifest(repo, digest_of(text), text, kind)
    check_manifest(repo, tag, text, kind)
    assert repo.tags() == [tag]


def push_image(repo):
    pushes(repo, image(repo), "image")


def push_index(repo):
    one, two = image(repo, 1), image(repo, 2)
    assert repo.put(digest_of(one), one).status == repo.put(digest_of(two), two).status == 201
    pushes(repo, index_of(one, two), "index", INDEX)


def push_nested_index(repo):
    one = image(repo)
    repo.put(digest_of(one), one)
    inner = index_of(one)
    repo.put(digest_of(inner), inner, INDEX)
    outer = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [described(inner, INDEX)]}).encode()
    pushes(repo, outer, "nested", INDEX)


def push_artifact(repo):
    repo.blob(NOTHING)
    pushes(repo, manifest_of(described(NOTHING, "application/vnd.oci.empty.v1+json"),
                             artifactType="application/vnd.example.x"), "artifact")


def push_custom_fields(repo):
    pushes(repo, image(repo, **{"org.example.custom": {"nested": [1, None]}}), "custom")


def push_no_layers(repo):
    repo.blob(NOTHING)
    pushes(repo, manifest_of(), "none")


def push_large(repo):
    repo.blob(NOTHING)
    text = manifest_of(annotations={"org.example.large": "x" * (4 * 1024 * 1024 - 600)})
    assert 4 * 1024 * 1024 - 1000 < len(text) <= 4 * 1024 * 1024
    pushes(repo, text, "large")
    r = repo.put("larger", text + b" " * 1000)
    assert r.status == 413 and code_of(r) == "MANIFEST_INVALID", r
    r = send_streamed(repo, "PUT", f"/v2/{repo.name}/manifests/larger", text + b" " * 1000)
    assert r.status == 413 and code_of(r) == "MANIFEST_INVALID", r


def push_tag_parameters(repo):
    text, tags = image(repo), [f"tag-{i}" for i in range(10)]
    r = repo.put(f"{digest_of(text)}?{'&'.join(f'tag={tag}' for tag in tags)}", text)
    assert r.status == 201, r
    assert [t.strip() for line in r.all("OCI-Tag") for t in line.split(",")] == tags
    assert repo.tags() == tags
    check_manifest(repo, "tag-7", text)


def push_bad_digest(repo):
    text = image(repo)
    for reference in (digest_of(b"other"), "sha256:baddigeststring", "sha512:" + "0" * 128):
        is_wrong(repo.put(reference, text))
    assert repo.get("manifests/sha256:baddigeststring").status == 400


def push_missing_blob(repo):
    """A manifest whose blobs are not here is refused: a layer, the configuration, a manifest of an index. So is a layer
    of another size."""
    repo.blob(NOTHING)
    for text in (manifest_of(described(b"not here")), manifest_of(config=b"not here"), index_of(b"not here"),
                 manifest_of({**described(NOTHING), "size": 3})):
        r = repo.put("t", text, None)
        assert r.status == 400 and code_of(r) == "MANIFEST_BLOB_UNKNOWN" and "push it first" in r.body.decode(), r
    assert repo.tags() in (None, [])


def missing_manifest_by_digest(repo):
    repo.blob(NOTHING)
    r = repo.get(f"manifests/{digest_of(b'nothing')}")
    assert r.status == 404 and code_of(r) == "MANIFEST_UNKNOWN", r


def missing_manifest_by_tag(repo):
    repo.blob(NOTHING)
    r = repo.get("manifests/missing-tag")
    assert r.status == 404 and code_of(r) == "MANIFEST_UNKNOWN", r


def referrers_of_nothing(repo):
    assert repo.referrers(digest_of(b"nothing")) == []


def referrers(repo):
    subject = image(repo)
    of = {"subject": described(subject, MANIFEST)}
    repo.blob(NOTHING)
    kinds = {"application/vnd.example.a": manifest_of(artifactType="application/vnd.example.a",
                                                      annotations={"org.example.k": "v"}, **of),
             "application/vnd.oci.empty.v1+json": manifest_of(annotations={"n": "\u00e9"}, **of)}
    for kind, text in kinds.items():
        r = repo.put(digest_of(text), text)
        assert r.status == 201 and r.get("OCI-Subject") == digest_of(subject), r
    inner = index_of(**of)
    repo.put(digest_of(inner), inner, INDEX)
    assert repo.put("subject", subject).status == 201  # after its referrers
    found = {d["digest"]: d for d in repo.referrers(digest_of(subject))}
    assert len(found) == 3
    for kind, text in kinds.items():
        assert found[digest_of(text)] == {**described(text, MANIFEST), "artifactType": kind,
                                          "annotations": json.loads(text)["annotations"]}
        assert [d["digest"] for d in repo.referrers(digest_of(subject), f"?artifactType={kind}")] == [digest_of(text)]
    assert "artifactType" not in found[digest_of(inner)]
    r = repo.get(f"referrers/{digest_of(subject)}?artifactType=none")
    assert r.get("OCI-Filters-Applied") == "artifactType" and json.loads(r.body)["manifests"] == []
    assert repo.get("referrers/sha256:bad").status == 400


def tag_list(repo):
    repo.blob(NOTHING)
    tags = sorted(["a", "B", "c-1", "_d", "0.1"])
    for tag in tags:
        assert repo.put(tag, manifest_of()).status == 201
    assert repo.tags() == tags
    for i in range(len(tags)):
        assert repo.get(f"tags/list?last={tags[i]}").json()["tags"] == tags[i + 1:]
        assert repo.get(f"tags/list?n=2&last={tags[i]}").json()["tags"] == tags[i + 1:i + 3]
    assert repo.get("tags/list?n=0").json()["tags"] == []


def tag_delete(repo):
    text = image(repo)
    repo.put("one", text), repo.put("two", text)
    assert repo.ask("DELETE", "manifests/one").status == 202
    assert repo.get("manifests/one").status == 404 and repo.tags() == ["two"]
    check_manifest(repo, digest_of(text), text)
    r = repo.ask("DELETE", "manifests/one")
    assert r.status == 404 and code_of(r) == "MANIFEST_UNKNOWN", r


def manifest_delete(repo):
    text = image(repo)
    repo.put("one", text), repo.put("two", text), repo.put(digest_of(text), text)
    assert repo.ask("DELETE", f"manifests/{digest_of(text)}").status == 202
    for reference in ("one", "two", digest_of(text)):
        assert repo.get(f"manifests/{reference}").status == 404
    assert repo.tags() == []
    assert repo.ask("DELETE", f"manifests/{digest_of(text)}").status == 404
    assert Repo(repo.srv, "t/no-such-one").ask("DELETE", f"manifests/{digest_of(text)}").status == 404


def cycle(repo, *manifests):
    """Push, list, head and pull as the suite does each kind of data, and delete the tags, then the manifests, the
    last one first. manifests: of text, type and tag (None: pushed by digest alone)."""
    for text, kind, tag in manifests:
        for reference in (digest_of(text), *([tag] if tag else [])):
            r = repo.put(reference, text, kind)
            assert r.status == 201 and r.get("Docker-Content-Digest") == digest_of(text), r
    assert repo.tags() == sorted(tag for _, _, tag in manifests if tag)
    for text, kind, tag in manifests:
        for reference in (digest_of(text), *([tag] if tag else [])):
            check_manifest(repo, reference, text, kind)
    for reference in (*(tag for _, _, tag in manifests if tag),
                      *(digest_of(text) for text, _, _ in reversed(manifests))):
        assert repo.ask("DELETE", f"manifests/{reference}").status == 202
        assert repo.ask("HEAD", f"manifests/{reference}").status == 404


def uncompressed(repo):
    data = noise(701, repo.name)
    repo.blob(data), repo.blob(NOTHING)
    cycle(repo, (manifest_of(described(data, PLAIN)), MANIFEST, "uncompressed"))


def empty_index(repo):
    repo.blob(NOTHING)
    cycle(repo, (index_of(), INDEX, "empty-index"))


def artifact_index(repo):
    repo.blob(NOTHING)
    one, two = (manifest_of(described(NOTHING), artifactType=f"application/vnd.example.{i}") for i in "ab")
    cycle(repo, (one, MANIFEST, None), (two, MANIFEST, None),
          (index_of(one, two, artifactType="application/vnd.example.i"), INDEX, "artifact-index"))


def artifact_without_layers(repo):
    repo.blob(NOTHING)
    cycle(repo, (manifest_of(artifactType="application/vnd.example.x", annotations={"k": "v"}), MANIFEST, "artifact"))


def index_with_subject(repo):
    repo.blob(NOTHING)
    one = image(repo)
    subject = index_of(one)
    of = index_of(one, subject=described(subject, INDEX), artifactType="application/vnd.example.x",
                  annotations={"k": "v"})
    assert repo.put(digest_of(one), one).status == 201
    assert repo.put(digest_of(of), of, INDEX).get("OCI-Subject") == digest_of(subject)
    assert repo.referrers(digest_of(subject)) == [
        {**described(of, INDEX), "artifactType": "application/vnd.example.x", "annotations": {"k": "v"}}]
    cycle(repo, (one, MANIFEST, None), (subject, INDEX, "index"), (of, INDEX, None))
    assert repo.referrers(digest_of(subject)) == []


def missing_subject(repo):
    repo.blob(NOTHING)
    of = manifest_of(artifactType="application/vnd.example.x", subject=described(b"not here", MANIFEST))
    assert repo.put(digest_of(of), of).get("OCI-Subject") == digest_of(b"not here")
    assert [d["digest"] for d in repo.referrers(digest_of(b"not here"))] == [digest_of(of)]
    cycle(repo, (of, MANIFEST, "tagged-artifact"))
    assert repo.referrers(digest_of(b"not here")) == []


def data_field(repo):
    repo.blob(NOTHING)
    layers = {**described(NOTHING, "application/vnd.oci.empty.v1+json"), "data": "e30="}
    cycle(repo, (manifest_of(layers, artifactType="application/vnd.example.x"), MANIFEST, "data-field"))


def not_distributable(repo):
    """Layers that a registry need not have."""
    data = noise(702, repo.name)
    repo.blob(data), repo.blob(NOTHING)
    kind = "application/vnd.oci.image.layer.nondistributable.v1.tar"
    cycle(repo, (manifest_of(described(b"elsewhere", f"{kind}+gzip"), described(b"elsewhere too", kind),
                             described(data, "application/vnd.oci.image.layer.v1.tar+gzip")),
                 MANIFEST, "non-distributable-image"))


def sparse(repo):
    """Off by default in the suite, since a registry may refuse what is not whole: this one does."""
    one = image(repo)
    repo.put(digest_of(one), one)
    for text, kind in ((manifest_of(described(b"not here")), MANIFEST), (index_of(one, b"not here"), INDEX)):
        r = repo.put("sparse", text, kind)
        assert r.status == 400 and code_of(r) == "MANIFEST_BLOB_UNKNOWN", r


def sha512(repo):
    """This registry names blobs by SHA-256 alone, and says so before it takes a byte (OCI_DATA_SHA512=false)."""
    data = noise(703)
    digest = f"sha512:{hashlib.sha512(data).hexdigest()}"
    is_wrong(repo.ask("POST", f"blobs/uploads/?digest={digest}", data))
    is_wrong(repo.ask("POST", "blobs/uploads/?digest-algorithm=sha512", b""))
    is_wrong(repo.ask("PUT", f"{repo.begin()}?digest={digest}", data))
    text = image(repo)
    is_wrong(repo.put(f"sha512:{hashlib.sha512(text).hexdigest()}?tag=t", text))
    assert repo.get(f"blobs/{digest}").status == 404


def empty_tag_list(repo):
    """Of a repository that nothing was pushed to: 200 or 404 by the suite."""
    r = repo.get("tags/list")
    assert r.status == 404 and code_of(r) == "NAME_UNKNOWN", r


CONFORMANCE = {
    "sha256 blobs/get-missing": get_missing,
    "sha256 blobs/post only": post_only,
    "sha256 blobs/post+put": post_put,
    "sha256 blobs/chunked single": chunked_single,
    "sha256 blobs/stream": stream,
    "sha256 blobs/mount": mount,
    "sha256 blobs/mount anonymous": mount_anonymous,
    "sha256 blobs/mount missing": mount_missing,
    "sha256 blobs/post cancel": post_cancel,
    "sha256 blobs/chunked multi": chunked_multi,
    "sha256 blobs/chunked multi and put chunk": chunked_multi_put,
    "sha256 blobs/chunked out-of-order": chunked_disorder,
    "sha256 blobs/chunked out-of-order and put chunk": chunked_disorder_put,
    "sha256 blobs/range requests": range_requests,
    "sha256 blobs/empty": empty,
    "sha256 blobs/emptyJSON": empty_json,
    "sha256 blobs/bad digest post only": bad_digest_post_only,
    "sha256 blobs/bad digest post+put": bad_digest_post_put,
    "sha256 blobs/bad digest chunked": bad_digest_chunked,
    "sha256 blobs/bad digest chunked and put chunk": bad_digest_chunked_put,
    "sha256 blobs/bad digest stream": bad_digest_stream,
    "blob-delete": blob_delete,
    "Image/manifest-by-digest, manifest-by-tag, manifest-head, manifest-get": push_image,
    "Index": push_index,
    "Nested Index": push_nested_index,
    "Artifact": push_artifact,
    "Custom Fields": push_custom_fields,
    "No Layers": push_no_layers,
    "Large Manifest": push_large,
    "Tag Param": push_tag_parameters,
    "Bad Digest Image, invalid-digest-format": push_bad_digest,
    "missing blob: MANIFEST_BLOB_UNKNOWN": push_missing_blob,
    "missing-manifest/by-digest": missing_manifest_by_digest,
    "missing-manifest/by-tag": missing_manifest_by_tag,
    "Image Uncompressed": uncompressed,
    "Empty Index": empty_index,
    "Artifact Index": artifact_index,
    "Artifact without Layers": artifact_without_layers,
    "Index with Subject": index_with_subject,
    "Missing Subject": missing_subject,
    "Data Field": data_field,
    "Non-distributable Layers": not_distributable,
    "Sparse Manifests": sparse,
    "sha512 blobs, Digest Algorithm sha512, Tag Param sha512": sha512,
    "empty/tag list": empty_tag_list,
    "empty/referrers": referrers_of_nothing,
    "referrers": referrers,
    "tag-list": tag_list,
    "tag-delete": tag_delete,
    "manifest-delete": manifest_delete,
}


@pytest.mark.parametrize("case", CONFORMANCE.values(), ids=CONFORMANCE.keys())
def test_conformance(case, repo):
    case(repo)


# ---- files -----------------------------------------------------------------------------------------------

def test_layers_with_titles_are_files_on_every_face(srv, repo):
    files = {"config.json": b'{"model_type": "llama"}', "sub/notes.txt": b"notes", "weights.bin": noise(300000)}
    text = repo.push("v1", files)
    assert repo.files("v1") == repo.files() and set(repo.files()) == set(files)
    for path, data in files.items():
        assert srv.get(f"/models/{repo.name}/files/{path}").body == data
        assert srv.get(f"/{repo.name}/resolve/v1/{path}").body == data
    check_manifest(repo, "v1", text)
    commits = srv.json(f"/models/{repo.name}/commits")
    assert set(commits["refs"]) == {"main", "v1"} and commits["refs"]["main"] == commits["refs"]["v1"]
    made = json.loads(repo.get("manifests/main").body)  # the server's own, of the same files
    assert {la["digest"] for la in made["layers"]} == {digest_of(data) for data in files.values()}
    assert made["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"


def test_a_tag_has_exactly_the_files_of_its_manifest(srv, repo):
    repo.push("v1", {"a": b"1", "b": b"2"})
    main = srv.json(f"/models/{repo.name}/commits")["refs"]["main"]
    repo.push("v2", {"a": b"3"})
    assert set(repo.files("v1")) == {"a", "b"} and set(repo.files("v2")) == {"a"}
    assert srv.json(f"/models/{repo.name}/commits")["refs"]["main"] == main
    repo.push("latest", {"c": b"4"})
    assert set(repo.files()) == {"c"} and set(repo.files("v1")) == {"a", "b"}
    repo.push("v1", {"d": b"5"})
    assert set(repo.files("v1")) == {"d"}
    assert {"v1", "v2", "main", "latest"} <= set(repo.tags())


def test_the_pushed_bytes_answer_until_the_revision_moves(srv, repo):
    first = repo.push("latest", {"config.json": b"{}"}, annotations={"n": "1"})
    second = repo.push("latest", {"config.json": b"{}"}, annotations={"n": "2"})  # the same commit
    check_manifest(repo, "latest", second)
    check_manifest(repo, digest_of(first), first)
    with srv.conn() as conn:
        r = conn.request(f"/models/{repo.name}/files/more.txt", method="PUT", body=b"more")
    assert r.status == 201, r
    made = repo.get("manifests/latest")
    assert made.body != second and len(json.loads(made.body)["layers"]) == 2
    check_manifest(repo, digest_of(second), second)  # by digest it is still here
    again = repo.push("latest", {"config.json": b"{}"}, annotations={"n": "3"})
    check_manifest(repo, "latest", again)
    assert set(repo.files()) == {"config.json"}


@pytest.mark.parametrize("layers, paths", [
    ([("application/vnd.cncf.model.weight.v1.raw", MODEL_PATH, "w/model.bin")], ["w/model.bin"]),
    ([("application/vnd.cncf.model.weight.v1.tar", MODEL_PATH, "w"),
      ("application/vnd.cncf.model.doc.v1.raw", MODEL_PATH, "README.md")], ["README.md"]),
    ([("application/vnd.oci.image.layer.v1.tar+gzip", TITLE, "folder"), (PLAIN, TITLE, "a.bin")], ["a.bin"]),
    ([("application/vnd.ollama.image.model", None, None), ("application/vnd.ollama.image.license", None, None),
      ("application/vnd.ollama.image.params", None, None)], ["LICENSE", "model.gguf", "params"]),
    ([("application/vnd.kitops.modelkit.model.v1.tar+gzip", None, None)], None),
])
def test_which_layers_become_files(repo, layers, paths):
    made = []
    for i, (kind, key, path) in enumerate([*layers]):
        data = noise(50, i)
        repo.blob(data)
        made.append(layer(path, data, kind, key) if key else described(data, kind))
    repo.blob(NOTHING)
    text = manifest_of(*made)
    assert repo.put("v1", text).status == 201
    check_manifest(repo, "v1", text)
    assert (repo.files("v1") and sorted(repo.files("v1"))) == paths
    for i in range(len(layers)):
        check_blob(repo, noise(50, i))  # also those that are no files


@pytest.mark.parametrize("path", ["../a", "/etc/passwd", "a/../b", "", ".hidden", "a//b", "x" * 300, "a\nb", "a\x00b"])
def test_bad_paths(repo, path):
    data = b"data"
    repo.blob(data), repo.blob(NOTHING)
    r = repo.put("v1", manifest_of(layer(path, data)))
    assert r.status == 400 and code_of(r) == "MANIFEST_INVALID", r
    assert repo.tags() in (None, []) and not repo.files()


def test_paths_that_collide(repo):
    data = b"data"
    repo.blob(data), repo.blob(NOTHING)
    for paths in (("a", "a"), ("a", "a/b")):
        r = repo.put("v1", manifest_of(*(layer(path, data) for path in paths)))
        assert r.status == 400 and code_of(r) == "MANIFEST_INVALID", r


# ---- uploads ---------------------------------------------------------------------------------------------

def test_answers_of_a_session(srv, repo):
    r = repo.ask("POST", "blobs/uploads/", b"", {"Host": "registry.example:5000"})
    uuid = r.get("Docker-Upload-UUID")
    assert r.status == 202 and UUID.fullmatch(uuid), r
    assert r.get("Location") == f"http://registry.example:5000/v2/{repo.name}/blobs/uploads/{uuid}"  # for Ollama
    r = repo.ask("POST", "blobs/uploads", b"")
    assert r.status == 202 and r.get("Connection") is None, r
    other = Repo(srv, "t/other")
    location = r.get("Location").replace(repo.name, other.name)
    assert repo.get(location).status == 404  # of this repository alone


def test_a_chunk_with_wrong_fields(repo):
    location = repo.begin()
    for span in ("bytes=0-3", "0", "3-0", "x-y", "0-3/4", "-"):
        r = repo.ask("PATCH", location, b"1234", {"Content-Range": span})
        assert r.status == 400 and code_of(r) == "BLOB_UPLOAD_INVALID", r
    r = repo.ask("PATCH", location, b"1234", {"Content-Range": "0-9"})
    assert r.status == 400 and code_of(r) == "SIZE_INVALID", r
    assert repo.get(location).get("Range") == "0-0"
    assert repo.patch(location, b"1234", 0).status == 202
    r = repo.ask("PUT", location, b"")
    assert r.status == 400 and code_of(r) == "DIGEST_INVALID", r
    for digest in ("x", "sha512:" + "0" * 128, "sha256:" + "A" * 64):
        r = repo.ask("PUT", f"{location}?digest={digest}", b"")
        assert r.status == 400 and code_of(r) == "DIGEST_INVALID", r
    assert repo.finish(location, b"1234").status == 201
    assert repo.finish(location, b"1234").status == 201  # a client whose first answer was lost
    assert repo.finish(location, b"other").status == 404


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "dead"])
@pytest.mark.parametrize("sent", [0, 1, 100000, 1500000])
def test_a_cut_chunk_does_not_count(repo, sent, closes):
    """The client sends the chunk again at once, when the server may not know of the cut yet, or never learns of it."""
    data, location = noise(3000000), repo.begin()
    assert repo.patch(location, data[:1000000], 0).status == 202
    with repo.srv.conn() as conn:
        path = location.split(f":{repo.srv.port}", 1)[1]
        conn.send(f"PATCH {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n"
                  "Content-Range: 1000000-2999999\r\n\r\n".encode() + noise(sent, "other"))
        repo.srv.wait_for(lambda: repo.srv.gauge("tensord_uploads") == 1, "the upload begins")
        if closes:
            conn.close()
        r = repo.patch(location, data[1000000:], 1000000)
        assert r.status == 202 and r.get("Range") == "0-2999999", r
        if not closes:  # what the dead one sends still is not taken
            conn.send(noise(2000000 - sent, "other"))
            r = conn.read_response("PATCH")
            assert r.status == 409 and code_of(r) == "BLOB_UPLOAD_INVALID", r
    is_made(repo.finish(location, data), repo, data)


def test_sessions_and_blobs_stay_after_a_kill(tmp_path, start):
    root = tmp_path / "root"
    root.mkdir()
    first = harness.Server(root, "--publish", "local")
    repo = Repo(first, "org/m")
    location = repo.begin()
    data = noise(700001)
    repo.patch(location, data, 0)
    text = repo.push("v1", {"a": b"1"})
    plain = manifest_of(config=b"plain")
    repo.blob(b"plain")
    assert repo.put("image", plain).status == 201
    only = Repo(first, "org/only-an-image")
    only.blob(b"plain")
    assert only.put("latest", plain).status == 201
    first.kill()
    second = start(root, "--publish", "local")
    repo, only = Repo(second, "org/m"), Repo(second, "org/only-an-image")
    location = location.replace(f":{first.port}", f":{second.port}")
    r = repo.get(location)
    assert r.status == 204 and r.get("Range") == f"0-{len(data) - 1}", r
    assert repo.patch(location, b"5", len(data)).status == 202
    is_made(repo.finish(location, data + b"5"), repo, data + b"5")
    assert not os.listdir(root / ".tensord-publish/sessions")
    check_manifest(repo, "v1", text)
    check_manifest(repo, "image", plain)
    check_manifest(only, "latest", plain)
    assert only.tags() == ["latest"] and not only.files()
    check_blob(only, b"plain")
    assert not os.listdir(root / ".tensord-publish/incoming")
    third = start(root)  # reads only
    assert Repo(third, "org/m").files("v1").keys() == {"a"}
    assert Repo(third, "org/m").put("v2", plain).status == 405
    assert Repo(third, "org/m").ask("POST", "blobs/uploads/", b"").status == 405


def test_a_push_continues_over_kills_of_the_server(tmp_path):
    """A client that asks the session's path how far it is, and sends the rest in parts."""
    root = tmp_path / "root"
    root.mkdir()
    data, rng, location, counted = noise(12_000_000), random.Random(5), None, 0
    for last in (False,) * 6 + (True,):
        srv = harness.Server(root, "--publish", "local")
        repo = Repo(srv, "org/m")
        location = location and re.sub(r":[0-9]+/", f":{srv.port}/", location, count=1)
        location = location or repo.begin()
        r = repo.get(location)
        at = int(r.get("Range").split("-")[1]) + 1 if r.get("Range") != "0-0" else 0
        assert r.status == 204 and at >= counted, (r, counted)
        killer = None if last else threading.Timer(rng.uniform(0.001, 0.1), srv.kill)
        if killer:
            killer.start()
        try:
            while at < len(data):
                size = rng.choice([1 if at else 2, 4096, 100_000, 524_288, 700_001])  # "0-0" also stands for one byte
                r = repo.patch(location, data[at:at + size], at)
                assert r.status == 202, r
                at = counted = min(at + size, len(data))
            if last:
                is_made(repo.finish(location, data), repo, data)
        except (OSError, harness.Incomplete):  # the server was killed
            assert not last
        if killer:
            killer.join()
        else:
            srv.stop()
    assert not os.listdir(root / ".tensord-publish/sessions") + os.listdir(root / ".tensord-publish/incoming")


def test_no_room(tmp_path, start):
    root = tmp_path / "root"
    root.mkdir()
    srv = start(root, "--publish", "local", "--publish-max-bytes", "1000000")
    repo = Repo(srv, "org/m")
    repo.push("v1", {"a": noise(1000)})
    location = repo.begin()
    assert repo.patch(location, noise(600000), 0).status == 202
    r = repo.patch(location, noise(600000), 600000)
    assert r.status == 507, r
    assert repo.get(location).get("Range") == "0-599999"
    assert repo.ask("POST", f"blobs/uploads/?digest={digest_of(noise(500000))}", noise(500000)).status == 507
    assert repo.ask("DELETE", location).status == 204
    repo.blob(noise(500000))


# ---- the requests of clients that are in no package ------------------------------------------------------

def test_as_ollama(srv):
    """`ollama push`: a relative Location fails, each part is sent with its range and tried again, and the manifest has
    Docker's type. Then `ollama pull` finds it by the tag."""
    repo = Repo(srv, "library/own", {"User-Agent": "ollama/0.9.0 (amd64 linux) Go/go1.24"})
    model, config = noise(2500000), json.dumps({"model_format": "gguf"}).encode()
    for data in (model, config, b"MIT"):
        assert repo.ask("HEAD", f"blobs/{digest_of(data)}").status == 404
        r = repo.ask("POST", "blobs/uploads/", b"")
        location = r.get("Location")
        assert location.startswith("http://"), r
        for first in range(0, len(data), 1000000):
            part = data[first:first + 1000000]
            fields = {"Content-Range": f"{first}-{first + len(part) - 1}", "X-Redirect-Uploads": "1"}
            r = repo.ask("PATCH", location, part, fields)
            assert r.status == 202, r
            location = r.get("Location")
        r = repo.ask("PUT", f"{location}?digest={digest_of(data)}&etag=abc-3", b"")
        assert r.status == 201, r
    docker = "application/vnd.docker.distribution.manifest.v2+json"
    text = json.dumps({"schemaVersion": 2, "mediaType": docker,
                       "config": described(config, "application/vnd.docker.container.image.v1+json"),
                       "layers": [described(model, "application/vnd.ollama.image.model"),
                                  described(b"MIT", "application/vnd.ollama.image.license")]}).encode()
    assert repo.put("latest", text, docker).status == 201
    check_manifest(repo, "latest", text, docker)
    check_blob(repo, model)
    assert set(repo.files()) == {"model.gguf", "LICENSE"}


def test_as_crane(repo):
    """`crane push`: a POST with a type and no body, a PATCH without a range, a PUT without a body."""
    data, config = noise(100000), b'{"architecture": "arm64"}'
    for blob in (data, config):
        r = repo.ask("POST", "blobs/uploads/", b"", {"Content-Type": "application/json"})
        r = repo.patch(r.get("Location"), blob)
        assert r.status == 202, r
        is_made(repo.finish(r.get("Location"), blob), repo, blob)
    text = manifest_of(described(data, "application/vnd.oci.image.layer.v1.tar+gzip"), config=config)
    assert repo.put("v1", text).status == 201
    check_manifest(repo, "v1", text)


def test_as_cosign(repo):
    """`cosign sign` writes a tag that is named after the digest, for an image that only the server knows."""
    repo.push("v1", {"config.json": b"{}"})
    made = repo.ask("HEAD", "manifests/main").get("Docker-Content-Digest")  # of a manifest that the server makes
    payload = json.dumps({"critical": {"image": {"docker-manifest-digest": made}}}).encode()
    repo.blob(payload)
    text = manifest_of(described(payload, "application/vnd.dev.cosign.simplesigning.v1+json",
                                 annotations={"dev.cosignproject.cosign/signature": "MEUC"}))
    tag = f"{made.replace(':', '-')}.sig"
    assert repo.put(tag, text).status == 201
    check_manifest(repo, tag, text)
    check_blob(repo, payload)
    of = manifest_of(subject={"mediaType": MANIFEST, "digest": made, "size": 1},
                     artifactType="application/vnd.example.sbom")
    assert repo.put(digest_of(of), of).status == 201
    assert [d["artifactType"] for d in repo.referrers(made)] == ["application/vnd.example.sbom"]
    assert set(repo.files()) == {"config.json"} and repo.ask("HEAD", "manifests/main").get(
        "Docker-Content-Digest") == made


# ---- who may, and where ----------------------------------------------------------------------------------

def test_rights(tmp_path, start):
    root = tmp_path / "root"
    root.mkdir()
    tokens = TokensFile(tmp_path / "tokens.json").add("reader").add("writer", ["org/*"]).add("other", ["elsewhere/*"])
    for name in ("writer", "other"):
        tokens.tokens[name]["rights"] = ["read", "write"]
    tokens.write()
    srv = start(root, "--publish", "any", "--tokens", tokens)
    writer = Repo(srv, "org/m", tokens.bearer("writer"))
    text = writer.push("v1", {"a": b"1"})
    location = writer.begin()
    for who, status, code in (({}, 401, "UNAUTHORIZED"), (tokens.bearer("reader"), 403, "DENIED"),
                              (tokens.bearer("other"), 403, "DENIED")):
        repo = Repo(srv, "org/m", who)
        for method, target, body in (("POST", "blobs/uploads/", b""), ("PATCH", location, b"x"),
                                     ("PUT", "manifests/v1", text), ("DELETE", "manifests/v1", None),
                                     ("DELETE", location, None), ("GET", location, None)):
            r = repo.ask(method, target, body)
            assert r.status == status and code_of(r) == code, (who, r)
            assert status != 401 or "Basic" in r.get("WWW-Authenticate"), r
    # a blob of a repository that the caller may not see cannot be mounted
    other = Repo(srv, "elsewhere/m", tokens.bearer("other"))
    r = other.ask("POST", f"blobs/uploads/?mount={digest_of(b'1')}&from=org/m", b"")
    assert r.status == 202, r
    assert other.get(f"blobs/{digest_of(b'1')}").status == 404
    # what was pushed without a commit is seen by those alone who may see its name
    plain = manifest_of(config=b"plain")
    image = Repo(srv, "org/image", tokens.bearer("writer"))
    image.blob(b"plain")
    assert image.put("t", plain).status == 201
    for target in ("tags/list", "manifests/t", f"manifests/{digest_of(plain)}", f"blobs/{digest_of(b'plain')}"):
        assert image.get(target).status == Repo(srv, "org/image", tokens.bearer("reader")).get(target).status == 200
        r = Repo(srv, "org/image", tokens.bearer("other")).get(target)
        assert r.status == 404, r
    assert Repo(srv, "org/image", tokens.bearer("other")).referrers(digest_of(plain)) == []
    log = srv.stderr()
    assert re.search(r'publish: manifest=sha256:\w+ token=writer files=1 reference="v1" model="org/m"', log)


def test_names(srv, root):
    for name in ("a/b/c", "a--b", "Org/Name", "org/na_-me", "org/x" * 60):
        r = Repo(srv, name).ask("POST", "blobs/uploads/", b"")
        assert r.status == 400 and code_of(r) == "NAME_INVALID", r
    r = Repo(srv, "ns/owned").ask("POST", "blobs/uploads/", b"")
    assert r.status == 409 and code_of(r) == "DENIED", r
    assert os.listdir(root / "ns/owned") == ["model.safetensors"]
    # the name of one segment has the default namespace
    Repo(srv, "local/single").push("v1", {"a": b"1"})
    assert Repo(srv, "single").get("manifests/v1").status == 200
    assert srv.get("/local/single/resolve/v1/a").body == b"1"
    # an id with capital letters, published by its id, is the same repository by its name
    with srv.conn() as conn:
        assert conn.request("/models/Org/Capital/files/a", method="PUT", body=b"1").status == 201
    Repo(srv, "org/capital").push("v2", {"b": b"2"})
    assert srv.get("/Org/Capital/resolve/v2/b").body == b"2"


@pytest.mark.parametrize("tag", ["-x", ".x", "x" * 129, "a b", "a%2Fb", "\u00e9"])
def test_bad_tags(repo, tag):
    repo.blob(NOTHING)
    r = repo.ask("PUT", f"manifests/{tag}".encode().decode("latin1").replace(" ", "%20"), manifest_of(),
                 {"Content-Type": MANIFEST})
    assert r.status in (400, 404), r


def test_tags_that_no_revision_can_have(repo):
    commit = "0123456789" * 4
    repo.blob(NOTHING)
    assert repo.put(commit, manifest_of()).status == 201
    check_manifest(repo, commit, manifest_of())
    repo.blob(b"1")
    r = repo.put(commit, manifest_of(layer("a", b"1")))
    assert r.status == 400 and "no revision can be named" in r.body.decode(), r


def test_types(repo):
    repo.blob(NOTHING)
    text = manifest_of()
    for kind in ("text/html", "application/json", INDEX):
        r = repo.put("t", text, kind)
        assert r.status == 400 and code_of(r) == "MANIFEST_INVALID", r
    assert repo.put("t", text, f"{MANIFEST}; charset=utf-8").status == 201
    assert repo.put("t", text, None).status == 201
    r = repo.put("t", text.replace(MANIFEST.encode(), b"text/html"), "text/html")
    assert r.status == 400 and code_of(r) == "MANIFEST_INVALID", r
    bare = json.loads(text)
    del bare["mediaType"]
    assert repo.put("bare", json.dumps(bare).encode()).status == 201
    check_manifest(repo, "bare", json.dumps(bare).encode())
    assert repo.put("t", manifest_of(artifactType="application/" + "x" * 243)).status == 201
    long = manifest_of(artifactType="application/" + "x" * 244)
    for wrong in (long, b"", b"{}", b"[]", b"\xff", text[:-1], b"[" * 100000):
        r = repo.put("t", wrong, None)
        assert r.status == 400 and code_of(r) == "MANIFEST_INVALID", r


# ---- deletion --------------------------------------------------------------------------------------------

def test_deleting_tags_of_files(srv, repo):
    first, _ = repo.push("v1", {"a": b"1"}), repo.push("v2", {"a": b"2"})
    assert repo.ask("DELETE", "manifests/v2").status == 202
    assert repo.get("manifests/v2").status == 404 and not repo.files("v2") and repo.files("v1") is not None
    assert repo.ask("DELETE", f"manifests/{digest_of(first)}").status == 202
    for reference in ("v1", "main", "latest", digest_of(first)):
        assert repo.get(f"manifests/{reference}").status == 404
    assert not repo.files() and repo.tags() is None  # main was made by the first tag, and goes with the last


def test_main_stays_when_it_was_pushed_itself(repo):
    repo.push("v1", {"a": b"1"}), repo.push("latest", {"a": b"1"})
    assert repo.ask("DELETE", "manifests/v1").status == 202
    assert set(repo.files()) == {"a"} and repo.get("manifests/latest").status == 200
    assert repo.ask("DELETE", "manifests/latest").status == 202
    assert not repo.files() and repo.get("manifests/latest").status == 404


def test_deleting_main_beside_others(srv, repo):
    repo.push("latest", {"a": b"1"}), repo.push("v1", {"a": b"1", "b": b"2"})
    assert repo.ask("DELETE", "manifests/latest").status == 202
    assert set(repo.files("v1")) == {"a", "b"} and not repo.files()
    assert repo.get("manifests/v1").status == 200 and repo.get("manifests/latest").status == 404
    assert repo.get("manifests/main").status == 404
    assert "latest" not in repo.tags() and "v1" in repo.tags()


def test_an_image_beside_a_model(repo):
    """An image and a signature are kept beside the files of a model, and are deleted on their own."""
    files = repo.push("v1", {"a": b"1"})
    plain = image(repo)
    assert repo.put("runtime", plain).status == 201
    signature = manifest_of(described(NOTHING), artifactType="application/vnd.dev.cosign.simplesigning.v1+json",
                            subject=described(files, MANIFEST))
    tag = digest_of(files).replace(":", "-") + ".sig"
    assert repo.put(tag, signature).status == 201
    assert [d["digest"] for d in repo.referrers(digest_of(files))] == [digest_of(signature)]
    assert {"v1", "runtime", tag} <= set(repo.tags()) and set(repo.files()) == {"a"}
    assert repo.ask("DELETE", "manifests/runtime").status == 202
    check_manifest(repo, tag, signature)
    assert set(repo.files()) == {"a"}


@pytest.mark.parametrize("by", ["tag", "digest"])
@pytest.mark.parametrize("tag", ["latest", "v1"])
def test_deleting_an_image_leaves_the_revision(srv, repo, tag, by):
    revision = {"latest": "main"}.get(tag, tag)
    repo.blob(b"1")
    for name in ("main", revision):
        order = {"files": [{"path": "a", "digest": digest_of(b"1"), "size": 1}], "revision": name}
        r = repo.ask("POST", f"/models/{repo.name}/commits", json.dumps(order).encode())
        assert r.status in (200, 201), r
    before = srv.json(f"/models/{repo.name}/commits")["refs"]
    assert revision in before
    plain = image(repo)
    assert repo.put(tag, plain).status == 201
    check_manifest(repo, tag, plain)
    assert repo.ask("DELETE", f"manifests/{tag if by == 'tag' else digest_of(plain)}").status == 202
    assert srv.json(f"/models/{repo.name}/commits")["refs"] == before
    made = repo.get(f"manifests/{tag}")  # the server's own again
    assert made.status == 200 and digest_of(b"1") in made.body.decode(), made


def test_a_commit_while_its_manifest_is_deleted_is_kept(srv, repo):
    """Two writers: one deletes a manifest by its digest while the other moves the tag's revision."""
    repo.push("v0", {"a": b"0"})
    repo.blob(b"1"), repo.blob(b"2")
    for _ in range(40):
        text = repo.push("v1", {"a": b"1"})
        order = json.dumps({"files": [{"path": "b", "digest": digest_of(b"2"), "size": 1}], "revision": "v1"}).encode()
        with ThreadPoolExecutor(2) as pool:
            deleted = pool.submit(repo.ask, "DELETE", f"manifests/{digest_of(text)}")
            made = pool.submit(repo.ask, "POST", f"/models/{repo.name}/commits", order)
        assert deleted.result().status == 202 and made.result().status == 201, (deleted.result(), made.result())
        assert set(repo.files("v1")) == {"b"}
        assert repo.ask("DELETE", "manifests/v1").status == 202


def test_what_was_pushed_by_digest_stays_after_the_last_tag(repo):
    files = repo.push("v1", {"a": b"1"})
    signature = manifest_of(described(NOTHING), subject=described(files, MANIFEST))
    assert repo.put(digest_of(signature), signature).status == 201
    assert repo.ask("DELETE", "manifests/v1").status == 202
    assert repo.get("manifests/v1").status == 404 and not repo.files()
    check_manifest(repo, digest_of(signature), signature)
    assert [d["digest"] for d in repo.referrers(digest_of(files))] == [digest_of(signature)]


def test_a_manifest_that_is_taken_can_be_read(repo):
    """Of manifests whose trees are around the most that is kept."""
    repo.blob(NOTHING)
    body = manifest_of()[:-1] + b',"x":['
    for count in range(2_000_000, 0, -50_000):
        text = body + b",".join([b"0"] * count) + b"]}"
        r = repo.put(digest_of(text), text)
        if r.status == 201:
            break
    assert count < 2_000_000 and code_of(repo.put("t", body + b"0," * 2_000_000 + b"0]}")) == "MANIFEST_INVALID"
    check_manifest(repo, digest_of(text), text)


def test_many_referrers_come_in_pages(srv, repo):
    """A page has at most 4 MiB, which is what clients read of a manifest, and no manifest is read for it."""
    repo.blob(NOTHING)
    subject, texts = manifest_of(), []
    for i in range(6):
        texts.append(manifest_of(subject=described(subject, MANIFEST),
                                 annotations={"n": str(i) + "x" * (4000000 if i == 0 else 1500000)}))
        assert repo.put(digest_of(texts[-1]), texts[-1]).status == 201
    target, found = f"referrers/{digest_of(subject)}?artifactType=application/vnd.oci.empty.v1%2Bjson", []
    pages = 0
    while target:
        r = repo.get(target)
        assert r.status == 200 and r.length <= 4 * 1024 * 1024, r
        found += json.loads(r.body)["manifests"]
        link = r.get("Link")
        target = link and re.fullmatch(r"<(/v2/[^>]*)>; rel=\"next\"", link)[1]
        pages += 1
    kind = "application/vnd.oci.empty.v1+json"
    assert sorted(found, key=lambda d: d["digest"]) == sorted(
        ({**described(t, MANIFEST), "artifactType": kind, "annotations": json.loads(t)["annotations"]} for t in texts),
        key=lambda d: d["digest"]) and pages > 2
    before = io_of(srv, "rchar")
    r = repo.get(f"referrers/{digest_of(subject)}?artifactType=application/none")
    assert r.status == 200 and json.loads(r.body)["manifests"] == [] and r.get("Link") is None
    assert io_of(srv, "rchar") - before < 1000000


def io_of(srv, counter):
    """Return how much the server has read from files and sockets: bytes ("rchar") or calls ("syscr")."""
    with open(f"/proc/{srv.pid}/io") as file:
        return int(re.search(counter + r": (\d+)", file.read())[1])


def test_a_page_of_tags_reads_the_tags_of_the_page(srv, repo, root):
    """Of thousands; some of them name nothing any more."""
    repo.blob(NOTHING)
    assert repo.put("t0", manifest_of()).status == 201
    tags = root / f".tensord-publish/new/models--{repo.name.replace('/', '--')}/tags"
    line = (tags / "t0").read_bytes()
    for i in range(1, 3000):
        (tags / f"t{i}").write_bytes(line if i % 1000 else line.replace(b" -", b" " + b"0" * 40))
    names = sorted(f"t{i}" for i in range(3000) if i == 0 or i % 1000)
    before = io_of(srv, "syscr")
    r = repo.get("tags/list?n=3&last=t1")
    assert r.json()["tags"] == names[names.index("t1") + 1:][:3] and "last=t1001" in r.get("Link"), r
    assert io_of(srv, "syscr") - before < 1000
    target, found = "tags/list", []
    while target:
        r = repo.get(target)
        found += r.json()["tags"]
        target = r.get("Link") and re.match("<([^>]*)>", r.get("Link"))[1]
    assert found == names


@pytest.mark.parametrize("folder", ["tags", "manifests"])
def test_a_repository_has_so_many_tags_and_manifests(repo, root, folder):
    repo.blob(NOTHING)
    first, second = manifest_of(), manifest_of(annotations={"n": "2"})
    assert repo.put("t0", first).status == 201
    at = root / f".tensord-publish/new/models--{repo.name.replace('/', '--')}/{folder}"
    for i in range(9999):
        (at / (f"x{i}" if folder == "tags" else f"{i:064x}")).touch()
    r = repo.put("t1", second)
    assert r.status == 400 and code_of(r) == "MANIFEST_INVALID" and "delete some" in r.body.decode(), r
    assert repo.put("t0", first).status == 201  # what is there can be pushed again
    assert repo.ask("DELETE", f"manifests/{digest_of(first)}").status == 202
    assert repo.put("t1", second).status == 201
