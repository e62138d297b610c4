"""Plans of boxes: boxes.bin is the bytes of parts of tensors back to back, compared with those of NumPy."""
import json
import random

import gguf
import numpy as np
import pytest

from harness import age, check_error, parse_multipart, pattern, tensor, write_by_hand

SHAPES = {"t0": [], "t1": [17], "t2": [12, 10], "t3": [5, 6, 7], "empty": [4, 0, 3]}
ROWS = 64
JSON = "application/json"


def array(name):
    return np.frombuffer(pattern(4 * int(np.prod(SHAPES[name], dtype=int)), name), "<u4").reshape(SHAPES[name])


def big():
    return np.arange(24 * 36, dtype=">i4").reshape(24, 36)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("boxes")
    ts = [tensor(n, "F32", s) for n, s in SHAPES.items()] + [tensor("wide", "F32", [2048, ROWS])]
    write_by_hand(root / "m" / "model.safetensors", ts, {"format": "pt"})
    write_by_hand(root / "m" / "other.safetensors", [tensor("t1", "F32", [17], salt="other")])
    (root / "npy").mkdir()
    np.save(root / "npy" / "big.npy", big())
    np.savez_compressed(root / "npy" / "packed.npz", x=big().astype("<i4"))
    (root / "gguf").mkdir()
    writer = gguf.GGUFWriter(root / "gguf" / "q.gguf", "llama")
    values = np.random.default_rng(3).standard_normal((6, 64)).astype(np.float32)
    writer.add_tensor("q", gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    from harness import Server
    s = Server(root, hash_threads=0)
    yield s
    s.stop()


def plan(srv, boxes, model="m", query="", **others):
    """Register boxes, given as names or (name, slice)."""
    boxes = [{"name": b} if isinstance(b, str) else {"name": b[0], "slice": b[1]} for b in boxes]
    r = srv.post(f"/models/{model}/plans{query}", {"boxes": boxes, **others}, timeout=120)
    assert r.status in (200, 201), r
    return r.json()


def check_file(srv, answer, want):
    """Check the answer to a registration and the file that it names."""
    (file,) = answer["ranks"]
    assert file["rank"] == 0 and file["nbytes"] == len(want), answer
    r = srv.get(file["href"])
    assert r.status == 200 and r.body == want, f"{file['href']}: {r}"
    assert r.etag == f'"{file["etag"]}"' and r.length == len(want)
    assert r.get("Content-Type") == "application/octet-stream" and r.get("Accept-Ranges") == "bytes"
    h = srv.head(file["href"])
    assert h.status == 200 and h.etag == r.etag and h.length == len(want)
    return file


BOXES = [("t3", "1:3,:,2:5"), "t1", ("t2", ":,7"), ("t1", "0:0"), "t0", ("t3", "4,5,6"), "empty", ("t2", "-3:"),
         ("t2", ":,7"), "t1", ("t0", "...")]


def wanted(boxes):
    def one(box):
        if isinstance(box, str):
            return array(box)
        return eval(f"x[{box[1]}]", {"x": array(box[0])})  # noqa: S307  texts of this file
    return b"".join(one(b).tobytes() for b in boxes)


def test_bytes_are_numpys(srv):
    answer = plan(srv, BOXES)
    assert set(answer) == {"id", "model", "checkpoint", "tp_size", "ranks"}  # "outputs" might be huge
    assert answer["model"] == "m" and answer["checkpoint"] == "safetensors" and answer["tp_size"] == 1
    file = check_file(srv, answer, wanted(BOXES))
    assert file["href"] == f"/models/m/plans/{answer['id']}/boxes.bin"
    assert srv.json(f"/models/m/plans/{answer['id']}") == answer


def test_registration(srv):
    first = srv.post("/models/m/plans", b'{"boxes":[{"slice":"0:3","name":"t1"},{"name":"t2"}]}')
    again = srv.post("/models/m/plans", b' { "boxes" : [ {"name":"\\u00741","slice":"0:3"}, {"name":"t2"} ] } ')
    assert first.status == 201 and first.get("Location") == f"plans/{first.json()['id']}"
    assert again.status == 200 and again.json() == first.json()
    assert plan(srv, ["t2", ("t1", "0:3")])["id"] != first.json()["id"]  # the order counts


def test_random_boxes(srv):
    rng = random.Random(8)
    for _ in range(12):
        boxes = []
        for _ in range(rng.randint(1, 60)):
            name = rng.choice(["t1", "t2", "t3"])
            parts = [f"{rng.randint(-n - 1, n + 1)}:{rng.randint(-n - 1, n + 1)}" if rng.random() < 0.7 else
                     str(rng.randint(-n, n - 1)) for n in SHAPES[name][:rng.randint(1, len(SHAPES[name]))]]
            boxes.append((name, ",".join(parts)))
        check_file(srv, plan(srv, boxes), wanted(boxes))


def test_other_checkpoints(srv):
    query = "?checkpoint=other.safetensors"
    answer = plan(srv, [("t1", "3:5")], query=query)
    assert answer["checkpoint"] == "other.safetensors" and answer["ranks"][0]["href"].endswith("/boxes.bin" + query)
    check_file(srv, answer, pattern(68, "othert1")[12:20])
    same = plan(srv, [("t1", "3:5")])
    assert same["id"] == answer["id"] and same["ranks"][0]["etag"] != answer["ranks"][0]["etag"]
    check_file(srv, same, array("t1")[3:5].tobytes())


def test_bytes_are_little_endian_and_unpacked(srv):
    small = big().astype("<i4")
    check_file(srv, plan(srv, ["big", ("big", "2:4,5:9")], "npy", "?checkpoint=big.npy"),
               small.tobytes() + small[2:4, 5:9].tobytes())
    check_file(srv, plan(srv, [("x", "7,:"), ("x", ":,3:5")], "npy", "?checkpoint=packed.npz"),
               small[7].tobytes() + small[:, 3:5].tobytes())


def test_blocks_of_gguf(srv, root):
    """A row of 64 elements is two blocks of 34 bytes."""
    (found,) = gguf.GGUFReader(root / "gguf" / "q.gguf").tensors
    rows = np.array(found.data).view(np.uint8).reshape(6, 2, 34)
    want = rows[2:4].tobytes() + rows[:, 1].tobytes() + rows[5].tobytes() + rows.tobytes()
    check_file(srv, plan(srv, [("q", "2:4"), ("q", ":,32:"), ("q", "5"), "q"], "gguf"), want)
    check_error(srv.post("/models/gguf/plans", {"boxes": [{"name": "q"}, {"name": "q", "slice": ":,:16"}]}), 400,
                r'box 1, tensor \"q\": ', "Q8_0")


def test_ranges_and_conditions(srv):
    file = plan(srv, BOXES)["ranks"][0]
    want, href, tag = wanted(BOXES), file["href"], f'"{file["etag"]}"'
    rng = random.Random(4)
    for _ in range(40):
        first = rng.randrange(len(want))
        last = rng.randrange(first, len(want))
        r = srv.get(href, {"Range": f"bytes={first}-{last}", "If-Range": tag})
        assert r.status == 206 and r.body == want[first:last + 1], f"{first}-{last}: {r}"
        assert r.get("Content-Range") == f"bytes {first}-{last}/{len(want)}"
    assert srv.get(href, {"Range": "bytes=-7"}).body == want[-7:]
    assert srv.get(href, {"Range": "bytes=1-2", "If-Range": '"other"'}).status == 200
    assert srv.get(href, {"Range": f"bytes={len(want)}-"}).status == 416
    parts = parse_multipart(srv.get(href, {"Range": "bytes=0-9,100-119"}))
    assert [p[-1] for p in parts] == [want[0:10], want[100:120]]
    assert srv.get(href, {"If-None-Match": tag}).status == 304
    assert srv.get(href, {"If-Match": tag}).status == 200 and srv.get(href, {"If-Match": '"other"'}).status == 412
    check_error(srv.post(href, {}), 405)


def test_nothing(srv):
    for boxes in ([], ["empty"], [("t1", "5:5"), ("t2", ":,3:3")]):
        file = check_file(srv, plan(srv, boxes), b"")
        assert srv.get(file["href"], {"Range": "bytes=0-0"}).body == b""


def test_which_file_a_plan_has(srv):
    boxes = plan(srv, ["t1"])["id"]
    rules = srv.post("/models/m/plans", {"tp_size": 2, "rules": [{"match": "**", "whole": True}]}).json()["id"]
    for name in ("rank-0.safetensors", "rank-0.json", "model-rank-0-part-0.safetensors"):
        check_error(srv.get(f"/models/m/plans/{boxes}/{name}"), 404, "boxes.bin")
    check_error(srv.get(f"/models/m/plans/{rules}/boxes.bin"), 404, "rank-0.safetensors")
    check_error(srv.get(f"/models/m/plans/{'0' * 32}/boxes.bin"), 404, "register it again")
    check_error(srv.get("/models/m/shards/none/tp1/boxes.bin"), 404, "rank-{r}.safetensors")
    check_error(srv.get(f"/models/m/plans/{boxes}/boxes.bin?slice=0"), 400, "slice")


@pytest.mark.parametrize("boxes, code, needles", [
    ([{"name": "t1"}, {"name": "nope"}], 404, [r'box 1, tensor \"nope\": ']),
    ([{"name": "t1", "slice": "::2"}], 400, [r'box 0, tensor \"t1\": ', "step"]),
    ([{"name": "t1"}] * 5 + [{"name": "t2", "slice": "12"}], 400, [r'box 5, tensor \"t2\": ', "12"]),
    ([{"name": "t1", "as": "x"}], 400, [r'unknown key \"as\"', "a box has"]),
    ([{"name": "t1"}, {"slice": "0"}], 400, ["a box without a", "at byte"]),
    ([{"name": "t1"}, 1], 400, ["a box is an object", "at byte"]),
    ([{"name": "t1", "slice": 1}], 400, ["the slice, a string"]),
    ({"name": "t1"}, 400, ["a list of boxes expected"]),
])
def test_errors_name_the_box(srv, boxes, code, needles):
    check_error(srv.post("/models/m/plans", {"boxes": boxes}), code, *needles)


@pytest.mark.parametrize("form", [
    {"boxes": [{"name": "t1"}]}, {"engine": "fsdp", "tp_size": 1}, {"ranks": [{"tensors": [{"name": "t1"}]}]},
    {"tp_size": 1, "rules": [{"match": "**"}]}, {"tensors": [{"name": "t1"}]}
], ids=lambda form: next(k for k in form if k != "tp_size"))
def test_a_manifests_tag(srv, form):
    """Every form takes it, beside the bytes of the same plan without it."""
    target = "/models/m/tensors:read" if "tensors" in form else "/models/m/plans"
    tag = srv.json("/models/m/tensors")["etag"]
    bound, free = srv.post(target, {**form, "manifest": tag}), srv.post(target, form)
    assert bound.status in (200, 201) and free.status in (200, 201), bound
    if "tensors" in form:
        assert bound.body == free.body == array("t1").tobytes()
    else:
        assert bound.json()["id"] != free.json()["id"]
        ours, theirs = (srv.get(r.json()["ranks"][0]["href"]) for r in (bound, free))
        assert ours.status == theirs.status == 200 and ours.body[-68:] == theirs.body[-68:]
    e = check_error(srv.post(target, {**form, "manifest": "0" * 32}), 412, "0" * 32, tag,
                    "read the manifest again, GET /models/m/tensors")
    assert e["status"] == "FAILED_PRECONDITION"
    check_error(srv.post(target + "?checkpoint=other.safetensors", {**form, "manifest": tag}), 412)
    text = json.dumps(form)[1:]
    for value in ("1", "null", "[]", f'["{tag}"]'):
        check_error(srv.post(target, f'{{"manifest":{value},{text}'.encode()), 400, "at byte 12: ",
                    "the manifest's tag, a string, expected")
    check_error(srv.post(target, f'{{"manifest":"{tag}","manifest":"{tag}",{text}'.encode()), 400, "twice")


def test_a_checkpoint_that_changes(start, tmp_path):
    """A bound plan answers 412 where another would answer bytes of the new file."""
    path = tmp_path / "root" / "m" / "model.safetensors"
    write_by_hand(path, [tensor("w", "U8", [8])])
    age(tmp_path)
    s = start(tmp_path / "root", hash_threads=1)
    early = s.json("/models/m/tensors")["etag"]
    r = s.post("/models/m/plans", {"boxes": [{"name": "w"}], "manifest": early})
    s.wait_hashed()
    late = s.json("/models/m/tensors")["etag"]
    again = s.post("/models/m/plans", {"boxes": [{"name": "w"}], "manifest": late})
    hrefs = [x.json()["ranks"][0]["href"] for x in (r, again)]
    for href in hrefs:
        assert s.get(href).body == pattern(8, "w")
    write_by_hand(path, [tensor("w", "U8", [8], salt="new")])
    age(tmp_path, 1800)
    s.wait_for(lambda: s.json("/models/m/tensors")["etag"] not in (early, late), "the new file is served")
    for href in hrefs:
        check_error(s.get(href), 412, "changed", "read the manifest again")
        assert s.head(href).status == 412
    check_error(s.post("/models/m/tensors:read", {"tensors": [{"name": "w"}], "manifest": late}), 412, late)


def test_forms_exclude_each_other(srv):
    for other in ({"tp_size": 1}, {"engine": "none"}, {"rules": []}, {"ranks": [{"tensors": []}]}):
        check_error(srv.post("/models/m/plans", {"boxes": [{"name": "t1"}], **other}), 400)


def test_as_many_as_a_body_holds(srv):
    """Boxes of a column each, in random order, fill the default of --max-body-bytes."""
    rng = random.Random(11)
    x = np.frombuffer(pattern(2048 * ROWS * 4, "wide"), "<u4").reshape(2048, ROWS)
    boxes = [("wide", f"{rng.randrange(2048)},{rng.randrange(ROWS)}") for _ in range(200000)]
    body = json.dumps({"boxes": [{"name": n, "slice": s} for n, s in boxes]}, separators=(",", ":")).encode()
    assert 4 << 20 < len(body) <= 8 << 20
    r = srv.post("/models/m/plans", body, timeout=300)
    assert r.status == 201, r
    index = np.array([s.split(",") for _, s in boxes], int)
    want = x[index[:, 0], index[:, 1]].tobytes()
    file = r.json()["ranks"][0]
    assert file["nbytes"] == len(want)
    got = srv.get(file["href"], timeout=120)
    assert got.status == 200 and got.body == want
    assert srv.get(file["href"], {"Range": "bytes=400000-400099"}).body == want[400000:400100]
