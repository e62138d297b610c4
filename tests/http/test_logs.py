"""Request ids, traceparent, and the logs as JSON, with requests that are made to break them."""
import json
import re
from xml.etree import ElementTree

import pytest

from harness import Server, age, tensor, write_by_hand

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OURS = re.compile("[0-9A-F]{16}")
# Values that a client may put into a field or a target, or try to.
HOSTILE = ['x" y="z', "\\", '\\"', "\\u0000", "}{", "caf\u00e9".encode(), b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", "\t",
           b"\xe2\x80\xa8\xe2\x80\xae", "%00%0a", "x" * 3000, "\\" * 3000, b"\xff" * 3000]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("logged")
    write_by_hand(root / "m/model.safetensors", [tensor("w", "F32", [1000])])
    (root / 'bad "\\\n\u00e9').mkdir()
    (root / 'bad "\\\n\u00e9/model.safetensors').write_bytes(b"\xff" * 64)
    for path in list(root.iterdir()):
        age(path)
    return root


def fields(line):
    """The fields of a line of text, with the JSON strings among them decoded."""
    found = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|[^ "]\S*)(?: |$)', line)
    return {k: json.loads(v) if v[0] == '"' else v for k, v in found}


@pytest.mark.parametrize("port, name", [("main", "X-Request-Id"), ("s3", "x-amz-request-id")])
def test_each_answer_has_the_id_of_its_line(start, root, port, name):
    """Of all facades, also of errors, of requests that the guard refuses, and of answers without a body."""
    s = start(root, *(["--s3-listen", "127.0.0.1:0"] if port == "s3" else []))
    if port == "s3":
        s.port = int(re.search(r"S3 clients on http://127\.0\.0\.1:(\d+)", s.stderr())[1])
        asked = [("/", []), ("/m", []), ("/m/model.safetensors", []), ("/nope/x", []), ("/m/nope", [])]
    else:
        asked = [("/models", []), ("/models/m/tensors/w", [("Range", "bytes=0-3")]), ("/nope", []), ("/healthz", []),
                 ("/api/models/m", []), ("/m/resolve/main/nope", []), ("/models", [("If-None-Match", "*")]),
                 ("/models/m/tensors/w", [("Range", "bytes=99999-")]), ("/", [("Accept", "text/html")])]
    ids, sent = [], []
    with s.conn() as c:
        for target, headers in asked:
            ids.append(c.request(target, headers).get(name))
            sent.append(c.request(target, [*headers, ("X-Request-Id", f"my-{len(sent)}")], "HEAD").get(name))
    ids.append(s.get("no-slash").get(name))                         # the guard closes the connection
    assert all(OURS.fullmatch(i) for i in ids) and len(set(ids)) == len(ids), ids
    assert sent == [f"my-{i}" for i in range(len(sent))]
    s.wait_for(lambda: ids[-1] in s.log() and sent[-1] in s.log(), "the last line of each connection")
    logged = [fields(line)["request_id"] for line in s.log().splitlines()]
    assert [i for i in logged if i in ids[:-1] + sent] == [i for pair in zip(ids, sent) for i in pair]
    assert logged.count(ids[-1]) == 1


# shows: security.md log-request-ids
def test_ids_that_are_not_well_formed_are_replaced(start, root):
    s = start(root)
    for taken in ("a", "x" * 128, "7c9e6679-7425-40de-944b-e07fc1f90ae7", "!#$%&()*+,-./:;<=>?@[]^_`{|}~"):
        assert s.get("/version", [("X-Request-Id", taken)]).get("X-Request-Id") == taken
    for bad in ("x" * 129, "a b", 'a"b', "a'b", "a\\b", "\u00e9", ""):
        r = s.get("/version", [("X-Request-Id", bad)])
        assert OURS.fullmatch(r.get("X-Request-Id")), bad
    r = s.get("/version", [("X-Request-Id", "a"), ("X-Request-Id", "a")])
    assert OURS.fullmatch(r.get("X-Request-Id"))


def test_small_ranges_of_one_connection_differ_by_their_ids(start, root):
    """The response object that a connection keeps must not keep the id, whatever its length."""
    s = start(root)
    with s.conn() as c:
        for wanted in (None, "a", "longer-than-the-other", "b" * 79, "c" * 80, "d" * 128, "e", None, None):
            r = c.request("/models/m/tensors/w", [("Range", "bytes=8-11")] +
                          ([("X-Request-Id", wanted)] if wanted else []))
            got = r.get("X-Request-Id")
            assert r.status == 206 and len(r.body) == 4 and len(r.all("X-Request-Id")) == 1
            assert got == wanted if wanted else OURS.fullmatch(got)


def test_an_error_on_the_s3_port_has_the_id_escaped(start, root):
    s = start(root, "--s3-listen", "127.0.0.1:0")
    s.port = int(re.search(r"S3 clients on http://127\.0\.0\.1:(\d+)", s.stderr())[1])
    for sent in ("abc", "a<b>&c;&amp;]]>"):
        r = s.get("/nope/x", [("X-Request-Id", sent)])
        assert r.status == 404 and r.get("x-amz-request-id") == sent and r.get("X-Request-Id") is None
        assert ElementTree.fromstring(r.body).find("RequestId").text == sent


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_valid_traceparent_is_logged(start, root, form):
    s = start(root, "--log-format", form)
    good = f"00-{TRACE}-{PARENT}-01"
    later, never = f"01{good[2:]}-x", f"ff{good[2:]}"
    for i, values in enumerate([[good], [good.upper()], [good, good], [never], [], [later]]):
        s.get(f"/version?{i}", [("traceparent", v) for v in values])
    lines = [json.loads(x) if form == "json" else fields(x) for x in s.whole_log().splitlines()]
    traced = {x["target"]: (x.get("trace"), x.get("parent")) for x in lines if x["target"].startswith("/version")}
    assert traced == {f"/version?{i}": (TRACE, PARENT) if i in (0, 5) else (None, None) for i in range(6)}


def send_hostile(s):
    """Send each text as target, agent, range, id and trace, and return how many requests that were."""
    for i, text in enumerate(HOSTILE):
        raw = text if isinstance(text, bytes) else text.encode()
        with s.conn() as c:
            target = re.sub(rb"[\t ]", b"+", raw)[:3500]
            c.send(b"GET /" + target + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            c.sock.recv(65536)
        with s.conn() as c:
            c.send(b"GET /hostile/%d HTTP/1.1\r\nHost: h\r\nUser-Agent: %b\r\nX-Request-Id: %b\r\ntraceparent: %b\r\n"
                   b"Range: bytes=0-%b\r\nConnection: close\r\n\r\n" % (i, raw, raw[:100], raw[:100], raw[:100]))
            c.sock.recv(65536)
    return 2 * len(HOSTILE)


# shows: security.md log-forgery
def test_every_line_of_json_is_an_object_with_the_fields_of_the_text(start, root):
    """The same requests give the same members in both forms, whatever bytes they have."""
    logs = []
    for form in ("text", "json"):
        s = start(root, "--log-format", form)
        count = send_hostile(s)
        lines = s.whole_log().encode("utf-8", "surrogateescape").decode("utf-8").splitlines()     # valid UTF-8
        read = [json.loads(x) if form == "json" else fields(x) for x in lines]
        assert max(map(len, lines)) < 10000
        hostile = [x for x in read if "seconds" in x and x.get("target") not in ("/readyz", "/hash")]
        hostile = [x for x in hostile if not x["target"].startswith("/log-mark")]
        assert len(hostile) >= count - 3
        for x in hostile:
            assert OURS.fullmatch(x["request_id"]) or x["request_id"] in ("}{", "%00%0a", "x" * 100), x
            assert re.fullmatch(r"\d+\.\d{6}", str(x["seconds"])) or form == "json"
            if form == "json":
                assert {type(x[k]) for k in ("status", "sent", "length")} == {int} and type(x["seconds"]) is float
        moving = {"time", "seconds", "request_id"}
        logs.append(sorted(str([(k, v if isinstance(v, str) else str(v)) for k, v in x.items() if k not in moving])
                           for x in hostile))      # lines of two connections come in any order
    assert logs[0] == logs[1]


def test_the_log_for_operators_as_json(start, root):
    s = start(root, "--log-format", "json", "--log-level", "debug")
    s.wait_for(lambda: "bad " in s.stderr(), "the refused file")
    s.stop()
    lines = [json.loads(x) for x in s.stderr().splitlines()]
    assert all(set(x) == {"time", "level", "message"} for x in lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", x["time"]) for x in lines)
    assert {"info", "warn"} <= {x["level"] for x in lines} <= {"error", "warn", "info", "debug"}
    assert any(x["level"] == "warn" and 'bad "\\\\x0a\u00e9' in x["message"] for x in lines), lines
    assert lines[-1]["message"] == "stopped"


def test_a_start_that_fails_is_an_object_too(tmp_path):
    with pytest.raises(AssertionError, match="ended with 1") as failed:
        Server(tmp_path / "nowhere", "--log-format", "json")
    last = json.loads(str(failed.value).splitlines()[-1])
    assert last["level"] == "error" and "nowhere" in last["message"]
    with pytest.raises(AssertionError, match="ended with 2") as failed:
        Server(tmp_path, "--log-format", "xml")
    assert '--log-format takes text or json, not "xml"' in str(failed.value)


# shows: security.md log-secrets
def test_logs_do_not_show_secrets(start, root):
    """A reader of the log must not be able to use a URL that was signed, here or by a client of S3, or a token that
    somebody put into a URL."""
    s = start(root, "--s3-listen", "127.0.0.1:0")
    main, s3 = s.port, int(re.search(r"S3 clients on http://127\.0\.0\.1:(\d+)", s.stderr())[1])
    s.get("/models?expires=7&signature=ci.secret")
    for mangled in ("?expires=7&amp;signature=", "?expires=7%26signature=", "?expires=7;signature=", "?a?signature=",
                    "%3Fexpires%3D7%26Signature%3d"):
        s.get(f"/models{mangled}ci.secret")
    s.get("/models?a=b&token=secret")
    s.get("/models?key=td_" + "secret-_" + "A" * 35)
    s.port = s3
    s.get("/local?list-type=2&X-Amz-Signature=secret&x=secret")
    s.port = main
    targets = [fields(line)["target"] for line in s.whole_log().splitlines()]
    assert targets.count("/models?expires=7&signature=") == 1
    assert targets.count("/models?a=b&token=") == targets.count("/models?key=") == 1
    assert targets.count("/local?list-type=2&X-Amz-Signature=") == 1
    assert "secret" not in s.whole_log() + s.stderr()
