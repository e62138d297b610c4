"""The real safetensors package writes, tensord serves and inspects; manifest, bytes and verdicts must agree."""
import json
import os
import random
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from safetensors import safe_open

import bad_inputs
from harness import (DTYPE_BITS, PACKAGE_DTYPES, SANITIZER_MARKS, Server, age, enc, frame, is_sanitized, read_header,
                     tensord_binary, tensor, write_by_hand, write_by_package)

NUMPY = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16, "F16": np.float16, "I32":
    np.int32, "U32": np.uint32, "F32": np.float32, "I64": np.int64, "U64": np.uint64, "F64": np.float64
}


def run(*args, env=None, timeout=60):
    """Run tensord to its end. Standard error must have no sanitizer report."""
    full = dict(os.environ)
    full.setdefault("ASAN_OPTIONS", "detect_leaks=1:exitcode=99")
    full.update(env or {})
    p = subprocess.run([str(tensord_binary()), *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=timeout, env=full)
    err = p.stderr.decode("utf-8", "replace")
    for mark in SANITIZER_MARKS:
        assert mark not in err, f"tensord {' '.join(map(str, args))}: {err[:4000]}"
    assert p.returncode >= 0, \
        f"tensord {' '.join(map(str, args))} died of signal {signal.Signals(-p.returncode).name}: {err[-3000:]}"
    return p.returncode, p.stdout, err


def inspect_json(path):
    code, out, err = run("inspect", path, "--json")
    assert code == 0, f"inspect {path}: exit code {code}, {err}"
    assert err == "", f"inspect of a good file is silent on stderr, got {err!r}"
    return json.loads(out.decode("utf-8"))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Models that the package wrote."""
    root = tmp_path_factory.mktemp("interop") / "root"
    rng = np.random.default_rng(7)
    write_by_package(root / "dtypes/model.safetensors",
                     [tensor(f"{d}", d, [6, 10])
                      for d in PACKAGE_DTYPES] + [tensor(f"{d}.0d", d, []) for d in PACKAGE_DTYPES if d != "F4"] +
                     [tensor(f"{d}.zero", d, [2, 0, 3])
                      for d in PACKAGE_DTYPES if d != "F4"], {"format": "pt", "all": "dtypes"})
    arrays = {
        f"layer.{i}.{d}": (rng.integers(0, 100, size=(i + 1, 5)).astype(t)) for i, (d, t) in enumerate(NUMPY.items())
    }
    arrays |= {
        "scalar": np.array(3.5, np.float32), "zero": np.zeros((0, 7), np.int64), "big-endian?":
        np.arange(9, dtype="<i4")
    }
    (root / "numpy").mkdir()
    safetensors.numpy.save_file(arrays, root / "numpy/model.safetensors",
                                {"format": "np", "quote\"": "line\nbreak", "ünï": "名前", "": "empty key"})
    names = [
        "ünïcode", "名前", "emoji😀", "a/b", "a b", "quote\"'", "back\\slash", "tab\t", "newline\n",
        "e\u0301", "\u2028", "..", "%2F", "del\x7f", "\x01"
    ]
    write_by_package(root / "names/model.safetensors", [tensor(n, "U8", [20 + i]) for i, n in enumerate(names)])
    write_by_package(root / "thousand/model.safetensors", [
        tensor(f"model.layers.{i // 10}.block.{i % 10}.weight", ["F32", "BF16", "I8"][i % 3], [i % 13 + 1, i % 5])
        for i in range(1000)
    ])
    write_by_package(root / "none/model.safetensors", [], {"only": "metadata"})
    weight_map, total = {}, 0
    for k in range(4):
        ts = [tensor(f"h.{i}.w", "F16", [i + 1, 16]) for i in range(k, 20, 4)]
        name = f"model-{k + 1:05d}-of-00004.safetensors"
        write_by_package(root / "org/sharded" / name, ts, {"format": "pt"})
        weight_map |= {t.name: name for t in ts}
        total += sum(t.nbytes for t in ts)
    (root / "org/sharded/model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    age(root)
    return root


def files_of(root, id):
    return sorted((root / id).glob("*.safetensors"))


MODELS = ["dtypes", "numpy", "names", "thousand", "none", "org/sharded"]


@pytest.mark.parametrize("id", MODELS)
def test_manifest_equals_safe_open(srv, root, id):
    got = {t["name"]: t for t in srv.json(f"/models/{id}/tensors")["tensors"]}
    seen = set()
    for path in files_of(root, id):
        with safe_open(path, framework="np") as f:
            for key in f.keys():
                s = f.get_slice(key)
                t = got[key]
                assert (t["dtype"], t["shape"], t["file"]) == (s.get_dtype(), s.get_shape(), path.name), f"{key!r}: {t}"
                seen.add(key)
            meta = f.metadata()
        if len(files_of(root, id)) == 1:
            assert srv.json(f"/models/{id}/tensors")["metadata"] == (meta or {}), id
    assert seen == set(got), f"{id}: the package has {len(seen)} tensors, the manifest {len(got)}: {seen ^ set(got)}"


@pytest.mark.parametrize("id", MODELS)
def test_bytes_equal_the_packages(srv, root, id):
    """Compare whole tensors, and ranges of the file at the manifest's offsets, with safetensors.deserialize."""
    manifest = {t["name"]: t for t in srv.json(f"/models/{id}/tensors")["tensors"]}
    with srv.conn() as c:
        for path in files_of(root, id):
            for name, view in safetensors.deserialize(path.read_bytes()):
                want, t = bytes(view["data"]), manifest[name]
                r = c.request(t["href"])
                assert r.status == 200 and r.body == want, f"{id} {name!r}: {r}"
                if want:
                    r = c.request(f"/models/{id}/files/{t['file']}",
                                  {"Range": f"bytes={t['offset']}-{t['offset'] + t['nbytes'] - 1}"})
                    assert r.status == 206 and r.body == want, f"{id} {name!r} by Range of the file: {r}"


def test_rows_by_range_equal_get_slice(srv, root):
    """Read rows a..b as a byte range, as a reader of part of a tensor does, and compare with the package's own
    slicing."""
    rng = random.Random(3)
    with safe_open(root / "numpy/model.safetensors", framework="np") as f, srv.conn() as c:
        for key in f.keys():
            s = f.get_slice(key)
            shape = s.get_shape()
            if len(shape) != 2 or 0 in shape:
                continue
            row = shape[1] * DTYPE_BITS[s.get_dtype()] // 8
            for _ in range(4):
                a = rng.randrange(shape[0])
                b = rng.randrange(a + 1, shape[0] + 1)
                r = c.request(f"/models/numpy/tensors/{enc(key)}", {"Range": f"bytes={a * row}-{b * row - 1}"})
                assert r.status == 206, r
                assert r.body == np.ascontiguousarray(s[a:b]).tobytes(), f"{key} rows {a}:{b}"


def test_a_file_fetched_in_pieces_loads_in_the_package(srv, root, tmp_path):
    for id in MODELS:
        for path in files_of(root, id):
            target = f"/models/{id}/files/{path.name}"
            size = srv.head(target).length
            out = b""
            with srv.conn() as c:
                while len(out) < size:
                    r = c.request(target, {"Range": f"bytes={len(out)}-{len(out) + 9999}"})
                    assert r.status == 206, r
                    out += r.body
            assert out == path.read_bytes(), path
            got = tmp_path / "got.safetensors"
            got.write_bytes(out)
            with safe_open(got, framework="np") as a, safe_open(path, framework="np") as b:
                assert sorted(a.keys()) == sorted(b.keys())


def test_numpy_arrays_come_back(srv, root):
    loaded = safetensors.numpy.load_file(root / "numpy/model.safetensors")
    for t in srv.json("/models/numpy/tensors")["tensors"]:
        r = srv.get(t["href"])
        a = np.frombuffer(r.body, dtype=NUMPY[r.get("X-Tensor-Dtype")]).reshape(json.loads(r.get("X-Tensor-Shape")))
        assert np.array_equal(a, loaded[t["name"]]) and a.dtype == loaded[t["name"]].dtype, t


def test_dtypes_only_hand_writing_can_make(tmp_path, start_on):
    """F6 types: the package reads them but cannot write them."""
    ts = [tensor(f"{d}", d, [4, 4]) for d in DTYPE_BITS if d not in PACKAGE_DTYPES]
    assert ts
    write_by_hand(tmp_path / "r/m/model.safetensors", ts)
    age(tmp_path / "r")
    s = start_on(tmp_path / "r")
    with safe_open(tmp_path / "r/m/model.safetensors", framework="np") as f:
        for t in s.json("/models/m/tensors")["tensors"]:
            assert (t["dtype"], t["shape"]) == (f.get_slice(t["name"]).get_dtype(), f.get_slice(t["name"]).get_shape())
    for t in ts:
        assert s.get(f"/models/m/tensors/{t.name}").body == t.data


@pytest.fixture
def start_on():
    began = []

    def go(root, *args, **kw):
        began.append(Server(root, *args, **kw))
        return began[-1]
    yield go
    for s in began:
        s.stop()


# ---------------------------------------------------------------------------------------------- inspect

def strip(manifest):
    """Return a manifest without its place on the server and its validators."""
    m = {k: v for k, v in manifest.items() if k not in ("model", "etag", "next_page_token")}
    m["tensors"] = [{k: v for k, v in t.items() if k not in ("href", "etag")} for t in manifest["tensors"]]
    return m


@pytest.mark.parametrize("id", ["dtypes", "numpy", "names", "thousand", "none"])
def test_inspect_of_a_file_equals_the_http_manifest(srv, root, id):
    got, want = inspect_json(root / id / "model.safetensors"), srv.json(f"/models/{id}/tensors")
    got, want = strip(got), strip(want)
    for k in want:
        assert got.get(k) == want[k], f"{id}: {k}: inspect says {str(got.get(k))[:500]}, HTTP {str(want[k])[:500]}"


def test_inspect_of_a_directory_equals_every_http_manifest(srv, root):
    code, out, err = run("inspect", root, "--json")
    assert code == 0, err
    doc = json.loads(out)
    assert set(doc) == {"models", "errors"} and doc["errors"] == [], f"{sorted(doc)}, errors {doc.get('errors')}"
    got = {m["model"]: strip(m) for m in doc["models"]}
    want = {m["id"]: strip(srv.json(f"/models/{enc(m['id'], '/')}/tensors")) for m in srv.json("/models")["models"]}
    assert set(got) == set(want), f"inspect: {sorted(got)}, HTTP: {sorted(want)}"
    for id in want:
        assert got[id] == want[id], id


def test_inspect_of_one_models_directory(srv, root):
    """A directory that itself holds an index and its shards is one model, as it is within the served directory."""
    code, out, err = run("inspect", root / "org/sharded", "--json")
    assert code == 0, err
    doc = json.loads(out)
    assert [m["model"] for m in doc["models"]] == ["sharded"] and doc["errors"] == []
    assert strip(doc["models"][0]) == strip(srv.json("/models/org/sharded/tensors"))


def test_a_served_directory_that_is_a_model(srv, root):
    """The same files at the top: one model, with config.json and all."""
    with Server(root / "org/sharded") as top:
        for server, path in ((top, "/models/sharded"), (srv, "/models/org/sharded")):
            server.wait_for(lambda: all("sha256" in f for f in server.json(path)["files"]), "all files are hashed")
        inner, outer = top.json("/models/sharded"), srv.json("/models/org/sharded")
        for k in ("checkpoints", "config", "files", "errors", "file_count", "total_bytes", "file_bytes"):
            assert inner[k] == outer[k], k
        assert [m["id"] for m in top.json("/models")["models"]] == ["sharded"]
        for t in top.json("/models/sharded/tensors")["tensors"]:
            assert top.get(t["href"]).body == srv.get(f"/models/org/sharded/tensors/{enc(t['name'])}").body, t


def test_inspect_numbers_are_exact(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(
        frame(
            json.dumps(
                {"a": {"dtype": "U8", "shape": [0, 9007199254740993, 18446744073709551615], "data_offsets":
                       [0, 0]}}).encode()))
    assert inspect_json(path)["tensors"][0]["shape"] == [0, 9007199254740993, 18446744073709551615]


def table_rows(out, names):
    text = out.decode("utf-8")
    lines = text.split("\n")
    rows = {}
    for n in names:
        hits = [line for line in lines if re.match(rf"\s*{re.escape(n)}(\s|$)", line)]
        assert hits, f"no row for {n!r} in\n{text[:3000]}"
        rows[n] = hits[0]
    return rows, text


def test_inspect_table_is_aligned(root):
    """The dtype of each row begins in one column, shapes in one column, numbers end in one column."""
    code, out, err = run("inspect", root / "numpy/model.safetensors")
    assert code == 0, err
    with safe_open(root / "numpy/model.safetensors", framework="np") as f:
        info = {k: (f.get_slice(k).get_dtype(), f.get_slice(k).get_shape()) for k in f.keys()}
    rows, text = table_rows(out, info)
    columns = set()
    for n, line in rows.items():
        m = re.search(rf"\s({info[n][0]})(\s|$)", line[len(n):])
        assert m, f"no dtype {info[n][0]} in {line!r}"
        columns.add(len(n) + m.start(1))
    assert len(columns) == 1, f"dtypes begin in columns {sorted(columns)}:\n{text}"
    for n, line in rows.items():
        for d in info[n][1]:
            assert re.search(rf"(?<!\d){d}(?!\d)", line[len(n):]), f"shape {info[n][1]} is not in {line!r}"
    assert not any(line != line.rstrip() for line in text.split("\n")), "trailing white space"


def test_inspect_table_with_wide_and_hostile_names(root, tmp_path):
    code, out, err = run("inspect", root / "names/model.safetensors")
    assert code == 0, err
    text = out.decode("utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text), "control characters reach the terminal raw"
    assert len(text.strip().split("\n")) < 15 + 12, f"a newline in a name breaks the table:\n{text}"
    path = tmp_path / "esc.safetensors"
    write_by_hand(path, [tensor("\x1b[31mred\x1b[0m\x9b2J", "U8", [1])])
    code, out, err = run("inspect", path)
    assert code == 0 and b"\x1b" not in out and b"\xc2\x9b" not in out, \
        f"an escape sequence reaches the terminal: {out!r}"


def one_line(err):
    lines = [line for line in err.split("\n") if line.strip()]
    return len(lines) == 1 and len(lines[0]) < 1000


def inspect_each(folder, name, contents):
    """Write each of the contents as the file `name` of a model of its own below the folder, and inspect all by one
    process, since starting one under AddressSanitizer costs more than reading a small file. Return for each its path,
    its tensors by name (None: refused), and its message on standard error, one line ("": not refused)."""
    paths = []
    for i, data in enumerate(contents):
        paths.append(folder / f"{i:05}" / name)
        paths[-1].parent.mkdir(parents=True)
        paths[-1].write_bytes(data)
    code, out, err = run("inspect", folder, "--json", timeout=300)
    document = json.loads(out.decode("utf-8"))
    assert code == (1 if document["errors"] else 0), (code, err)
    read = {m["model"]: {t["name"]: t for t in m["tensors"]} for m in document["models"]}
    refused = {e["model"]: f"tensord: {e['model']}/{name}: {e['message']}" for e in document["errors"]}
    assert sorted([*read, *refused]) == [path.parent.name for path in paths], "each is read or refused"
    assert sorted(err.splitlines()) == sorted(refused.values()) and all(map(one_line, refused.values())), err
    return [(path, read.get(path.parent.name), refused.get(path.parent.name, "")) for path in paths]


def test_exit_codes(root, tmp_path):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\0" * 7)
    for args, want in ((("inspect", root / "numpy/model.safetensors"), {0}), (("inspect", root), {0}),
                       (("inspect", bad), {1}), (("inspect", bad, "--json"), {1}), (("inspect", tmp_path), {1}),
                       (("inspect", tmp_path, "--json"), {1}), (("inspect", tmp_path / "nope"), {1, 2}),
                       (("inspect", ), {2}), (("inspect", "--nonsense", bad), {2}), (("inspect", bad, bad, bad), {1,
                                                                                                                  2}),
                       ((), {2}), (("nonsense", ), {2}), (("serve", ), {2}), (("serve", root, "--nonsense"),
                                                                              {2}), (("serve", root, "--listen"), {2}),
                       (("serve", root, "--listen", "x"), {2}), (("serve", root, "--listen", "127.0.0.1:99999"),
                                                                 {2}), (("serve", root, "--max-connections", "0"), {2}),
                       (("serve", root, "--max-connections", "abc"),
                        {2}), (("serve", root, "--settle", "-1"),
                               {2}), (("serve", root, "--header-timeout", "1x"),
                                      {2}), (("serve", root, "--log-level", "loud"),
                                             {2}), (("health", ), {2}), (("--help", ), {0}), (("--version", ), {0})):
        code, out, err = run(*args)
        assert code in want, f"tensord {' '.join(map(str, args))}: exit code {code}, wanted {want}; stderr {err!r}"
        if code and args:
            assert err.strip(), f"tensord {' '.join(map(str, args))}: exit code {code} and not a word on stderr"
        if code == 1:
            assert one_line(err), f"tensord {' '.join(map(str, args))}: errors are one line: {err!r}"
        if code == 0 and args[0] in ("--help", "--version"):
            assert out and not err
            assert args[0] != "--version" or re.search(rb"\d+\.\d+", out), out


def test_help_names_every_option():
    code, out, err = run("--help")
    for option in ("serve", "inspect", "health", "--listen", "--max-connections", "--max-connections-per-address",
                   "--max-header-bytes", "--header-timeout", "--idle-timeout", "--send-timeout", "--min-rate",
                   "--drain-delay", "--drain-timeout", "--rescan-interval", "--settle", "--state-dir", "--hash-threads",
                   "--access-log", "--log-level", "TENSORD_"):
        assert option in out.decode(), f"--help does not mention {option}:\n{out.decode()}"
    said = re.sub(r"\s+", " ", out.decode())
    for sentence in ("exit 0 when URL, such as http://127.0.0.1:8080, answers 2xx; without a path it asks for /readyz",
                     "1 could not start, refused a file or a plan", "bytes of target and header fields together"):
        assert sentence in said, said


def test_environment_and_flags(root, start_on):
    """Every option is also TENSORD_<NAME>; flags win; a bad value is a usage error that names the variable."""
    s = start_on(root, env={"TENSORD_LISTEN": "127.0.0.1:1", "TENSORD_MAX_HEADER_BYTES": "1024"})
    with s.conn() as c:
        c.send(b"GET /version HTTP/1.1\r\nHost: x\r\nX-A: " + b"y" * 2000 + b"\r\n\r\n")
        assert c.read_response().status in (400, 431)
    code, out, err = run("serve", root, env={"TENSORD_HEADER_TIMEOUT": "soon"})
    assert code == 2 and "TENSORD_HEADER_TIMEOUT" in err or "header-timeout" in err, (code, err)


def test_health(srv, root):
    assert run("health", f"http://127.0.0.1:{srv.port}/healthz")[0] == 0
    assert run("health", f"http://127.0.0.1:{srv.port}/readyz")[0] == 0
    code, out, err = run("health", f"http://127.0.0.1:{srv.port}/nope")
    assert code == 1 and one_line(err), (code, err)
    code, out, err = run("health", "http://127.0.0.1:1/healthz")
    assert code == 1 and one_line(err), (code, err)
    assert run("health", "ftp://127.0.0.1/")[0] in (1, 2)
    assert run("health", "nonsense")[0] in (1, 2)


def test_address_in_use_is_one_line(srv, root):
    code, out, err = run("serve", root, "--listen", f"127.0.0.1:{srv.port}")
    assert code in (1, 2) and str(srv.port) in err, (code, err)
    assert "use" in err.lower(), f"says what is wrong: {err!r}"


def test_inspect_output_to_a_full_device_or_closed_pipe(root):
    with open("/dev/full", "wb") as full:
        p = subprocess.run([str(tensord_binary()), "inspect",
                            str(root / "thousand/model.safetensors")], stdout=full, stderr=subprocess.PIPE, timeout=30)
    assert p.returncode != 0, "the table went to a full device, and the exit code says all is well"
    p = subprocess.Popen(
        [str(tensord_binary()), "inspect", str(root / "thousand/model.safetensors")], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    p.stdout.close()
    err = p.stderr.read().decode()
    p.wait(30)
    assert "Sanitizer" not in err, err


# ------------------------------------------------------------------------------------------- bad inputs

@pytest.fixture(scope="module")
def bad_dir(tmp_path_factory):
    d = tmp_path_factory.mktemp("bad")
    for i, (name, (number, verdict, raw)) in enumerate(bad_inputs.CASES.items()):
        (d / f"case-{i:03d}").mkdir()
        (d / f"case-{i:03d}" / "model.safetensors").write_bytes(raw)
    return d


def bad_path(bad_dir, name):
    return bad_dir / f"case-{list(bad_inputs.CASES).index(name):03d}" / "model.safetensors"


@pytest.fixture(scope="module")
def package_verdicts(bad_dir):
    paths = [bad_path(bad_dir, n) for n in bad_inputs.CASES]
    code = ("import sys\nfrom safetensors import safe_open\n"
            "for p in sys.argv[1:]:\n"
            " try:\n"
            "  with safe_open(p, framework='np') as f: [f.get_slice(k).get_shape() for k in f.keys()]\n"
            "  print('accept', flush=True)\n"
            " except Exception: print('refuse', flush=True)\n")
    p = subprocess.run([sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, timeout=120)
    got = p.stdout.split()
    assert len(got) == len(paths), f"the package died on {list(bad_inputs.CASES)[len(got)]}: {p.stderr[-500:]}"
    return dict(zip(bad_inputs.CASES, got))


# The peak of a process begins with that of the one that starts it, which is small here, and large in pytest.
MEASURE = """import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ,
                     file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024)"""


def max_rss(path):
    """Exit code, stderr and peak resident bytes of `inspect --json path`."""
    p = subprocess.run([sys.executable, "-I", "-S", "-c", MEASURE, tensord_binary(), "inspect", "--json", path],
                       capture_output=True, check=True)
    code, peak = map(int, p.stdout.split())
    return code, p.stderr.decode("utf-8", "replace"), peak


def test_the_numbers_1_to_31_are_all_there():
    assert {n for n, _, _ in bad_inputs.CASES.values()} >= set(range(1, 32))
    assert set(bad_inputs.STRICTER) <= set(bad_inputs.CASES)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    contents = [raw for _, _, raw in bad_inputs.CASES.values()]
    return dict(zip(bad_inputs.CASES, inspect_each(tmp_path_factory.mktemp("each"), "model.safetensors", contents)))


@pytest.mark.parametrize("name", bad_inputs.CASES)
# shows: security.md content-safetensors
def test_verdict(verdicts, package_verdicts, name):
    """inspect accepts and refuses the same files as the package, except STRICTER; an error is one line."""
    number, verdict, raw = bad_inputs.CASES[name]
    path, tensors, err = verdicts[name]
    got = "refuse" if tensors is None else "accept"
    package = package_verdicts[name]
    if name in bad_inputs.STRICTER:
        assert package == "accept", f"{name} is in STRICTER, yet the package refuses it too: take it out"
        assert got == "refuse", f"{name}: {bad_inputs.STRICTER[name]}: accepted: {tensors}"
    elif verdict != "either":
        assert verdict == package, f"{name}: the table says {verdict}, the package {package}: the table is wrong"
        assert got == verdict, \
            f"bad input {number}, {name}: inspect {got}s it, the package {package}s it; {err} {tensors}"
    if got == "refuse":
        assert one_line(err), f"{name}: one line, please: {err!r}"
        assert f"{path.parent.name}/{path.name}" in err, f"{name}: the error does not name the file: {err!r}"
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", err), f"{name}: control characters in the error: {err!r}"
    elif package == "accept":
        with safe_open(path, framework="np") as f:
            assert set(tensors) == set(f.keys()), f"{name}: {tensors}"
            for t in tensors.values():
                part = f.get_slice(t["name"])
                assert (t["shape"], t["dtype"]) == (part.get_shape(), part.get_dtype()), f"{name}: {t}"


# shows: security.md content-safetensors
def test_refusals_say_where(bad_dir):
    """formats.md: errors are clear and name the byte position."""
    for name in ("header {", "gap between tensors", "unknown dtype", "metadata integer", "three offsets",
                 "duplicate tensor", "trailing comma"):
        code, out, err = run("inspect", bad_path(bad_dir, name))
        assert code == 1 and re.search(r"\d", err.replace(str(bad_path(bad_dir, name)),
                                                          "")), f"{name}: no position in {err!r}"


# shows: security.md content-lengths
def test_nothing_is_allocated_beyond_the_files_size(bad_dir, tmp_path):
    good = tmp_path / "good.safetensors"
    write_by_hand(good, [tensor("w", "U8", [8])])
    code, err, base = max_rss(good)
    assert code == 0, err
    for name in ("N 2^64-1", "N 2^63", "N 2^64-8 (N + 8 wraps to 0)", "N one over the cap", "N 1000 in 88 bytes",
                 "shape [2, 2^64-2]", "100,000 deep in a value", "100,000 deep objects", "1,000,000 deep, unclosed",
                 "offsets whose end + N + 8 overflows", "name of 100 KB"):
        size = len(bad_inputs.CASES[name][2])
        code, err, peak = max_rss(bad_path(bad_dir, name))
        assert code in (0, 1), (name, err)
        assert peak < base + 8 * size + (8 << 20) * (
            3 if is_sanitized() else 1), f"{name}: {peak >> 20} MiB resident, {base >> 20} for a good file of 100 bytes"


def test_a_100_mb_file_that_claims_a_big_header_is_refused_quickly(tmp_path):
    """N = 100,000,000 is allowed; a header of spaces or brackets of that size is read once and refused."""
    path = tmp_path / "sparse.safetensors"
    with open(path, "wb") as f:
        f.write((100_000_000).to_bytes(8, "little"))
        f.truncate(100_000_008)
    code, err, peak = max_rss(path)
    assert code == 1 and one_line(err), err


# shows: security.md file-broken-neighbour
def test_all_bad_inputs_in_one_root(bad_dir, start_on, tmp_path):
    """Served together: each is listed under its model's errors, and the good model beside them is served."""
    good = tensor("w", "U8", [1000])
    write_by_hand(bad_dir / "good/model.safetensors", [good])
    age(bad_dir)
    s = start_on(bad_dir)
    assert s.get("/models/good/tensors/w").body == good.data
    for i, (name, (number, verdict, raw)) in enumerate(bad_inputs.CASES.items()):
        e = s.json(f"/models/case-{i:03d}")
        refused = run("inspect", bad_path(bad_dir, name),
                      "--json")[0] == 1 if verdict == "either" else verdict == "refuse" or name in bad_inputs.STRICTER
        if refused:
            assert e["checkpoints"] == [] and [x["file"]
                                               for x in e["errors"]] == ["model.safetensors"], f"{number} {name}: {e}"
            assert str(bad_dir) not in e["errors"][0]["message"], e
        else:
            assert e["errors"] == [] and len(e["checkpoints"]) == 1, f"{number} {name}: {e}"
            for t in s.json(f"/models/case-{i:03d}/tensors")["tensors"]:
                head, base = read_header(bad_path(bad_dir, name))
                a, b = head[t["name"]]["data_offsets"]
                if len(t["href"]) < 6000 and not t["href"].endswith("/tensors/"):
                    r = s.get(t["href"])
                    assert r.status == 200 and r.body == raw[base + a:base + b], f"{name}: {t['name']!r}: {r}"
    code, out, err = run("inspect", bad_dir, "--json")
    assert code == 1
    doc = json.loads(out)
    assert "good" in {m["model"] for m in doc["models"]} and len(doc["errors"]) > 80, "the rest is still printed"


def test_every_prefix_of_a_small_file_is_refused_or_whole(tmp_path):
    """Checks some prefixes by the process; the unit tests check every prefix in memory."""
    path = tmp_path / "p.safetensors"
    write_by_hand(path, [tensor("a", "F32", [2, 2]), tensor("b", "U8", [3])], {"k": "v"})
    raw = path.read_bytes()
    head = int.from_bytes(raw[:8], "little")
    for n in sorted({0, 1, 7, 8, 9, head, head + 7, head + 8, head + 9, len(raw) - 3, len(raw) - 1}):
        path.write_bytes(raw[:n])
        code, out, err = run("inspect", path)
        assert code == 1 and one_line(err), f"the first {n} of {len(raw)} bytes: exit code {code}, {err!r}"
    path.write_bytes(raw)
    assert run("inspect", path)[0] == 0
