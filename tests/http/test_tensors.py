"""/models/{id}/tensors/{name}: the bytes of every tensor of every fixture, by every spelling of its name."""
import json
import re
import urllib.parse

import pytest

from fixtures import BIG_MARK_BYTES, BIG_MARKS, big_slice
from harness import check_error, enc


def check_bytes(r, t, where):
    assert r.status == 200, f"{where}: wanted 200, {r}"
    assert r.body == t.data, f"{where}: {len(r.body)} bytes, wanted {len(t.data)}; first difference at " \
                             f"{next((i for i, (a, b) in enumerate(zip(r.body, t.data)) if a != b), 'the end')}"
    assert r.length == t.nbytes, f"{where}: {r}"
    assert r.get("X-Tensor-Dtype") == t.dtype, f"{where}: X-Tensor-Dtype {r.get('X-Tensor-Dtype')!r}, wanted {t.dtype}"
    shape = r.get("X-Tensor-Shape")
    assert shape is not None and json.loads(shape) == t.shape, f"{where}: X-Tensor-Shape {shape!r}, wanted {t.shape}"
    assert " " not in shape, f"{where}: X-Tensor-Shape is written without spaces in api/openapi.yaml, got {shape!r}"
    assert re.fullmatch(r'"[\x21\x23-\x7e]+"', r.etag or ""), f"{where}: strong ETag wanted, got {r.etag!r}"
    assert r.get("Accept-Ranges") == "bytes", f"{where}: {r}"
    assert r.get("Content-Type") == "application/octet-stream", f"{where}: {r}"
    assert r.get("Content-Encoding") is None and r.get("Transfer-Encoding") is None, f"{where}: {r}"
    assert r.get("Date"), f"{where}: no Date (RFC 9110 6.6.1)"


def test_every_tensor_of_every_model_by_its_href(srv, tree):
    count = 0
    with srv.conn() as c:
        for id, m in tree.models.items():
            c.send(b"GET /models/%s/tensors HTTP/1.1\r\nHost: x\r\n\r\n" % enc(id, "/").encode())
            for e in json.loads(c.read_response().body)["tensors"]:
                if e["name"] == "huge":
                    continue
                if id == "amb" and e["name"] == "x":
                    continue                      # hidden behind the model amb/tensors/x, see test_manifest
                check_bytes(c.request(e["href"]), m.tensors[e["name"]], f"{id} {e['name']!r} {e['href']}")
                count += 1
    assert count > 400


def test_href_is_a_clean_relative_reference(srv, tree):
    """RFC 3986: a path of unreserved, sub-delims, `:`, `@`, `/` and escapes; no dot segment a client would remove."""
    for id in tree.models:
        for e in srv.json(f"/models/{enc(id, '/')}/tensors")["tensors"]:
            href = e["href"]
            assert re.fullmatch(r"/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*", href), f"href {href!r}"
            path = href.split("/tensors/", 1)[1]
            assert not any(s in (".", "..") for s in path.split("/")), \
                f"a client removes the dot segments of {href} (RFC 3986 5.2.4)"
            assert urllib.parse.unquote(href).startswith(f"/models/{id}/tensors/"), href
            assert urllib.parse.unquote(href).endswith("/" + e["name"]), href


def test_names_percent_encoded_or_not(srv, tree):
    m = tree.models["org/names"]
    with srv.conn() as c:
        for n, t in m.tensors.items():
            base = "/models/org/names/tensors/"
            check_bytes(c.request(base + enc(n)), t, f"{n!r} wholly encoded")
            check_bytes(
                c.request(base +"".join(f"%{b:02x}" for b in n.encode())) if len(n) < 300 else c.request(base + enc(n)),
                t, f"{n!r} every byte encoded, lower case")
            if not n.startswith("/") and not any(s in ("", ".", "..") for s in n.split("/")):
                check_bytes(c.request(base + enc(n, "/")), t, f"{n!r} with raw slashes")
                check_bytes(c.request(base + enc(n, "/!$&'()*+,;=:@~")), t, f"{n!r} with raw sub-delims")


def test_model_id_and_name_wholly_encoded(srv, tree):
    for id in ("nested/outer/inner", "hf-org/with-main", "ünï code/mödel+x 100%", "single.safetensors"):
        for t in tree.models[id].tensors.values():
            check_bytes(srv.get(f"/models/{enc(id)}/tensors/{enc(t.name)}"), t, f"{id} {t.name}")


def test_names_do_not_alias(srv, tree):
    """`+` is a plus, `%252F` is not a slash, case matters, Unicode is not normalised, nothing is cut at NUL."""
    m = tree.models["org/names"].tensors
    get = lambda n: srv.get("/models/org/names/tensors/" + n)
    assert get("plus+plus").body == m["plus+plus"].data
    assert get("pl+us").status == 404 and get("pl%20us").body == m["pl us"].data
    assert get("a%2Fb").body == m["a/b"].data and get("a%252Fb").body == m["a%2Fb"].data
    assert get("a%25252Fb").body == m["a%252Fb"].data
    assert get("Upper").status == 404 and get("UPPER").body == m["UPPER"].data and get("upper").body == m["upper"].data
    assert get("e%CC%81%20combining").body != get("%C3%A9%20precomposed").body
    assert get("plain%00").status in (400, 404) and get("plain%00x").status in (400, 404)
    assert get("plain/").status == 404 and get("plai").status == 404 and get("plainx").status == 404
    assert get("trailing").status == 404 and get("double/slash").status == 404


# shows: security.md log-forgery
def test_access_log_lines_cannot_be_forged(srv):
    before = srv.log().count("\n")
    assert srv.get("/models/org/names/tensors/" + enc("line\nGET /forged HTTP/1.1")).status == 200
    assert srv.get("/models/org/names/tensors/%1b%5b2J%0d%0aforged2").status == 404
    srv.get("/models/plain", {"User-Agent": "x\x85y \"quoted\" \\ end", "Referer": "\"\\\xff"})
    srv.wait_for(lambda: srv.log().count("\n") >= before + 3, "three access log lines")
    lines = srv.log().split("\n")
    assert not any(l.startswith(("GET /forged", "forged2")) for l in lines), lines[-8:]
    assert "\x1b" not in srv.log() and "\r" not in srv.log(), "control characters reach the access log raw"


def test_bytes_beyond_4_gib(srv, tree):
    huge, tail = tree.models["big"].tensors["huge"], tree.models["big"].tensors["tail"]
    check_bytes(srv.get("/models/big/tensors/tail"), tail, "tail")
    r = srv.head("/models/big/tensors/huge")
    assert r.status == 200 and r.length == 6 << 30 and r.get("X-Tensor-Shape") == f"[{6 << 30}]", r
    total = 6 << 30
    with srv.conn() as c:
        for at in BIG_MARKS:
            for first, last in ((at, at + BIG_MARK_BYTES - 1), (max(0, at - 10), at + 20), (at + 5,
                                                                                            min(total - 1,
                                                                                                at + 70000))):
                r = c.request("/models/big/tensors/huge", {"Range": f"bytes={first}-{last}"})
                assert r.status == 206 and r.get("Content-Range") == f"bytes {first}-{last}/{total}", r
                assert r.body == big_slice(first, last), f"huge {first}-{last}"
                off = huge.offset
                r = c.request("/models/big/files/model.safetensors", {"Range": f"bytes={off + first}-{off + last}"})
                assert r.status == 206 and r.body == big_slice(first, last), f"file {off + first}-{off + last}: {r}"
        r = c.request("/models/big/tensors/huge", {"Range": "bytes=-100"})
        assert r.body == big_slice(total - 100,
                                   total - 1) and r.get("Content-Range") == f"bytes {total - 100}-{total - 1}/{total}"
        r = c.request("/models/big/files/model.safetensors", {"Range": f"bytes=-{tail.nbytes}"})
        assert r.status == 206 and r.body == tail.data
        r = c.request("/models/big/tensors/huge", {"Range": f"bytes={5 << 30}-{(5 << 30) + 9},4294967296-4294967300"})
        assert r.status == 206 and big_slice(5 << 30, (5 << 30) + 9) in r.body and big_slice(1 << 32,
                                                                                             (1 << 32) + 4) in r.body
        r = c.request("/models/big/tensors/huge", {"Range": f"bytes={total}-"})
        assert r.status == 416 and r.get("Content-Range") == f"bytes */{total}", r


def test_a_part_of_the_huge_tensor_streams(srv):
    """Read 64 MiB across the 4 GiB line, then leave: the server must not mind."""
    a = (1 << 32) - (32 << 20)
    b = a + (64 << 20) - 1
    r = srv.get("/models/big/tensors/huge", {"Range": f"bytes={a}-{b}"})
    assert r.status == 206 and r.body == big_slice(a, b)


def test_etags_tell_tensors_apart(srv, tree):
    tags = {}
    for id in ("many", "org/names", "nested/outer", "nested/outer/inner"):
        with srv.conn() as c:
            for n in tree.models[id].tensors:
                r = c.request(f"/models/{enc(id, '/')}/tensors/{enc(n)}", method="HEAD")
                assert r.status == 200
                assert tags.setdefault(r.etag, (id, n)) == (id, n), f"{r.etag} labels {tags[r.etag]} and {(id, n)}"


def test_shard_bytes_come_from_their_shard(srv, tree):
    m = tree.models["sharded"]
    for e in srv.json("/models/sharded/tensors")["tensors"]:
        r = srv.get(f"/models/sharded/files/{e['file']}",
                    {"Range": f"bytes={e['offset']}-{e['offset'] + e['nbytes'] - 1}"})
        assert r.status == 206 and r.body == m.tensors[e["name"]].data, e


def test_head_needs_no_body_and_keeps_the_connection(srv, tree):
    with srv.conn() as c:
        for n in ("model.embed_tokens.weight", "step"):
            t = tree.models["plain"].tensors[n]
            h = c.request(f"/models/plain/tensors/{n}", method="HEAD")
            g = c.request(f"/models/plain/tensors/{n}")
            check_bytes(g, t, n)
            assert h.length == t.nbytes and h.etag == g.etag


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("target", [
    "/models", "/models/plain", "/models/plain/tensors", "/models/plain/tensors/step",
    "/models/plain/files/config.json", "/healthz", "/metrics", "/models/plain/tensors:read", "/models/plain/plans"
])
def test_other_methods_are_405_with_allow(srv, method, target):
    r = srv.request(target, method=method)
    if target.endswith((":read", "plans")):
        check_error(r, 400 if method == "POST" else 405, allow=("POST",))  # without a body
    else:
        check_error(r, 405)


def test_405_with_a_body_closes_and_does_not_read_it_as_a_request(srv):
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with srv.conn() as c:
            body = b"GET /version?smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
            c.send(b"%s /models HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" %
                   (method.encode(), len(body), body))
            r = c.read_response(asked=method)
            check_error(r, (405, 413, 400))
            assert c.ended() and not c.buf, f"{method} with a body: then came {c.buf[:200]!r}"
