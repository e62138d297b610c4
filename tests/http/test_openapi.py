"""The contract (api/openapi.yaml, served as /openapi.json) against the real server: statuses, headers, types, bodies.

Objects count as closed here: a member, a header or a status that the document does not name is a failure, so the
document cannot fall behind the program.
"""
import datetime
import json
import os
import re
import shutil
import subprocess
import tarfile
import time

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

from harness import REPO, Server, age, enc, parse_multipart, tensor, tensord_binary, write_by_hand
from signing import TokensFile

# Names in the paths of the document, filled in from the tree of good models.
NAMES = {
    "id": "plain", "name": "model.norm.weight", "path": "config.json", "engine": "none", "size": "1", "file":
    "rank-0.safetensors", "revision": "main", "row": "0"
}
# The same for the paths of datasets.
DATASET_NAMES = {**NAMES, "id": "org/rows", "path": "train.jsonl"}
# The bodies for the paths that take POST.
BODIES = {"/models/{id}/tensors:read": {"tensors": [{"name": "model.norm.weight"}]},
          "/models/{id}/plans": {"engine": "none", "tp_size": 1},
          "/api/models/{id}/paths-info/{revision}": {"paths": ["config.json"]},
          "/api/datasets/{id}/paths-info/{revision}": {"paths": ["train.jsonl"]},
          "/datasets/{id}/rows:batchGet": {"split": "train", "indices": [1, 0, 1]},
          "/rescan": {}, "/sign": {"path": "/models", "expires_in": 60}}
# Verbs and paths of publishing, which tests/http/test_publish.py holds the program to.
WRITING = {"put", "delete"}
CHANGES = "/models/{id}/changes"  # which needs two versions: test_changes_are_as_promised has it
PUBLISHING = {f"/{kind}/{{id}}/{rest}" for kind in ("models", "datasets")
              for rest in ("blobs", "blobs/{digest}", "commits")} | {"/datasets/{id}/files/{path}"}
# Paths that need a server with tokens; test_signing asks for them.
NEEDS_TOKENS = {"/sign"}
# Fields that GET has to send to get the page whose parameters a path has.
FIELDS = {"/": {"Accept": "text/html"}}
# The beginning of the paths that pass over parameters that nobody knows, but not those of other paths.
FILES = "/models/{id}/files/"
ETAG = re.compile(r'^"[!#-~]+"$')
# Statuses that the tests below cannot cause on every path.
NOT_ON_EVERY_PATH = {"201", "401", "403", "409", "422", "429", "500", "503"}
# Fields that the document need not name with each answer: HTTP's own, and that which all answers have.
COMMON_FIELDS = {"date", "connection", "content-type", "content-length", "x-request-id"}


def is_hub(path):
    """The Hub's paths ignore parameters that they do not know."""
    return path.startswith(("/api/", "/{id}/resolve/", "/datasets/{id}/resolve/"))


def names_for(path):
    if path.startswith("/-/"):
        return {"asset": "tensord.css"}
    return DATASET_NAMES if "/datasets" in path else NAMES


def unknown_query(path):
    return "?slice=1" if path.startswith(FILES) else "?no_such_parameter=1"


def bad_query(path):
    return "?x=%zz" if is_hub(path) or path == "/" else unknown_query(path)


def resolve(doc, node):
    """Replace every $ref by its target; there are no cycles."""
    if isinstance(node, dict):
        if "$ref" in node:
            at = doc
            for part in node["$ref"].removeprefix("#/").split("/"):
                at = at[part]
            return resolve(doc, at)
        return {k: resolve(doc, v) for k, v in node.items()}
    return [resolve(doc, v) for v in node] if isinstance(node, list) else node


def closed(schema):
    """Return the schema with allOf merged, with every object closed that lists its members, and with OpenAPI's
    `nullable` in the form of JSON Schema."""
    if not isinstance(schema, dict):
        return schema
    schema = dict(schema)
    if schema.pop("nullable", False):
        schema["type"] = [schema["type"], "null"]
    for part in schema.pop("allOf", []):
        for key, value in closed(part).items():
            if key in ("properties", "required"):
                schema[key] = {**schema.get(key, {}), **value} if key == "properties" else schema.get(key, []) + value
            else:
                schema.setdefault(key, value)
    for key in ("properties",):
        if key in schema:
            schema[key] = {name: closed(value) for name, value in schema[key].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = closed(schema[key])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            schema[key] = [closed(value) for value in schema[key]]
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def is_date_time(value):
    if not isinstance(value, str):
        return True
    assert value.endswith("Z"), value
    return datetime.datetime.fromisoformat(value) is not None


FORMATS = jsonschema.FormatChecker(formats=())
FORMATS.checks("date-time", raises=(ValueError, AssertionError))(is_date_time)


def check_schema(schema, value, where):
    """Check a schema. As far as the document uses them, OpenAPI 3.0's schemas are those of JSON Schema's draft 4."""
    faults = sorted(jsonschema.Draft4Validator(closed(schema), format_checker=FORMATS).iter_errors(value), key=str)
    assert not faults, f"{where}: {faults[0].message} at /{'/'.join(map(str, faults[0].absolute_path))}"


class Contract:
    def __init__(self, doc):
        self.doc = doc
        self.all_paths = {path: resolve(doc, item) for path, item in doc["paths"].items()}
        self.paths = {path: item for path, item in self.all_paths.items() if path not in PUBLISHING | {CHANGES}}
        self.seen = {path: set() for path in self.paths}     # statuses of GET that were checked

    def parameters(self, path, where):
        item = self.paths[path]
        return [p for p in item.get("parameters", []) + self.main(path).get("parameters", []) if p["in"] == where]

    def main(self, path):
        return self.paths[path]["post" if path in BODIES else "get"]

    def target(self, path):
        return re.sub(r"\{(\w+)\}", lambda m: enc(names_for(path)[m.group(1)]), path)

    def check(self, path, r, method="GET"):
        """Check everything that the document says about this answer."""
        where = f"{method} {path} -> {r}"
        responses = self.all_paths[path][method.lower()]["responses"]
        promised = responses.get(str(r.status), responses.get(f"{r.status // 100}XX"))
        assert promised is not None, f"the document has no {r.status}: {where}"
        if method in ("GET", "POST") and path in self.seen:
            self.seen[path].add(str(r.status))
        if str(r.status) not in responses:                   # the error of a HEAD
            promised = self.all_paths[path]["get"]["responses"].get(str(r.status))
            assert promised is not None, f"the document has no {r.status}: {where}"
        if r.status >= 400 and r.get("Content-Type", "").startswith("text/html"):
            promised = self.error_page(promised)
        headers = {k.lower(): v for k, v in promised.get("headers", {}).items()}
        if r.status == 304:
            headers = {k.lower(): {**v, "required": False}
                       for k, v in self.all_paths[path]["get"]["responses"]["200"].get("headers", {}).items()}
        self.check_headers(headers, r, where)
        if method == "HEAD" or r.status in (204, 304):
            assert r.body == b"", where
        else:
            self.check_body(promised.get("content", {}), r, where)
        return r

    def error_page(self, promised):
        """The same refusal for a browser: the section Errors of the document says that it is a page."""
        pages = self.all_paths["/"]["get"]["responses"]["200"]
        fields = ("Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy")
        return {"headers": {**promised.get("headers", {}), **{name: pages["headers"][name] for name in fields}},
                "content": pages["content"]}

    def check_headers(self, promised, r, where):
        for name, header in promised.items():
            value = r.get(name)
            assert value is not None or not header.get("required"), f"no {name}: {where}"
            if value is not None:
                number = header["schema"].get("type") == "integer" and value.isdigit()
                check_schema(header["schema"], int(value) if number else value, f"{name} of {where}")
        if r.get("Date"):       # the acceptor's answers, at the limits, have neither
            assert re.fullmatch("[0-9A-F]{16}", r.get("X-Request-Id") or ""), where
        unnamed = set(r.names()) - set(promised) - COMMON_FIELDS
        assert not unnamed, f"the document does not name {sorted(unnamed)}: {where}"

    def check_body(self, content, r, where):
        kind = r.get("Content-Type") or ""
        media = content.get(kind, content.get(kind.split(";")[0]))
        assert media is not None, f"the document does not have {kind!r}, only {sorted(content)}: {where}"
        if r.length is not None:
            assert r.length == len(r.body), where
        if kind == "application/json" and r.status != 206:
            check_schema(media["schema"], r.json(), where)
        elif kind.startswith("text/"):
            check_schema(media["schema"], r.body.decode("utf-8"), where)
        elif kind.startswith("multipart/"):
            assert parse_multipart(r), where


PLAN = {"tp_size": 1, "rules": [{"match": "**", "whole": True}]}


@pytest.fixture(scope="module")
def contract(srv):
    r = srv.get("/openapi.json")
    NAMES["plan"] = srv.post("/models/plain/plans", PLAN).json()["id"]
    return Contract(r.json())


def ask(srv, path, target, headers=()):
    """Send a request with the path's own method and a body if it takes one."""
    headers = {**FIELDS.get(path, {}), **dict(headers)}
    return srv.post(target, BODIES[path], headers) if path in BODIES else srv.get(target, headers)


def test_the_document_is_sound(contract):
    """Check what a validator for OpenAPI 3.0 checks first: references, ids, path parameters, responses."""
    doc = contract.doc
    assert doc["openapi"].startswith("3.0.") and doc["info"]["version"] != "0", doc["info"]
    used = set(re.findall(r"'\$ref': '#/components/(\w+/\w+)'", str(doc)))
    used |= {f"securitySchemes/{name}" for need in doc["security"] for name in need}
    there = {f"{kind}/{name}" for kind, items in doc["components"].items() for name in items}
    assert used == there, f"dangling {sorted(used - there)}, unused {sorted(there - used)}"
    ids = [
        op["operationId"] for item in contract.all_paths.values() for verb, op in item.items()
        if verb in {"get", "head", "post"} | WRITING
    ]
    assert len(ids) == len(set(ids))
    for path, item in contract.paths.items():
        verbs = {"post"} if path in BODIES else {"get", "head"}
        assert set(item) - {"summary", "parameters"} - WRITING == verbs, path
        named = {p["name"] for p in contract.parameters(path, "path")}
        assert named == set(re.findall(r"\{(\w+)\}", path)), path
        for verb in verbs | WRITING & set(item):
            for status, answer in item[verb]["responses"].items():
                assert answer["description"], f"{verb} {path} {status}"
                for media in answer.get("content", {}).values():
                    jsonschema.Draft4Validator.check_schema(closed(media["schema"]))


def test_redocly_finds_nothing():
    """Redocly's strict rules, except those that api/redocly.yaml turns off with a reason."""
    script = [shutil.which("node"), REPO / "tests/js/lint_openapi.mjs", REPO / "api/redocly.yaml"]
    good = subprocess.run([*script, REPO / "api/openapi.yaml"], capture_output=True, text=True, timeout=120,
                          check=False)
    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")


def test_redocly_looks(tmp_path):
    """The linter finds a fault and its location: a parameter that the path does not have."""
    text = (REPO / "api/openapi.yaml").read_text()
    bad = tmp_path / "bad.yaml"
    bad.write_text(text.replace("  /api/models/{id}/refs:\n", "  /api/models/refs:\n", 1))
    script = [shutil.which("node"), REPO / "tests/js/lint_openapi.mjs", REPO / "api/redocly.yaml"]
    found = subprocess.run([*script, bad], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 1 and "path-parameters-defined" in found.stdout and "refs" in found.stdout, found


def test_every_status_of_every_path(srv, contract):
    """Request each path once for each status that the document gives it, as far as one client can cause it."""
    long_header = {"X-Long": "y" * 9000}
    for path, item in contract.paths.items():
        target = contract.target(path)
        method = "POST" if path in BODIES else "GET"
        good = contract.check(path, ask(srv, path, target), method)
        assert good.status in ((404, ) if path in NEEDS_TOKENS else (200, 201)), good
        promised = set(contract.main(path)["responses"])
        tries = [({}, target + bad_query(path), 400), (long_header, target, 431)]
        if good.etag and method == "GET":
            assert {"206", "304", "412", "416"} <= promised, path
            tries += [({"If-None-Match": good.etag}, target, 304), ({"If-Match": '"other"'}, target, 412),
                      ({"Range": "bytes=0-1"}, target, 206), ({"Range": "bytes=0-1,4-5"}, target, 206),
                      ({"Range": "bytes=99999999-"}, target, 416)]
        if "{" in path:
            gone = re.sub(r"\{(\w+)\}$", "no-such-thing", path) if path.endswith("}") else path.replace(
                "{id}", "no-such-model")
            tries.append(({}, contract.target(gone), 404))
        if path == "/compare":
            tries.append(({}, "/compare?a=no-such-model&b=no-such-model", 404))
        for headers, where, status in tries:
            r = contract.check(path, ask(srv, path, where, headers), method)
            assert r.status == status, f"wanted {status}: {r}"
        r = contract.check(path, srv.request(target, FIELDS.get(path, ()), "GET" if path in BODIES else "POST"), method)
        assert r.status == 405, r
        if path in FIELDS:
            assert contract.check(path, srv.get(target)).status == 200
        if "412" in promised and method == "POST":
            rows = "/rows" in path
            r = contract.check(path, srv.post(target + "?fingerprint=x" * rows, {
                **BODIES[path], **({} if rows else {"manifest": "no such tag"})}), method)
            assert r.status == 412, r
        if path in BODIES:
            assert contract.check(path, ask(srv, path, target), method).status in (200, good.status)  # the same again
            assert contract.check(path, srv.request(target, {"Content-Length": "99999999"}, "POST"),
                                  method).status == 413
            if "requestBody" in contract.main(path):
                r = srv.post(target, BODIES[path], {"Content-Encoding": "br"})
                assert contract.check(path, r, method).status == 415
        missing = promised - contract.seen[path] - NOT_ON_EVERY_PATH - ({"200"} if path in NEEDS_TOKENS else set())
        assert not missing, f"{path}: the document has {sorted(missing)}, which nothing here brings about"


def test_statistics_are_as_promised(srv, contract):
    path = "/models/{id}/tensors/{name}"
    shapes = set()
    for entry in srv.json("/models/plain/tensors")["tensors"]:
        for query in ("", "&bins=1", "&bins=512"):
            r = contract.check(path, srv.get(entry["href"] + "?format=stats" + query))
            assert r.status == 200, r
            shapes.add(len(r.json()["shape"]))
        assert contract.check(path, srv.head(entry["href"] + "?format=stats"), "HEAD").status == 200
    assert {1, 2} <= shapes
    part = contract.check(path, srv.get(entry["href"] + "?format=stats", {"Range": "bytes=2-9"}))
    assert part.status == 206
    assert contract.check(path, srv.get(entry["href"] + "?format=stats&bins=0")).status == 400


def test_signing(start, tree, contract, tmp_path):
    tokens = TokensFile(tmp_path / "tokens.json").add("ci")
    s = start(tree.root, "--tokens", tokens)
    signed = contract.check("/sign", s.post("/sign", BODIES["/sign"], tokens.bearer("ci")), "POST")
    assert signed.status == 200 and set(signed.json()) == {"path", "url", "expires"}
    assert contract.check("/models", s.get(signed.json()["path"])).status == 200
    assert contract.check("/sign", s.post(tokens.sign("/sign"), BODIES["/sign"]), "POST").status == 403


# shows: security.md token-refusals
def test_every_path_asks_for_a_token(contract, tree, tmp_path):
    """With --tokens: 401 without one and with a wrong one, but for the probes, whose operations have no security."""
    tokens = tmp_path / "tokens"
    made = subprocess.run([tensord_binary(), "token", "new", "t", "--tokens", tokens, "--json"], check=True,
                          capture_output=True)
    token = json.loads(made.stdout)["token"]
    with Server(tree.root, "--tokens", tokens, hash_threads=0) as s:
        for path in contract.paths:
            method, target = "POST" if path in BODIES else "GET", contract.target(path)
            is_open = contract.main(path).get("security") == []
            assert is_open == ("401" not in contract.main(path)["responses"]), path
            for credentials in ("Bearer wrong", None):
                fields = {"Authorization": credentials} if credentials else {"X-Forwarded-For": "::1"}
                r = contract.check(path, ask(s, path, target, fields), method)
                is_free = credentials is None and path in ("/metrics", "/openapi.json", "/status")
                assert r.status == (200 if is_open or is_free else 401), r
                if method == "GET":
                    contract.check(path, s.head(target, {**FIELDS.get(path, {}), **fields}), "HEAD")
            if "{plan}" not in path:    # the plan is registered at the other server
                r = contract.check(path, ask(s, path, target, {"Authorization": f"Bearer {token}"}), method)
                assert r.status in (200, 201), r


def test_an_incomplete_manifest(contract, tmp_path):
    """A checkpoint whose index names a shard that is missing, as ?partial=1 shows it."""
    model = tmp_path / "root" / "m"
    model.mkdir(parents=True)
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    write_by_hand(model / shards[0], [tensor("w", "U8", [1])])
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shards[0], "v": shards[1]}}))
    age(model)
    with Server(tmp_path / "root") as s:
        r = contract.check("/models/{id}/tensors", s.get("/models/m/tensors?partial=1"))
        assert r.status == 200 and "incomplete" in r.json() and [t["name"]
                                                                 for t in r.json()["tensors"]] == ["w"], r.body
        for name, status in (("w", 200), ("v", 404)):
            answer = s.get(f"/models/m/tensors/{name}?partial=1")
            assert contract.check("/models/{id}/tensors/{name}", answer).status == status, answer


def test_an_incomplete_group(contract, tmp_path):
    """A group known by file names alone, as ?partial=1 shows it: at most 1,000 missing files are named."""
    model = tmp_path / "root" / "m"
    model.mkdir(parents=True)
    write_by_hand(model / "x-00002-of-99999.safetensors", [tensor("w", "U8", [4])])
    age(model)
    with Server(tmp_path / "root") as s:
        plain = contract.check("/models/{id}/tensors", s.get("/models/m/tensors"))
        assert plain.status == 404 and "add ?partial=1" in plain.json()["error"]["message"], plain.body
        message = s.get("/models/m").json()["errors"][0]["message"]
        assert message == "shard 1 of 99999 is not there, so this sharded checkpoint is not published"
        r = contract.check("/models/{id}/tensors", s.get("/models/m/tensors?partial=1"))
        lacks = r.json()["incomplete"]
        assert r.status == 200 and [t["name"] for t in r.json()["tensors"]] == ["w"], r.body
        assert lacks["missing_files"] == [f"x-{i:05}-of-99999.safetensors" for i in range(1, 1002) if i != 2]
        assert lacks["missing_file_count"] == 99998 and "missing_tensor_count" not in lacks
        href = r.json()["tensors"][0]["href"]
        whole = contract.check("/models/{id}/tensors/{name}", s.get(href))
        part = contract.check("/models/{id}/tensors/{name}", s.get(href, headers={"Range": "bytes=1-2"}))
        absent = contract.check("/models/{id}/tensors/{name}", s.get("/models/m/tensors/v?partial=1"))
        assert (whole.status, part.status, absent.status) == (200, 206, 404)
        assert len(whole.body) == 4 and part.body == whole.body[1:3]


def test_a_pointer_in_the_place_of_a_file(contract, tmp_path):
    """409 at both paths of the file, and the mark in every list of it."""
    model = tmp_path / "root" / "m"
    model.mkdir(parents=True)
    write_by_hand(model / "model.safetensors", [tensor("w", "U8", [1])])
    (model / "tokenizer.json").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 +
                                           b"\nsize 1\n")
    age(model)
    with Server(tmp_path / "root") as s:
        for path, target in (("/models/{id}/files/{path}", "/models/m/files/tokenizer.json"),
                             ("/{id}/resolve/{revision}/{path}", "/m/resolve/main/tokenizer.json")):
            assert contract.check(path, s.get(target)).status == 409
            assert s.head(target).status == 409
        for path, target in (("/models/{id}", "/models/m"), ("/api/models/{id}", "/api/models/m"),
                             ("/api/models", "/api/models"), ("/api/models/{id}/tree/{revision}",
                                                              "/api/models/m/tree/main")):
            assert b"git lfs pull" in contract.check(path, s.get(target)).body


def test_a_tensor_that_cannot_be_served(contract, tmp_path):
    """422 on request and the reason in the manifest; and the fields of its neighbours that safetensors never needs."""
    model = tmp_path / "root" / "m"
    model.mkdir(parents=True)
    array = np.arange(24, dtype="<f4").reshape(4, 6)
    np.savez(model / "a.npz", big=array.astype(">f4"), fortran=np.asfortranarray(array), plain=array,
             text=np.array(["a", "bc"]))
    age(model / "a.npz")
    with Server(tmp_path / "root") as s:
        manifest = contract.check("/models/{id}/tensors", s.get("/models/m/tensors")).json()
        tensors = {t["name"]: t for t in manifest["tensors"]}
        assert tensors["big"]["access"] == "swapped" and tensors["big"][
            "stored"] == "big-endian" and "offset" not in tensors["big"]
        assert tensors["fortran"]["strides"] == [1, 4] and "strides" not in tensors["plain"]
        swapped = contract.check("/models/{id}/tensors/{name}", s.get("/models/m/tensors/big"))
        assert swapped.status == 200 and swapped.body == array.tobytes()
        assert tensors["text"]["addressable"] is False and tensors["text"]["reason"] == "strings"
        refused = contract.check("/models/{id}/tensors/{name}", s.get("/models/m/tensors/text"))
        assert refused.status == 422 and "strings" in refused.json()["error"]["message"]
        assert s.head("/models/m/tensors/text").status == 422
        body = array.tobytes()
        for name in ("fortran", "plain"):
            target = f"/models/m/tensors/{name}"
            whole = contract.check("/models/{id}/tensors/{name}", s.get(target))
            assert whole.status == 200 and whole.body == body
            assert s.head(target).get("Content-Length") == str(len(body))
            for first, last in ((0, 0), (3, 9), (17, 95), (40, 200)):
                part = contract.check("/models/{id}/tensors/{name}",
                                      s.get(target, {"Range": f"bytes={first}-{last}", "If-Range": whole.etag}))
                assert part.status == 206 and part.body == body[first:last + 1]
            several = parse_multipart(s.get(target, {"Range": "bytes=1-2,50-60"}))
            assert [p[4] for p in several] == [body[1:3], body[50:61]]
            assert s.get(target, {"If-None-Match": whole.etag}).status == 304
        assert s.head("/models/m/tensors/fortran").etag != s.head("/models/m/tensors/plain").etag


def test_head_of_every_path(srv, contract):
    for path in set(contract.paths) - set(BODIES):
        target, fields = contract.target(path), FIELDS.get(path, {})

        def head(where, more=(), path=path, fields=fields):
            return contract.check(path, srv.head(where, {**fields, **dict(more)}), "HEAD")
        good = head(target)
        assert good.status == 200, good
        assert head(target, {"Range": "bytes=0-0"}).status == 200
        assert head(target + bad_query(path)).status == 400
        if good.etag:
            assert head(target, {"If-None-Match": "*"}).status == 304
            assert head(target, {"If-Match": '"other"'}).status == 412


@pytest.mark.parametrize("path", ["/", "/models/", "/models/{id}/", "/datasets/{id}"])
def test_pages_beside_json(srv, contract, path):
    """RFC 9110 12.5.5: both the JSON and the page have Vary: Accept, because Accept chooses between them."""
    target, html = contract.target(path), {"Accept": "text/html"}
    page = contract.check(path, srv.get(target, html))
    assert page.status == 200 and page.get("Content-Type").startswith("text/html") and page.get(
        "Vary").split(", ")[0] == "Accept", page
    for fields, status in (({"Range": "bytes=0-1"}, 206), ({"Range":
                                                            "bytes=0-1,4-5"}, 206), ({"If-None-Match":
                                                                                      page.etag}, 304)):
        assert contract.check(path, srv.get(target, {**html, **fields})).status == status
    assert contract.check(path, srv.head(target, html), "HEAD").get("Vary") == page.get("Vary")
    other = contract.check(path, srv.get(target))
    assert other.status == 200 and (path == "/" or other.json() == srv.json(target.rstrip("/"))), other
    assert other.get("Vary") == "Accept", other
    assert other.etag != page.etag


def test_every_query_parameter_is_known_and_no_other(srv, tree, start, contract):
    examples = {
        "page_size": "1", "page_token": "", "match": "*", "checkpoint": "safetensors", "partial": "1", "dtype": "F32",
        "slice": "0:1", "shard": "0:0/2", "format": "raw", "search": "p", "author": "local", "sort": "lastModified",
        "limit": "1", "cursor": "1", "full": "true", "filter": "safetensors", "pipeline_tag": "fill-mask", "direction":
        "1", "config": "true", "cardData": "true", "blobs": "true", "recursive": "true", "expand": "true", "split":
        "train", "start": "1", "count": "1", "offset": "1", "length": "1", "order": "shuffle", "seed": "1", "epoch":
        "1", "file_start": "1", "wait": "x", "timeout": "1", "after": "x", "kind": "model",
        "digests": "1", "bins": "8&format=stats", "v": "0", "q": "plain", "page": "1",
        "a": "plain", "b": "plain", "engine": "fsdp", "tp": "1",
        "fingerprint": srv.json("/datasets/org/rows")["splits"][0]["fingerprint"]
    }
    hashing = start(tree.root, hash_threads=1)
    assert hashing.post("/models/plain/plans", PLAN).json()["id"] == NAMES["plan"]
    for path in contract.paths:
        names = [p["name"] for p in contract.parameters(path, "query")]
        method = "POST" if path in BODIES else "GET"
        for name in names:
            if name == "version":                       # test_versions_are_as_promised has it, on every path
                continue
            value = "0/2" if name == "shard" and "/rows" in path else examples[name]
            value = "-bytes" if name == "sort" and (path == "/" or "/view/" in path) else value
            value = "json" if (path, name) == ("/status", "format") else value
            if (path, name) == ("/events", "wait"):     # it needs an id; another server's is a reset
                value = "&after=x"
            server, target = srv, contract.target(path)
            if name == "digests":                       # srv hashes nothing; only rank-0.json has rows
                server, target = hashing, target.replace("rank-0.safetensors", "rank-0.json")
            r = contract.check(path, ask(server, path, f"{target}?{name}={value}"), method)
            assert r.status in (200, 201), f"{name}: {r}"
        if is_hub(path) or path == "/":
            continue
        r = contract.check(path, ask(srv, path, contract.target(path) + unknown_query(path)), method)
        assert r.json()["error"]["details"]["known"] == names or set(
            r.json()["error"]["details"]["known"]) == set(names), r


def test_bounds_of_the_parameters_are_the_servers(srv, contract):
    """The smallest and the largest value pass, the next ones do not; the types are the known ones."""
    size = next(p["schema"] for p in contract.parameters("/models", "query") if p["name"] == "page_size")
    for value, status in ((size["minimum"], 200), (size["maximum"], 200), (size["minimum"] - 1, 400),
                          (size["maximum"] + 1, 400)):
        assert contract.check("/models", srv.get(f"/models?page_size={value}")).status == status, value
    timeout = next(p["schema"] for p in contract.parameters("/models/{id}", "query") if p["name"] == "timeout")
    for value, status in ((timeout["minimum"], 200), (timeout["maximum"], 200), (timeout["minimum"] - 1, 400),
                          (timeout["maximum"] + 1, 400)):
        r = contract.check("/models/{id}", srv.get(f"/models/plain?timeout={value}"))
        assert r.status == status, value
    dtypes = next(p["schema"] for p in contract.parameters("/models/{id}/tensors", "query")
                  if p["name"] == "dtype")["enum"]
    r = contract.check("/models/{id}/tensors", srv.get("/models/plain/tensors?dtype=none"))
    assert r.json()["error"]["details"]["known"] == dtypes
    r = contract.check("/models/{id}/tensors", srv.get("/models/plain/tensors?checkpoint=none"))
    assert r.status == 404 and r.json()["error"]["details"]["checkpoints"] == ["safetensors"], r


def test_every_listing_of_the_tree(srv, tree, contract):
    """All models, all manifests, whole and by page and by filter; broken ones and cache folders among them."""
    contract.check("/models", srv.get("/models"))
    r = contract.check("/models", srv.get("/models?page_size=2"))
    contract.check("/models", srv.get(f"/models?page_size=2&page_token={r.json()['next_page_token']}"))
    for id in tree.models:
        contract.check("/models/{id}", srv.get(f"/models/{enc(id)}"))
        base = f"/models/{enc(id)}/tensors"
        for query in ("", "?page_size=1", "?match=*w*", "?dtype=F32&page_size=3"):
            contract.check("/models/{id}/tensors", srv.get(base + query))


def test_versions_are_as_promised(start, tmp_path, contract):
    for number in (1, 2):
        folder = tmp_path / f"root/demo/step-{number}"
        write_by_hand(folder / "model.safetensors", [tensor("model.norm.weight", "F32", [4, 4], str(number))])
        (folder / "config.json").write_text("{}")
    (tmp_path / "root/demo/step-3").mkdir()
    (tmp_path / "root/demo/step-3/model.safetensors").write_bytes(b"broken")
    age(tmp_path / "root")
    s = start(tmp_path / "root")
    contract.check("/models/{id}/versions", s.get("/models/demo/versions"))
    plan = s.post("/models/demo/plans?version=1", BODIES["/models/{id}/plans"])
    assert contract.check("/models/{id}/plans", plan, "POST").status == 201, plan
    names = {**NAMES, "id": "demo", "plan": re.fullmatch("plans/(.*)[?]version=step-1", plan.get("Location"))[1]}
    taken = [path for path in contract.paths if "version" in [p["name"] for p in contract.parameters(path, "query")]]
    assert len(taken) == 15, taken
    for path in taken:
        target = re.sub(r"\{(\w+)\}", lambda m: names[m.group(1)], path)
        method = "POST" if path in BODIES else "GET"
        for version, name in (("step-2", "step-2"), ("1", "step-1"), ("latest", "step-2")):
            r = contract.check(path, ask(s, path, f"{target}?version={version}"), method)
            assert r.status in (200, 201) and r.get("X-Tensord-Version") == name, r
        unknown = contract.check(path, ask(s, path, f"{target}?version=step-9"), method)
        assert unknown.status == 404, unknown
        assert unknown.json()["error"]["details"]["known"] == ["step-1", "step-2", "step-3", "latest"], unknown


def test_changes_are_as_promised(start, tmp_path, contract):
    for number in (1, 2):
        write_by_hand(tmp_path / f"root/demo/step-{number}/model.safetensors",
                      [tensor("w", "F32", [4, 4], str(number)), tensor(f"only.{number}", "BF16", [2])])
    age(tmp_path / "root")
    s = start(tmp_path / "root", hash_threads=1)
    for query, status in (("since=1", 200), ("since=step-1&version=latest", 200), ("since=9", 404), ("", 400),
                          ("since=1&x=1", 400)):
        r = contract.check(CHANGES, s.get(f"/models/demo/changes?{query}"))
        assert r.status == status, r
    assert contract.check(CHANGES, s.head("/models/demo/changes?since=1"), "HEAD").status == 200
    known = s.get("/models/demo/changes?since=1&x=1").json()["error"]["details"]["known"]
    assert known == [p["name"] for p in contract.all_paths[CHANGES]["parameters"] if p["in"] == "query"]
    s.wait_hashed()
    tag = s.get("/models/demo/changes?since=1").etag
    r = contract.check(CHANGES, s.get("/models/demo/changes?since=1", {"If-None-Match": tag}))
    assert r.status == 304, r


def test_bytes_of_every_kind(srv, contract):
    path = "/models/{id}/files/{path}"
    for name in ("config.json", "README.md", "vocab.txt", "page.html", "image.svg", "data.bin", "zero.txt",
                 "sub dir/deeper/notes.txt"):
        contract.check(path, srv.get(f"/models/plain/files/{enc(name)}"))
        contract.check(path, srv.get(f"/models/plain/files/{enc(name)}", {"Range": "bytes=0-0,2-2"}))
    modified = srv.head("/models/plain/files/config.json").get("Last-Modified")
    assert contract.check(path, srv.get("/models/plain/files/config.json",
                                        {"If-Modified-Since": modified})).status == 304
    old = {"If-Unmodified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"}
    assert contract.check(path, srv.get("/models/plain/files/config.json", old)).status == 412
    path = "/models/{id}/tensors/{name}"
    for name in ("scalar", "zero", "zeros", "huge_dim", "huge_dim2", "many_dims"):
        contract.check(path, srv.get(f"/models/shapes/tensors/{name}"))
        contract.check(path, srv.head(f"/models/shapes/tensors/{name}"), "HEAD")


def test_rows_of_every_kind(start, tmp_path, contract):
    root = tmp_path / "datasets"
    for name, data in (("pics/a.jpg", b"1"), ("pics/b.PNG", b"22"), ("pics/c.tiff", b""), ("org/t/train.jsonl", b"{}"),
                       ("org/t/test.jsonl", b"1\r\n2\r\n3"), ("org/t/x.jsonl", b"no split"), ("none/a.jsonl", b"")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    for name, packing in (("org/arrow", None), ("org/zstd", "zstd")):
        (root / name).mkdir()
        table = pa.table({"a": range(10)})
        with pa.ipc.new_stream(root / name / "x.arrow", table.schema, options=pa.ipc.IpcWriteOptions(
                compression=packing)) as writer:
            writer.write_table(table)
    (root / "org/tars").mkdir()
    with tarfile.open(root / "org/tars/x.tar", "w") as archive:
        archive.add(root / "pics/a.jpg", "1.jpg")
    age(root)
    s = start(tmp_path)
    for query in ("org/t/rows?split=test", "org/arrow/rows", "org/zstd/rows", "org/tars/rows"):
        s.wait_for(lambda query=query: s.get(f"/datasets/{query}").status == 200, "the index is there")
    r = contract.check("/datasets", s.get("/datasets?page_size=1"))
    contract.check("/datasets", s.get(f"/datasets?page_size=1&page_token={r.json()['next_page_token']}"))
    for id in ("pics", "org/t", "none"):
        contract.check("/datasets/{id}", s.get(f"/datasets/{id}"))
    for i, kind in enumerate(("image/jpeg", "image/png", "image/tiff")):
        r = contract.check("/datasets/{id}/rows/{row}", s.get(f"/datasets/pics/rows/{i}"))
        assert r.status == 200 and r.get("Content-Type") == kind, r
    path = "/datasets/{id}/rows"
    for query, status in (("split=test&format=raw", 200), ("split=test&order=shuffle&shard=1/2&seed=3", 200),
                          ("split=test&start=3", 200), ("split=test&start=4", 400), ("", 400), ("split=no", 404),
                          ("split=test&format=tar", 422), ("split=test&shard=2/2", 400), ("split=test&format=x", 400),
                          ("split=test&format=json&offset=1&length=2", 200), ("split=test&start=1&offset=1", 400)):
        for verb in (s.get, s.head):
            r = contract.check(path, verb(f"/datasets/org/t/rows?{query}"), "GET" if verb == s.get else "HEAD")
            assert r.status == status, r
    for form in ("raw", "json"):
        for ranges in ("0-1", "0-1,3-4"):
            contract.check(path, s.get(f"/datasets/org/t/rows?split=test&format={form}", {"Range": f"bytes={ranges}"}))
    assert contract.check(path, s.get("/datasets/org/arrow/rows?format=json")).status == 422
    contract.check(path, s.get("/datasets/none/rows"))
    assert contract.check("/datasets/{id}/rows/{row}", s.get("/datasets/none/rows/0")).status == 404
    for query, kind, skip in (("arrow/rows?format=arrow", "vnd.apache.arrow.stream", None), ("tars/rows?format=tar",
                                                                                             "x-tar", None),
                              ("zstd/rows?start=4&count=3", "vnd.apache.arrow.stream", "4")):
        for headers in ({}, {"Range": "bytes=0-9"}):
            r = contract.check(path, s.get(f"/datasets/org/{query}", headers))
            assert (r.get("Content-Type"), r.get("X-Row-Skip")) == (f"application/{kind}", skip), r
    assert contract.check("/datasets/{id}/rows/{row}", s.get("/datasets/org/zstd/rows/7")).get("X-Row-Skip") == "7"
    path = "/datasets/{id}/rows:batchGet"
    batch = {"indices": [9, 0], "format": "arrow"}
    r = contract.check(path, s.post("/datasets/org/arrow/rows:batchGet", batch), "POST")
    assert r.status == 200 and r.get("Content-Type") == "application/vnd.apache.arrow.stream"
    for body, status in (({"split": "test", "indices": [2, 0], "format": "raw"}, 200), ({"indices": [0]}, 400),
                         ({"split": "test", "indices": [2, 0], "format": "json"}, 200),
                         ({"split": "test", "indices": [3]}, 400), ({"split": "no", "indices": []}, 404),
                         ({"split": "test", "indices": [], "format": "tar"}, 422)):
        assert contract.check(path, s.post("/datasets/org/t/rows:batchGet", body), "POST").status == status


def test_a_long_shape_has_no_header(start, tmp_path, contract):
    write_by_hand(tmp_path / "m" / "model.safetensors",
                  [tensor("t", "U8", [1] * 63), tensor("u", "U8", [1000] + [1] * 63)])
    age(tmp_path)
    s = start(tmp_path)
    for name, there in (("t", True), ("u", False)):
        r = contract.check("/models/{id}/tensors/{name}", s.get(f"/models/m/tensors/{name}"))
        assert (r.get("X-Tensor-Shape") is not None) == there, r


def test_errors_are_listed_as_promised(start, tmp_path, contract):
    """A broken file, a set that lacks a shard, a model that cannot be published, a cache folder."""
    write_by_hand(tmp_path / "good" / "model.safetensors", [tensor("w", "U8", [4])])
    write_by_hand(tmp_path / "good" / "tensors" / "model.safetensors", [tensor("w", "U8", [4])])
    (tmp_path / "good" / "broken.safetensors").write_bytes(b"broken")
    write_by_hand(tmp_path / "set" / "model-00001-of-00002.safetensors", [tensor("w", "U8", [4])])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "model.safetensors").write_bytes(b"")
    (tmp_path / "bad" / "config.json").write_text("not JSON")
    age(tmp_path)
    s = start(tmp_path)
    assert contract.check("/models", s.get("/models")).json()["errors"]
    for id in ("good", "bad", "set"):
        model = contract.check("/models/{id}", s.get(f"/models/{id}")).json()
        assert model["errors"], model
    assert model["checkpoints"] == [] and model["config"] is None
    assert contract.check("/models/{id}/tensors", s.get("/models/set/tensors")).status == 404


def hold(s):
    """Return a connection that the server has accepted; connections of earlier requests may still be ending."""
    def taken_in():
        c = s.conn()
        if c.request("/version").status == 200:
            return c
        c.close()
        return None
    return s.wait_for(taken_in, "a connection is taken in")


def test_unavailable_is_as_promised(start, tmp_path, contract):
    """A file that changed since it was indexed; a root that vanished; too many connections of one address."""
    root = tmp_path / "root"
    file = root / "m" / "model.safetensors"
    write_by_hand(file, [tensor("w", "U8", [4000])])
    age(root)
    s = start(root, "--max-connections-per-address", "16", settle="60")
    assert s.get("/models/m/tensors/w").status == 200
    time.sleep(0.15)                                # a file under a lease is looked at ten times in a second
    os.utime(file)
    r = contract.check("/models/{id}/tensors/{name}", s.get("/models/m/tensors/w"))
    assert r.status == 503, r
    r = contract.check("/models/{id}/files/{path}", s.get("/models/m/files/model.safetensors"))
    assert r.status == 503, r
    root.rename(tmp_path / "away")
    s.hup()
    r = s.wait_for(lambda: (r := s.get("/readyz")).status == 503 and r, "/readyz is 503")
    assert contract.check("/readyz", r).json()["state"] == "root missing"
    (tmp_path / "away").rename(root)
    s.wait_ready()
    held = [hold(s) for _ in range(16)]
    with s.conn() as c:
        assert contract.check("/models", c.read_response()).status == 429
    for c in held:
        c.close()


def test_all_connections_in_use_is_as_promised(start, tmp_path, contract):
    write_by_hand(tmp_path / "m" / "model.safetensors", [tensor("w", "U8", [4])])
    age(tmp_path)
    s = start(tmp_path, "--max-connections", "2")
    held = [hold(s) for _ in range(2)]
    with s.conn() as c:
        assert contract.check("/models", c.request("/models")).status == 503
    for probe in ("/healthz", "/readyz", "/metrics"):
        with s.conn() as c:
            assert contract.check(probe, c.request(probe)).status == 200
    for c in held:
        c.close()
