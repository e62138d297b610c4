"""/models/{id}/files/{path}, the small endpoints, the metrics, and what must never be served."""
import datetime
import email.utils
import json
import os
import re
import shutil
import socket
import stat
import struct
import threading
import time

import pytest
import yaml

from fixtures import COMMIT_A, COMMIT_B, hf_snapshot, st
from harness import age, check_error, enc, frame, header_json, parse_metrics, pattern, tensor, write_by_hand


def test_every_file_of_every_model(srv, tree):
    with srv.conn() as c:
        for id, m in tree.models.items():
            e = json.loads(c.request(f"/models/{enc(id, '/')}").body)
            for f in e["files"]:
                if f["size"] > 1 << 30:
                    continue
                want = (m.dir / f["path"]).read_bytes()
                for spelled in {enc(f["path"], "/"), enc(f["path"])}:
                    r = c.request(f"/models/{enc(id, '/')}/files/{spelled}")
                    assert r.status == 200 and r.body == want, f"{id} {f['path']} as {spelled}: {r}"
                    assert re.fullmatch(r'"[\x21\x23-\x7e]+"', r.etag or ""), f"strong ETag wanted: {r}"
                    assert r.get("Accept-Ranges") == "bytes" and r.length == len(want), r
                    assert r.get("X-Tensor-Dtype") is None, r


@pytest.mark.parametrize("path, kind", [
    ("config.json", r"application/json(; *charset=utf-8)?"), ("tokenizer.json", r"application/json(; *charset=utf-8)?"),
    ("README.md", r"text/(plain|markdown); *charset=utf-8"), ("vocab.txt", r"text/plain; *charset=utf-8"),
    ("zero.txt", r"text/plain; *charset=utf-8"), ("data.bin", r"application/octet-stream"),
    ("model.safetensors", r"application/octet-stream"), ("noextension", r"application/octet-stream"),
    ("page.html", r"application/octet-stream|text/plain; *charset=utf-8"),
    ("image.svg", r"application/octet-stream|text/plain; *charset=utf-8"),
])
# shows: security.md content-browser-types
def test_content_types_and_nosniff(srv, path, kind):
    """JSON and text by extension with nosniff, all else octet-stream; never a type a browser would run scripts in."""
    r = srv.get(f"/models/plain/files/{path}")
    assert r.status == 200 and re.fullmatch(kind, r.get("Content-Type") or "", re.I), f"{path}: {r}"
    assert r.get("X-Content-Type-Options") == "nosniff", f"{path}: {r}"


def test_last_modified_is_the_files(srv, tree):
    m = tree.models["plain"]
    for path in ("config.json", "model.safetensors", "data.bin"):
        r = srv.get(f"/models/plain/files/{path}")
        lm = r.get("Last-Modified")
        assert lm and re.fullmatch(
            r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
            r"\d{4} \d\d:\d\d:\d\d GMT", lm), f"IMF-fixdate wanted (RFC 9110 5.6.7): {r}"
        when = email.utils.parsedate_to_datetime(lm).timestamp()
        assert when == (m.dir / path).stat().st_mtime_ns // 10**9, f"{path}: {lm}"
        date = email.utils.parsedate_to_datetime(r.get("Date"))
        now = datetime.datetime.now(datetime.timezone.utc)
        assert abs((now - date).total_seconds()) < 5, f"Date is {r.get('Date')}, now {now}"


def test_accept_encoding_never_compresses(srv, tree):
    for target in ("/models/plain/files/config.json", "/models/many/tensors", "/models/bytes/tensors/blob"):
        a, b = srv.get(target), srv.get(target, {"Accept-Encoding": "gzip, deflate, br, zstd"})
        assert b.get("Content-Encoding") is None and a.body == b.body and a.etag == b.etag, b


HIDDEN = [".hidden", ".git/config", "half.safetensors.incomplete", "half.safetensors.tmp", ".", "..", "nope",
          "config.json/", "config.json/x", "config.jso", "CONFIG.JSON", "config.json\0", "config.json\0.txt"]
TRAVERSAL = [
    "../many/model.safetensors", "../../etc/passwd", "../../../../../../../../etc/passwd", "/etc/passwd",
    "//etc/passwd", "sub dir/../../many/model.safetensors", "sub dir/../config.json", "./config.json",
    "sub dir//deeper/notes.txt", "..\\many\\model.safetensors", "....//....//etc/passwd",
    "\uff0e\uff0e/\uff0e\uff0e/etc/passwd", "../plain/config.json", "../../" + "root/plain/config.json"
]


@pytest.mark.parametrize("path", HIDDEN)
# shows: security.md file-being-written
def test_hidden_files_are_not_served(srv, path):
    for spelled in {enc(path, "/"), enc(path)}:
        r = srv.get("/models/plain/files/" + spelled)
        assert r.status in (400, 404), f"{spelled}: {r}"
        assert b"SECRET" not in r.body, r


@pytest.mark.parametrize("path", ["", "sub dir/", "sub dir"])
def test_pages_of_folders_do_not_list_hidden_files(srv, path):
    r = srv.get("/models/plain/files/" + enc(path, "/"))
    assert r.status == 200 and r.get("Content-Type") == "text/html; charset=utf-8", r
    assert b"hidden" not in r.body and b".git" not in r.body and b"half" not in r.body and b"SECRET" not in r.body, r


@pytest.mark.parametrize("path", TRAVERSAL)
# shows: security.md client-paths
def test_paths_do_not_leave_the_model(srv, tree, path):
    passwd = open("/etc/passwd", "rb").read()[:20]
    other = (tree.models["many"].dir / "model.safetensors").read_bytes()[:64]
    spellings = {enc(path, "/"), enc(path), enc(path).replace(".", "%2e"), enc(path, "/").replace(".", "%2E"),
                 enc(path).replace("%2F", "%252F"), enc(path, "/").replace("..", "%c0%ae%c0%ae"),
                 enc(path, "/").replace("/", "%c0%af")}
    for spelled in sorted(spellings):
        r = srv.get("/models/plain/files/" + spelled)
        assert r.status in (400, 404), f"{spelled}: {r}"
        assert passwd not in r.body and other not in r.body, f"{spelled}: {r}"


@pytest.mark.parametrize("query", ["?cb=1700000000000", "?download=true", "?", "?x", "?a=1&b=2", "?Slice=0"])
@pytest.mark.parametrize("path", ["config.json", "model.safetensors", "sub dir/", ""])
def test_parameters_that_nobody_knows(srv, path, query):
    """Passed over, as by S3: "cb" is Netron's, "download" the Hub's. With them the answer is the same."""
    target = "/models/plain/files/" + enc(path, "/")
    for fields in ({}, {"Range": "bytes=0-9"}):
        plain, asked = srv.get(target, fields), srv.get(target + query, fields)
        assert plain.status in (200, 206) and (asked.status, asked.body, asked.etag) == (
            plain.status, plain.body, plain.etag), asked
    assert srv.head(target + query).length == srv.head(target).length
    assert srv.get(target + "?cb=1", {"If-None-Match": srv.get(target).etag}).status == 304


def test_parameters_of_other_paths_are_refused_on_files(srv):
    """Those that change the answer of another path of a model, but for pages: a client that sends them means other
    bytes."""
    paths = srv.json("/openapi.json")["paths"]
    shared = srv.json("/openapi.json")["components"]["parameters"]

    def query_of(path):
        item = paths[path]
        lists = [item.get("parameters", [])] + [op.get("parameters", []) for op in item.values() if "responses" in op]
        found = (shared[p["$ref"].rpartition("/")[2]] if "$ref" in p else p for some in lists for p in some)
        return {p["name"] for p in found if p["in"] == "query"}

    ours = query_of("/models/{id}/files/{path}")
    is_page = re.compile("/view/|/$").search
    others = set().union(*(query_of(path) for path in paths if path.startswith("/models") and not is_page(path))) - ours
    assert ours == {"version"} and {"checkpoint", "slice", "page_size", "wait"} <= others
    for name in others:
        for target in ("/models/plain/files/config.json", "/models/plain/files/"):
            error = check_error(srv.get(f"{target}?cb=1&{name}=1"), 400)
            assert f'"{name}" is for other paths' in error["message"] and error["details"] == {"known": ["version"]}


def test_root_file_model_serves_only_itself(srv, tree):
    assert srv.get("/models/single.safetensors/files/single.safetensors").status == 200
    for path in ("plain/config.json", "plain/model.safetensors", "bytes/range.bin"):
        assert srv.get(f"/models/single.safetensors/files/{path}").status == 404, path


# ------------------------------------------------------------------------------------- small endpoints

def test_healthz_readyz(srv):
    for target in ("/healthz", "/readyz"):
        r = srv.get(target)
        assert r.status == 200 and r.length == len(r.body), r
        assert srv.head(target).status == 200
    assert srv.get("/healthz/").status == 404 and srv.get("/Healthz").status == 404


def test_version(srv):
    doc = srv.json("/version")
    assert isinstance(doc, dict) and isinstance(doc.get("version"), str) and doc["version"], doc


def test_openapi_names_every_method_of_this_interface(srv):
    doc = srv.json("/openapi.json")
    assert re.fullmatch(r"3\.[01]\.\d+", doc["openapi"]), doc["openapi"]
    assert doc["info"]["title"] and doc["info"]["version"]
    paths = {re.sub(r"\{[^}]*\}", "{}", p) for p in doc["paths"]}
    for want in ("/models", "/models/{}", "/models/{}/tensors", "/models/{}/tensors/{}", "/models/{}/files/{}",
                 "/healthz", "/models/{}/tensors:read", "/models/{}/plans", "/models/{}/plans/{}",
                 "/models/{}/plans/{}/{}", "/models/{}/shards/{}/tp{}/{}", "/models/{}/model.safetensors",
                 "/{}/resolve/{}/{}", "/api/models", "/api/models/{}", "/api/models/{}/revision/{}",
                 "/api/models/{}/tree/{}", "/api/models/{}/paths-info/{}", "/api/models/{}/refs", "/readyz", "/metrics",
                 "/openapi.json", "/version"):
        assert want in paths, f"{want} is not in openapi.json: {sorted(paths)}"
    refs = re.findall(r'"\$ref": ?"([^"]+)"', json.dumps(doc))
    for ref in refs:
        at = doc
        assert ref.startswith("#/"), ref
        for part in ref[2:].split("/"):
            assert part in at, f"dangling $ref {ref}"
            at = at[part]
    published = {"/models/{id}": {"get", "delete"}, "/datasets/{id}": {"get", "delete"},
                 "/models/{id}/files/{path}": {"get", "put", "delete"},
                 "/datasets/{id}/files/{path}": {"put", "delete"}}
    for kind in ("models", "datasets"):
        published.update({f"/{kind}/{{id}}/blobs": {"post"}, f"/{kind}/{{id}}/blobs/{{digest}}": {"get", "put", "post"},
                          f"/{kind}/{{id}}/commits": {"get", "post"}})
    assert set(published) <= set(doc["paths"])
    for path, item in doc["paths"].items():
        is_post = path.endswith((":read", ":batchGet", "/plans", "/rescan", "/sign")) or "/paths-info/" in path
        verbs = set(item) & {"get", "post", "put", "delete", "patch"}
        assert verbs == published.get(path, {"post" if is_post else "get"}), f"{path}: {sorted(item)}"
        for verb in verbs:
            assert item[verb].get("responses"), path
            params = item[verb].get("parameters", []) + item.get("parameters", [])
            resolved = [p if "$ref" not in p else _ref(doc, p["$ref"]) for p in params]
            for name in re.findall(r"\{([^}]*)\}", path):
                assert any(p["name"] == name and p["in"] == "path" and p.get("required") is True for p in resolved), \
                    f"{verb} {path}: path parameter {name} is not declared"


def _ref(doc, ref):
    for part in ref[2:].split("/"):
        doc = doc[part]
    return doc


def lint(types, helps, samples):
    """promtool's rules, restated: https://prometheus.io/docs/practices/naming and the text format 0.0.4."""
    problems, seen = [], set()
    for name, labels, value in samples:
        family = name
        if name not in types:
            family = re.sub(r"_(bucket|sum|count)$", "", name)
        kind = types.get(family)
        if kind is None:
            problems.append(f"{name}: no TYPE")
            continue
        key = (name, tuple(sorted(labels.items())))
        if key in seen:
            problems.append(f"{name}{labels}: the same series twice")
        seen.add(key)
        if not helps.get(family):
            problems.append(f"{family}: no HELP")
        if kind == "counter" and not family.endswith("_total"):
            problems.append(f"{family}: a counter without _total")
        if kind != "counter" and family.endswith("_total"):
            problems.append(f"{family}: _total on a {kind}")
        if kind in ("gauge", "counter") and re.search(r"_(count|sum|bucket)$", family):
            problems.append(f"{family}: suffix of a histogram on a {kind}")
        if re.search(r"_(milli|micro|nano)?seconds_(total|.*)$", family) and re.search(
                r"(milli|micro|nano)seconds", family):
            problems.append(f"{family}: not in the base unit")
        if re.search(r"_(kilobytes|megabytes|kb|mb|ms|us|ns|minutes|hours|percent)(_|$)", family):
            problems.append(f"{family}: not in the base unit")
        if re.search(r"[A-Z]", family):
            problems.append(f"{family}: upper case")
        if not family.startswith(("tensord_", "process_")):
            problems.append(f"{family}: not prefixed")
        if kind == "counter" and value < 0:
            problems.append(f"{name}: negative counter")
        for l in labels.values():
            if "/" in l and "{" not in l and l.startswith("/models/"):
                problems.append(f"{name}: a path as a label: {labels}")
    for family, kind in types.items():
        if kind != "histogram":
            continue
        groups = {}
        for name, labels, value in samples:
            if name == family + "_bucket":
                rest = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
                groups.setdefault(rest, []).append((float(labels["le"].replace("+Inf", "inf")), value))
        for rest, buckets in groups.items():
            if [b[0] for b in buckets] != sorted(b[0] for b in buckets) or buckets[-1][0] != float("inf"):
                problems.append(f"{family}{rest}: buckets {buckets}")
            if [b[1] for b in buckets] != sorted(b[1] for b in buckets):
                problems.append(f"{family}{rest}: buckets do not grow: {buckets}")
            count = [v for n, l, v in samples if n == family + "_count" and tuple(sorted(l.items())) == rest]
            if count != [buckets[-1][1]]:
                problems.append(f"{family}{rest}: _count {count}, +Inf {buckets[-1][1]}")
            if not [v for n, l, v in samples if n == family + "_sum" and tuple(sorted(l.items())) == rest]:
                problems.append(f"{family}{rest}: no _sum")
    return problems


def test_metrics_pass_the_linter(srv):
    for _ in range(3):
        srv.get("/models/many/tensors")
        srv.get("/nope")
        srv.get("/models/bytes/tensors/blob", {"Range": "bytes=0-9"})
    r = srv.get("/metrics")
    assert r.status == 200 and re.match(r"text/plain; *version=0\.0\.4", r.get("Content-Type") or ""), r
    problems = lint(*parse_metrics(r.body.decode()))
    assert not problems, "\n".join(sorted(set(problems)))
    names = {n for n, _, _ in parse_metrics(r.body.decode())[2]}
    assert "tensord_build_info" in names, sorted(names)
    assert len(parse_metrics(r.body.decode())[2]) <= 500, "more than 500 series"


def test_metrics_count_requests_and_bytes(srv, tree):
    def total(pattern):
        return sum(v for n, _, v in srv.metrics()[2] if re.fullmatch(pattern, n))

    requests, sent = total(r"tensord_.*requests_total"), total(
        r"tensord_.*(sent|body|response)_?bytes_total|tensord_.*bytes_sent_total")
    n = 20
    with srv.conn() as c:
        for _ in range(n):
            c.request("/models/bytes/tensors/blob")
    assert total(r"tensord_.*requests_total") - requests >= n, "requests are not counted"
    more = total(r"tensord_.*(sent|body|response)_?bytes_total|tensord_.*bytes_sent_total") - sent
    assert more >= n * 20011, f"bytes sent are not counted: {more} more after {n * 20011} bytes"


def test_access_log_has_the_bytes_really_sent(srv):
    marker = "/models/bytes/tensors/blob?checkpoint=safetensors"
    r = srv.get(marker, {"Range": "bytes=100-10099"})
    assert r.status == 206
    lines = srv.wait_for(lambda: [l for l in srv.log().split("\n") if marker in l], "the access log line")
    line = lines[-1]
    assert re.search(r"\b206\b", line), f"no status in {line!r}"
    sent = [int(x) for x in re.findall(r"sent=(\d+)", line)]
    assert sent and 10000 <= sent[0] <= 11000, f"10,000 bytes were sent (and a head), the log says {line!r}"
    with srv.conn(rcvbuf=4096) as c:
        c.send(b"GET /models/big/tensors/huge?checkpoint=safetensors HTTP/1.1\r\nHost: x\r\n\r\n")
        c.read_head()
        time.sleep(0.3)
    lines = srv.wait_for(lambda: [l for l in srv.log().split("\n") if "huge?checkpoint" in l],
                         "log line of a broken transfer")
    sent = [int(x) for x in re.findall(r"sent=(\d+)", lines[-1])]
    assert sent and sent[0] < 1 << 30, f"the client left early, yet the log claims all was sent: {lines[-1]!r}"


# ------------------------------------------------------------------------------- what may be in a root

def good(path, name="w", seed="good"):
    t = tensor(name, "U8", [300], seed)
    write_by_hand(path, [t])
    age(path)
    return t


def test_hf_cache_several_snapshots(start, tmp_path):
    """refs/main chooses the snapshot; without refs/main, or if its snapshot is missing, the newest one is served; a
    half-written snapshot is no model."""
    root = tmp_path / "root"

    def snap(folder, commit, old):
        raw = st([tensor("w", "U8", [64], folder + commit)], {"commit": commit})
        s = hf_snapshot(root / folder, commit, {"model.safetensors": raw})
        age(root / folder / "blobs", old)
        age(s, old)
    snap("models--o--main", COMMIT_A, 9000)
    snap("models--o--main", COMMIT_B, 3000)
    (root / "models--o--main/refs").mkdir()
    (root / "models--o--main/refs/main").write_text(COMMIT_A + "\n")
    snap("models--o--newest", COMMIT_B, 3000)
    snap("models--o--newest", COMMIT_A, 9000)
    snap("models--o--dangling", COMMIT_A, 9000)
    (root / "models--o--dangling/refs").mkdir()
    (root / "models--o--dangling/refs/main").write_text("d" * 40)
    snap("models--o--evil", COMMIT_A, 9000)
    (root / "models--o--evil/refs").mkdir()
    (root / "models--o--evil/refs/main").write_text("../../models--o--main/snapshots/" + COMMIT_B)
    (root / "models--o--hollow/blobs").mkdir(parents=True)
    (root / "models--o--hollow/blobs/xyz.incomplete").write_bytes(b"part")
    (root / "models--o--hollow/snapshots").mkdir()
    os.symlink("../../blobs/gone", root / "models--o--newest/snapshots" / COMMIT_B / "dangling.safetensors")
    s = start(root)
    got = {m["id"]: m.get("revision") for m in s.json("/models")["models"]}
    assert got.get("o/main") == COMMIT_A, f"refs/main decides: {got}"
    assert got.get("o/newest") == COMMIT_B, f"the newest snapshot without refs/main: {got}"
    assert got.get("o/dangling") == COMMIT_A, f"refs/main names a missing snapshot: {got}"
    assert got.get("o/evil") in (None, COMMIT_A), f"refs/main with a path in it: {got}"
    assert not [i for i in got if i.startswith("models--")], f"the raw folders are published too: {got}"
    r = s.get("/models/o/main/tensors/w")
    assert r.body == pattern(64, "models--o--main" + COMMIT_A + "w"), r


# shows: security.md file-symlinks
def test_symlinks_inside_and_outside(start, tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("SECRET outside")
    write_by_hand(outside / "model.safetensors", [tensor("secret", "U8", [100], "secret")])
    t = good(root / "real/model.safetensors")
    (root / "real/config.json").write_text('{"a":1}')
    os.symlink("real", root / "alias")                                    # inside, relative, a directory
    os.symlink(str(root / "real"), root / "absolute")                     # inside, absolute
    (root / "linked").mkdir()
    os.symlink("../real/model.safetensors", root / "linked/model.safetensors")
    os.symlink("../../outside/secret.txt", root / "linked/secret.txt")
    os.symlink(str(outside / "secret.txt"), root / "linked/secret2.txt")
    os.symlink("/etc/passwd", root / "linked/passwd.txt")
    os.symlink("nowhere", root / "linked/dangling.txt")
    os.symlink("../outside", root / "out-relative")                       # outside, a directory
    os.symlink(str(outside), root / "out-absolute")
    os.symlink("/", root / "out-slash")
    os.symlink("/proc/self/root", root / "out-magic")
    (root / "evil").mkdir()
    os.symlink("../../outside/model.safetensors", root / "evil/model.safetensors")
    (root / "evil2").mkdir()
    os.symlink(str(outside / "model.safetensors"), root / "evil2/model.safetensors")
    (root / "proc").mkdir()
    os.symlink("/proc/self/environ", root / "proc/model.safetensors")
    os.symlink("/dev/zero", root / "proc/zero.safetensors")
    age(root)
    s = start(root)
    ids = set(s.ids())
    assert {"real", "alias", "linked"} <= ids, f"symlinks that stay inside are followed: {ids}"
    for bad in ("out-relative", "out-absolute", "out-slash", "out-magic"):
        assert not [i
                    for i in ids if i == bad or i.startswith(bad + "/")], f"{bad} leads outside and is published: {ids}"
    for id in ("real", "alias", "linked"):
        assert s.get(f"/models/{id}/tensors/w").body == t.data, id
    if "absolute" in ids:
        assert s.get("/models/absolute/tensors/w").body == t.data
    for id in ("evil", "evil2", "proc"):
        if id in ids:
            e = s.json(f"/models/{id}")
            assert e["checkpoints"] == [] and e["files"] == [], f"{id}: {e}"
        r = s.get(f"/models/{id}/tensors/secret")
        assert r.status == 404, r
    listed = {f["path"] for f in s.json("/models/linked")["files"]}
    assert listed == {"model.safetensors"}, f"links that leave the root or dangle are not listed: {listed}"
    for target in ("linked/files/secret.txt", "linked/files/secret2.txt", "linked/files/passwd.txt",
                   "linked/files/dangling.txt", "evil/files/model.safetensors", "evil2/files/model.safetensors",
                   "out-relative/files/secret.txt", "out-slash/files/etc/passwd", "proc/files/model.safetensors",
                   "real/files/../../outside/secret.txt"):
        r = s.get("/models/" + target)
        assert r.status in (400, 404) and b"SECRET" not in r.body and b"root:" not in r.body, f"{target}: {r}"


# shows: security.md file-symlinks
def test_symlink_loops_end(start, tmp_path):
    root = tmp_path / "root"
    t = good(root / "m/model.safetensors")
    os.symlink(".", root / "m/self")
    os.symlink("..", root / "m/up")
    os.symlink("b", root / "a")
    os.symlink("a", root / "b")
    os.symlink("loop.safetensors", root / "m/loop.safetensors")
    (root / "deep/x").mkdir(parents=True)
    os.symlink("../../deep", root / "deep/x/back")
    os.symlink("../m", root / "deep/again")
    began = time.monotonic()
    s = start(root)
    took = time.monotonic() - began
    ids = s.ids()
    assert took < 10, f"{took:.1f} s to be ready with loops of symlinks"
    assert "m" in ids and len(ids) <= 8, f"loops end, yet there are {len(ids)} models: {ids[:20]}"
    assert s.get("/models/m/tensors/w").body == t.data
    assert len(s.json("/models/m")["files"]) <= 8, s.json("/models/m")["files"]


# shows: security.md file-symlinks
def test_fifos_devices_and_sockets_never_block(start, tmp_path):
    root = tmp_path / "root"
    t = good(root / "good/model.safetensors")
    (root / "odd").mkdir()
    os.mkfifo(root / "odd/model.safetensors")
    os.mkfifo(root / "good/pipe.json")
    os.mkfifo(root / "config.json")
    os.mkfifo(root / "fifo.safetensors")
    sock = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root / "odd")                               # a socket's path must be short
    sock.bind("sock.safetensors")
    os.chdir(here)
    made = []
    for name, dev in (("zero.safetensors", (1, 5)), ("tty.safetensors", (5, 0)), ("null.bin", (1, 3))):
        try:
            os.mknod(root / "odd" / name, stat.S_IFCHR | 0o666, os.makedev(*dev))
            made.append(name)
        except PermissionError:
            pass                                          # needs CAP_MKNOD; the FIFO and the socket always exist
    began = time.monotonic()
    s = start(root)
    assert time.monotonic() - began < 10, "a FIFO or device held up the first scan"
    assert s.get("/models/good/tensors/w").body == t.data
    for target in ("good/files/pipe.json", "odd/files/model.safetensors", "odd/files/sock.safetensors",
                   "fifo.safetensors", *(f"odd/files/{n}" for n in made)):
        began = time.monotonic()
        r = s.get("/models/" + target)
        assert r.status == 404 or (
            target == "fifo.safetensors" and r.status == 200 and r.json()["checkpoints"] == []), f"{target}: {r}"
        assert time.monotonic() - began < 2, target
    assert "pipe.json" not in {f["path"] for f in s.json("/models/good")["files"]}
    sock.close()


# shows: security.md file-hard-links
def test_hard_link_is_accepted(start, tmp_path):
    root = tmp_path / "root"
    t = good(root / "m/model.safetensors")
    (root / "hard").mkdir()
    os.link(root / "m/model.safetensors", root / "hard/model.safetensors")
    s = start(root)
    assert s.get("/models/hard/tensors/w").body == t.data and s.get("/models/m/tensors/w").body == t.data


# shows: security.md file-odd-names
def test_odd_file_names(start, tmp_path):
    """Non-UTF-8, newline, control and very long names: refused or escaped, valid JSON, forged nowhere."""
    root = tmp_path / "root"
    t = good(root / "m/model.safetensors")
    base = os.fsencode(root / "m")
    for name in (b"bad\xff\xfe.txt", b"new\nline.txt", b"esc\x1b[31m.txt", b"tab\t.txt", b"x" * 251 + b".txt",
                 b"quote\".txt", b"back\\slash.txt", b"caf\xc3\xa9.txt", b"cafe\xcc\x81.txt", b"A.TXT", b"a.txt",
                 b"-rf", b"%2e%2e", b"a+b c.txt"):
        with open(base + b"/" + name, "wb") as f:
            f.write(b"content of " + name)
    os.mkdir(os.fsencode(root) + b"/dir\xff")
    write_by_hand(root / "tmpname.safetensors", [tensor("w", "U8", [8])])
    os.rename(root / "tmpname.safetensors", os.fsencode(root) + b"/dir\xff/model.safetensors")
    age(root)
    s = start(root)
    r = s.get("/models/m")
    r.body.decode("utf-8")                             # strict
    listed = {f["path"] for f in r.json()["files"]}
    for name in ("new\nline.txt", "tab\t.txt", "quote\".txt", "back\\slash.txt", "café.txt", "cafe\u0301.txt", "A.TXT",
                 "a.txt", "-rf", "%2e%2e", "a+b c.txt", "x" * 251 + ".txt"):
        if name in listed or "\n" not in name:
            assert name in listed, f"{name!r} is not listed: {sorted(listed)}"
            r = s.get("/models/m/files/" + enc(name))
            assert r.status == 200 and r.body == b"content of " + name.encode(), f"{name!r}: {r}"
    s.get("/models").body.decode("utf-8")
    assert s.get("/models/m/files/bad%FF%FE.txt").status in (200, 400, 404)
    assert s.get("/models/dir%FF").status in (200, 400, 404)
    assert "\x1b" not in s.stderr(), "a file name wrote an escape sequence to the log"
    assert s.get("/models/m/tensors/w").body == t.data


BROKEN = {
    "empty": b"",
    "seven-bytes": b"\0" * 7,
    "zero-length": struct.pack("<Q", 0),
    "huge-length": struct.pack("<Q", 2**64 - 1) + b"{}",
    "over-cap": struct.pack("<Q", 100_000_001) + b"{}",
    "past-the-end": struct.pack("<Q", 1000) + b"{" * 80,
    "not-utf8": frame(b"\xff"),
    "open-brace": frame(b"{"),
    "text": b"hello, this is a README",
    "trailing": frame(header_json([tensor("w", "U8", [8])]), b"12345678x"),
    "html": b"<!DOCTYPE html><html></html>",
    "lfs-pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n",
    "git-lfs-short": b"version https://git-lfs",
}


# shows: security.md content-many-large-files
def test_memory_for_all_files_is_bounded(start, tmp_path):
    """--max-memory: a file that does not fit is refused by name and the rest is served; it is read when there is
    room."""
    root = tmp_path / "root"
    small, other = [tensor("w", "U8", [3])], [tensor("v", "U8", [3])]
    write_by_hand(root / "a/model.safetensors", small)
    write_by_hand(root / "b/model.safetensors", [tensor(f"layer.{i}", "U8", [1]) for i in range(20000)])
    write_by_hand(root / "c/model.safetensors", other)
    age(root)
    s = start(root, "--max-memory", "1048576", rescan="0.1")
    (e,) = s.json("/models/b")["errors"]
    assert e["file"] == "model.safetensors" and "1048576" in e["message"] and "--max-memory" in e["message"], e
    assert s.json("/models/b")["checkpoints"] == []
    assert s.get("/models/a/tensors/w").body == small[0].data and s.get("/models/c/tensors/v").body == other[0].data
    assert s.get("/models/b/files/model.safetensors").status == 200, "it is still a file"


# shows: security.md file-broken-neighbour
def test_broken_files_are_listed_with_errors(start, tmp_path):
    root = tmp_path / "root"
    t = good(root / "good/model.safetensors")
    for name, raw in BROKEN.items():
        (root / name).mkdir()
        (root / name / "model.safetensors").write_bytes(raw)
    age(root)
    s = start(root)
    entries = {m["id"]: m for m in s.json("/models")["models"]}
    for name in BROKEN:
        assert name in entries, f"a model all of whose files are broken is listed: {sorted(entries)}"
        e = s.json(f"/models/{name}")
        assert e["checkpoints"] == [], f"{name}: {e}"
        assert [x["file"] for x in e["errors"]] == ["model.safetensors"], f"{name}: {e['errors']}"
        for x in e["errors"]:
            assert x["message"] and "\n" not in x["message"] and str(root) not in x["message"], x
        sent = s.get(f"/models/{name}/files/model.safetensors")
        if "lfs" in name:
            check_error(sent, 409)
        else:
            assert sent.body == BROKEN[name], "a broken file is still a file"
        check_error(s.get(f"/models/{name}/tensors"), 404)
        check_error(s.get(f"/models/{name}/tensors/w"), 404)
    assert s.get("/models/good/tensors/w").body == t.data
    assert s.json("/models/good")["errors"] == []


def sharded(root, name, **change):
    d = root / name
    d.mkdir(parents=True)
    ts = [tensor("a", "U8", [20], name), tensor("b", "U8", [30], name)]
    write_by_hand(d / "s1.safetensors", ts[:1])
    write_by_hand(d / "s2.safetensors", ts[1:])
    index = {"metadata": {"total_size": 50}, "weight_map": {"a": "s1.safetensors", "b": "s2.safetensors"}}
    index["weight_map"].update(change.get("weight_map", {}))
    (d / "model.safetensors.index.json").write_text(change.get("text") or json.dumps(index))
    return d


# shows: security.md content-shard-index
def test_sharded_checkpoints_that_must_not_be_published(start, tmp_path):
    """Bad inputs 32-37: index names outside, missing, broken, lying; the error names the shard."""
    root = tmp_path / "root"
    outside = tmp_path / "x.safetensors"
    write_by_hand(outside, [tensor("b", "U8", [30], "outside")])
    t = good(root / "good/model.safetensors")
    blame = {}
    sharded(root, "dotdot", weight_map={"b": "../../x.safetensors"})
    blame["dotdot"] = "x.safetensors"
    sharded(root, "dotdot-inside", weight_map={"b": "../good/model.safetensors"})
    blame["dotdot-inside"] = "model.safetensors"
    sharded(root, "absolute", weight_map={"b": str(outside)})
    blame["absolute"] = None
    sharded(root, "passwd", weight_map={"b": "/etc/passwd"})
    blame["passwd"] = None
    (sharded(root, "missing") / "s2.safetensors").unlink()
    blame["missing"] = "s2.safetensors"
    sharded(root, "absent", weight_map={"c": "s2.safetensors"})
    blame["absent"] = "s2.safetensors"
    sharded(root, "wrong-shard", weight_map={"a": "s2.safetensors", "b": "s1.safetensors"})
    blame["wrong-shard"] = "s2.safetensors"
    (sharded(root, "broken") / "s2.safetensors").write_bytes(b"\0" * 100)
    blame["broken"] = "s2.safetensors"
    d = sharded(root, "fifo")
    (d / "s2.safetensors").unlink()
    os.mkfifo(d / "s2.safetensors")
    blame["fifo"] = "s2.safetensors"
    d = sharded(root, "leaves")
    (d / "s2.safetensors").unlink()
    os.symlink("../../x.safetensors", d / "s2.safetensors")
    blame["leaves"] = "s2.safetensors"
    sharded(root, "number", weight_map={"b": 5})
    blame["number"] = None
    sharded(root, "empty-name", weight_map={"b": ""})
    blame["empty-name"] = None
    sharded(root, "nul", weight_map={"b": "s2.safetensors\0x"})
    blame["nul"] = None
    sharded(root, "not-json", text="{")
    blame["not-json"] = None
    sharded(root, "no-map", text='{"metadata":{}}')
    blame["no-map"] = None
    sharded(root, "array", text='[1,2]')
    blame["array"] = None
    sharded(root, "deep", text='{"weight_map":' + "[" * 100_000 + "]" * 100_000 + "}")
    blame["deep"] = None
    age(root)
    s = start(root)
    ids = s.ids()
    for name, shard in blame.items():
        assert name in ids, f"{name} is not listed: {ids}"
        e = s.json(f"/models/{name}")
        assert e["checkpoints"] == [], f"{name} is published: {e['checkpoints']}"
        assert e["errors"], f"{name}: no error"
        if shard:
            assert any(shard in x["message"] or shard in x["file"] for x in e["errors"]), \
                f"{name}: the error does not name {shard}: {e['errors']}"
        for x in e["errors"]:
            assert str(root) not in x["message"], x
        assert s.get(f"/models/{name}/tensors/b").status == 404
    passwd = open("/etc/passwd", "rb").read(30)
    assert passwd not in s.get("/models/passwd/tensors/b").body
    assert s.get("/models/good/tensors/w").body == t.data


def test_sharded_checkpoint_that_is_good_beside_bad_ones(start, tmp_path):
    root = tmp_path / "root"
    sharded(root, "ok")
    age(root)
    s = start(root)
    e = s.json("/models/ok")
    assert e["errors"] == [] and e["checkpoints"][0]["tensor_count"] == 2, e
    assert s.get("/models/ok/tensors/b").body == pattern(30, "ok" + "b")


# shows: security.md content-config-json
def test_hostile_config_json(start, tmp_path):
    """The server reads config.json: invalid, deep, huge and odd files must do no harm."""
    root = tmp_path / "root"
    cases = {
        "invalid": b"{", "deep": b"[" * 200_000 + b"]" * 200_000, "not-utf8": b'{"a":"\xff"}', "array": b"[1,2]",
        "string": b'"x"', "empty": b"", "nul": b'{"a":1}\0', "lone": b'{"a":"\\ud800"}', "big":
        b'{"a":"' + b"x" * (8 << 20) + b'"}', "numbers": b'{"a":1e999,"b":-0,"c":12345678901234567890,"d":1e-400}',
        "dup": b'{"a":1,"a":2}', "nan": b'{"a":NaN}', "bom": b'\xef\xbb\xbf{"a":1}'
    }
    for name, raw in cases.items():
        good(root / name / "model.safetensors")
        (root / name / "config.json").write_bytes(raw)
    age(root)
    s = start(root)
    for name, raw in cases.items():
        r = s.get(f"/models/{name}")
        assert r.status == 200, f"{name}: {r}"
        r.body.decode("utf-8")
        doc = r.json()
        assert doc["id"] == name and doc["checkpoints"], f"{name}: {str(doc)[:300]}"
        assert s.get(f"/models/{name}/files/config.json").body == raw, name
        if name == "numbers":
            assert b"12345678901234567890" in r.body, "64-bit integers are exact"


def test_where_paths_that_cannot_be_listed_are_told(start, tmp_path):
    """docs/models.md, "What is listed": the model reports paths with the name of a checkpoint file, GET /models the
    others."""
    root = tmp_path / "root"
    good(root / "m/model.safetensors")
    (root / "m/gone.safetensors").symlink_to("nowhere")
    os.mkfifo(root / "m/pipe.safetensors")
    (root / "m/notes.txt").symlink_to("nowhere")
    (root / "m/self").symlink_to("self")
    (root / "m/up").symlink_to("..")
    (root / "m/here").symlink_to(".")
    os.mkfifo(root / "m/pipe")
    os.mkdir(os.fsencode(root) + b"/m/\xff")
    age(root / "m/model.safetensors")
    s = start(root)
    told = {e["file"]: e["message"] for e in s.json("/models/m")["errors"]}
    assert set(told) == {"gone.safetensors", "pipe.safetensors"}, told
    others = {e["file"]: e["message"] for e in s.json("/models")["errors"]}
    assert {"m/notes.txt", "m/self", "m/pipe"} <= set(others) and len(others) == 4, others
    assert "circle" in others["m/self"] and "does not exist" in others["m/notes.txt"], others
    assert [f["path"] for f in s.json("/models/m")["files"]] == ["model.safetensors"
                                                                 ], "nothing is listed twice by way of a circle"


def python_reads(raw):
    """Return whether Python's json, which transformers uses, reads a dict."""
    try:
        return isinstance(json.loads(raw.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False


def test_damaged_metadata_is_listed(start, tmp_path):
    """A damaged config.json or model card is listed with the refused files; the model stays published."""
    root = tmp_path / "root"
    whole = b'{"model_type": "bert", "architectures": ["BertModel"], "x": 1}'
    configs = {
        "whole": whole, "cut": whole[:-5], "text": b"hello", "list": b"[1]", "empty": b"", "not-utf8":
        b'{"model_type": "\xff"}', "behind": whole + b"}", "nan":
        b'{"model_type": "bert", "x": NaN, "y": [Infinity, -Infinity]}', "infinity": b'{"x": -Infinity}'
    }
    for name, raw in configs.items():
        good(root / name / "model.safetensors")
        (root / name / "config.json").write_bytes(raw)
    cards = {"card-whole": ("---\nlicense: mit\n---\n# a model\n", True), "card-none": ("# a model\n", True),
             "card-open": ("---\nlicense: [mit\n---\n# a model\n", False), "card-list": ("---\n- mit\n---\n", False),
             "card-tab": ("---\nlicense:\n\t- mit\n---\n", False)}
    for name, (text, is_good) in cards.items():
        if text.count("---") == 2:  # the reference reader agrees
            try:
                assert isinstance(yaml.safe_load(text.split("---")[1]), dict) == is_good, name
            except yaml.YAMLError:
                assert not is_good, name
        good(root / name / "model.safetensors")
        (root / name / "README.md").write_text(text)
    (root / "described").mkdir()
    (root / "described/config.json").write_bytes(b"{")
    (root / "described/weights.tensors").write_bytes(b"x" * 2000)
    age(root)
    s = start(root, "--require-models", str(len(configs) + len(cards) + 1))
    wanted = {name: None if python_reads(raw) else "config.json" for name, raw in configs.items()}
    wanted.update({name: None if is_good else "README.md" for name, (_, is_good) in cards.items()})
    assert wanted["whole"] is wanted["nan"] is None and wanted["behind"] == "config.json"
    for name, file in wanted.items():
        doc = s.json(f"/models/{name}")
        assert doc["checkpoints"], f"{name} stays"
        assert [e["file"] for e in doc["errors"]] == ([] if file is None else [file]), f"{name}: {doc['errors']}"
        assert all("may lack metadata: " in e["message"] for e in doc["errors"]), doc["errors"]
        assert [f["path"] for f in doc["files"] if "error" in f] == ([] if file is None else [file]), doc["files"]
        if file is not None:
            assert s.get(f"/models/{name}/files/{file}").status == 200, "it can be fetched as it is"
            assert f'model "{name}": {file}: damaged' in s.stderr()
    assert "(at byte " in s.json("/models/cut")["errors"][0]["message"]
    assert "(line " in s.json("/models/card-open")["errors"][0]["message"]
    assert s.json("/api/models/local/cut")["config"]["model_type"] == "bert", "the text before the fault is read"
    assert [e["file"] for e in s.json("/models/described")["errors"]] == ["config.json"]
    assert s.get("/readyz").status == 200, "it is not taken for a model whose files were all refused"
    import subprocess
    from harness import tensord_binary
    p = subprocess.run([tensord_binary(), "inspect", str(root), "--json"], capture_output=True, timeout=60, text=True)
    told = {(e["model"], e["file"]) for e in json.loads(p.stdout)["errors"]}
    assert told == {(name, file)
                    for name, file in wanted.items() if file is not None} | {("described", "config.json")}, told


def test_empty_root_and_missing_root(start, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    s = start(root, ready=False)
    s.wait_for(lambda: s.get("/healthz").status == 200, "healthz")
    doc = s.wait_for(lambda: (lambda r: r.status == 200 and r.json())(s.get("/models")), "/models of an empty root")
    assert doc["models"] == [] and doc["next_page_token"] == ""
    import subprocess
    from harness import tensord_binary
    p = subprocess.run(
        [tensord_binary(), "serve", str(tmp_path / "nope"), "--listen", "127.0.0.1:0"], capture_output=True, timeout=20,
        text=True)
    assert p.returncode != 0 and "nope" in p.stderr, p
    assert len(p.stderr.strip().split("\n")) <= 2, f"an error is one line: {p.stderr!r}"


def test_many_readers_of_everything_at_once(srv, tree):
    """16 clients read random tensors and compare: no byte of one answer may leak into another."""
    import random
    todo = [(id, n) for id, m in tree.models.items() for n in m.tensors if id not in ("big", "amb")]
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        try:
            with srv.conn() as c:
                for _ in range(120):
                    id, n = rng.choice(todo)
                    r = c.request(f"/models/{enc(id, '/')}/tensors/{enc(n)}")
                    if r.status != 200 or r.body != tree.models[id].tensors[n].data:
                        wrong.append(f"{id} {n!r}: {r}")
        except Exception as e:
            wrong.append(repr(e))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    assert not wrong, wrong[:3]


def test_a_file_named_like_an_index_or_shutil_leftovers(start, tmp_path):
    """Partial uploads next to good files are ignored."""
    root = tmp_path / "root"
    t = good(root / "m/model.safetensors")
    shutil.copy(root / "m/model.safetensors", root / "m/.model.safetensors.Xy12Ab")        # rsync's temporary name
    shutil.copy(root / "m/model.safetensors", root / "m/other.safetensors.tmp")
    shutil.copy(root / "m/model.safetensors", root / "m/other.safetensors.incomplete")
    (root / ".dotdir").mkdir()
    shutil.copy(root / "m/model.safetensors", root / ".dotdir/model.safetensors")
    age(root)
    s = start(root)
    assert s.ids() == ["m"], s.ids()
    assert [f["path"] for f in s.json("/models/m")["files"]] == ["model.safetensors"]
    assert s.get("/models/m/tensors/w").body == t.data
