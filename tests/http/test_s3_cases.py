"""The cases of ceph/s3-tests for the calls that the S3 port serves, by the names that the suite gives them: writes,
uploads in parts, copies, deletions, conditions, checksums and lists. Each function checks what the Amazon S3 API
Reference says about its case; NOT_SERVED says why other cases are not served. Cases of policies, access lists,
versions, life cycles, encryption, tags, locks, logging, CORS and forms are not named one by one: the port answers
NotImplemented to them."""
import base64
import hashlib
import http.client
import re
import threading
import urllib.parse

import pytest
from harness import Server, pattern, s3_port
from s3_writer import Writer, crc32
from signing import TokensFile

BODY = pattern(70_000, "case")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    file = TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    return file.add("w", rights=("read", "write")).add("other", ["elsewhere/*"], rights=("read", "write"))


@pytest.fixture(scope="module")
def port(tmp_path_factory, tokens):
    root = tmp_path_factory.mktemp("cases") / "root"
    root.mkdir()
    with Server(root, "--s3-listen", "127.0.0.1:0", "--tokens", tokens, "--publish", "any") as s:
        assert Writer(s3_port(s), tokens.s3_keys("w")).put("/cases/stays/a", b"x").status == 200
        yield s3_port(s)


class Case:
    """A client, and a model of the case's own: `path` is the beginning of its keys' paths, `prefix` of the keys."""

    def __init__(self, port, tokens, name):
        self.s3 = Writer(port, tokens.s3_keys("w"))
        self.other, self.nobody = Writer(port, tokens.s3_keys("other")), Writer(port)
        self.path, self.prefix = f"/cases/{name}", name + "/"

    def put(self, key, body=b"", **options):
        answer = self.s3.put(f"{self.path}/{key}", body, **options)
        assert answer.status == 200, answer
        return answer

    def get(self, key):
        answer = self.s3.ask("GET", f"{self.path}/{key}")
        assert answer.status == 200, answer
        return answer.body

    def upload(self, key, bodies, **headers):
        """An upload with these parts, numbered from 1. Returns its id and (number, tag) of each."""
        upload = self.s3.begin(f"{self.path}/{key}", headers or None)
        return upload, [(n, self.part(key, upload, n, body)) for n, body in enumerate(bodies, 1)]

    def part(self, key, upload, number, body):
        answer = self.s3.part(f"{self.path}/{key}", upload, number, body)
        assert answer.status == 200, answer
        return answer.headers["etag"]

    def complete(self, key, upload, parts, headers=None):
        return self.s3.complete(f"{self.path}/{key}", upload, parts, headers)

    def copy(self, key, source, **headers):
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.s3.put(f"{self.path}/{key}", b"", headers={"x-amz-copy-source": source, **fields})

    def list(self, **parameters):
        """All pages: keys below the model, and common prefixes."""
        query = {"list-type": "2", **{k.replace("_", "-"): v for k, v in parameters.items()}}
        query["prefix"] = self.prefix + query.get("prefix", "")
        keys, prefixes = [], []
        while True:
            page = self.s3.ask("GET", "/cases", query=urllib.parse.urlencode(query))
            assert page.status == 200, page
            keys += [key[len(self.prefix):] for key in page.texts("Key")]
            prefixes += [prefix[len(self.prefix):] for prefix in page.common_prefixes()]
            if page.text("IsTruncated") == "false":
                return keys, prefixes
            if query["list-type"] == "2":
                query["continuation-token"] = page.text("NextContinuationToken")


def check(answer, status, code):
    assert answer.status == status and answer.code() == code, answer


def tag_of(body):
    return '"' + hashlib.sha256(body).hexdigest() + '-1"'


# ---- objects


def write_and_read(case):
    tag = case.put("foo", b"bar").headers["etag"]
    assert tag == tag_of(b"bar") and case.get("foo") == b"bar"
    case.put("foo", b"soup")
    assert case.get("foo") == b"soup"
    assert case.s3.ask("DELETE", case.path + "/foo").status == 204
    check(case.s3.ask("GET", case.path + "/foo"), 404, "NoSuchKey")


def head_zero_bytes(case):
    case.put("foo")
    head = case.s3.ask("HEAD", case.path + "/foo")
    assert head.status == 200 and head.headers["content-length"] == "0"


def chunked_transfer(case):
    trailer = ("x-amz-checksum-crc32", crc32(b"bar"))
    answer = case.s3.put_chunks(case.path + "/foo", [b"bar"], trailer, signed=False, chunked=True)
    assert answer.status == 200 and case.get("foo") == b"bar"


def request_id(case):
    answer = case.s3.ask("GET", case.path + "/none")
    assert answer.status == 404 and answer.text("RequestId") == answer.headers["x-amz-request-id"]


def special_names(case):
    names = ["_ ", '"', "$", "%", "&", "'", "<", ">", "_", "_ _", "__", "a+b", "a=b;c", "é", "😀"]
    for name in names:
        case.put(name, name.encode())
    assert case.list(**{"encoding-type": "url"})[0] == sorted(map(urllib.parse.quote, names), key=urllib.parse.unquote)
    for name in names:
        assert case.get(name) == name.encode()


def without_keys(case):
    check(case.nobody.put(case.path + "/foo", b"x"), 403, "AccessDenied")
    check(case.other.put(case.path + "/foo", b"x"), 403, "AccessDenied")
    check(case.s3.ask("GET", case.path + "/foo"), 404, "NoSuchKey")


def continue_100(case):
    for writer, status in ((case.s3, 100), (case.nobody, 403)):
        headers = {"Host": f"127.0.0.1:{writer.port}", "X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
        if writer.keys:
            writer.sign("PUT", case.path + "/foo", "", headers)
        connection = http.client.HTTPConnection("127.0.0.1", writer.port, timeout=60)
        connection.putrequest("PUT", case.path + "/foo", skip_host=True)
        for name, value in {**headers, "Expect": "100-continue", "Content-Length": "3"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        with connection.sock.makefile("rb") as file:
            assert file.readline().startswith(b"HTTP/1.1 %d " % status)
        connection.close()


def dual_write(case):
    """A reader sees one of the bodies that are written at the same time, whole."""
    bodies = [bytes([c]) * 1_000_000 for c in b"AB"]
    case.put("foo", bodies[0])
    threads = [threading.Thread(target=case.put, args=("foo", body)) for body in bodies * 2]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert case.get("foo") in bodies
    for thread in threads:
        thread.join()
    assert case.get("foo") in bodies


def dual_conditional_write(case):
    tag = case.put("foo", b"A" * 100).headers["etag"]
    answers = []
    threads = [threading.Thread(target=lambda body=body: answers.append(
        case.s3.put(case.path + "/foo", body, headers={"If-Match": tag}).status)) for body in (b"B" * 100, b"C" * 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, 412]


# ---- conditions


def put_conditions(case, write):
    """write(headers, body) -> answer: PutObject, or an upload in parts."""
    check(write({"If-Match": "*"}, b"0"), 404, "NoSuchKey")
    check(write({"If-Match": '"badetag"'}, b"0"), 404, "NoSuchKey")
    assert write({"If-None-Match": "*"}, b"1").status == 200
    check(write({"If-None-Match": "*"}, b"2"), 412, "PreconditionFailed")
    check(write({"If-Match": '"badetag"'}, b"2"), 412, "PreconditionFailed")
    assert write({"If-Match": tag_of(b"1")}, b"2").status == 200 and case.get("obj") == b"2"
    check(write({"If-Match": tag_of(b"1")}, b"3"), 412, "PreconditionFailed")
    assert write({"If-Match": "*"}, b"3").status == 200 and case.get("obj") == b"3"
    check(write({"If-None-Match": tag_of(b"3")}, b"4"), 501, "NotImplemented")    # S3 knows "*" alone


def put_if_match(case):
    put_conditions(case, lambda headers, body: case.s3.put(case.path + "/obj", body, headers=headers))


def multipart_put_if_match(case):
    def write(headers, body):
        upload, parts = case.upload("obj", [body])
        return case.complete("obj", upload, parts, headers)
    put_conditions(case, write)


def get_conditions(case):
    case.put("foo", b"bar")
    before, after = "Sat, 29 Oct 1994 19:43:31 GMT", "Fri, 30 Oct 2099 19:43:31 GMT"
    for name, value, status in (("If-Match", tag_of(b"bar"), 200), ("If-Match", '"ABCORZ"', 412),
                                ("If-None-Match", tag_of(b"bar"), 304), ("If-None-Match", "ABCORZ", 200),
                                ("If-Modified-Since", before, 200), ("If-Unmodified-Since", before, 412),
                                ("If-Unmodified-Since", after, 200)):
        assert case.s3.ask("GET", case.path + "/foo", headers={name: value}).status == status, (name, value)


def copy_conditions(case):
    case.put("foo", b"bar")
    good, bad = tag_of(b"bar"), '"ABCORZ"'
    for name, value, status in (("if_match", good, 200), ("if_match", bad, 412), ("if_none_match", good, 412),
                                ("if_none_match", bad, 200)):
        answer = case.copy("bar", case.path + "/foo", **{"x_amz_copy_source_" + name: value})
        assert answer.status == status, (name, value, answer)
    assert case.get("bar") == b"bar"


def delete_if_match(case):
    tag = case.put("obj", b"1").headers["etag"]
    check(case.s3.ask("DELETE", case.path + "/obj", headers={"If-Match": '"badetag"'}), 412, "PreconditionFailed")
    assert case.s3.ask("DELETE", case.path + "/obj", headers={"If-Match": tag}).status == 204
    case.put("obj", b"1")
    assert case.s3.ask("DELETE", case.path + "/obj", headers={"If-Match": "*"}).status == 204
    check(case.s3.ask("GET", case.path + "/obj"), 404, "NoSuchKey")


def delete_many_if_match(case):
    tag = case.put("obj", b"1").headers["etag"]
    for value, code in (('"badetag"', ["PreconditionFailed"]), (tag, [])):
        item = f"<Object><Key>{case.prefix}obj</Key><ETag>{value}</ETag></Object>"
        answer = case.s3.ask("POST", "/cases", f"<Delete>{item}</Delete>".encode(), query="delete=")
        assert answer.status == 200 and answer.texts("Code") == code, answer


def delete_by_size_or_time(case):
    """These conditions are S3's for directory buckets: refused, not passed over."""
    case.put("obj", b"1")
    for name in ("x-amz-if-match-size", "x-amz-if-match-last-modified-time"):
        check(case.s3.ask("DELETE", case.path + "/obj", headers={name: "1"}), 501, "NotImplemented")
    assert case.get("obj") == b"1"


# ---- deletions


def delete_many(case):
    names = ["key0", "key1", "key2"]
    for name in names:
        case.put(name, b"x")
    for _ in range(2):                                                       # what is gone is deleted, too
        answer = case.s3.delete_keys("cases", [case.prefix + name for name in names])
        assert answer.texts("Key") == [case.prefix + name for name in names] and not answer.texts("Code"), answer
        assert case.list() == ([], [])


def delete_too_many(case):
    check(case.s3.delete_keys("cases", [f"{case.prefix}{n}" for n in range(1001)]), 400, "MalformedXML")


def delete_bucket(case):
    check(case.s3.ask("DELETE", "/cases"), 409, "BucketNotEmpty")


# ---- copies


def copy_objects(case):
    for body in (b"", b"foo", BODY * 20):
        case.put("foo", body)
        assert case.copy("bar", case.path + "/foo").text("ETag") == tag_of(body)
        assert case.get("bar") == body
        headers = {"x-amz-copy-source": case.path + "/foo"}
        assert case.s3.put(case.path + "-other/bar", b"", headers=headers).status == 200
        assert case.s3.ask("GET", case.path + "-other/bar").body == body


def copy_of_nothing(case):
    check(case.copy("bar", case.path + "/none"), 404, "NoSuchKey")
    check(case.copy("bar", "/no-such-bucket/none/a"), 404, "NoSuchKey")


def copy_of_what_is_hidden(case):
    case.put("foo", b"secret")
    answer = case.other.put("/elsewhere/m/bar", b"", headers={"x-amz-copy-source": case.path + "/foo"})
    check(answer, 404, "NoSuchKey")


# ---- uploads in parts


def upload_empty(case):
    upload, _ = case.upload("big", [])
    check(case.complete("big", upload, []), 400, "MalformedXML")


def upload_sizes(case):
    for sizes in ([1], [100, 100], [100, 50], [70_000] * 3, [70_000, 70_000, 1], [1, 70_000, 5]):
        bodies = [pattern(size, f"{size}{n}") for n, size in enumerate(sizes)]
        upload, parts = case.upload("big", bodies)
        answer = case.complete("big", upload, parts)
        assert answer.status == 200 and answer.text("ETag") == tag_of(b"".join(bodies))
        assert case.get("big") == b"".join(bodies)


def upload_again(case):
    """The part that was sent last counts, also when the first one ends later."""
    upload, parts = case.upload("big", [b"1" * 100, b"2" * 100])
    parts[0] = (1, case.part("big", upload, 1, b"3" * 100))
    assert case.complete("big", upload, parts).status == 200
    assert case.get("big") == b"3" * 100 + b"2" * 100


def upload_over_an_object(case):
    case.put("big", BODY)
    upload, parts = case.upload("big", [BODY, BODY])
    assert case.get("big") == BODY
    assert case.complete("big", upload, parts).status == 200 and case.get("big") == BODY * 2


def upload_wrong(case):
    upload, parts = case.upload("big", [b"x"])
    check(case.complete("big", upload, [(9999, parts[0][1])]), 400, "InvalidPart")
    check(case.complete("big", upload, [(1, '"' + "f" * 32 + '"')]), 400, "InvalidPart")
    check(case.complete("big", "abc1234def", parts), 404, "NoSuchUpload")
    check(case.s3.ask("DELETE", case.path + "/big", query="uploadId=56788"), 404, "NoSuchUpload")


def upload_abort(case):
    upload, parts = case.upload("big", [BODY])
    assert case.s3.ask("DELETE", case.path + "/big", query=f"uploadId={upload}").status == 204
    check(case.complete("big", upload, parts), 404, "NoSuchUpload")
    check(case.s3.ask("GET", case.path + "/big"), 404, "NoSuchKey")


def upload_lists(case):
    uploads = [case.upload(key, [b"x"])[0] for key in ("a", "a", "b")]
    listing = case.s3.ask("GET", "/cases", query="uploads=&prefix=" + case.prefix)
    assert listing.texts("UploadId") == uploads
    assert case.other.ask("GET", "/cases", query="uploads=").status == 403   # of another owner


def part_copies(case):
    case.put("from", BODY)
    upload = case.s3.begin(case.path + "/to")

    def copy(number, source, range_=None):
        headers = {"x-amz-copy-source": source, **({"x-amz-copy-source-range": range_} if range_ else {})}
        return case.s3.part(case.path + "/to", upload, number, b"", headers=headers)
    parts = [(1, copy(1, case.path + "/from", "bytes=0-99").text("ETag")),
             (2, copy(2, case.path + "/from").text("ETag"))]
    for wrong in ("0-2", "bytes=0", "bytes=hello-world", "bytes=0-bar", "bytes=hello-", "bytes=0-2,3-5",
                  f"bytes=0-{len(BODY)}"):
        check(copy(3, case.path + "/from", wrong), 400, "InvalidArgument")
    case.put("any%25.txt", b"x")
    assert copy(3, urllib.parse.quote(case.path + "/any%25.txt")).status == 200
    check(copy(3, case.path + "/any%25.txt"), 404, "NoSuchKey")              # that is the key any%.txt
    assert case.complete("to", upload, parts).status == 200 and case.get("to") == BODY[:100] + BODY


# ---- checksums


def checksum(case, name, value, body):
    answer = case.put("obj", body, headers={name: value})
    assert answer.headers[name] == value
    check(case.s3.put(case.path + "/obj", body[:-1] + b"?", headers={name: value}), 400, "BadDigest")


def checksum_sha256(case):
    body = b"A" * 1024
    value = base64.b64encode(hashlib.sha256(body).digest()).decode()
    checksum(case, "x-amz-checksum-sha256", value, body)
    head = case.s3.ask("HEAD", case.path + "/obj")
    assert "x-amz-checksum-sha256" not in head.headers
    head = case.s3.ask("HEAD", case.path + "/obj", headers={"x-amz-checksum-mode": "ENABLED"})
    assert head.headers["x-amz-checksum-sha256"] == value


def checksum_crc64nvme(case):
    checksum(case, "x-amz-checksum-crc64nvme", "Qeh8oXvGiSo=", b"A" * 1024)  # the value is of the suite


def multipart_checksums(case):
    bodies = [b"A" * 5000, b"B" * 5000, b"C" * 5000]
    for name, digest in (("SHA256", lambda b: hashlib.sha256(b).digest()), ("SHA1", lambda b: hashlib.sha1(b).digest()),
                         ("CRC32", lambda b: base64.b64decode(crc32(b)))):
        field = "x-amz-checksum-" + name.lower()
        upload, parts = case.upload("big", bodies, **{"x-amz-checksum-algorithm": name})
        sums = [base64.b64encode(digest(body)).decode() for body in bodies]
        assert case.s3.ask("GET", case.path + "/big", query=f"uploadId={upload}").texts("Checksum" + name) == sums
        whole = base64.b64encode(digest(b"".join(map(digest, bodies)))).decode() + "-3"
        check(case.complete("big", upload, parts, {field: sums[0] + "-3"}), 400, "BadDigest")
        answer = case.complete("big", upload, parts, {field: whole})
        assert answer.status == 200 and answer.text("Checksum" + name) == whole, answer


def attributes(case):
    case.put("obj", BODY)
    answer = case.s3.ask("GET", case.path + "/obj", query="attributes=", headers={
        "x-amz-object-attributes": "ETag,Checksum,ObjectSize,StorageClass"})
    assert answer.status == 200 and answer.text("ObjectSize") == str(len(BODY)), answer
    assert answer.text("ETag") == tag_of(BODY).strip('"')
    assert base64.b64decode(answer.text("ChecksumSHA256")) == hashlib.sha256(BODY).digest()


# ---- lists


LISTED = ["a/b", "asdf", "b$r", "boo/bar", "boo/baz/xyzzy", "cquux/bla", "cquux/thud", "f%o", "foo bar", "foo.x", "z_1"]


def expected_list(prefix, delimiter, after):
    """Return the keys and prefixes of a list of LISTED by the API Reference."""
    keys, prefixes = [], []
    for key in sorted(LISTED, key=str.encode):
        if not key.startswith(prefix) or key <= after:
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        if at < 0:
            keys.append(key)
        elif key[:at + len(delimiter)] not in prefixes:
            prefixes.append(key[:at + len(delimiter)])
    return keys, prefixes


def lists(case, **parameters):
    for key in LISTED:
        case.put(key, b"x")
    expected = expected_list(parameters.get("prefix", ""), parameters.get("delimiter", ""), "")
    for version in ("1", "2"):
        for most in ("1", "3", "1000"):
            if version == "2":
                assert case.list(max_keys=most, **parameters) == expected
            else:
                check_first_version(case, most, parameters, expected)


def check_first_version(case, most, parameters, expected):
    keys, prefixes, marker = [], [], ""
    while True:
        query = {**parameters, "prefix": case.prefix + parameters.get("prefix", ""), "max-keys": most, "marker": marker}
        page = case.s3.ask("GET", "/cases", query=urllib.parse.urlencode(query))
        assert page.status == 200, page
        found = page.texts("Key")
        keys += [key[len(case.prefix):] for key in found]
        prefixes += [prefix[len(case.prefix):] for prefix in page.common_prefixes()]
        if page.text("IsTruncated") == "false":
            assert (keys, prefixes) == expected
            return
        marker = page.text("NextMarker") if parameters.get("delimiter") else found[-1]


def list_edges(case):
    for key in LISTED:
        case.put(key, b"x")
    ordered = sorted(LISTED)
    assert case.list(max_keys="0") == ([], [])
    assert case.list(start_after=case.prefix + "asdg")[0] == ordered[2:]     # is no key
    assert case.list(start_after=case.prefix + "zzz") == ([], [])
    check(case.s3.ask("GET", "/cases", query="max-keys=blah"), 400, "InvalidArgument")
    check(case.s3.ask("GET", "/no-such-bucket"), 404, "NoSuchBucket")
    page = case.s3.ask("GET", "/cases", query=f"list-type=2&max-keys=2&prefix={case.prefix}")
    assert page.text("KeyCount") == "2" and page.text("IsTruncated") == "true"
    assert page.texts("Owner") == [] and case.s3.ask(
        "GET", "/cases", query=f"list-type=2&fetch-owner=true&prefix={case.prefix}").texts("ID")


def list_with(**parameters):
    return lambda case: lists(case, **parameters)


CASES = {
    "object_write_read_update_read_delete, object_write_check_etag, object_write_file, object_read_not_exist":
        write_and_read,
    "object_head_zero_bytes": head_zero_bytes,
    "object_write_with_chunked_transfer_encoding": chunked_transfer,
    "object_requestid_matches_header_on_error": request_id,
    "bucket_create_special_key_names, bucket_list_special_prefix": special_names,
    "object_anon_put, object_put_authenticated": without_keys,
    "100_continue, 100_continue_error_retry": continue_100,
    "atomic_read_1mb, atomic_write_1mb, atomic_dual_write_1mb": dual_write,
    "atomic_conditional_write_1mb, atomic_dual_conditional_write_1mb": dual_conditional_write,
    "put_object_if_match, put_object_ifmatch_*, put_object_ifnonmatch_*": put_if_match,
    "multipart_put_object_if_match": multipart_put_if_match,
    "get_object_ifmatch_*, get_object_ifnonematch_*, get_object_if*modifiedsince_*": get_conditions,
    "copy_object_ifmatch_*, copy_object_ifnonematch_*": copy_conditions,
    "delete_object_if_match": delete_if_match,
    "delete_objects_if_match": delete_many_if_match,
    "delete_object_if_match_size, delete_object_if_match_last_modified_time": delete_by_size_or_time,
    "multi_object_delete, multi_objectv2_delete": delete_many,
    "multi_object_delete_key_limit, multi_objectv2_delete_key_limit": delete_too_many,
    "bucket_delete_nonempty": delete_bucket,
    "object_copy_zero_size, object_copy_16m, object_copy_same_bucket, object_copy_diff_bucket": copy_objects,
    "object_copy_key_not_found, object_copy_bucket_not_found": copy_of_nothing,
    "object_copy_not_owned_bucket, object_copy_not_owned_object_bucket": copy_of_what_is_hidden,
    "multipart_upload_empty": upload_empty,
    "multipart_upload, multipart_upload_small, multipart_upload_multiple_sizes, multipart_upload_contents":
        upload_sizes,
    "multipart_upload_resend_part, multipart_resend_first_finishes_last": upload_again,
    "multipart_upload_overwrite_existing_object, atomic_multipart_upload_write": upload_over_an_object,
    "multipart_upload_missing_part, multipart_upload_incorrect_etag, multipart_upload_complete_without_create, "
    "abort_multipart_upload_not_found": upload_wrong,
    "abort_multipart_upload": upload_abort,
    "list_multipart_upload, list_multipart_upload_owner": upload_lists,
    "multipart_copy_small, multipart_copy_without_range, multipart_copy_improper_range, multipart_copy_invalid_range, "
    "multipart_copy_special_names, multipart_copy_multiple_sizes, upload_part_copy_percent_encoded_key": part_copies,
    "object_checksum_sha256": checksum_sha256,
    "object_checksum_crc64nvme": checksum_crc64nvme,
    "multipart_checksum_sha256, multipart_reupload_checksum_and_etag, multipart_use_cksum_helper_*":
        multipart_checksums,
    "get_object_attributes, get_checksum_object_attributes": attributes,
    "bucket_list_many, bucket_list_distinct, bucket_list_delimiter_none, bucket_list_prefix_none, "
    "bucket_list_delimiter_empty, bucket_list_prefix_empty, bucket_list_maxkeys_one": list_with(),
    "bucket_list_delimiter_basic": list_with(delimiter="/"),
    "bucket_list_delimiter_alt": list_with(delimiter="o"),
    "bucket_list_delimiter_percentage, bucket_list_delimiter_whitespace, bucket_list_delimiter_dot":
        lambda case: [lists(case, delimiter=d) for d in ("%", " ", ".", "$")],
    "bucket_list_delimiter_prefix, bucket_list_prefix_delimiter_basic": list_with(prefix="boo/", delimiter="/"),
    "bucket_list_delimiter_prefix_ends_with_delimiter": list_with(prefix="asdf", delimiter="/"),
    "bucket_list_delimiter_prefix_underscore": list_with(prefix="z_", delimiter="/"),
    "bucket_list_prefix_basic, bucket_list_prefix_alt": list_with(prefix="b"),
    "bucket_list_prefix_not_exist, bucket_list_delimiter_not_exist, "
    "bucket_list_prefix_delimiter_prefix_not_exist": list_with(prefix="d", delimiter="/"),
    "bucket_list_delimiter_unreadable, bucket_list_prefix_unreadable": list_with(delimiter="\x0a"),
    "bucket_list_maxkeys_zero, bucket_list_maxkeys_invalid, bucket_listv2_startafter_*, bucket_list_marker_*, "
    "bucket_notexist, basic_key_count, bucket_listv2_fetchowner_*": list_edges,
}

NOT_SERVED = {
    "multipart_upload_size_too_small": "parts may have any size",
    "object_copy_to_itself": "a copy to itself is made, and renews the object's time",
    "multipart_get_part, multipart_single_get_part, get_multipart_object_attributes, "
    "get_multipart_checksum_object_attributes": "an object has no parts once its upload is complete",
    "object_write_to_nonexist_bucket, bucket_delete_notexist, object_delete_key_bucket_gone":
        "buckets are not made: each one exists in which the caller may write",
    "delete_object_if_match of an object that is gone": "412, not 204: it does not have the tag",
    "put_object_if_match with a tag in If-None-Match": "501, as in Amazon's S3",
    "bucket_create_naming_*": "buckets have the names of organisations; others are InvalidBucketName (test_s3_put.py)",
    "object_set_get_metadata_*, object_write_cache_control, object_write_expires, object_content_encoding_aws_chunked, "
    "object_copy_retaining_metadata, object_copy_replacing_metadata, object_copy_verify_contenttype":
        "metadata and Content-Type are not kept",
    "expected_bucket_owner": "there are no accounts",
    "delete_objects_if_match_size, delete_objects_if_match_last_modified_time":
        "refused for each key (test_s3_put.py: test_conditions)",
    "bucket_list_objects_anonymous": "without --tokens everybody may list, with it nobody without keys",
    "bucket_list_unordered": "an extension of Ceph's",
    "object_raw_*": "presigned URLs: tests/http/test_s3_tokens.py",
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_case(case, port, tokens, request):
    name = re.sub("[^a-z0-9]+", "-", request.node.callspec.id)[:60].strip("-")
    case(Case(port, tokens, name))


def test_each_case_is_named_once():
    names = [name for text in (*CASES, *NOT_SERVED) for name in text.split(", ")]
    assert sorted(set(names)) == sorted(names)
