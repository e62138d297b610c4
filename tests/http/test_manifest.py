"""/models, /models/{id} and /models/{id}/tensors: the listings of api/openapi.yaml, over the tree of good models."""
import datetime
import fnmatch
import hashlib
import json
import time

import pytest

from harness import DTYPE_BITS, Server, check_error, enc


def entry(srv, id):
    return srv.json("/models/" + enc(id, "/"))


def manifest(srv, id, query=""):
    return srv.json("/models/" + enc(id, "/") + "/tensors" + query)


# ----------------------------------------------------------------------------------------------- /models

def test_models_lists_exactly_the_models(srv, tree):
    r = srv.get("/models")
    assert r.status == 200, r
    doc = r.json()
    assert {"models", "next_page_token"} <= set(doc) <= {"models", "next_page_token", "errors"
                                                         }, f"keys of /models: {sorted(doc)}"
    assert doc["next_page_token"] == "", f"a whole list has an empty next_page_token, got {doc['next_page_token']!r}"
    ids = [m["id"] for m in doc["models"]]
    want = sorted(tree.models, key=lambda s: s.encode())
    assert sorted(ids, key=lambda s: s.encode()) == want, \
        f"missing {set(want) - set(ids)}, not wanted {set(ids) - set(want)}, or twice"
    assert ids == want, f"models are not sorted by id: {ids}"


def test_models_entries(srv, tree):
    for e in srv.json("/models")["models"]:
        m = tree.models[e["id"]]
        assert {"id", "checkpoints", "file_count", "total_bytes", "file_bytes", "updated"} <= set(e), \
            f"{e['id']} lacks a key: {sorted(e)}"
        assert e["checkpoints"] == [{"id": "safetensors", "format": "safetensors", "tensor_count": len(m.tensors),
                                     "total_bytes": m.total_bytes}], f"{e['id']}: {e['checkpoints']}"
        assert e["total_bytes"] == m.total_bytes, f"{e['id']}: total_bytes {e['total_bytes']}, wanted {m.total_bytes}"
        if hasattr(m, "revision"):
            assert e.get("revision") == m.revision, f"{e['id']}: revision {e.get('revision')}, wanted {m.revision}"


def visible_files(m, tree):
    """Return what `files` must list by docs/models.md: all files below the directory except dot-files, *.incomplete,
    *.tmp."""
    if m.dir == tree.root:
        return {m.id: (tree.root / m.id).stat().st_size}
    out = {}
    for p in m.dir.rglob("*"):
        rel = p.relative_to(m.dir)
        if p.is_dir() or any(s.startswith(".") for s in rel.parts) or p.name.endswith((".incomplete", ".tmp")):
            continue
        out[str(rel)] = p.stat().st_size
    return out


def test_model_files_and_bytes(srv, tree):
    for id, m in tree.models.items():
        e = entry(srv, id)
        files = visible_files(m, tree)
        got = {f["path"]: f["size"] for f in e["files"]}
        assert len(got) == len(e["files"]), f"{id}: a path is listed twice: {[f['path'] for f in e['files']]}"
        assert got == files, f"{id}: files: missing {set(files) - set(got)}, not wanted {set(got) - set(files)}, " \
                             f"sizes {[(k, got[k], files[k]) for k in set(got) & set(files) if got[k] != files[k]]}"
        assert e["file_count"] == len(files), f"{id}: file_count {e['file_count']}, wanted {len(files)}"
        assert e["file_bytes"] == sum(
            files.values()), f"{id}: file_bytes {e['file_bytes']}, wanted {sum(files.values())}"
        assert e["errors"] == [], f"{id}: {e['errors']}"
        for f in e["files"]:
            if f["path"] in {t.file for t in m.tensors.values()}:
                assert f.get("format") == "safetensors", f"{id}: {f}"
            elif not f["path"].endswith(".safetensors"):
                assert f.get("format") != "safetensors", f"{id}: {f}"


def test_model_updated_is_the_newest_file(srv, tree):
    for id in ("plain", "sharded", "nested/outer"):
        m = tree.models[id]
        newest = max((m.dir / f).stat().st_mtime_ns for f in visible_files(m, tree))
        got = entry(srv, id)["updated"]
        assert got.endswith("Z") and "T" in got, f"{id}: updated is not RFC 3339 UTC: {got}"
        when = datetime.datetime.fromisoformat(got.replace("Z", "+00:00")).timestamp()
        assert int(when) == newest // 10**9, f"{id}: updated {got}, newest file {newest}"


def test_updated_is_null_where_no_file_is_listed(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/model.safetensors").symlink_to("nowhere")
    with Server(tmp_path) as s:
        m = s.json("/models/m")
    assert m["file_count"] == 0 and m["updated"] is None, m


def test_model_config_is_the_file_parsed(srv, tree):
    e = entry(srv, "plain")
    assert e["config"] == json.loads((tree.models["plain"].dir / "config.json").read_text()), e["config"]
    assert entry(srv, "many").get("config") is None


def test_model_entry_is_the_list_entry_and_more(srv):
    for e in srv.json("/models")["models"]:
        got = entry(srv, e["id"])
        assert {k: got.get(k) for k in e} == e, f"list says {e}, entry says {got}"


def test_models_paging_walks_everything_once(srv, tree):
    want = srv.ids()
    for size in (1, 2, 7, len(want) - 1, len(want), len(want) + 1, 10000):
        got, token, pages = [], "", 0
        while True:
            doc = srv.json(f"/models?page_size={size}" + (f"&page_token={enc(token)}" if token else ""))
            page = [m["id"] for m in doc["models"]]
            assert len(page) <= size, f"page_size={size} gave {len(page)}"
            got += page
            token, pages = doc["next_page_token"], pages + 1
            if not token:
                break
            assert len(page) == size, f"a page of {len(page)} with a next page, page_size={size}"
            assert pages < 1000, "paging does not end"
        assert got == want, f"page_size={size}: pages give {got}, the list is {want}"
        assert pages == max(1, -(-len(want) // size)), f"page_size={size}: {pages} pages for {len(want)} models"


@pytest.mark.parametrize("pattern", [
    "*", "many", "*any", "n*", "nested/*", "nested/outer", "*/*", "?any", "*inner*", "[mn]any", "[a-c]*",
    "*.safetensors", "nothing", "MANY", "*ö*", "nested?outer", "dtypes/*"
])
def test_models_match(srv, tree, pattern):
    want = [i for i in srv.ids() if fnmatch.fnmatchcase(i, pattern)]
    got = [m["id"] for m in srv.json("/models?match=" + enc(pattern))["models"]]
    assert got == want, f"match={pattern}"


def test_models_match_with_paging(srv):
    want = [i for i in srv.ids() if fnmatch.fnmatchcase(i, "*e*")]
    got, token = [], ""
    while True:
        doc = srv.json("/models?match=*e*&page_size=2" + (f"&page_token={enc(token)}" if token else ""))
        got += [m["id"] for m in doc["models"]]
        token = doc["next_page_token"]
        if not token:
            break
    assert got == want


BAD_PAGE_SIZES = [
    "0", "-1", "10001", "abc", "", "1.5", "1e2", "+5", "0x10", "99999999999999999999", "18446744073709551617", "5%00",
    "%205", "5%20"
]


@pytest.mark.parametrize("size", BAD_PAGE_SIZES)
@pytest.mark.parametrize("where", ["/models", "/models/many/tensors"])
def test_bad_page_size(srv, where, size):
    check_error(srv.get(f"{where}?page_size={size}"), 400, *([] if "%00" in size else ["page_size"]))


BAD_TOKENS = [
    "garbage", "AAAA", "0", "1", "-1", "..%2f", "%00", "%ff%fe", "x" * 500, "eyJvIjoxfQ", "eyJvIjoxfQ%3D%3D",
    "18446744073709551616"
]


@pytest.mark.parametrize("token", BAD_TOKENS)
@pytest.mark.parametrize("where", ["/models", "/models/many/tensors"])
def test_foreign_page_token(srv, where, token):
    # A target with a NUL or with bytes that are not UTF-8 is refused before the server looks for a token.
    check_error(srv.get(f"{where}?page_size=2&page_token={token}"), 400,
                *([] if token in ("%00", "%ff%fe") else ["page_token"]))


def test_token_of_another_listing_is_foreign(srv):
    models = srv.json("/models?page_size=2")["next_page_token"]
    tensors = srv.json("/models/many/tensors?page_size=2")["next_page_token"]
    other = srv.json("/models/sharded/tensors?page_size=2")["next_page_token"]
    assert models and tensors and other
    check_error(srv.get(f"/models?page_size=2&page_token={enc(tensors)}"), 400, "page_token")
    check_error(srv.get(f"/models/many/tensors?page_size=2&page_token={enc(models)}"), 400, "page_token")
    check_error(srv.get(f"/models/many/tensors?page_size=2&page_token={enc(other)}"), 400, "page_token")
    for flip in (0, len(tensors) // 2, len(tensors) - 1):
        bad = tensors[:flip] + ("A" if tensors[flip] != "A" else "B") + tensors[flip + 1:]
        r = srv.get(f"/models/many/tensors?page_size=2&page_token={enc(bad)}")
        assert r.status in (200, 400), f"damaged token: {r}"


@pytest.mark.parametrize("query, known", [
    ("/models?nonsense=1", ["page_size", "page_token", "match"]),
    ("/models?dtype=F32", ["page_size", "match"]),
    ("/models?Page_Size=5", ["page_size"]),
    ("/models/plain?x=1", ["x"]),
    ("/models/many/tensors?nonsense=1", ["checkpoint", "match", "dtype", "page_size", "page_token"]),
    ("/models/many/tensors?slice=0:1", ["checkpoint", "match"]),
    ("/models/plain/tensors/step?slices=0", ["checkpoint", "slice", "shard", "format"]),
    ("/models/plain/model.safetensors?slice=0", ["checkpoint"]),
    ("/models/plain/shards/none/tp1/rank-0.safetensors?format=npy", ["checkpoint"]),
    ("/models/plain/tensors/step?x", ["checkpoint"]),
    ("/models/plain/files/config.json?slice=0:1", ["version"]),
    ("/models/plain/files/?page_size=1", ["version"]),
])
def test_unknown_query_parameter(srv, query, known):
    check_error(srv.get(query), 400, *known)


# ---------------------------------------------------------------------------------------------- manifest

def test_manifest_of_every_model(srv, tree):
    for id, m in tree.models.items():
        doc = manifest(srv, id)
        assert {"model", "checkpoint", "format", "etag", "tensor_count", "total_bytes", "metadata", "tensors",
                "next_page_token"} <= set(doc), f"{id}: keys {sorted(doc)}"
        assert "matched_count" not in doc, f"{id}: matched_count without a filter"
        assert (doc["model"], doc["checkpoint"], doc["format"], doc["next_page_token"]) == \
            (id, "safetensors", "safetensors", ""), f"{id}: {dict(doc, tensors='...')}"
        assert doc["tensor_count"] == len(m.tensors) and doc["total_bytes"] == m.total_bytes, \
            f"{id}: {doc['tensor_count']}, {doc['total_bytes']}, wanted {len(m.tensors)}, {m.total_bytes}"
        if id != "sharded":                  # how the metadata of several files is joined is not settled
            assert doc["metadata"] == m.metadata, f"{id}: metadata {doc['metadata']}"
        assert isinstance(doc["etag"], str) and doc["etag"]
        names = [t["name"] for t in doc["tensors"]]
        assert names == sorted(m.tensors,
                               key=lambda s: s.encode()), f"{id}: names are not those, or not sorted: {names}"
        for t in doc["tensors"]:
            w = m.tensors[t["name"]]
            assert {"name", "dtype", "shape", "nbytes", "file", "offset", "href"} <= set(t), f"{id}: {t}"
            assert (t["dtype"], t["shape"], t["nbytes"], t["file"]) == (w.dtype, w.shape, w.nbytes, w.file), \
                f"{id}: got {t}, wanted {w.dtype} {w.shape} {w.nbytes} {w.file}"
            if w.nbytes:
                assert t["offset"] == w.offset, f"{id} {t['name']}: offset {t['offset']}, wanted {w.offset}"


def test_offsets_point_at_the_bytes_in_the_file(srv, tree):
    """Read the file at the offset and compare with what was written; do not trust our own idea of offsets."""
    for id, m in tree.models.items():
        if id == "big":
            continue
        for t in manifest(srv, id)["tensors"]:
            with open(m.dir / t["file"], "rb") as f:
                f.seek(t["offset"])
                assert f.read(t["nbytes"]) == m.tensors[t["name"]].data, f"{id}: {t}"


def test_manifest_is_exact_beyond_53_bits(srv):
    raw = srv.get("/models/shapes/tensors").body.decode()
    assert '[0,9007199254740993]' in raw.replace(" ", ""), f"2^53+1 is not exact in {raw[:600]}"
    assert '[18446744073709551615,0]' in raw.replace(" ", ""), f"2^64-1 is not exact in {raw[:600]}"
    t = {t["name"]: t for t in manifest(srv, "big")["tensors"]}
    assert t["huge"]["nbytes"] == 6 << 30 and t["huge"]["shape"] == [6 << 30]
    assert t["tail"]["offset"] == t["huge"]["offset"] + (6 << 30)


FILTERS = [
    "*", "*.weight", "model.layers.0??.mlp*", "model.layers.[01]1*", "*attn*", "none", "model.layers.249.attn.weight",
    "*.*.*.*.*", "?odel*", "model.layers.00[0-4]*", "[!m]*"
]


@pytest.mark.parametrize("pattern", FILTERS)
@pytest.mark.parametrize("dtype", [None, "F32", "U8", "F64"])
def test_manifest_filters(srv, tree, pattern, dtype):
    m = tree.models["many"]
    want = [n for n in sorted(m.tensors) if fnmatch.fnmatchcase(n, pattern) and dtype in (None, m.tensors[n].dtype)]
    doc = manifest(srv, "many", f"?match={enc(pattern)}" + (f"&dtype={dtype}" if dtype else ""))
    assert [t["name"] for t in doc["tensors"]] == want
    assert doc["matched_count"] == len(want), f"matched_count {doc.get('matched_count')}, wanted {len(want)}"
    assert doc["total_bytes"] == m.total_bytes, "total_bytes is of the whole checkpoint, whatever is filtered"
    assert doc["tensor_count"] == len(m.tensors), "tensor_count is of the whole checkpoint, whatever is filtered"


def test_glob_star_crosses_slashes_and_dots(srv, tree):
    names = sorted(tree.models["org/names"].tensors, key=lambda s: s.encode())
    for pattern in ("a*b", "*/*", "trailing?", "*ünï*", "double*slash", "名前*", "a?b", "*code", "emoji?", "nbsp?"):
        want = [n for n in names if fnmatch.fnmatchcase(n, pattern)]
        got = [t["name"] for t in manifest(srv, "org/names", f"?match={enc(pattern)}")["tensors"]]
        assert got == want, f"match={pattern}"


# shows: security.md client-globs
def test_a_glob_bomb_is_linear(srv):
    bomb = "*" + "*".join("aelrst" * 30) + "*Z"
    began = time.monotonic()
    assert srv.get(f"/models/many/tensors?match={enc(bomb)}").status in (200, 400)
    assert srv.get("/models/many/tensors?match=" + "*" * 3000 + "Z").status in (200, 400, 431)
    took = time.monotonic() - began
    assert took < 3, f"two hostile globs took {took:.1f} s"


@pytest.mark.parametrize("dtype", ["F31", "f", "", "float32", "F32%20", "Q4_K%20", "F32,U8"])
def test_unknown_dtype_lists_the_known(srv, dtype):
    check_error(srv.get(f"/models/many/tensors?dtype={dtype}"), 400, "F32", "BF16", "I64")


def test_every_dtype_filters(srv, tree):
    m = tree.models["dtypes/hand"]
    for d in DTYPE_BITS:
        want = sorted(n for n, t in m.tensors.items() if t.dtype == d)
        assert [t["name"] for t in manifest(srv, "dtypes/hand", f"?dtype={d}")["tensors"]] == want, d


def test_manifest_paging(srv, tree):
    whole = manifest(srv, "many")["tensors"]
    for size in (1, 3, 100, 249, 250, 251, 10000):
        got, token, pages = [], "", 0
        while True:
            doc = manifest(srv, "many", f"?page_size={size}" + (f"&page_token={enc(token)}" if token else ""))
            assert len(doc["tensors"]) <= size
            got += doc["tensors"]
            token, pages = doc["next_page_token"], pages + 1
            assert doc["tensor_count"] == 250 and doc["total_bytes"] == tree.models["many"].total_bytes
            if not token:
                break
        assert got == whole, f"page_size={size}: pages differ from the whole"
        assert pages == -(-250 // size), f"page_size={size}: {pages} pages"


def test_manifest_paging_with_filters(srv):
    query = "?match=*attn*&dtype=BF16"
    whole = manifest(srv, "many", query)["tensors"]
    assert len(whole) > 10
    got, token = [], ""
    while True:
        doc = manifest(srv, "many", query + "&page_size=7" + (f"&page_token={enc(token)}" if token else ""))
        got += doc["tensors"]
        assert doc["matched_count"] == len(whole)
        token = doc["next_page_token"]
        if not token:
            break
    assert got == whole


def test_checkpoint_parameter(srv):
    assert manifest(srv, "plain", "?checkpoint=safetensors") == manifest(srv, "plain")
    check_error(srv.get("/models/plain/tensors?checkpoint=pytorch"), 404, "pytorch")
    check_error(srv.get("/models/plain/tensors?checkpoint="), (400, 404))
    check_error(srv.get("/models/plain/tensors/step?checkpoint=nope"), 404, "nope")
    assert srv.get("/models/plain/tensors/step?checkpoint=safetensors").status == 200


def test_model_ids_encoded_or_not(srv, tree):
    """RFC 3986 6.2.2: an encoded character means the same; an id is a path of segments."""
    plain = srv.get("/models/nested/outer").body
    assert srv.get("/models/nested%2Fouter").body == plain, "nested%2Fouter"
    assert srv.get("/models/n%65sted/outer").body == plain, "n%65sted/outer"
    id = "ünï code/mödel+x 100%"
    assert srv.json("/models/" + enc(id, "/"))["id"] == id
    assert srv.json("/models/" + enc(id))["id"] == id
    assert srv.json("/models/" + enc(id, "/+").replace("%C3", "%c3"))["id"] == id, "lower-case hex digits, raw +"
    assert srv.json("/models/" + enc(id, "/") + "/tensors")["model"] == id


def test_nested_models_route_by_the_longest_id(srv, tree):
    for id in ("nested/outer", "nested/outer/inner", "nested/outer/inner/deepest"):
        assert entry(srv, id)["id"] == id
        assert srv.get(f"/models/{id}/tensors/w").body == tree.models[id].tensors["w"].data, id
    assert entry(srv, "amb/tensors/x")["id"] == "amb/tensors/x", "the longest known id wins"
    assert srv.get("/models/amb/tensors/y/z").body == tree.models["amb"].tensors["y/z"].data
    assert srv.get("/models/amb/tensors/x/tensors/inner").body == tree.models["amb/tensors/x"].tensors["inner"].data


def test_reserved_segment_names_are_reported_not_published(srv, tree):
    ids = srv.ids()
    said = srv.stderr() + str(srv.json("/models").get("errors"))
    for word in ("tensors", "files", "plans", "shards", "model.safetensors"):
        id = f"reserved/{word}"
        assert id not in ids, f"{id} is published although {word} is a method segment"
        assert srv.get(f"/models/{id}").status == 404, id
        assert id in said, f"{id} is not published, and nothing says so:\n{said[-2000:]}"
    assert "tensors/inside" in ids, "a method word that is not the last segment is fine"


@pytest.mark.parametrize("target", [
    "/models/nope", "/models/plain/nope", "/models/nope/tensors", "/models/nope/tensors/w", "/models/nested",
    "/models/models--solo", "/models/models--hf-org--with-main", "/models/plain/sub%20dir", "/models/PLAIN",
    "/models/plain%00", "/models/plain%2F", "/models/hf-org/with-main/snapshots", "/models/.", "/models/..",
    "/models/%2e%2e", "/models/plain/../plain", "/models//plain", "/model", "/nope", "/", "/models/" + "x" * 2000
])
def test_not_found(srv, target):
    r = srv.get(target)
    if target in ("/", "/models/plain%2F", "/models/plain%00", "/models/plain/../plain", "/models//plain", "/models/.",
                  "/models/..", "/models/%2e%2e"):
        assert r.status in (200, 400, 404), r        # any answer will do, except a 5xx
        if r.status == 200 and target not in ("/", "/models/plain/../plain", "/models//plain", "/models/plain%2F"):
            raise AssertionError(f"{target} is no resource: {r}")
        assert target != "/models/plain%00" or r.status != 200, f"a NUL cut the id short: {r}"
    else:
        check_error(r, 404)


def test_error_messages_name_what_was_asked(srv):
    check_error(srv.get("/models/no-such-model"), 404, "no-such-model")
    check_error(srv.get("/models/plain/tensors/no-such-tensor"), 404, "no-such-tensor")
    check_error(srv.get("/models/plain/files/no-such-file"), 404, "no-such-file")
    e = check_error(srv.get("/models/%22%3Cscript%3E%0A%1b%5b31m"), 404)
    assert "\x1b" not in e["message"] and "\n" not in e["message"], f"control characters in a message: {e!r}"
    check_error(srv.get("/models/%ff%fe"), (400, 404))


# shows: security.md client-paths
def test_no_host_path_in_any_error(srv, tree):
    for target in ("/models/nope", "/models/plain/files/../../x", "/models/plain/files/nope", "/models?x=1",
                   "/models/plain/tensors/nope", "/nope"):
        body = srv.get(target).body.decode("utf-8", "replace")
        assert str(tree.root) not in body and str(tree.root.parent) not in body, f"{target} shows a host path: {body}"


def test_listings_have_validators_and_no_cache(srv):
    """hub.md: listings are `no-cache` with an ETag; RFC 9110 8.8.3."""
    for target in ("/models", "/models/plain", "/models/plain/tensors",
                   "/models/many/tensors?match=*attn*&page_size=3"):
        r = srv.get(target)
        assert r.status == 200 and r.etag and r.etag.startswith('"') and r.etag.endswith(
            '"'), f"strong ETag wanted: {r}"
        assert r.length == len(r.body)
        assert srv.get(target).etag == r.etag, f"{target}: the ETag of an unchanged listing changes"
        assert srv.get(target, {"If-None-Match": r.etag}).status == 304, target
    tags = {srv.get(f"/models/many/tensors?page_size={n}").etag for n in (1, 2, 3)}
    assert len(tags) == 3, f"three different bodies, ETags {tags}"


def test_one_etag_never_labels_two_bodies(srv, tree):
    """Every listing and every tensor of the tree: same target, same ETag; the same ETag on one target, same bytes."""
    seen = {}
    for id in tree.models:
        for target in (f"/models/{enc(id, '/')}", f"/models/{enc(id, '/')}/tensors",
                       f"/models/{enc(id, '/')}/tensors?page_size=1"):
            r = srv.get(target)
            key = (target, r.etag)
            digest = hashlib.sha256(r.body).digest()
            assert seen.setdefault(key, digest) == digest


def test_hf_cache_serves_the_revision(srv, tree):
    for id in ("hf-org/with-main", "hf-org/no.refs", "solo"):
        m = tree.models[id]
        e = entry(srv, id)
        assert e["revision"] == m.revision and e["config"] == {"commit": m.revision}, e
        assert manifest(srv, id)["metadata"] == {"commit": m.revision}
        for t in m.tensors.values():
            assert srv.get(f"/models/{id}/tensors/{enc(t.name)}").body == t.data, f"{id} {t.name}"
        assert srv.get(f"/models/{id}/files/sub/notes.txt").body == b"notes " + m.revision.encode()


def test_manifest_etag_field_is_the_checkpoints(srv, tree):
    """The manifest's own etag names the checkpoint: stable over pages and filters, different for different models."""
    tags = {}
    for id in ("many", "plain", "sharded", "nested/outer", "nested/outer/inner"):
        tag = manifest(srv, id)["etag"]
        assert manifest(srv, id, "?page_size=1")["etag"] == tag, id
        assert manifest(srv, id, "?match=none")["etag"] == tag, id
        tags[id] = tag
    assert len(set(tags.values())) == len(tags), tags
