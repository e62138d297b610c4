"""The S3 port over a socket: raw requests, and documents read by an XML parser. Real clients are in tests/clients."""
import base64
import hashlib
import re
import signal
import socket
import urllib.parse
import xml.etree.ElementTree as ET

import pytest

from harness import (Conn, Server, age, check_error, hashed_server, parse_metrics, pattern, request_bytes, s3_port,
                     tensor, write_by_hand)

NS = {"s3": "http://s3.amazonaws.com/doc/2006-03-01/"}
ODD = "sp ace+&<>\"'é%41\n\t.txt"
BIG = pattern(3_000_000, "big")
ETAG = r'"[0-9a-f]{32,64}-1"'         # of one part: clients take a tag without "-" for an MD5


class S3:
    """Sends requests to the S3 port."""

    def __init__(self, server):
        self.server, self.port = server, s3_port(server)

    def ask(self, target, headers=(), method="GET", body=None):
        with Conn(self.port) as c:
            r = c.request(target, headers, method, body=body)
        assert re.fullmatch(r"[0-9A-F]{16}", r.get("x-amz-request-id") or ""), r
        return r

    def list(self, bucket, **query):
        query.setdefault("list-type", "2")
        r = self.ask(f"/{bucket}?" + urllib.parse.urlencode(query))
        assert r.status == 200 and r.get("Content-Type") == "application/xml", r
        return ET.fromstring(r.body)

    def keys(self, bucket, **query):
        page = self.list(bucket, **query)
        return [e.text for e in page.findall("s3:Contents/s3:Key", NS)]


def check_s3_error(r, status, code):
    assert r.status == status and r.get("Content-Type") == "application/xml", r
    e = ET.fromstring(r.body)
    assert e.tag == "Error" and [c.tag for c in e] == ["Code", "Message", "Resource", "RequestId"], r
    assert e.find("Code").text == code and e.find("Message").text, r
    assert e.find("RequestId").text == r.get("x-amz-request-id"), r
    return e


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("s3") / "root"
    write_by_hand(root / "org/model/model.safetensors", [tensor(n, "F32", [32, 8]) for n in "abc"])
    (root / "org/model/config.json").write_text("{}")
    (root / "org/model/sub").mkdir()
    (root / "org/model/sub/x.txt").write_text("x")
    write_by_hand(root / "alone/model.safetensors", [tensor("w", "I8", [9])])
    (root / "alone" / ODD).write_text("odd")
    (root / "alone/empty").write_text("")
    (root / "alone/big.dat").write_bytes(BIG)
    write_by_hand(root / "bert.safetensors", [tensor("w", "I8", [7])])
    age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with hashed_server(root, "--s3-listen", "127.0.0.1:0") as s:
        yield s


@pytest.fixture(scope="module")
def s3(srv):
    return S3(srv)


def test_it_is_off_unless_asked_for(root):
    with Server(root) as s:
        assert "S3 on" not in s.stderr()
        assert s.get("/org/model/config.json").status == 404
    with Server(root, "--s3-listen", "") as s:
        assert "S3 on" not in s.stderr()


def test_buckets(s3):
    doc = ET.fromstring(s3.ask("/").body)
    assert doc.tag == "{%s}ListAllMyBucketsResult" % NS["s3"]
    assert [e.text for e in doc.findall("s3:Buckets/s3:Bucket/s3:Name", NS)] == ["local", "org"]
    for e in doc.findall("s3:Buckets/s3:Bucket/s3:CreationDate", NS):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", e.text)
    r = s3.ask("/org", method="HEAD")
    assert r.status == 200 and r.length == 0


def test_keys_of_a_bucket(s3):
    assert s3.keys("local") == sorted(["alone/big.dat", "alone/empty", "alone/model.safetensors", "alone/" + ODD,
                                       "bert.safetensors"], key=str.encode)
    page = s3.list("local", **{"encoding-type": "url", "prefix": "alone/sp ace+"})
    assert page.find("s3:EncodingType", NS).text == "url"
    assert urllib.parse.unquote(page.find("s3:Prefix", NS).text) == "alone/sp ace+"
    key = page.find("s3:Contents/s3:Key", NS).text
    assert key.isascii() and urllib.parse.unquote(key) == "alone/" + ODD
    r = s3.ask("/local/" + key)
    assert r.status == 200 and r.body == b"odd"
    page = s3.list("org", delimiter="/", prefix="model/")
    assert [e.text for e in page.findall("s3:CommonPrefixes/s3:Prefix", NS)] == ["model/sub/"]
    assert [e.text for e in page.findall("s3:Contents/s3:Key", NS)] == ["model/config.json", "model/model.safetensors"]
    assert page.find("s3:KeyCount", NS).text == "3" and page.find("s3:Delimiter", NS).text == "/"


def test_pages(s3):
    whole, token, pages = [], None, 0
    while True:
        page = s3.list("local", **{"max-keys": 2}, **({"continuation-token": token} if token else {}))
        whole += [e.text for e in page.findall("s3:Contents/s3:Key", NS)]
        pages += 1
        if page.find("s3:IsTruncated", NS).text == "false":
            break
        token = page.find("s3:NextContinuationToken", NS).text
    assert whole == s3.keys("local") and pages == 3
    r = s3.ask("/org?list-type=2&continuation-token=" + token)
    check_s3_error(r, 400, "InvalidArgument")


def test_what_a_listing_says_of_an_object_is_what_it_is(s3):
    for e in s3.list("local").findall("s3:Contents", NS):
        r = s3.ask("/local/" + urllib.parse.quote(e.find("s3:Key", NS).text))
        assert r.status == 200 and len(r.body) == int(e.find("s3:Size", NS).text)
        assert r.get("ETag") == e.find("s3:ETag", NS).text
        assert re.fullmatch(ETAG, r.get("ETag"))
        assert r.get("Accept-Ranges") == "bytes" and r.get("Last-Modified")
        head = s3.ask("/local/" + urllib.parse.quote(e.find("s3:Key", NS).text), method="HEAD")
        assert head.length == len(r.body) and head.get("ETag") == r.get("ETag")


def test_ranges_and_conditions(s3):
    whole = s3.ask("/local/alone/big.dat")
    assert whole.body == BIG
    r = s3.ask("/local/alone/big.dat", [("Range", "bytes=1000000-1999999"), ("If-Match", whole.get("ETag"))])
    assert r.status == 206 and r.body == BIG[1000000:2000000] and r.get("ETag") == whole.get("ETag")
    assert r.get("Content-Range") == f"bytes 1000000-1999999/{len(BIG)}"
    r = s3.ask("/local/alone/big.dat?partNumber=1")
    assert r.status == 206 and r.body == BIG and r.get("Content-Range") == f"bytes 0-{len(BIG) - 1}/{len(BIG)}"
    assert s3.ask("/local/alone/big.dat", [("If-None-Match", whole.get("ETag"))]).status == 304
    check_s3_error(s3.ask("/local/alone/big.dat", [("If-Match", '"0"')]), 412, "PreconditionFailed")
    r = s3.ask("/local/alone/big.dat", [("Range", f"bytes={len(BIG)}-")])
    check_s3_error(r, 416, "InvalidRange")
    assert r.get("Content-Range") == f"bytes */{len(BIG)}"
    r = s3.ask("/local/alone/big.dat", [("Range", f"bytes={len(BIG)}-")], method="HEAD")
    assert r.status == 200 and r.length == len(BIG)


def test_a_tag_from_before_a_file_was_hashed_goes_on(root):
    """A download that began with the tag continues; and no client takes the tag for an MD5."""
    objects = {"/local/alone/big.dat": "alone/big.dat",
               "/org/model/shards/fsdp/tp2/model-rank-1-part-0.safetensors": "model/shards/fsdp/tp2/model-rank-1"}
    with Server(root, "--s3-listen", "127.0.0.1:0", hash_threads=0) as s:
        before = {target: S3(s).ask(target) for target in objects}
    with hashed_server(root, "--s3-listen", "127.0.0.1:0") as s:
        for target, prefix in objects.items():
            old, now = before[target], S3(s).ask(target, method="HEAD")
            assert re.fullmatch(ETAG, old.etag) and re.fullmatch(ETAG, now.etag) and old.etag != now.etag
            page = S3(s).list(target.split("/")[1], prefix=prefix)
            assert page.find("s3:Contents/s3:ETag", NS).text == now.etag
            for tag in (old.etag, now.etag):
                for field in ("If-Match", "If-Range"):
                    r = S3(s).ask(target, [("Range", "bytes=7-99"), (field, tag)])
                    assert r.status == 206 and r.body == old.body[7:100] and r.etag == tag, r
                assert S3(s).ask(target, [("If-None-Match", tag)]).status == 304
                r = S3(s).ask(target + "?partNumber=1", [("If-Match", tag)])
                assert r.status == 206 and r.body == old.body and r.etag == tag


def test_rank_files_are_those_of_the_main_port(s3, srv):
    begin = "model/shards/fsdp/tp2/"
    names = ["config.json", "model-rank-0-part-0.safetensors", "model-rank-1-part-0.safetensors", "sub/x.txt"]
    for prefix in (begin, begin[:-1]):
        assert s3.keys("org", prefix=prefix) == [begin + n for n in names]
    assert s3.keys("org", prefix="model/shards/") == []
    assert [
        e.text for e in s3.list("org", prefix=begin[:-1], delimiter="/").findall("s3:CommonPrefixes/s3:Prefix", NS)
    ] == [begin]
    for rank in range(2):
        here = s3.ask(f"/org/{begin}model-rank-{rank}-part-0.safetensors")
        there = srv.get(f"/models/org/model/shards/fsdp/tp2/rank-{rank}.safetensors")
        assert here.status == there.status == 200 and here.body == there.body
        part = s3.ask(f"/org/{begin}model-rank-{rank}-part-0.safetensors", [("Range", "bytes=5-99")])
        assert part.status == 206 and part.body == here.body[5:100]
    e = check_s3_error(s3.ask("/org?list-type=2&prefix=model/shards/vllm/tp2/"), 400, "InvalidArgument")
    assert "architecture" in e.find("Message").text


def test_errors(s3):
    check_s3_error(s3.ask("/nothing"), 404, "NoSuchBucket")
    e = check_s3_error(s3.ask("/org/a%3Cb%26?x-id=GetObject"), 404, "NoSuchKey")
    assert e.find("Resource").text == "/org/a%3Cb%26" and "a<b&" in e.find("Message").text
    for target in ("/nothing", "/org/nothing"):
        r = s3.ask(target, method="HEAD")
        assert r.status == 404 and r.body == b""
    check_s3_error(s3.ask("/org?acl"), 501, "NotImplemented")
    check_s3_error(s3.ask("/org/%ff"), 400, "InvalidArgument")


@pytest.mark.parametrize("where", ["/org", "/org/model/config.json"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_subresources_go_by_presence(s3, where, method):
    """As in S3, with and without a value; other parameters are ignored."""
    for name in ("acl", "policy", "tagging", "uploads", "versions", "attributes", "legal-hold", "uploadId"):
        for query in (name, name + "=", name + "=1", "prefix=a&x-id=b&" + name + "=1"):
            r = s3.ask(f"{where}?{query}", method=method)
            if method == "GET":
                e = check_s3_error(r, 501, "NotImplemented")
                assert f'"{name}"' in e.find("Message").text, r
            assert r.status == 501 and (method == "GET" or r.body == b""), r
    for query in ("x-id=GetObject", "x-id", "response-content-type=text%2Fplain", "Acl", "unknown=1", "location2"):
        r = s3.ask(f"{where}?{query}", method=method)
        assert r.status == 200, r
        assert where == "/org" or method == "HEAD" or r.body == b"{}", r


def test_what_is_served_of_a_bucket_works_with_a_value_too(s3):
    for query, element in (("location", "LocationConstraint"), ("location=", "LocationConstraint"),
                           ("versioning=1", "VersioningConfiguration"), ("list-type=2", "ListBucketResult")):
        r = s3.ask("/org?" + query)
        assert r.status == 200 and ET.fromstring(r.body).tag == "{%s}%s" % (NS["s3"], element), r
    check_s3_error(s3.ask("/org?list-type"), 400, "InvalidArgument")
    check_s3_error(s3.ask("/org?list-type=1"), 400, "InvalidArgument")


@pytest.mark.parametrize("method,target", [("PUT", "/org/new"), ("POST", "/org?delete"), ("POST", "/org/k?uploads"),
                                           ("DELETE", "/org/model/config.json"), ("PUT", "/new"), ("OPTIONS", "/org")])
@pytest.mark.parametrize("body", [None, b"", b"x" * 70_000])
# shows: security.md s3-writes
def test_nothing_can_be_written(s3, method, target, body):
    """The answer comes before the body is read, and the connection ends with it."""
    if method == "OPTIONS" and body:
        return
    with Conn(s3.port) as c:
        r = c.request(target, [], method, body=body)
        check_s3_error(r, 405, "MethodNotAllowed")
        assert r.get("Allow") == "GET, HEAD"
        if body:
            assert c.ended()


# shows: security.md s3-writes
def test_a_body_in_chunks_and_one_that_is_announced(s3):
    with Conn(s3.port) as c:
        c.send(request_bytes("/org/new", [("Transfer-Encoding", "chunked")], "PUT") + b"3\r\nabc\r\n0\r\n\r\n")
        check_s3_error(c.read_response("PUT"), 405, "MethodNotAllowed")
        assert c.ended()
    with Conn(s3.port) as c:
        c.send(request_bytes("/org/new", [("Expect", "100-continue"), ("Content-Length", "5")], "PUT"))
        check_s3_error(c.read_response("PUT"), 405, "MethodNotAllowed")


def test_what_the_guard_refuses_is_xml_too(s3):
    for raw in (b"GET / HTTP/1.1\r\n\r\n", b"GET /a<b HTTP/1.1\r\nHost: a\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"):
        with Conn(s3.port) as c:
            c.send(raw)
            check_s3_error(c.read_response(), 400, "InvalidArgument")
    r = s3.ask("/org", [("X-Long", "y" * 9000)])
    check_s3_error(r, 400, "RequestHeaderSectionTooLarge")


def test_signed_requests_and_absolute_targets(s3):
    r = s3.ask("/org/model/config.json", [("Authorization", "AWS4-HMAC-SHA256 Credential=x"), ("X-Amz-Date", "y")])
    assert r.status == 200 and r.body == b"{}"
    query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a%2Fb&X-Amz-Signature=0&response-content-type=a%2Fb"
    assert s3.ask("/org/model/config.json?" + query).status == 200
    r = s3.ask(f"http://127.0.0.1:{s3.port}/org/model/config.json", [("Range", "bytes=0-0")])
    assert r.status == 206 and r.body == b"{"


def test_each_port_answers_its_own(s3, srv):
    for path in ("/healthz", "/readyz", "/metrics", "/models", "/openapi.json", "/api/models/org/model",
                 "/org/model/resolve/main/config.json"):
        assert s3.ask(path).status == 404, path
    check_error(srv.get("/org/model/config.json"), 404)
    check_error(srv.get("/local"), 404)


def test_each_port_names_the_other(s3, srv, root):
    """The error for a request on the wrong port names the right one."""
    for path, code in (("/healthz", "NoSuchBucket"), ("/models", "NoSuchBucket"),
                       ("/api/models/org/model", "NoSuchBucket"), ("/models/org/model/tensors/a", "NoSuchBucket"),
                       ("/org/model/resolve/main/config.json", "NoSuchKey")):
        message = check_s3_error(s3.ask(path), 404, code).find("Message").text
        assert "port for clients of S3" in message and "(--listen)" in message, path
    for path in ("/nothing", "/org/nothing"):
        assert "--listen" not in s3.ask(path).body.decode(), path
    signed = {
        "Authorization":
        "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    }
    asks = (("/local?list-type=2", {}), ("/org/model/config.json", signed), ("/", {"x-amz-date": "20260101T000000Z"}),
            ("/models/org/nothing", signed))
    for path, headers in asks:
        check_error(srv.get(path, headers), 404, f"--s3-listen (127.0.0.1:{s3_port(srv)})")
    assert "--s3-listen" not in srv.get("/local").body.decode()
    with Server(root) as s:
        for path, headers in asks:
            check_error(s.get(path, headers), 404, "--s3-listen opens one, and is not set")


def test_it_is_counted_and_logged(s3, srv):
    for target in ("/", "/org", "/org/model/config.json"):
        s3.ask(target)
    _, _, samples = parse_metrics(srv.get("/metrics").body.decode())
    routes = {labels["route"] for name, labels, _ in samples if name == "tensord_http_requests_total"}
    assert {"s3_bucket", "s3_list", "s3_object"} <= routes
    srv.wait_for(lambda: re.search(r'target="/org/model/config.json" status=200 .* route=s3_object', srv.log()),
                 "the line of the access log")


def test_limits_are_shared(root):
    with Server(root, "--s3-listen", "127.0.0.1:0", "--max-connections-per-address", "2") as s:
        # Both ports, the two that ask the kernel for sockets of clients and for routes, the parser's process.
        port, listening = s3_port(s), 5
        s.wait_for(lambda: s.sockets() == listening, "the end of the connections before")
        with Conn(s.port) as one, Conn(port) as two:
            assert one.request("/healthz").status == 200 and two.request("/org?location").status == 200
            for where in (s.port, port):
                with Conn(where) as three:
                    three.send(request_bytes("/org"))
                    r = three.read_response()
                    if where == port:
                        assert r.status == 503 and ET.fromstring(r.body).find("Code").text == "SlowDown"
                    else:
                        check_error(r, 429)
    with Server(root, "--s3-listen", "127.0.0.1:0", "--max-connections", "1") as s:
        s.wait_for(lambda: s.sockets() == listening, "the end of the connections before")
        with Conn(s.port) as one:
            assert one.request("/healthz").status == 200
            check_s3_error(S3(s).ask("/healthz"), 503, "ServiceUnavailable")


def test_draining_closes_both_ports(root):
    with Server(root, "--s3-listen", "127.0.0.1:0") as s:
        port = s3_port(s)
        s.proc.send_signal(signal.SIGTERM)
        assert s.wait_exit() == 0
        for where in (s.port, port):
            with pytest.raises(ConnectionError):
                Conn(where)


def test_ports_that_cannot_be_had(root):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AssertionError, match="--s3-listen"):
            Server(root, "--s3-listen", address)
    with pytest.raises(AssertionError, match="--s3-listen takes ADDRESS:PORT"):
        Server(root, "--s3-listen", "8081")


def test_files_that_change(tmp_path):
    write_by_hand(tmp_path / "m/x/model.safetensors", [tensor("w", "I8", [9])])
    (tmp_path / "m/x/notes.txt").write_text("one")
    age(tmp_path)
    with Server(tmp_path, "--s3-listen", "127.0.0.1:0") as s:
        s3 = S3(s)
        assert s3.ask("/m/x/notes.txt").body == b"one"
        (tmp_path / "m/x/notes.txt").write_text("changed")
        r = s3.ask("/m/x/notes.txt")
        if r.status != 200:
            check_s3_error(r, 503, "ServiceUnavailable")
            assert r.get("Retry-After")
        s.wait_for(lambda: s3.ask("/m/x/notes.txt").body == b"changed", "the new file")


def test_a_page_of_long_keys_ends_by_its_bytes(tmp_path):
    folder = tmp_path / "root/org" / "/".join(["é" * 100] * 10)
    folder.mkdir(parents=True)
    names = [f"{i:04}" for i in range(300)]
    for name in names:
        (folder / name).write_text("")
    age(tmp_path / "root")
    with Server(tmp_path / "root", "--s3-listen", "127.0.0.1:0") as s:
        s3, query, keys, pages = S3(s), {"list-type": "2", "encoding-type": "url"}, [], 0
        bucket = ET.fromstring(s3.ask("/").body).find("s3:Buckets/s3:Bucket/s3:Name", NS).text
        while True:
            r = s3.ask(f"/{bucket}?" + urllib.parse.urlencode(query))
            page, pages = ET.fromstring(r.body), pages + 1
            assert r.status == 200 and len(r.body) < 1024 * 1024 + 16384
            found = [urllib.parse.unquote(e.text) for e in page.findall("s3:Contents/s3:Key", NS)]
            assert int(page.find("s3:KeyCount", NS).text) == len(found) > 0
            keys += found
            if page.find("s3:IsTruncated", NS).text == "false":
                break
            query["continuation-token"] = page.find("s3:NextContinuationToken", NS).text
    assert [k.rsplit("/", 1)[1] for k in keys] == names and pages > 1


def checksum(content):
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


ASKS = {"x-amz-checksum-mode": "ENABLED"}


@pytest.fixture(scope="module")
def summed(tmp_path_factory):
    """A server that has hashed its files."""
    root = tmp_path_factory.mktemp("summed")
    for path, content in (("org/m/a.bin", BIG), ("org/m/empty.txt", b"")):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    write_by_hand(root / "org/m/model.safetensors", [tensor("w", "F32", [4])])
    age(root)
    with Server(root, "--s3-listen", "127.0.0.1:0", hash_threads=1) as s:
        s.wait_hashed()
        yield S3(s)


def test_checksums_of_objects(summed):
    """Of whole objects, if they are asked for; never beside a part, whose bytes a client would compare with them."""
    for key, content in (("a.bin", BIG), ("empty.txt", b"")):
        for method in ("GET", "HEAD"):
            r = summed.ask(f"/org/m/{key}", ASKS, method)
            assert (r.status, r.get("x-amz-checksum-sha256"), r.get("x-amz-checksum-type")) == (
                200, checksum(content), "FULL_OBJECT")
            for headers in ((), {"x-amz-checksum-mode": "DISABLED"}):
                assert summed.ask(f"/org/m/{key}", headers, method).get("x-amz-checksum-sha256") is None
    assert summed.ask("/org/m/a.bin", {**ASKS, "Range": "bytes=0-9"}).get("x-amz-checksum-sha256") is None
    assert summed.ask("/org/m/a.bin?partNumber=1", ASKS).get("x-amz-checksum-sha256") is None
    etag = summed.ask("/org/m/a.bin").get("ETag")
    for condition, status in ({"If-None-Match": etag}, 304), ({"If-Match": '"x"'}, 412), ({"If-Match": etag}, 200):
        r = summed.ask("/org/m/a.bin", {**ASKS, **condition})
        assert r.status == status and (r.get("x-amz-checksum-sha256") is None) == (status != 200), condition
    assert summed.ask("/org/m/none", ASKS).get("x-amz-checksum-sha256") is None


def attributes(s3, target, names, method="GET"):
    return s3.ask(target + "?attributes", names if isinstance(names, list) else
                  {"x-amz-object-attributes": names}, method)


def test_attributes_of_objects(summed):
    every = "ETag,Checksum,ObjectParts,StorageClass,ObjectSize"
    for key, content in (("a.bin", BIG), ("empty.txt", b"")):
        etag = summed.ask(f"/org/m/{key}").get("ETag").strip('"')
        wanted = {"ETag": etag, "Checksum": None, "ChecksumSHA256": checksum(content), "ChecksumType": "FULL_OBJECT",
                  "StorageClass": "STANDARD", "ObjectSize": str(len(content))}
        r = attributes(summed, f"/org/m/{key}", every)
        doc = ET.fromstring(r.body)
        assert r.status == 200 and doc.tag == f"{{{NS['s3']}}}GetObjectAttributesResponse"
        assert {e.tag.split("}")[1]: e.text for e in doc.iter()} == {"GetObjectAttributesResponse": None, **wanted}
        assert r.get("Last-Modified") and r.get("Content-Type") == "application/xml"
        two = [("x-amz-object-attributes", "ObjectSize"), ("X-Amz-Object-Attributes", " ETag ")]
        doc = ET.fromstring(attributes(summed, f"/org/m/{key}", two).body)
        assert {e.tag.split("}")[1]: e.text for e in doc} == {"ETag": etag, "ObjectSize": str(len(content))}
    assert attributes(summed, "/org/m/a.bin", every, "HEAD").body == b""
    key = next(k for k in summed.keys("org", prefix="m/shards/fsdp/tp1/") if k.endswith(".safetensors"))
    size = len(summed.ask("/org/" + key).body)      # of a file that does not exist on disk
    doc = ET.fromstring(attributes(summed, "/org/" + key, every).body)
    assert doc.findtext("s3:ObjectSize", namespaces=NS) == str(size) and doc.find("s3:Checksum", NS) is None
    check_s3_error(attributes(summed, "/org/m/a.bin", "Size"), 400, "InvalidArgument")
    check_s3_error(attributes(summed, "/org/m/a.bin", ""), 400, "InvalidArgument")
    check_s3_error(attributes(summed, "/org/m/none", every), 404, "NoSuchKey")
    check_s3_error(attributes(summed, "/org", every), 501, "NotImplemented")
    check_s3_error(summed.ask("/org/m/a.bin?attributes"), 501, "NotImplemented")    # names no attributes
    check_s3_error(summed.ask("/org/m/a.bin?attributes&acl", {"x-amz-object-attributes": every}), 501,
                   "NotImplemented")


def test_owners_are_listed_when_they_are_asked_for(summed):
    def owners(**query):
        return [(e.findtext("s3:ID", namespaces=NS), e.findtext("s3:DisplayName", namespaces=NS))
                for e in summed.list("org", **query).iterfind("s3:Contents/s3:Owner", NS)]
    keys = len(summed.list("org").findall("s3:Contents", NS))
    assert owners(**{"fetch-owner": "true"}) == [("tensord", "tensord")] * keys
    assert owners() == owners(**{"fetch-owner": "false"}) == owners(**{"fetch-owner": ""}) == []


def test_ranges_of_an_empty_object(summed):
    """S3 answers each valid one with InvalidRange; conditions come first, and what is no range is ignored."""
    key = "/org/m/empty.txt"
    for value in ("bytes=0-", "bytes=0-0", "bytes=-1", "bytes=5-9", "bytes=0-1,2-3"):
        r = summed.ask(key, {"Range": value})
        check_s3_error(r, 416, "InvalidRange")
        assert r.get("Content-Range") == "bytes */0"
    for value in ("bytes=x", "bytes=2-1", "rows=0-1"):
        assert (summed.ask(key, {"Range": value}).status, summed.ask(key, {"Range": value}).body) == (200, b"")
    etag = summed.ask(key).get("ETag")
    assert summed.ask(key, {"Range": "bytes=0-", "If-None-Match": etag}).status == 304
    assert summed.ask(key, {"Range": "bytes=0-", "If-Match": '"x"'}).status == 412
    assert summed.ask(key, {"Range": "bytes=0-", "If-Range": '"x"'}).status == 200
    assert summed.ask(key + "?partNumber=1").status == 200
    assert summed.ask(key, {"Range": "bytes=0-"}, "HEAD").status == 200
