"""Writes of the S3 port: raw requests. Real clients are in tests/clients/test_s3_put_clients.py.

Expectations: Amazon S3 API Reference, hashlib, zlib."""
import base64
import hashlib
import os
import re
import shutil
import socket
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harness import Server, pattern, release_binary, s3_port
from s3_writer import Writer, crc32
from signing import TokensFile

BODY = pattern(300_000, "body")
TAG = '"' + hashlib.sha256(BODY).hexdigest() + '-1"'


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    file = TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    return file.add("w", rights=("read", "write")).add("reader").add("part", ["org/mine-*"], rights=("read", "write"))


@pytest.fixture(scope="module")
def srv(tmp_path_factory, tokens):
    root = tmp_path_factory.mktemp("put") / "root"
    (root / "op/m").mkdir(parents=True)
    (root / "op/m/config.json").write_text("{}")
    with Server(root, "--s3-listen", "127.0.0.1:0", "--tokens", tokens, "--publish", "any") as s:
        s.root = root
        yield s


@pytest.fixture(scope="module")
def s3(srv, tokens):
    return Writer(s3_port(srv), tokens.s3_keys("w"))


@pytest.fixture
def m(request):
    """A model of the test's own: the beginning of a path."""
    return "/org/" + "".join(c if c.isalnum() else "-" for c in request.node.name).replace("--", "-").strip("-")


def get(s3, path, method="GET"):
    return s3.ask(method, path)


def resident(srv, name):
    """Bytes of memory by /proc: VmRSS, or VmHWM for the peak."""
    return int(re.search(name + r":\s+(\d+) kB", Path(f"/proc/{srv.pid}/status").read_text()).group(1)) << 10


def check(answer, status, code):
    assert answer.status == status and answer.code() == code, answer


def check_object(s3, path, body):
    """The object is this on the S3 port, with the entity tag of its content."""
    answer = get(s3, path)
    assert answer.status == 200 and answer.body == body, (path, answer)
    assert answer.headers["etag"] == '"' + hashlib.sha256(body).hexdigest() + '-1"'


# ---- PutObject


def test_an_object_is_there_when_the_answer_comes(s3, srv, tokens, m):
    for body in (BODY, b"", b"x"):
        answer = s3.put(m + "/a b é+.bin", body)
        assert answer.status == 200 and answer.body == b"", answer
        head = get(s3, m + "/a b é+.bin", "HEAD")
        assert head.status == 200 and head.headers["content-length"] == str(len(body))
        assert answer.headers["etag"] == head.headers["etag"]
        check_object(s3, m + "/a b é+.bin", body)
        listing = s3.ask("GET", "/org", query="list-type=2&prefix=" + m[5:] + "/")
        assert listing.texts("Key") == [m[5:] + "/a b é+.bin"] and listing.text("ETag") == head.headers["etag"]
        assert listing.text("Size") == str(len(body))
    assert s3.put(m + "/config.json", b"{}").status == 200
    about = srv.get(f"/models{m}", tokens.bearer("w")).json()
    assert about["id"] == m[1:], about


def test_checks_of_the_body(s3, m):
    path = m + "/a.bin"
    md5 = base64.b64encode(hashlib.md5(BODY).digest()).decode()
    sums = {"x-amz-checksum-crc32": crc32(BODY), "Content-MD5": md5}
    for name in ("sha1", "sha256", "sha512", "md5"):
        sums["x-amz-checksum-" + name] = base64.b64encode(hashlib.new(name, BODY).digest()).decode()
    for name, value in sums.items():
        answer = s3.put(path, BODY, headers={name: value})
        assert answer.status == 200, answer
        if name != "Content-MD5":
            assert answer.headers[name] == value and answer.headers["x-amz-checksum-type"] == "FULL_OBJECT"
    check_object(s3, path, BODY)
    for name, value in sums.items():
        check(s3.put(path, BODY[:-1] + b"?", headers={name: value}), 400, "BadDigest")
    check(s3.put(path, b"x", headers={"Content-MD5": "eHh4"}), 400, "InvalidDigest")
    check(s3.put(path, b"x", headers={"x-amz-checksum-crc32": "eHh4"}), 400, "InvalidRequest")
    check(s3.put(path, b"x", headers={"x-amz-checksum-xxhash64": "AAAAAAAAAAA="}), 400, "InvalidRequest")
    named = "x-amz-sdk-checksum-algorithm"
    assert s3.put(path, BODY, headers={named: "CRC32", "x-amz-checksum-crc32": crc32(BODY)}).status == 200
    for headers in ({named: "CRC32"}, {named: "XXHASH64"}, {named: "SHA1", "x-amz-checksum-crc32": crc32(BODY)}):
        check(s3.put(path, BODY, headers=headers), 400, "InvalidRequest")
    check(s3.put(path, b"x", payload=hashlib.sha256(b"y").hexdigest()), 400, "XAmzContentSHA256Mismatch")
    assert s3.put(path, b"z", payload="UNSIGNED-PAYLOAD").status == 200
    check_object(s3, path, b"z")


def test_crc32c_and_crc64(s3, m):
    # the check values of the catalogue of parametrised CRC algorithms
    for name, value in (("crc32c", 0xE3069283.to_bytes(4, "big")),
                        ("crc64nvme", 0xAE8B14860A799888.to_bytes(8, "big"))):
        headers = {"x-amz-checksum-" + name: base64.b64encode(value).decode()}
        assert s3.put(m + "/a", b"123456789", headers=headers).status == 200
        check(s3.put(m + "/a", b"12345678 ", headers=headers), 400, "BadDigest")


def test_bodies_in_chunks(s3, m):
    path = m + "/a.bin"
    pieces = [BODY[:65536], BODY[65536:131072], BODY[131072:]]
    trailer = ("x-amz-checksum-crc32", crc32(BODY))
    for options in ({}, {"trailer": trailer}, {"trailer": trailer, "signed": False}, {"chunked": True},
                    {"trailer": trailer, "signed": False, "chunked": True}):
        assert s3.ask("DELETE", path).status == 204
        answer = s3.put_chunks(path, pieces, **options)
        assert answer.status == 200 and answer.headers["etag"] == TAG, (options, answer)
        if "trailer" in options:
            assert answer.headers["x-amz-checksum-crc32"] == trailer[1]
        check_object(s3, path, BODY)
    assert s3.put_chunks(path, []).status == 200
    check_object(s3, path, b"")


def test_chunks_that_are_wrong(s3, m):
    path = m + "/a.bin"
    pieces, trailer = [b"a" * 100, b"b" * 100], ("x-amz-checksum-crc32", crc32(b"a" * 100 + b"b" * 100))
    wrong = ("x-amz-checksum-crc32", crc32(b"c"))
    check(s3.put_chunks(path, pieces, change=lambda b: b.replace(b"aaa", b"aab", 1)), 403, "SignatureDoesNotMatch")
    check(s3.put_chunks(path, pieces, trailer, change=lambda b: b.replace(trailer[1].encode(), wrong[1].encode())),
          403, "SignatureDoesNotMatch")
    check(s3.put_chunks(path, pieces, trailer,
                        change=lambda b: b[:b.index(b"x-amz-trailer-signature")] + b"\r\n"),
          403, "SignatureDoesNotMatch")
    check(s3.put_chunks(path, pieces, wrong), 400, "BadDigest")
    check(s3.put_chunks(path, pieces, wrong, signed=False), 400, "BadDigest")
    check(s3.put_chunks(path, pieces, length=199), 400, "IncompleteBody")
    check(s3.put_chunks(path, pieces, length=201), 400, "IncompleteBody")
    check(s3.put_chunks(path, pieces, change=lambda b: b[:b.rindex(b"0;")]), 400, "IncompleteBody")
    check(s3.put_chunks(path, pieces, change=lambda b: b.replace(b";chunk", b";other", 1)), 400, "InvalidRequest")
    check(s3.put_chunks(path, pieces, trailer, announced="x-amz-checksum-sha1"), 400, "InvalidRequest")
    check(s3.put_chunks(path, pieces, trailer, announced="x-amz-checksum-xxhash3"), 400, "InvalidRequest")
    check(s3.put(path, b"x", payload="STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), 501, "NotImplemented")
    check(s3.put(path, b"x", payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER"), 411, "MissingContentLength")
    check(s3.put(path, b"x" * 10, payload="UNSIGNED-PAYLOAD", chunked=True), 411, "MissingContentLength")
    check(get(s3, path), 404, "NoSuchKey" if get(s3, "/org", "HEAD").status == 200 and
          get(s3, "/org").status == 200 else "NoSuchBucket")


def test_a_body_that_is_cut_is_nothing(s3, srv, tokens, m):
    path = m + "/a.bin"
    headers = {"Host": f"127.0.0.1:{s3.port}", "X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    s3.sign("PUT", path, "", headers)
    lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
    with socket.create_connection(("127.0.0.1", s3.port)) as sock:
        sock.sendall(f"PUT {path} HTTP/1.1\r\n{lines}Content-Length: 1000000\r\n\r\n".encode() + b"x" * 500_000)
        time.sleep(0.2)
    assert get(s3, path).status == 404
    until = time.monotonic() + 20
    while any((srv.root / ".tensord-publish/incoming").iterdir()):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_keys(s3, m):
    assert s3.put("/org/" + m[5:] + "/", b"").status == 200                 # a folder stands for nothing
    assert s3.put(m + "/sub/", b"").status == 200
    check(s3.put(m + "/sub/", b"x"), 400, "InvalidRequest")
    assert s3.ask("DELETE", m + "/sub/").status == 204
    check(s3.put("/new-bucket/file", b"x"), 400, "InvalidArgument")
    check(s3.put("/datasets/org/file", b"x"), 400, "InvalidArgument")
    check(s3.put(m + "/" + "k" * 1020, b"x"), 400, "KeyTooLongError")
    for wrong in ("/a//b", "/../b", "/a/./b", "/a\nb", "/" + "k" * 300):
        check(s3.put(m + wrong, b"x"), 400, "InvalidArgument")
    check(s3.put("/org/a--b/file", b"x"), 400, "InvalidArgument")
    check(s3.put("/op/m/config.json", b"x"), 409, "OperationAborted")        # a directory of the operator
    assert s3.put("/local/solo-put/a", b"a").status == 200
    check_object(s3, "/local/solo-put/a", b"a")
    assert s3.put("/solo-put/sub/b", b"b").status == 200                     # the bucket is the model now
    check_object(s3, "/local/solo-put/sub/b", b"b")
    assert s3.put("/datasets/org/d/a.jsonl", b"{}\n").status == 200
    check_object(s3, "/datasets/org/d/a.jsonl", b"{}\n")


def test_hidden_names_are_read_by_key_alone(s3, m):
    for name in (".metadata.tmp", ".hidden/x", "a.incomplete"):
        path = f"{m}/{name}"
        assert s3.put(path, b"abc").status == 200
        check_object(s3, path, b"abc")
        assert s3.ask("GET", path, headers={"Range": "bytes=1-1"}).body == b"b"
        head = get(s3, path, "HEAD")
        assert head.status == 200 and head.headers["content-length"] == "3" and head.headers["last-modified"]
    assert s3.put(m + "/seen", b"x").status == 200
    listing = s3.ask("GET", "/org", query="list-type=2&prefix=" + m[5:] + "/")
    assert listing.texts("Key") == [m[5:] + "/seen"]
    copy = s3.put(m + "/.metadata", b"", headers={"x-amz-copy-source": f"{m}/.metadata.tmp"})
    assert copy.status == 200 and copy.text("ETag") == '"' + hashlib.sha256(b"abc").hexdigest() + '-1"'
    check_object(s3, m + "/.metadata", b"abc")
    assert s3.ask("DELETE", m + "/.metadata.tmp").status == 204
    check(get(s3, m + "/.metadata.tmp"), 404, "NoSuchKey")


def test_conditions(s3, m):
    path = m + "/a"
    none, tag = {"If-None-Match": "*"}, '"' + hashlib.sha256(b"1").hexdigest() + '-1"'
    check(s3.put(path, b"0", headers={"If-Match": tag}), 404, "NoSuchKey")
    assert s3.put(path, b"1", headers=none).status == 200
    check(s3.put(path, b"2", headers=none), 412, "PreconditionFailed")
    check(s3.put(path, b"2", headers={"If-Match": '"other"'}), 412, "PreconditionFailed")
    check(s3.put(path, b"2", headers={"If-None-Match": tag}), 501, "NotImplemented")
    check_object(s3, path, b"1")
    assert s3.put(path, b"2", headers={"If-Match": tag}).status == 200
    assert s3.put(path, b"3", headers={"If-Match": "*"}).status == 200
    check(s3.ask("DELETE", path, headers={"If-Match": tag}), 412, "PreconditionFailed")
    tag = '"' + hashlib.sha256(b"3").hexdigest() + '-1"'
    check(s3.put(m + "/b", b"", headers={"x-amz-copy-source": path, "x-amz-copy-source-if-none-match": tag}), 412,
          "PreconditionFailed")
    check(s3.put(path, b"", headers={"x-amz-copy-source": path, **none}), 412, "PreconditionFailed")
    for name, value in (("If-None-Match", "*"), ("x-amz-if-match-size", "1"),
                        ("x-amz-if-match-last-modified-time", "Wed, 21 Oct 2015 07:28:00 GMT")):
        check(s3.ask("DELETE", path, headers={name: value}), 501, "NotImplemented")
    items = "".join(f"<Object><Key>{m[5:]}/a</Key>{condition}</Object>" for condition in (
        "<ETag>&quot;other&quot;</ETag>", "<Size>1</Size>",
        "<LastModifiedTime>2015-10-21T07:28:00Z</LastModifiedTime>"))
    answer = s3.ask("POST", "/org", f"<Delete>{items}</Delete>".encode(), query="delete=")
    assert answer.texts("Code") == ["PreconditionFailed", "NotImplemented", "NotImplemented"], answer
    check_object(s3, path, b"3")
    assert s3.ask("DELETE", path, headers={"If-Match": tag}).status == 204


def test_a_condition_that_is_there_twice_is_refused(tmp_path):
    """It may not be passed over: the object would be written or deleted."""
    (tmp_path / "root").mkdir()
    with Server(tmp_path / "root", "--s3-listen", "127.0.0.1:0", "--publish", "local") as s:
        s3 = Writer(s3_port(s))
        assert s3.put("/org/m/a", b"1").status == 200
        for line, fields, status in (("DELETE /org/m/a", ["If-Match"], 501), ("PUT /org/m/a", ["If-Match"], 501),
                                     ("PUT /org/m/a", ["x-amz-copy-source: /org/m/a", "x-amz-copy-source-if-match"],
                                      400)):
            lines = [*fields[:-1], fields[-1] + ': "x"', fields[-1] + ': "y"', "Host: x", "Content-Length: 0"]
            with socket.create_connection(("127.0.0.1", s3.port), timeout=30) as sock:
                sock.sendall((line + " HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode())
                assert sock.recv(1000).startswith(b"HTTP/1.1 %d " % status), line
        check_object(s3, "/org/m/a", b"1")


def test_of_many_conditional_writers_one_wins(s3, m):
    answers, threads = [], []
    for i in range(8):
        def put(body=str(i).encode()):
            answers.append((s3.put(m + "/a", body, headers={"If-None-Match": "*"}).status, body))
        threads.append(threading.Thread(target=put))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(status for status, _ in answers) == [200] + [412] * 7, answers
    check_object(s3, m + "/a", next(body for status, body in answers if status == 200))


def test_writes_that_wait_together_share_a_commit(s3, srv, tokens, m):
    """Each gets its own answer, also when another one of them cannot be."""
    assert s3.put(m + "/file", b"x").status == 200
    paths = [f"{m}/{n}" for n in range(24)] + [m + "/file/below", m + "/same", m + "/same"]

    def commit_count():
        return srv.gauge("tensord_publish_commits_total")

    def put_all(turn):
        answers = {}

        def put(i):
            answers[i] = s3.put(paths[i], b"%d %d" % (turn, i))
        threads = [threading.Thread(target=put, args=[i]) for i in range(len(paths))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return answers

    for turn in range(20):  # on a busy machine the writes may come one after the other
        before = commit_count()
        answers = put_all(turn)
        for i, answer in answers.items():
            if i == 24:
                check(answer, 409, "OperationAborted")
            else:
                assert answer.status == 200, (i, answer)
        for i in range(24):
            check_object(s3, paths[i], b"%d %d" % (turn, i))
        assert get(s3, m + "/same").body in (b"%d 25" % turn, b"%d 26" % turn)
        if commit_count() - before < 26:
            return
    pytest.fail("no two writes had one commit")


def test_fields_that_would_be_missed_are_refused(s3, m):
    for name, value in (("x-amz-server-side-encryption", "AES256"), ("x-amz-tagging", "a=b"),
                        ("x-amz-object-lock-mode", "GOVERNANCE")):
        check(s3.put(m + "/a", b"x", headers={name: value}), 501, "NotImplemented")
    assert s3.put(m + "/a", b"x", headers={"x-amz-acl": "private", "x-amz-meta-mtime": "1", "Content-Type": "text/html",
                                           "x-amz-storage-class": "STANDARD"}).status == 200
    for query in ("acl=", "tagging=", "retention=", "torrent="):
        check(s3.put(m + "/a", b"x", query=query), 501, "NotImplemented")
    assert s3.ask("GET", m + "/a", query="tagging=").texts("Tag") == []
    check(s3.ask("GET", m + "/none", query="tagging="), 404, "NoSuchKey")
    check(s3.ask("POST", m + "/a", b"x", query="restore="), 501, "NotImplemented")
    check(s3.ask("POST", m + "/a", b"x"), 405, "MethodNotAllowed")


# ---- rights


def test_rights(srv, tokens, s3):
    port = s3_port(srv)
    reader, part = Writer(port, tokens.s3_keys("reader")), Writer(port, tokens.s3_keys("part"))
    assert s3.put("/org/rights/a", b"x").status == 200
    nobody = Writer(port)
    for writer, path in ((reader, "/org/rights/a"), (reader, "/org/none/a"), (part, "/org/rights/a"),
                         (part, "/org/none/a"), (nobody, "/org/rights/a")):
        for method, query, body in (("PUT", "", b"y"), ("DELETE", "", b""), ("POST", "uploads=", b""),
                                    ("PUT", "partNumber=1&uploadId=" + "0" * 32, b"y"),
                                    ("POST", "uploadId=" + "0" * 32, b"<x/>")):
            check(writer.ask(method, path, body, query=query), 403, "AccessDenied")
    assert part.put("/org/mine-1/a", b"mine").status == 200
    answer = part.delete_keys("org", ["mine-1/a", "rights/a", "none/a"])
    assert answer.status == 200 and answer.texts("Code") == ["AccessDenied"] * 2, answer
    check_object(s3, "/org/rights/a", b"x")
    for query in ("", "partNumber=1&uploadId=" + "0" * 32):                 # before the body of a copy comes
        headers = {"Host": f"127.0.0.1:{port}", "X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD",
                   "x-amz-copy-source": "/op/m/config.json"}
        reader.sign("PUT", "/org/rights/b", query, headers)
        lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
            sock.sendall(f"PUT /org/rights/b?{query} HTTP/1.1\r\n{lines}Content-Length: 1000\r\n"
                         "Expect: 100-continue\r\n\r\n".encode())
            assert sock.recv(1000).startswith(b"HTTP/1.1 403 ")
    wrong = Writer(port, (tokens.s3_keys("w")[0], "wrong"))
    check(wrong.put("/org/rights/a", b"y"), 403, "SignatureDoesNotMatch")
    check(part.put("/org/mine-1/b", b"", headers={"x-amz-copy-source": "/org/rights/a"}), 404, "NoSuchKey")
    for writer, bucket, status in ((part, "/org", 200), (part, "/other", 403), (reader, "/other", 403),
                                   (s3, "/other", 200)):
        assert writer.ask("PUT", bucket).status == status, (bucket, status)
    assert s3.ask("HEAD", "/other").status == 200 and reader.ask("HEAD", "/other").status == 404


def test_nobody_publishes_where_it_is_off(tmp_path):
    (tmp_path / "root").mkdir()
    with Server(tmp_path / "root", "--s3-listen", "127.0.0.1:0") as s:
        for method in ("PUT", "DELETE", "POST"):
            check(Writer(s3_port(s)).ask(method, "/org/m/a"), 405, "MethodNotAllowed")


# ---- uploads in parts


def test_parts_in_any_order(s3, m):
    path = m + "/big"
    upload = s3.begin(path)
    contents = {7: b"g" * 10, 2: BODY, 9999: b"", 3: b"c"}
    tags = {}
    for number, body in contents.items():
        answer = s3.part(path, upload, number, body)
        assert answer.status == 200, answer
        tags[number] = answer.headers["etag"]
    first = s3.part(path, upload, 3, b"again")
    assert first.status == 200 and first.headers["etag"] != tags[3]          # the last one wins
    tags[3], contents[3] = first.headers["etag"], b"again"
    listing = s3.ask("GET", path, query=f"uploadId={upload}")
    assert listing.texts("PartNumber") == ["2", "3", "7", "9999"] and listing.text("IsTruncated") == "false"
    assert listing.texts("ETag") == [tags[n] for n in sorted(tags)]
    assert listing.texts("Size") == [str(len(contents[n])) for n in sorted(tags)]
    page = s3.ask("GET", path, query=f"uploadId={upload}&max-parts=1&part-number-marker=2")
    assert page.texts("PartNumber") == ["3"] and page.text("IsTruncated") == "true"
    assert page.text("NextPartNumberMarker") == "3"
    check(get(s3, path), 404, "NoSuchBucket" if get(s3, "/org").status == 404 else "NoSuchKey")
    chosen = [(n, tags[n]) for n in (2, 3, 7)]                               # a part may be left out
    answer = s3.complete(path, upload, chosen)
    whole = b"".join(contents[n] for n, _ in chosen)
    assert answer.status == 200 and answer.text("ETag") == '"' + hashlib.sha256(whole).hexdigest() + '-1"', answer
    check_object(s3, path, whole)
    again = s3.complete(path, upload, chosen)                                # as after an answer that was lost
    assert again.status == 200 and again.text("ETag") == answer.text("ETag")
    for answer in (s3.part(path, upload, 1, b"x"), s3.ask("GET", path, query=f"uploadId={upload}"),
                   s3.ask("DELETE", path, query=f"uploadId={upload}")):
        check(answer, 404, "NoSuchUpload")


def test_lists_of_parts_that_are_wrong(s3, m):
    path = m + "/big"
    upload = s3.begin(path)
    tags = [s3.part(path, upload, n, bytes([n]) * 10).headers["etag"] for n in (1, 2)]
    check(s3.complete(path, upload, [(2, tags[1]), (1, tags[0])]), 400, "InvalidPartOrder")
    check(s3.complete(path, upload, [(1, tags[0]), (1, tags[0])]), 400, "InvalidPartOrder")
    check(s3.complete(path, upload, [(1, tags[1])]), 400, "InvalidPart")
    check(s3.complete(path, upload, [(1, tags[0]), (3, tags[1])]), 400, "InvalidPart")
    check(s3.complete(path, upload, []), 400, "MalformedXML")
    check(s3.complete(path, upload, [(0, tags[0])]), 400, "MalformedXML")
    check(s3.ask("POST", path, b"<x", query=f"uploadId={upload}"), 400, "MalformedXML")
    check(s3.complete(path, upload, [(1, tags[0])], {"x-amz-mp-object-size": "11"}), 400, "InvalidRequest")
    check(s3.complete(path, upload, [(1, tags[0])], {"x-amz-checksum-crc32": crc32(b"?")}), 400, "BadDigest")
    check(s3.part(path, upload, 0, b"x"), 400, "InvalidArgument")
    check(s3.part(path, upload, 10001, b"x"), 400, "InvalidArgument")
    check(s3.part(m + "/other", upload, 1, b"x"), 404, "NoSuchUpload")
    check(s3.part(path, "../../x", 1, b"x"), 404, "NoSuchUpload")
    check(s3.part(path, upload, 1, b"x", headers={"x-amz-checksum-crc32": crc32(b"y")}), 400, "BadDigest")
    whole = {"x-amz-checksum-crc32": crc32(b"\1" * 10 + b"\2" * 10)}
    answer = s3.complete(path, upload, [(1, tags[0]), (2, tags[1])], whole)
    assert answer.status == 200, answer


def test_checksums_of_parts(s3, m):
    path, bodies = m + "/big", [b"a" * 100, b"b" * 50]
    for type_, whole in (("COMPOSITE", crc32(b"".join(base64.b64decode(crc32(b)) for b in bodies)) + "-2"),
                         ("FULL_OBJECT", crc32(b"".join(bodies)))):
        upload = s3.begin(path, {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": type_})
        parts = []
        for n, body in enumerate(bodies, 1):
            answer = s3.put_chunks(path, [body], ("x-amz-checksum-crc32", crc32(body)), signed=n == 1,
                                   query=f"partNumber={n}&uploadId={upload}")
            assert answer.status == 200 and answer.headers["x-amz-checksum-crc32"] == crc32(body), answer
            parts.append((n, answer.headers["etag"]))
        assert s3.ask("GET", path, query=f"uploadId={upload}").texts("ChecksumCRC32") == [crc32(b) for b in bodies]
        wrong = crc32(b"?") + ("-2" if type_ == "COMPOSITE" else "")
        check(s3.complete(path, upload, parts, {"x-amz-checksum-crc32": wrong}), 400, "BadDigest")
        answer = s3.complete(path, upload, parts, {"x-amz-checksum-crc32": whole})
        assert answer.status == 200, answer
        assert answer.text("ChecksumCRC32") == whole and answer.text("ChecksumType") == type_, answer
    check_object(s3, path, b"".join(bodies))
    unknown = {"x-amz-checksum-algorithm": "XXHASH3"}
    check(s3.ask("POST", path, query="uploads=", headers=unknown), 400, "InvalidRequest")


def test_uploads_are_listed_and_aborted(s3, srv, tokens, m):
    paths = [m + "/b", m + "/a", m + "/a"]
    uploads = [s3.begin(p) for p in paths]
    assert s3.part(paths[0], uploads[0], 1, BODY).status == 200
    prefix = "uploads=&prefix=" + m[5:] + "/"
    listing = s3.ask("GET", "/org", query=prefix)
    assert listing.texts("UploadId") == [uploads[1], uploads[2], uploads[0]], listing
    assert listing.texts("Key") == [m[5:] + k for k in ("/a", "/a", "/b")]
    page = s3.ask("GET", "/org", query=prefix + "&max-uploads=1")
    assert page.texts("UploadId") == [uploads[1]] and page.text("IsTruncated") == "true"
    page = s3.ask("GET", "/org", query=prefix + f"&max-uploads=5&key-marker={page.text('NextKeyMarker')}"
                  f"&upload-id-marker={page.text('NextUploadIdMarker')}")
    assert page.texts("UploadId") == [uploads[2], uploads[0]]
    part = Writer(s3.port, tokens.s3_keys("part"))
    assert part.ask("GET", "/org", query=prefix).texts("UploadId") == []
    for path, upload in zip(paths, uploads):
        assert s3.ask("DELETE", path, query=f"uploadId={upload}").status == 204
        check(s3.ask("DELETE", path, query=f"uploadId={upload}"), 404, "NoSuchUpload")
    assert s3.ask("GET", "/org", query=prefix).texts("UploadId") == []
    assert not any((srv.root / ".tensord-publish/parts" / u).exists() for u in uploads)


def walk(s3, query, markers):
    """The pages of a list, by its markers: [(parameter, element)]."""
    pages, more = [], ""
    while True:
        page = s3.ask("GET", query[0], query=query[1] + more)
        assert page.status == 200, page
        pages.append(page)
        if page.text("IsTruncated") == "false":
            return pages
        more = "".join(f"&{name}={urllib.parse.quote(page.text(element) or '')}" for name, element in markers)


def test_pages_of_uploads(s3, m):
    """As the S3 API Reference says: by key, then by time; a marker may be gone; prefixes count as items."""
    keys = ["/a", "/a", "/a", "/d/1", "/d/2", "/e/x/1", "/f +é"]
    uploads = [s3.begin(m + key) for key in keys]
    prefix = urllib.parse.quote(m[5:] + "/")
    markers = [("key-marker", "NextKeyMarker"), ("upload-id-marker", "NextUploadIdMarker")]
    for most in (1, 2, 3, 7, 1000):
        pages = walk(s3, ("/org", f"uploads=&prefix={prefix}&max-uploads={most}"), markers)
        assert [u for page in pages for u in page.texts("UploadId")] == uploads
        assert max(len(page.texts("UploadId")) for page in pages) == min(most, 7)
        pages = walk(s3, ("/org", f"uploads=&prefix={prefix}&delimiter=/&max-uploads={most}"), markers)
        assert [u for page in pages for u in page.texts("UploadId")] == [*uploads[:3], uploads[6]]
        assert [prefix for page in pages for prefix in page.common_prefixes()] == [m[5:] + "/d/", m[5:] + "/e/"]
        assert all(page.text("Delimiter") == "/" for page in pages)
    page = s3.ask("GET", "/org", query=f"uploads=&prefix={prefix}f&encoding-type=url")
    assert page.text("Key") == prefix + "f%20%2B%C3%A9" and page.text("EncodingType") == "url"
    check(s3.ask("GET", "/org", query="uploads=&encoding-type=base64"), 400, "InvalidArgument")
    assert s3.ask("GET", "/org", query=f"uploads=&prefix={prefix}&max-uploads=0").texts("UploadId") == []
    page = s3.ask("GET", "/org", query=f"uploads=&prefix={prefix}&max-uploads=2")
    assert s3.ask("DELETE", m + "/a", query=f"uploadId={uploads[1]}").status == 204       # the marker
    more = "".join(f"&{name}={urllib.parse.quote(page.text(element))}" for name, element in markers)
    page = s3.ask("GET", "/org", query=f"uploads=&prefix={prefix}&max-uploads=2" + more)
    assert page.texts("UploadId") == uploads[2:4]


def test_lists_of_many_take_little_memory(tmp_path):
    """A page takes memory for its own items, not for all that there are."""
    root = tmp_path / "root"
    parts = root / ".tensord-publish/parts"
    parts.mkdir(parents=True)
    for number in range(3_000):
        folder = parts / f"{number:032x}"
        folder.mkdir()
        key = f"m/{number:04}" + ("/" + "k" * 230) * 4
        (folder / "about").write_text(f"1\n1\n0\norg/m\n{key[2:]}\norg - FULL_OBJECT {key}\n")
    for number in range(1, 10_001):
        (folder / f"{number:05}").write_bytes(b"x" + f"1\ntag{number}\n\n".encode().ljust(256, b"\0"))
    with Server(root, "--s3-listen", "127.0.0.1:0", "--publish", "local", binary=release_binary()) as s:
        s3 = Writer(s3_port(s))

        def peak_of(path, query, element, markers):
            Path(f"/proc/{s.pid}/clear_refs").write_text("5")
            before = resident(s, "VmRSS")
            items = [item for page in walk(s3, (path, query), markers) for item in page.texts(element)]
            return items, resident(s, "VmHWM") - before
        uploads, more_bytes = peak_of("/org", "uploads=&max-uploads=500", "UploadId",
                                      [("key-marker", "NextKeyMarker"), ("upload-id-marker", "NextUploadIdMarker")])
        assert uploads == [f"{number:032x}" for number in range(3_000)]
        assert more_bytes < 4 << 20
        numbers, more_bytes = peak_of(f"/org/{key}", f"uploadId={folder.name}&max-parts=500", "PartNumber",
                                      [("part-number-marker", "NextPartNumberMarker")])
        assert numbers == [str(number) for number in range(1, 10_001)]
        assert more_bytes < 1 << 20


def test_parts_can_be_copied(s3, m):
    assert s3.put(m + "/from", BODY).status == 200
    path = m + "/to"
    upload = s3.begin(path)
    def copy(number, source, range_=None):
        headers = {"x-amz-copy-source": source, **({"x-amz-copy-source-range": range_} if range_ else {})}
        return s3.put(path, b"", query=f"partNumber={number}&uploadId={upload}", headers=headers)
    parts = [(1, copy(1, m + "/from", "bytes=10-19").text("ETag")), (2, copy(2, m + "/from").text("ETag")),
             (3, copy(3, "/op/m/config.json").text("ETag"))]
    check(copy(4, m + "/from", f"bytes=0-{len(BODY)}"), 400, "InvalidArgument")
    check(copy(4, m + "/none"), 404, "NoSuchKey")
    assert s3.complete(path, upload, parts).status == 200
    check_object(s3, path, BODY[10:20] + BODY + b"{}")


def test_an_upload_survives_the_server(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    options = ("--s3-listen", "127.0.0.1:0", "--publish", "local")
    s = Server(root, *options)
    s3 = Writer(s3_port(s))
    upload = s3.begin("/org/m/big")
    tag = s3.part("/org/m/big", upload, 1, BODY).headers["etag"]
    s.kill()
    with Server(root, *options) as s:
        s3 = Writer(s3_port(s))
        second = s3.part("/org/m/big", upload, 2, b"end").headers["etag"]
        assert s3.complete("/org/m/big", upload, [(1, tag), (2, second)]).status == 200
        check_object(s3, "/org/m/big", BODY + b"end")


def test_room_is_counted_and_given_back(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with Server(root, "--s3-listen", "127.0.0.1:0", "--publish", "local", "--publish-max-bytes", "1000000") as s:
        s3 = Writer(s3_port(s))
        for _ in range(4):                                                  # each takes the room of the one before
            upload = s3.begin("/org/m/big")
            tag = s3.part("/org/m/big", upload, 1, b"x" * 400_000).headers["etag"]
            assert s3.part("/org/m/big", upload, 1, b"y" * 400_000).status == 200
            check(s3.part("/org/m/big", upload, 2, b"x" * 700_000), 507, "StorageFull")
            check(s3.complete("/org/m/big", upload, [(1, tag)]), 400, "InvalidPart")
            assert s3.ask("DELETE", "/org/m/big", query=f"uploadId={upload}").status == 204
        check(s3.put("/org/m/big", b"x" * 1_000_001), 507, "StorageFull")
        assert s3.put("/org/m/big", b"x" * 1_000_000).status == 200


MIB = 1 << 20


def send_parts(s3, path, upload, parts):
    """parts: {number: body}, in the order in which they are sent. Returns (number, tag) by number."""
    tags = {number: s3.part(path, upload, number, body).headers["etag"] for number, body in parts.items()}
    return sorted(tags.items())


@pytest.mark.parametrize("order, is_joined", [([1, 2, 3, 4], True), ([2, 1, 4, 3], True), ([4, 1, 2, 3], False)])
@pytest.mark.parametrize("checksum", [{}, {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"}])
def test_parts_of_one_size_become_the_object_without_a_copy(tmp_path, order, is_joined, checksum):
    """Unless the short part comes first. There is no room for a copy in the bound."""
    root = tmp_path / "root"
    root.mkdir()
    bodies = {n: pattern(MIB if n < 4 else 1234, f"part {n}") for n in order}
    whole = b"".join(bodies[n] for n in sorted(bodies))
    with Server(root, "--s3-listen", "127.0.0.1:0", "--publish", "local", "--publish-max-bytes", 5 * MIB) as s:
        s3 = Writer(s3_port(s))
        upload = s3.begin("/org/m/big", checksum)
        parts = send_parts(s3, "/org/m/big", upload, bodies)
        if not is_joined:
            check(s3.complete("/org/m/big", upload, parts), 507, "StorageFull")
            return
        row = (root / f".tensord-publish/parts/{upload}/row").stat()
        if checksum:
            check(s3.complete("/org/m/big", upload, parts, {"x-amz-checksum-crc32": crc32(b"?")}), 400, "BadDigest")
        answer = s3.complete("/org/m/big", upload, parts, {"x-amz-checksum-crc32": crc32(whole)})
        assert answer.status == 200, answer
        if checksum:
            assert answer.text("ChecksumCRC32") == crc32(whole)
        check_object(s3, "/org/m/big", whole)
        blob = root / "models--org--m/blobs" / hashlib.sha256(whole).hexdigest()
        assert blob.stat().st_ino == row.st_ino and blob.stat().st_nlink == 1
        assert s.gauge("tensord_publish_used_bytes") == len(whole)
        assert s3.complete("/org/m/big", upload, parts).text("ETag") == answer.text("ETag")
        again = s3.begin("/org/m/again")                                    # the blob is here already
        assert s3.complete("/org/m/again", again, send_parts(s3, "/org/m/again", again, {1: whole[:MIB]})).status == 200
        assert s.gauge("tensord_publish_used_bytes") == len(whole) + MIB
        assert {p.name for p in (root / f".tensord-publish/parts/{upload}").iterdir()} <= {"about", "done", "placed"}


def test_parts_in_a_row_that_are_used_otherwise(tmp_path):
    """A list of other parts, parts that are sent again, that are longer, that are cut, and after a restart."""
    root = tmp_path / "root"
    root.mkdir()
    options = ("--s3-listen", "127.0.0.1:0", "--publish", "local")
    a, b, c, d = (pattern(size, f"row {n}") for n, size in enumerate((MIB, MIB, MIB, 777)))
    with Server(root, *options) as s:
        s3 = Writer(s3_port(s))

        def complete(name, sent, again=None, chosen=None):
            path = f"/org/m/{name}"
            upload = s3.begin(path)
            parts = dict(send_parts(s3, path, upload, sent))
            parts.update(send_parts(s3, path, upload, again or {}))
            bodies = {**sent, **(again or {})}
            chosen = chosen or sorted(parts)
            assert s3.complete(path, upload, [(n, parts[n]) for n in chosen]).status == 200
            check_object(s3, path, b"".join(bodies[n] for n in chosen))
        complete("plain", {1: a, 2: b, 3: c, 4: d})
        complete("subset", {1: a, 2: b, 3: c}, chosen=[1, 3])
        complete("prefix", {1: b, 2: c, 3: a}, chosen=[1, 2])
        complete("again", {1: c, 2: b, 3: d}, again={2: a})
        complete("twice", {1: c, 2: b, 3: d}, again={2: a, 1: d})
        complete("longer", {1: d + a, 2: b, 3: a + b + c, 4: c})
        complete("short", {1: a, 2: d, 3: b})
        complete("gap", {1: a, 3: b, 7: d})
        complete("far", {1: a, 10000: b})
        path = "/org/m/cut"
        upload = s3.begin(path)
        first = s3.part(path, upload, 1, a).headers["etag"]
        with socket.create_connection(("127.0.0.1", s3.port)) as sock:
            sock.sendall(f"PUT {path}?partNumber=2&uploadId={upload} HTTP/1.1\r\nHost: x\r\n"
                         f"Content-Length: {MIB}\r\n\r\n".encode() + c[:500_000])
            time.sleep(0.2)
        second = s3.part(path, upload, 2, b[:-5]).headers["etag"]
        assert s3.complete(path, upload, [(1, first), (2, second)]).status == 200
        check_object(s3, path, a + b[:-5])
        path = "/org/m/late"
        upload = s3.begin(path)
        parts = send_parts(s3, path, upload, {1: a, 2: c})
        used = s.gauge("tensord_publish_used_bytes")
    with Server(root, *options) as s:
        s3 = Writer(s3_port(s))
        assert s.gauge("tensord_publish_used_bytes") == used
        parts += send_parts(s3, path, upload, {3: b})
        assert s3.complete(path, upload, parts).status == 200
        check_object(s3, path, a + c + b)


def test_room_of_parts_in_a_row_is_counted(tmp_path):
    """The bytes of a part that was sent again stay on the disk with the row, and count; all come back."""
    root = tmp_path / "root"
    root.mkdir()
    options = ("--s3-listen", "127.0.0.1:0", "--publish", "local")
    with Server(root, *options) as s:
        s3 = Writer(s3_port(s))
        upload = s3.begin("/org/m/big")
        send_parts(s3, "/org/m/big", upload, {1: b"a" * MIB, 2: b"b" * MIB})
        assert s.gauge("tensord_publish_used_bytes") == 2 * MIB
        for body in (b"c" * MIB, b"d" * MIB):
            assert s3.part("/org/m/big", upload, 1, body).status == 200
            assert s.gauge("tensord_publish_used_bytes") == 3 * MIB
    with Server(root, *options) as s:
        s3 = Writer(s3_port(s))
        assert s.gauge("tensord_publish_used_bytes") == 3 * MIB
        assert s3.part("/org/m/big", upload, 1, b"e" * MIB).status == 200
        assert s.gauge("tensord_publish_used_bytes") == 3 * MIB
        assert s3.ask("DELETE", "/org/m/big", query=f"uploadId={upload}").status == 204
        assert s.gauge("tensord_publish_used_bytes") == 0


def test_a_completion_that_fails_after_the_row_has_become_a_blob(tmp_path):
    """The parts are still here for the next one, and none is written to the blob."""
    root = tmp_path / "root"
    root.mkdir()
    with Server(root, "--s3-listen", "127.0.0.1:0", "--publish", "local") as s:
        s3 = Writer(s3_port(s))
        a, b = pattern(MIB, "fails a"), pattern(MIB, "fails b")
        assert s3.put("/org/m/file", b"in the way").status == 200
        path = "/org/m/file/below"
        upload = s3.begin(path)
        parts = send_parts(s3, path, upload, {1: a, 2: b})
        check(s3.complete(path, upload, parts), 409, "OperationAborted")
        blob = root / "models--org--m/blobs" / hashlib.sha256(a + b).hexdigest()
        before = blob.stat()
        third = s3.part(path, upload, 3, b"end").headers["etag"]
        again = s3.part(path, upload, 2, a).headers["etag"]
        assert blob.stat().st_mtime_ns == before.st_mtime_ns and blob.stat().st_size == 2 * MIB
        assert s3.ask("DELETE", "/org/m/file").status == 204
        assert s3.complete(path, upload, [parts[0], (2, again), (3, third)]).status == 200
        check_object(s3, path, a + a + b"end")


def test_completed_by_two_at_once(tmp_path):
    """Both get the answer of a completion, and the room of the parts comes back once."""
    root = tmp_path / "root"
    root.mkdir()
    options = ("--s3-listen", "127.0.0.1:0", "--publish", "local")
    with Server(root, *options) as s:
        s3 = Writer(s3_port(s))
        for n in range(5):
            path = f"/org/m/big{n}"
            upload = s3.begin(path)
            size = (50_000, MIB)[n % 2]
            parts = [(i, s3.part(path, upload, i, b"%d" % n * size).headers["etag"]) for i in range(1, 41)]
            answers = []
            threads = [threading.Thread(target=lambda: answers.append(s3.complete(path, upload, parts)))
                       for _ in range(3)]
            for t in threads:
                t.start()
                time.sleep(0.02 * n)
            for t in threads:
                t.join()
            assert [a.status for a in answers] == [200] * 3, answers
            assert len({a.text("ETag") for a in answers}) == 1, answers
        used = s.gauge("tensord_publish_used_bytes")
    with Server(root, *options) as s:
        assert s.gauge("tensord_publish_used_bytes") == used


def test_uploads_that_are_done_do_not_count(tmp_path):
    """The bound is one of uploads under way; of those that are done the oldest make room."""
    root = tmp_path / "root"
    parts = root / ".tensord-publish/parts"
    parts.mkdir(parents=True)
    about = "1\n1\n0\norg/m\nbig\norg - FULL_OBJECT m/big\n"

    def make(number, is_done):
        folder = parts / f"{number:032x}"
        folder.mkdir()
        (folder / "about").write_text(about)
        if is_done:
            (folder / "done").write_text("0" * 64 + " 0\n")
            os.utime(folder / "done", (1_000_000_000 + number, 1_000_000_000 + number))
    for number in range(10_000):
        make(number, is_done=number >= 100)
    with Server(root, "--s3-listen", "127.0.0.1:0", "--publish", "local") as s:
        s3 = Writer(s3_port(s))
        s3.begin("/org/m/big")                                              # asserts 200
        left = {int(p.name, 16) for p in parts.iterdir()}
        assert set(range(100)) <= left and 9_999 in left and 100 not in left, sorted(left)[:200]
        assert len(left) == 100 + 2_500 + 1
        for number in range(10_000, 19_899):                                # to the 101 under way
            make(number, is_done=False)
        answer = s3.ask("POST", "/org/m/big", query="uploads=")
        check(answer, 503, "ServiceUnavailable")
        shutil.rmtree(parts / f"{0:032x}")
        s3.begin("/org/m/big")


# ---- copies and deletions


def test_copies(s3, m):
    assert s3.put(m + "/a b+é", BODY).status == 200
    source = m[1:] + "/a%20b%2B%C3%A9"
    for target in (m + "/copy", m + "-other/copy", m + "/a b+é"):
        for prefix in ("", "/"):
            answer = s3.put(target, b"", headers={"x-amz-copy-source": prefix + source})
            assert answer.status == 200 and answer.text("ETag") == TAG and answer.text("LastModified"), answer
            check_object(s3, target, BODY)
    assert s3.put(m + "/op.json", b"", headers={"x-amz-copy-source": "op/m/config.json"}).status == 200
    check_object(s3, m + "/op.json", b"{}")
    check(s3.put(m + "/x", b"", headers={"x-amz-copy-source": "org/none/a"}), 404, "NoSuchKey")
    for wrong in ("", "org", "/", "%zz/a", source + "?versionId=7"):
        check(s3.put(m + "/x", b"", headers={"x-amz-copy-source": wrong}), 400, "InvalidArgument")
    check(s3.put(m + "/x", b"body", headers={"x-amz-copy-source": source}), 400, "InvalidRequest")


def test_deletions(s3, m):
    keys = [f"{m[5:]}/{n}" for n in ("a", "b", "c & d", "e")]
    for key in keys:
        assert s3.put("/org/" + key, key.encode()).status == 200
    assert s3.ask("DELETE", "/org/" + keys[0]).status == 204
    check(get(s3, "/org/" + keys[0]), 404, "NoSuchKey")
    for path in ("/org/" + keys[0], m + "/never", "/org/never-there/a", "/nobucket/x/y"):
        assert s3.ask("DELETE", path).status == 204, path
    answer = s3.delete_keys("org", [keys[1], m[5:] + "/c &amp; d", m[5:] + "/never", "one"])
    assert answer.status == 200 and answer.texts("Key") == [keys[1], keys[2], m[5:] + "/never", "one"], answer
    assert answer.texts("Code") == ["InvalidArgument"]
    assert ET.fromstring(s3.delete_keys("org", [m[5:] + "/never"], quiet=True).body).find("*") is None
    check_object(s3, "/org/" + keys[3], keys[3].encode())
    check(s3.ask("POST", "/org", b"<Delete>", query="delete="), 400, "MalformedXML")
    check(s3.ask("POST", "/org", b"<!DOCTYPE x><Delete><Object><Key>a</Key></Object></Delete>", query="delete="), 400,
          "MalformedXML")
    check(s3.ask("DELETE", "/org/" + keys[3], query="versionId=7"), 400, "InvalidArgument")


def test_a_repository_that_fails_has_its_keys_fail_alone(s3, srv, m):
    broken = srv.root / ("models--org--" + m[5:] + "-x")
    assert s3.put(m + "/a", b"x").status == 200
    broken.write_text("no folder")
    keys = [f"{m[5:]}-x/a", f"{m[5:]}-x/b", m[5:] + "/a"]
    try:
        answer = s3.delete_keys("org", keys)
    finally:
        broken.unlink()
    assert answer.status == 200 and ET.fromstring(answer.body).tag.endswith("DeleteResult"), answer
    assert answer.texts("Key") == keys and len(answer.texts("Code")) == len(answer.texts("Error")) == 2, answer
    check(get(s3, m + "/a"), 404, "NoSuchKey" if get(s3, "/org").status == 200 else "NoSuchBucket")


def test_the_last_file_takes_the_model_along(s3, srv, m):
    folder = srv.root / ("models--org--" + m[5:])
    assert s3.put(m + "/a", b"x").status == 200 and s3.put(m + "/.b", b"x").status == 200
    assert folder.exists()
    assert s3.ask("DELETE", m + "/a").status == 204 and folder.exists()
    assert s3.ask("DELETE", m + "/.b").status == 204 and not folder.exists()
    assert s3.put(m + "/a", b"again").status == 200
    check_object(s3, m + "/a", b"again")


def test_a_blob_that_waits_for_its_commit_keeps_the_model(s3, srv, tokens, m):
    folder = srv.root / ("models--org--" + m[5:])
    assert s3.put(m + "/a", b"x").status == 200
    data = m.encode()
    name = f"/models{m}/blobs/sha256:{hashlib.sha256(data).hexdigest()}"
    with srv.conn() as c:
        assert c.request(name, tokens.bearer("w"), "PUT", body=data).status == 201
    assert s3.ask("DELETE", m + "/a").status == 204 and folder.exists()
    assert srv.get(name, tokens.bearer("w")).status == 200


def test_buckets(s3, m):
    xml = b"<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>"
    for body in (b"", xml):
        answer = s3.put("/fresh", body)
        assert answer.status == 200 and answer.headers["location"] == "/fresh", answer
    check(s3.put("/fresh", b"<x/>"), 400, "MalformedXML")
    assert s3.ask("HEAD", "/fresh").status == 200 and s3.ask("DELETE", "/fresh").status == 204
    for name in ("/a--b", "/.hidden", "/a b\n", "/" + "b" * 300):             # no model could be published there
        check(s3.put(name, b""), 400, "InvalidBucketName")
        assert s3.ask("HEAD", name).status == 404
    for name in ("/datasets", "/local"):
        assert s3.put(name, b"").status == 200
    assert s3.put(m + "/a", b"x").status == 200
    check(s3.ask("DELETE", "/org"), 409, "BucketNotEmpty")
