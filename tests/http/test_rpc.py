"""The services of tensord.v1 over HTTP/1.1, by Connect (https://connectrpc.com/docs/protocol), gRPC-Web and gRPC
(PROTOCOL-WEB.md and PROTOCOL-HTTP2.md of gRPC), against REST and google.protobuf."""
import json
import re
import shutil
import struct
import subprocess
import sys
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness import REPO, Server, enc, tensor, write_by_hand
from rpc_kit import Rpc, Schema, connect_error, frame, grpc_error, rest_message, web_error
from signing import TokensFile

PROTOS = REPO / "api/proto"


@pytest.fixture(scope="module")
def rpc(srv):
    return Rpc(srv)


def ids(srv, path, kind):
    return [row["id"] for row in srv.get(path).json()[kind]]


def check_equal(rpc, method, fields, target, different=()):
    """Each protocol and codec gives the same message, and REST's JSON is that message."""
    r = rpc.srv.get(target)
    assert r.status == 200, r
    want = rest_message(rpc.schema.output(method), r.body)
    for name, (_, message) in rpc.answers(method, fields).items():
        for field in different:
            message.ClearField(field)
            want.ClearField(field)
        assert message == want, f"{method} {fields} by {name}"
    return want


# ---- the same as REST ----------------------------------------------------------------------------------


def test_lists(rpc):
    check_equal(rpc, "ListModels", {}, "/models")
    check_equal(rpc, "ListModels", {"match": "*a*"}, "/models?match=*a*")
    check_equal(rpc, "ListDatasets", {}, "/datasets")
    token, seen = "", []
    while True:
        target = "/models?page_size=7" + (f"&page_token={token}" if token else "")
        page = check_equal(rpc, "ListModels", {"pageSize": 7, "pageToken": token}, target)
        seen += [model.id for model in page.models]
        token = page.next_page_token
        if not token:
            break
    assert seen == ids(rpc.srv, "/models", "models")


def test_models_manifests_and_rank_files(rpc):
    """Of every model of the tree: what is an error in REST is the same error by RPC."""
    served = 0
    for model in ids(rpc.srv, "/models", "models"):
        check_equal(rpc, "GetModel", {"model": model}, f"/models/{enc(model)}")
        for path, method, fields in (("tensors?page_size=1000", "GetManifest", {}),
                                     ("tensors?page_size=10&match=*w*", "GetManifest",
                                      {"pageSize": 10, "match": "*w*"}),
                                     ("shards/none/tp2/rank-1.json", "GetRankFile",
                                      {"engine": "none", "tpSize": 2, "tpRank": 1})):
            target = f"/models/{enc(model)}/{path}"
            r = rpc.srv.get(target)
            if r.status == 200:
                served += 1
                check_equal(rpc, method, {"model": model, **fields}, target)
                continue
            answer = rpc.post(method, rpc.schema.request(method, {"model": model, **fields}).SerializeToString(),
                              "application/proto")
            code, message = connect_error(rpc.schema, answer)
            assert (code.upper(), message) == (r.json()["error"]["status"], r.json()["error"]["message"]), target
    assert served > 50


def test_checkpoints_types_and_pages(start, tmp_path):
    tensors = [tensor(f"w{i}", "F32", (i,)) for i in range(5)]
    write_by_hand(tmp_path / "m/model.safetensors", tensors)
    np.savez(tmp_path / "m/weights.npz", **{f"v{i}": np.zeros(i, np.float32) for i in range(5)}, other=np.zeros(2))
    rpc = Rpc(start(tmp_path))
    checkpoints = rpc.srv.get("/models/m").json()["checkpoints"]
    assert len(checkpoints) == 2
    for checkpoint in checkpoints:
        fields = {"model": "m", "checkpoint": checkpoint["id"], "pageSize": 2, "dtype": "F32"}
        target = f"/models/m/tensors?checkpoint={enc(checkpoint['id'])}&page_size=2&dtype=F32"
        page = check_equal(rpc, "GetManifest", fields, target)
        assert page.matched_count == 5 and len(page.tensors) == 2
        token = page.next_page_token
        page = check_equal(rpc, "GetManifest", {**fields, "pageToken": token}, f"{target}&page_token={token}")
        assert page.next_page_token


def test_datasets(start, tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/train.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (tmp_path / "rows/test.csv").write_text("a,b\n1,2\n")
    rpc = Rpc(start(tmp_path))
    rpc.srv.wait_for(lambda: {split["index"]["state"] for split in rpc.srv.json("/datasets/rows")["splits"]}
                     == {"ready"}, "the rows are counted")
    check_equal(rpc, "GetDataset", {"dataset": "rows"}, "/datasets/rows")
    check_equal(rpc, "GetDataset", {"dataset": "rows", "fileStart": "1"}, "/datasets/rows?file_start=1")


def test_plans(rpc):
    """A plan by RPC has the id of the same JSON without members at their defaults, and every member gets through."""
    rule = {"match": "model.**", "slot": 3, "dim": -1, "groups": 1, "pack": 1, "pad_to": 1, "uneven": "chunk",
            "parts": [{"count": 2, "unit": 1, "replicate": True}, {"unit": 2}]}
    plans = [
        {"tp_size": 2, "rules": [{"match": "**", "whole": True}]},
        {"engine": "none", "tp_size": 2},
        {"ranks": [{"tensors": [{"name": "model.norm.weight", "as": "x"}]}]},
        {"boxes": [{"name": "model.norm.weight"}, {"name": "model.norm.weight", "slice": "0:2"}]},
        {"tp_size": 1, "rules": [rule, {"match": "**", "whole": True}]},
    ]
    for plan in plans:
        r = rpc.srv.post("/models/plain/plans", plan)
        asked = rpc.schema.request("RegisterPlan", {"model": "plain", **plan})
        answer = rpc.post("RegisterPlan", asked.SerializeToString(), "application/proto")
        if r.status >= 400:
            assert connect_error(rpc.schema, answer)[1] == r.json()["error"]["message"]
            continue
        want = rest_message(rpc.schema.message("Plan"), r.body)
        assert rpc.schema.message("Plan").FromString(answer.body) == want and answer.get("Location") is None
        check_equal(rpc, "GetPlan", {"model": "plain", "plan": want.id}, f"/models/plain/plans/{want.id}")
        if "boxes" not in plan:
            check_equal(rpc, "GetRankFile", {"model": "plain", "plan": want.id},
                        f"/models/plain/plans/{want.id}/rank-0.json")
    default = rpc.srv.post("/models/plain/plans", {"tp_size": 1, "rules": [{"match": "**", "whole": True}]}).json()
    spelled = {"model": "plain", "tpSize": 1, "rules": [{"match": "**", "whole": True, "dim": 0, "drop": False,
                                                        "out": "", "uneven": ""}]}
    for r, message in rpc.answers("RegisterPlan", spelled).values():
        assert message.id == default["id"]


def test_constants_and_turns(rpc):
    """Extents of all kinds: those of rules with a constant and of runs that take turns."""
    plan = {"tp_size": 2, "rules": [{"match": "model.norm.weight", "out": "scale", "constant": 0.1},
                                    {"match": "**", "dim": 0, "uneven": "chunk", "pad_to": 64}]}
    made = rpc.srv.post("/models/plain/plans", plan)
    assert made.status in (200, 201), made
    want = check_equal(rpc, "GetRankFile", {"model": "plain", "plan": made.json()["id"], "tpRank": 1},
                       f"/models/plain/plans/{made.json()['id']}/rank-1.json")
    assert any(extent.HasField("constant") for tensor in want.tensors for extent in tensor.extents)


def test_the_server(rpc):
    check_equal(rpc, "GetVersion", {}, "/version")
    check_equal(rpc, "GetReadiness", {}, "/readyz", different=("scan",))
    answer = rpc.post("Rescan", b"", "application/proto")
    report = rpc.schema.message("RescanResponse").FromString(answer.body)
    assert report.complete and report.models == len(ids(rpc.srv, "/models", "models"))


def test_versions(start, tmp_path):
    for number in (1, 2):
        write_by_hand(tmp_path / f"run/step-{number}/model.safetensors", [tensor("w", "F32", (number,))])
    rpc = Rpc(start(tmp_path))
    check_equal(rpc, "ListVersions", {"model": "run"}, "/models/run/versions")
    check_equal(rpc, "GetModel", {"model": "run", "version": "latest"}, "/models/run?version=latest")
    check_equal(rpc, "GetManifest", {"model": "run", "version": "step-1"},
                "/models/run/tensors?version=step-1&page_size=1000")
    check_equal(rpc, "GetRankFile", {"model": "run", "version": "latest", "engine": "none", "tpSize": 1},
                "/models/run/shards/none/tp1/rank-0.json?version=latest")


def test_config_and_metadata(start, tmp_path):
    """A Struct has what JSON says, but for what no Struct holds."""
    def deep(levels):
        return "[" * (levels - 1) + "1" + "]" * (levels - 1)

    configs = {"plain": '{"a": [1, 2.5, -3e2, null, true, "\\u00e9\\ud83d\\ude00\\n\\u0000"], "b": {"c": {}, "d": []}}',
               "deepest": '{"a": %s}' % deep(30), "too-deep": '{"a": %s}' % deep(31), "list": "[1]",
               "huge": '{"a": 1e999}',
               "big": '{"a": 9007199254740993}'}
    for name, config in configs.items():
        write_by_hand(tmp_path / f"{name}/model.safetensors", [tensor("w", "F32", (1,))], metadata={"k": '"v" \u00e9'})
        (tmp_path / name / "config.json").write_text(config)
    rpc = Rpc(start(tmp_path))
    for name in configs:
        answers = rpc.answers("GetModel", {"model": name})
        messages = [message for _, message in answers.values()]
        assert all(message == messages[0] for message in messages)
        assert messages[0].HasField("config") == (name in ("plain", "deepest", "big")), name
    for name in ("plain", "deepest", "big"):
        check_equal(rpc, "GetModel", {"model": name}, f"/models/{name}")
    check_equal(rpc, "GetManifest", {"model": "plain"}, "/models/plain/tensors?page_size=1000")


# ---- requests -------------------------------------------------------------------------------------------


def test_masks(rpc):
    whole = rpc.srv.get("/models/plain").json()
    for mask in ("id,fileCount,totalBytes", "*", ""):
        for r, message in rpc.answers("GetModel", {"model": "plain", "readMask": mask} if mask != "*" else
                                      {"model": "plain"}).values():
            if mask in ("*", ""):
                assert message.checkpoints
                continue
            assert (message.id, message.file_count, message.total_bytes) == ("plain", whole["file_count"],
                                                                           whole["total_bytes"])
            assert [field.name for field, _ in message.ListFields()] == ["id", "file_count", "total_bytes"]
    for _, message in rpc.answers("GetManifest", {"model": "plain", "readMask": "tensorCount"}).values():
        assert [field.name for field, _ in message.ListFields()] == ["tensor_count"]
    star = rpc.post("GetModel", b'{"model": "plain", "readMask": "*"}', "application/json")
    assert json.loads(star.body)["checkpoints"]
    wrong = rpc.post("GetModel", b'{"model": "plain", "readMask": "id,noSuch"}', "application/json")
    assert connect_error(rpc.schema, wrong) == ("invalid_argument",
                                                'read_mask: tensord.v1.Model has no field "no_such"')


def test_page_sizes(rpc):
    count = len(ids(rpc.srv, "/models", "models"))
    for size in (0, 10001, 2**31 - 1):
        for _, message in rpc.answers("ListModels", {"pageSize": size}).values():
            assert len(message.models) == count
    r = rpc.post("ListModels", b'{"pageSize": -1}', "application/json")
    assert connect_error(rpc.schema, r) == ("invalid_argument", "page_size must not be negative")


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"1", b'{"model": 1}', b'{"model": "a", "model": "b"}', b'{"readMask": 1}', b"{} {}",
    b'{"model": "\\ud800"}', b'{"model": "a\xff"}', b'{"pageSize": "x"}', b'{"pageSize": 1.5}',
    b'{"pageSize": 2147483648}',
    b'{"partial": "true"}', b'{"partial": 1}', b'{"match": ["a"]}', b'{"pageSize": 1, "page_size": 1}'])
def test_json_that_is_no_request(rpc, body):
    """json_format refuses each of these, too, but for a string that stands where GetManifest has none."""
    r = rpc.post("GetManifest", body, "application/json")
    assert r.status == 400 and connect_error(rpc.schema, r)[0] == "invalid_argument"


@pytest.mark.parametrize("body", [
    b'{"pageSize": "2"}', b'{"pageSize": 2}', b'{"page_size": 2.0}', b'{"pageSize": 2e0}', b'{"pageSize": 20e-1}',
    b' {"pageSize":2, "noSuchField": [{"a": [1]}, "]"] } ', b'{"pageSize": 2, "match": null}'])
def test_json_of_other_spellings(rpc, body):
    r = rpc.post("ListModels", body, "application/json")
    assert len(json.loads(r.body)["models"]) == 2


@pytest.mark.parametrize("body", [
    b"\x0a", b"\x0a\x05ab", b"\x0a\x02\xff\xfe", b"\x08\x01", b"\x0b", b"\x0c", b"\x00\x01", b"\x07", b"\x38",
    b"\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x0a\xff\xff\xff\xff\x0f", b"\xf8\x01", b"\x3d\x01\x02"])
def test_bytes_that_are_no_request(rpc, body):
    """Cut numbers and lengths, wrong wire types, groups, texts that are not UTF-8."""
    r = rpc.post("GetManifest", body, "application/proto")
    assert r.status == 400 and connect_error(rpc.schema, r)[0] == "invalid_argument", body


def test_bytes_of_other_spellings(rpc):
    """Unknown fields are passed over, and of a field that stands twice the last value counts."""
    unknown = b"\xa0\x06\x05" + b"\xa2\x06\x03abc" + b"\xa5\x06abcd" + b"\xa1\x06abcdefgh"
    r = rpc.post("GetModel", b"\x0a\x03bad" + unknown + b"\x0a\x05plain", "application/proto")
    assert rpc.schema.message("Model").FromString(r.body).id == "plain"
    cut = rpc.schema.message("ListModelsRequest").FromString(b"\x08\x82\x80\x80\x80\x10")  # 2 + 2^32 in an int32
    r = rpc.post("ListModels", b"\x08\x82\x80\x80\x80\x10", "application/proto")
    assert len(rpc.schema.message("ListModelsResponse").FromString(r.body).models) == cut.page_size == 2


def test_ids_that_are_paths(rpc):
    """A model's id never leads to something else of its path."""
    for bad in ("plain/tensors", "plain/tensors/model.norm.weight", "plain/files/config.json", "plain/", "plain?x",
                "..",
                "plain/plans/x", "/plain", "plain/view/tensors", "plain\n"):
        request = rpc.schema.request("GetModel", {"model": bad})
        r = rpc.post("GetModel", request.SerializeToString(), "application/proto")
        if r.status == 200:
            assert rpc.schema.message("Model").FromString(r.body).id == "plain", bad
        else:
            assert r.status == 404, (bad, r)
    for method in ("GetModel", "GetManifest", "GetRankFile", "RegisterPlan", "GetPlan", "ListVersions"):
        r = rpc.post(method, b"", "application/proto")
        assert connect_error(rpc.schema, r) == ("invalid_argument", 'the field "model" must have a value')


def test_paths_lead_to_no_other_handler(start, tmp_path):
    """Neither to one that publishes, with the body of a call, nor to bytes of files."""
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", (4,))])
    rpc = Rpc(start(tmp_path, "--publish", "local"))
    plan = {"tpSize": 1, "rules": [{"match": "**", "whole": True}]}
    digest = "sha256:" + "0" * 64
    for model in ("m/blobs", "m/commits", "m/blobs/x", f"m/blobs/{digest}", "m/files", "m/files/x", "new", "new/blobs"):
        asked = rpc.schema.request("RegisterPlan", {"model": model, **plan})
        r = rpc.post("RegisterPlan", asked.SerializeToString(), "application/proto")
        assert r.status == 404, (model, r)
    known = next(message.id for _, message in rpc.answers("RegisterPlan", {"model": "m", **plan}).values())
    for name in (f"{known}/rank-0.safetensors", f"{known}/rank-0.json", "/", f"{known}/"):
        asked = rpc.schema.request("GetPlan", {"model": "m", "plan": name})
        r = rpc.post("GetPlan", asked.SerializeToString(), "application/proto")
        assert connect_error(rpc.schema, r) == ("invalid_argument", 'the field "plan" must not contain "/"')
    for fields in ({"engine": "none/tp1/rank-0.safetensors", "tpSize": 1}, {"engine": "none/tp1", "tpSize": 1}):
        asked = rpc.schema.request("GetRankFile", {"model": "m", **fields})
        assert rpc.post("GetRankFile", asked.SerializeToString(), "application/proto").status == 400
    for model in (f"m/plans/{known}/rank-0.safetensors", "m/model.safetensors", "m/tensors/w",
                  "m/files/model.safetensors", f"m/plans/{known}"):
        asked = rpc.schema.request("GetModel", {"model": model})
        assert rpc.post("GetModel", asked.SerializeToString(), "application/proto").status == 404, model


# ---- the protocols --------------------------------------------------------------------------------------


def test_errors(rpc):
    """Codes, statuses and messages of the same errors, as the table of Connect's protocol has them."""
    cases = [("GetModel", {"model": "no-such"}, 404, "not_found", 5, "/models/no-such"),
             ("GetManifest", {"model": "plain", "dtype": "X"}, 400, "invalid_argument", 3,
              "/models/plain/tensors?dtype=X"),
             ("GetManifest", {"model": "plain", "checkpoint": "x"}, 404, "not_found", 5,
              "/models/plain/tensors?checkpoint=x"),
             ("GetRankFile", {"model": "plain", "engine": "none", "tpSize": 2, "tpRank": 2}, 404, "not_found", 5,
              "/models/plain/shards/none/tp2/rank-2.json")]
    for method, fields, status, word, number, target in cases:
        message = rpc.srv.get(target).json()["error"]["message"]
        request = rpc.schema.request(method, fields)
        for r in (rpc.post(method, request.SerializeToString(), "application/proto"), rpc.get(method, request)):
            assert r.status == status and connect_error(rpc.schema, r) == (word, message)
        r = rpc.post(method, frame(request.SerializeToString()), "application/grpc-web+proto")
        assert web_error(r) == (number, message) and r.get("Content-Type") == "application/grpc-web+proto"
        r = rpc.post(method, frame(request.SerializeToString()), "application/grpc")
        assert grpc_error(r) == (number, message) and r.get("Content-Type") == "application/grpc+proto"


def test_methods_and_types(rpc):
    path = rpc.schema.path("GetModel")
    r = rpc.srv.post(path, b"", {"Content-Type": "text/plain"})
    assert r.status == 415 and "application/grpc-web+proto" in r.get("Accept-Post")
    assert rpc.srv.post(path, b"{}", {"Content-Type": "application/json; charset=latin1"}).status == 415
    ok = rpc.srv.post(path, b'{"model": "plain"}', {"Content-Type": "application/json; charset=utf-8"})
    assert ok.status == 200
    r = rpc.srv.get(rpc.schema.path("Rescan"))
    assert r.status == 405 and r.get("Allow") == "POST" and connect_error(rpc.schema, r)[0] == "unknown"
    assert rpc.srv.request(path, method="PUT").status == 405
    for bad in ("/tensord.v1.ModelService/NoSuch", "/tensord.v1.NoSuch/GetModel",
                "/tensord.v1.ModelService/GetModel/x"):
        r = rpc.srv.post(bad, b"", {"Content-Type": "application/proto"})
        assert r.status == 404 and connect_error(rpc.schema, r)[0] == "unimplemented"
        r = rpc.srv.post(bad, frame(b""), {"Content-Type": "application/grpc-web"})
        assert web_error(r)[0] == 12
        assert grpc_error(rpc.srv.post(bad, frame(b""), {"Content-Type": "application/grpc"}))[0] == 12


def test_frames(rpc):
    request = rpc.schema.request("GetModel", {"model": "plain"}).SerializeToString()
    for body, number in ((b"", 12), (frame(request) * 2, 12), (frame(request)[:-1], 3), (frame(request)[:3], 3),
                         (frame(request, flags=1), 13), (frame(request, flags=2), 3),
                         (b"\0\xff\xff\xff\xff" + request, 3)):
        r = rpc.post("GetModel", body, "application/grpc-web+proto")
        assert web_error(r)[0] == number, body
        assert grpc_error(rpc.post("GetModel", body, "application/grpc"))[0] == number, body


def test_queries_of_get(rpc):
    path = rpc.schema.path("GetModel")
    message = urllib.parse.quote('{"model":"plain"}')
    for query in (f"connect=v1&encoding=json&message={message}&other=1", f"message={message}&encoding=json",
                  f"encoding=json&compression=identity&message={message}",
                  "encoding=proto&base64=1&message=CgVwbGFpbg==",
                  "encoding=proto&base64=1&message=CgVwbGFpbg", "encoding=proto&message=%0A%05plain"):
        assert rpc.srv.get(f"{path}?{query}").status == 200, query
    for query in ("", f"connect=v2&encoding=json&message={message}", f"encoding=xml&message={message}", "encoding=json",
                  f"message={message}", "encoding=proto&base64=1&message=!", "encoding=json&message=x"):
        r = rpc.srv.get(f"{path}?{query}")
        assert r.status == 400 and connect_error(rpc.schema, r)[0] == "invalid_argument", query
    r = rpc.srv.get(f"{path}?encoding=json&compression=br&message={message}")
    assert r.status == 501 and connect_error(rpc.schema, r)[0] == "unimplemented"


def test_entity_tags(start, tmp_path):
    """A GET is answered with 304 where REST is, and a POST never; when the files are hashed, the tags are REST's."""
    write_by_hand(tmp_path / "plain/model.safetensors", [tensor("w", "F32", (1,))])
    srv = start(tmp_path, hash_threads=1)
    srv.wait_hashed()
    rpc = Rpc(srv)
    request = rpc.schema.request("GetModel", {"model": "plain"})
    tag = rpc.get("GetModel", request).get("ETag")
    assert tag == rpc.srv.get("/models/plain").get("ETag")
    page = rpc.schema.request("GetManifest", {"model": "plain"})
    assert rpc.get("GetManifest", page).get("ETag") == srv.get("/models/plain/tensors?page_size=1000").get("ETag")
    r = rpc.get("GetModel", request, headers={"If-None-Match": tag})
    assert r.status == 304 and not r.body
    assert rpc.get("GetModel", request, headers={"If-None-Match": '"x"'}).status == 200
    r = rpc.post("GetModel", request.SerializeToString(), "application/proto",
                 {"If-None-Match": tag, "Range": "bytes=0-1"})
    assert r.status == 200 and r.get("ETag") == tag and len(r.body) > 2
    r = rpc.get("GetModel", request, headers={"Range": "bytes=0-1"})
    assert r.status == 200 and r.get("Accept-Ranges") is None


def test_deadlines(rpc):
    body = rpc.schema.request("GetModel", {"model": "plain"}).SerializeToString()
    for value in ("1000", "0000000001", "9999999999"):
        assert rpc.post("GetModel", body, "application/proto", {"Connect-Timeout-Ms": value}).status == 200
    for value in ("", "x", "-1", "1.5", "10000000000000", "1S"):
        r = rpc.post("GetModel", body, "application/proto", {"Connect-Timeout-Ms": value})
        assert r.status == 400 and connect_error(rpc.schema, r)[0] == "invalid_argument", value
    for value in ("1S", "99999999H", "5m", "7n"):
        for kind in ("application/grpc-web", "application/grpc"):
            assert rpc.post("GetModel", frame(body), kind, {"grpc-timeout": value}).get("grpc-status") is None
    for value in ("1", "S", "123456789S", "1X", "-1S"):
        assert web_error(rpc.post("GetModel", frame(body), "application/grpc-web", {"grpc-timeout": value}))[0] == 3
    r = rpc.post("GetModel", body, "application/proto", {"Connect-Protocol-Version": "2"})
    assert r.status == 400 and connect_error(rpc.schema, r)[0] == "invalid_argument"
    assert rpc.post("GetModel", body, "application/proto", {"Connect-Protocol-Version": "1"}).status == 200


def test_refusals_before_routing(srv, rpc):
    """The form of the call, also where no handler sees the request."""
    r = rpc.post("GetModel", b"", "application/proto", {"X-Long": "x" * 17000})
    assert r.status == 429 and connect_error(rpc.schema, r)[0] == "resource_exhausted"
    r = srv.request(rpc.schema.path("GetModel"), method="POST",
                    headers={"Content-Type": "application/grpc-web+proto", "Content-Length": str(1 << 30)})
    assert web_error(r)[0] == 8
    r = rpc.post("GetModel", b"", "application/grpc", {"X-Long": "x" * 17000})
    assert grpc_error(r)[0] == 8


def test_trailers_leave_the_connection_open(srv, rpc):
    """Calls of gRPC on one connection, with answers and with the longest errors: a name of 1,000 bytes, which is a
    field of 3,000, among fields as long as a request may have."""
    body = frame(rpc.schema.request("GetModel", {"model": "plain"}).SerializeToString())
    bad = frame(rpc.schema.request("GetModel", {"model": "é" * 500}).SerializeToString())
    kind = {"Content-Type": "application/grpc", "X-Long": "x" * 7900}
    with srv.conn() as c:
        for _ in range(3):
            r = c.request(rpc.schema.path("GetModel"), kind, "POST", body=body)
            assert r.trailers == {"grpc-status": "0"}
            number, message = grpc_error(c.request(rpc.schema.path("GetModel"), kind, "POST", body=bad))
            assert number == 5 and "é" * 50 in message


def test_the_log_counts_messages_without_their_framing(start, tmp_path):
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", (1,))])
    s = start(tmp_path)
    rpc = Rpc(s)
    body = frame(rpc.schema.request("GetModel", {"model": "m"}).SerializeToString())
    with s.conn() as c:
        answers = [c.request(rpc.schema.path("GetModel"), {"Content-Type": "application/grpc"}, "POST", body=body)
                   for _ in range(5)]
    lines = [line for line in s.whole_log().splitlines() if "route=rpc_get_model" in line]
    assert [int(re.search(r" sent=(\d+)", line)[1]) for line in lines] == [len(r.body) for r in answers]


def test_hidden_models_and_tokens(place):
    write_by_hand(place / "root/a/model.safetensors", [tensor("w", "F32", (1,))])
    write_by_hand(place / "root/b/model.safetensors", [tensor("w", "F32", (1,))])
    tokens = TokensFile(place / "tokens")
    tokens.add("reader", models=["a"])
    s = Server(place / "root", "--tokens", str(tokens), hash_threads=0)
    try:
        path = "/tensord.v1.ModelService/GetModel"
        bearer = {**tokens.bearer("reader"), "Content-Type": "application/json"}
        assert s.post(path, b'{"model": "a"}', bearer).status == 200
        hidden, missing = (s.post(path, json.dumps({"model": name}).encode(), bearer) for name in ("b", "c"))
        assert hidden.status == missing.status == 404
        assert hidden.body.replace(b'\\"b\\"', b'\\"c\\"') == missing.body
        r = s.post(path, b'{"model": "a"}', {"Content-Type": "application/json"})
        assert r.status == 401 and "Bearer" in r.get("WWW-Authenticate") and r.json()["code"] == "unauthenticated"
        r = s.post(path, frame(b"\x0a\x01a"), {"Content-Type": "application/grpc-web"})
        assert web_error(r)[0] == 16
        r = s.post("/tensord.v1.ServerService/GetReadiness", b"{}", {"Content-Type": "application/json"})
        assert r.status == 200 and ("scan" in r.json()) == ("scan" in s.get("/readyz").json())
    finally:
        s.stop()


def test_a_page_of_another_site(rpc):
    """A change is refused; what only reads is not, since a page cannot read the answer without CORS."""
    other = {"Origin": "http://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
    r = rpc.post("Rescan", b"", "application/proto", other)
    assert r.status == 403 and connect_error(rpc.schema, r)[0] == "permission_denied"
    body = rpc.schema.request("GetModel", {"model": "plain"}).SerializeToString()
    assert rpc.post("GetModel", body, "application/proto", other).status == 200


def test_metrics_and_log_name_the_method(start, tmp_path):
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", (1,))])
    s = start(tmp_path)
    rpc = Rpc(s)
    rpc.answers("GetModel", {"model": "m"})
    rpc.post("GetModel", b'{"model": "x"}', "application/json")

    def counted(code):
        return sum(value for name, labels, value in s.metrics()[2] if name == "tensord_http_requests_total"
                   and labels["route"] == "rpc_get_model" and labels["code"] == code)

    s.wait_for(lambda: (counted("200"), counted("404")) == (8, 1), "all calls are counted")


def test_long_manifests_come_in_pages(start, tmp_path):
    """No message is longer than 3 MiB, whatever page_size says; the pages together are the manifest."""
    names = [f"{i:06d}." + "x" * 900 for i in range(9000)]
    write_by_hand(tmp_path / "m/model.safetensors", [tensor(name, "U8", (1,)) for name in names])
    rpc = Rpc(start(tmp_path))
    seen, token, pages = [], "", 0
    while pages == 0 or token:
        request = rpc.schema.request("GetManifest", {"model": "m", "pageSize": 10000, "pageToken": token})
        r = rpc.post("GetManifest", request.SerializeToString(), "application/proto")
        assert r.status == 200 and len(r.body) < 3 * 1024 * 1024
        page = rpc.schema.message("Manifest").FromString(r.body)
        seen += [tensor.name for tensor in page.tensors]
        token, pages = page.next_page_token, pages + 1
    assert seen == names and pages > 3


# ---- the schema -----------------------------------------------------------------------------------------


def test_the_served_schema_is_the_compiled_one(rpc, tmp_path):
    protos = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("tensord/v1/*.proto"))
    out = tmp_path / "set"
    subprocess.run(["protoc", "-I", PROTOS, "--include_imports", f"--descriptor_set_out={out}", *protos], check=True)
    assert Schema(out.read_bytes()).set == rpc.schema.set


def test_http_yaml_names_paths_of_the_contract(srv, rpc):
    document = srv.get("/openapi.json").json()
    known = {(verb, re.sub(r"\{\w+\}", "{}", path)) for path, item in document["paths"].items() for verb in item}
    rules = yaml.safe_load((PROTOS / "tensord/v1/http.yaml").read_text())["http"]["rules"]
    for rule in rules:
        verb = "get" if "get" in rule else "post"
        assert (verb, re.sub(r"\{[^}]+\}", "{}", rule[verb])) in known, rule
        service, method = rule["selector"].removeprefix("tensord.v1.").split(".")
        assert rpc.schema.path(method) == f"/tensord.v1.{service}/{method}"
    streams = {name for name, method in rpc.schema.methods.items() if method.server_streaming}
    named = {rule["selector"].rsplit(".", 1)[1] for rule in rules}
    assert named == rpc.schema.methods.keys() - streams - {"GetRankFile"}


def test_openapi_and_the_schema_agree(srv, rpc):
    """Each property of the contract's schemas has a field of the same name and of a type that fits."""
    schemas = srv.get("/openapi.json").json()["components"]["schemas"]
    pairs = {"ModelEntry": "Model", "CheckpointEntry": "Checkpoint", "FileEntry": "File", "Problem": "Problem",
             "Upstream": "Upstream", "Manifest": "Manifest", "Tensor": "Tensor", "ShardFile": "RankFile",
             "Extent": "Extent", "Zeros": "Extent", "Constant": "Extent", "Turns": "Extent", "Plan": "Plan",
             "Output": "Output", "Dataset": "Dataset", "Split": "Split", "Version": "Version", "Readiness": "Readiness",
             "Rescan": "RescanResponse", "Rule": "Rule", "PlanItem": "TensorPart", "Box": "Box",
             "PlanSpec": "RegisterPlanRequest", "VersionList": "ListVersionsResponse", "VersionEntry": "ModelVersion",
             "ModelList": "ListModelsResponse", "DatasetList": "ListDatasetsResponse"}
    integers = {"uint64": {"uint64", "uint32"}, "int64": {"uint64"}, None: {"uint64", "uint32", "int32"}}
    kinds = {1: "double", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 11: "message", 12: "bytes", 13: "uint32"}

    def resolve(node):
        while "$ref" in node or "allOf" in node:
            if "$ref" in node:
                node = {**schemas[node["$ref"].rsplit("/", 1)[1]], **{k: v for k, v in node.items() if k != "$ref"}}
            elif len(node["allOf"]) == 1:
                node = {**resolve(node["allOf"][0]), **{k: v for k, v in node.items() if k != "allOf"}}
            else:
                break
        return node

    for schema, message in pairs.items():
        fields = rpc.schema.message(message).DESCRIPTOR.fields_by_name
        for name, node in resolve(schemas[schema])["properties"].items():
            node, field = resolve(node), fields[name]
            is_list = node.get("type") == "array"
            kind = kinds[field.type]
            assert field.is_repeated == is_list, (schema, name)
            item = resolve(node.get("items", {})) if is_list else node
            where = (schema, name, item, kind)
            if item.get("format") == "date-time":
                assert field.message_type.full_name == "google.protobuf.Timestamp", where
            elif item.get("type") == "integer":
                assert kind in integers[item.get("format")], where
            elif item.get("type") in ("string", "boolean", "number"):
                assert kind == {"string": "string", "boolean": "bool", "number": "double"}[item["type"]], where
            else:
                assert kind == "message", where
            if item.get("nullable") and not is_list:
                assert field.has_presence, where


def test_buf_finds_nothing():
    buf = shutil.which("buf", path=str(Path(sys.executable).parent))
    assert buf, "the package buf-bin of tests/requirements.txt is missing"
    r = subprocess.run([buf, "lint", str(PROTOS)], capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
