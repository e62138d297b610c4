"""Compares parser/pickle/pickle.c with Python's own unpicklers: the same values and the same verdicts in all protocols,
and nothing is called.

tests/kit/pickle_dump prints the parser's values. The oracle is Python's unpickler with find_class replaced, so that
globals become symbols and calls become records there too.
"""
import collections
import copyreg
import dataclasses
import datetime
import enum
import io
import json
import math
import os
import pickle
import pickletools
import random
import struct
import subprocess
import sys

import pytest
import torch

from harness import SANITIZER_MARKS, tensord_binary

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def dump(pickles, env=None):
    """Return the parser's result for each pickle."""
    tool = tensord_binary().parent / "tests/kit/pickle_dump"
    frames = b"".join(struct.pack("<I", len(p)) + p for p in pickles)
    done = subprocess.run([str(tool)], input=frames, capture_output=True, timeout=300, env=env)
    err = done.stderr.decode("utf-8", "replace")
    for mark in SANITIZER_MARKS:
        assert mark not in err, err[:4000]
    assert done.returncode == 0 and err == "", f"exit code {done.returncode}: {err[-3000:]}"
    lines = done.stdout.decode("utf-8").split("\n")[:-1]
    assert len(lines) == len(pickles)
    return [json.loads(line) for line in lines]


# ---- the oracle ----

class Made:
    """A call that was recorded instead of made."""
    module = name = None

    def __new__(cls, *args, **kwargs):
        made = object.__new__(cls)
        made.args, made.kwargs, made.state = args, kwargs, None
        made.appended, made.set, made.reduced = [], {}, False
        return made

    def __init__(self, *args, **kwargs):
        self.reduced = True  # NEWOBJ does not come here

    def __call__(self, *args):
        made = Made(*args)
        made.made_by = self
        return made

    def __setstate__(self, state):
        self.state = state

    def append(self, item):
        self.appended.append(item)

    add = append

    def extend(self, items):
        self.appended.extend(items)

    def __setitem__(self, key, value):
        if self.module in ("torch._utils", "torch._tensor") and self.name.startswith("_rebuild_"):
            raise TypeError("a tensor's items")
        self.set[key] = value


class Persistent:
    def __init__(self, pid):
        if not isinstance(pid, tuple):
            raise TypeError("as torch.serialization asserts")
        self.pid = pid


def symbol(module, name):
    return type("Symbol", (Made,), {"module": module, "name": name})


class Oracle(pickle._Unpickler):
    def find_class(self, module, name):
        return symbol(module, name)

    def persistent_load(self, pid):
        return Persistent(pid)


class COracle(pickle.Unpickler):
    find_class = Oracle.find_class
    persistent_load = Oracle.persistent_load


def read_by(kind, data):
    """Return (value, memo entries, bytes read). Raises Python's exceptions."""
    f = io.BytesIO(data)
    reader = kind(f, fix_imports=False, encoding="utf-8", errors="surrogateescape")
    value = reader.load()
    return value, len(reader.memo) if kind is Oracle else None, f.tell()


# ---- comparing ----

class Differs(AssertionError):
    pass


def check(condition, *what):
    if not condition:
        raise Differs(*what)


def int_of(v):
    return int.from_bytes(bytes.fromhex(v["big"]), "little", signed=True) if "big" in v else v["int"]


PLAIN = {"None": lambda v: None, "a bool": lambda v: v["bool"], "an int": int_of,
         "a float": lambda v: struct.unpack("<d", bytes.fromhex(v["float"]))[0],
         "a string": lambda v: bytes.fromhex(v["text"]).decode("utf-8", "surrogatepass"),
         "a bytes": lambda v: bytes.fromhex(v["text"])}


def simple(values, ref):
    """Return a hashable form of a value, for sets. Recursion suffices for the tests' values."""
    v = values[ref]
    if v["kind"] in PLAIN:
        return PLAIN[v["kind"]](v)
    if v["kind"] == "a tuple":
        return tuple(simple(values, r) for r in v["items"])
    if v["kind"] == "a frozenset":
        return frozenset(simple(values, r) for r in v["items"])
    return NotImplemented


def compare_made(v, py, later):
    callable_ = getattr(py, "made_by", type(py))
    later.append((callable_, v["callable"]))
    later.append((py.args, v["args"]))
    if v["kwargs"]:
        later.append((py.kwargs, v["kwargs"]))
    else:
        check(py.kwargs == {}, "kwargs are missing")
    if v["state"]:
        later.append((py.state, v["state"]))
    else:
        check(py.state is None, "a state is missing")
    check((v["call"] == 0) == py.reduced, v["call"])
    check(len(v["items"]) == len(py.appended), "appended", len(py.appended))
    later.extend(zip(py.appended, v["items"]))
    if py.set:
        compare_map(v["map"], py.set, later)


def compare_map(pairs, py, later):
    check(len(pairs) == len(py), "items of a map", len(py), len(pairs))
    for (key, value), (key_ref, value_ref) in zip(py.items(), pairs):
        later.append((key, key_ref))
        later.append((value, value_ref))


KIND = {
    type(None): "None", bool: "a bool", int: "an int", float: "a float", str: "a string", bytes: "a bytes", bytearray:
    "a bytearray", tuple: "a tuple", list: "a list", set: "a set", frozenset: "a frozenset", dict: "a dict", Persistent:
    "a persistent id"
}


def compare(mine, py):
    """mine: a line of pickle_dump. py: the oracle's value."""
    values, later, seen, keep = mine["values"], [(py, mine["root"])], set(), []
    while later:
        py, ref = later.pop()
        if (id(py), ref) in seen:
            continue
        seen.add((id(py), ref))
        keep.append(py)  # or its id could be another's
        v = values[ref]
        if isinstance(py, type):
            check(v["kind"] == "a global", v, py)
            check(simple(values, v["module"]) == py.module and simple(values, v["name"]) == py.name, py.module, py.name)
        elif isinstance(py, Made):
            check(v["kind"] == "an object", v, py)
            compare_made(v, py, later)
        else:
            check(v["kind"] == KIND[type(py)], v, py)
            compare_plain(values, v, py, later)


def compare_plain(values, v, py, later):
    if isinstance(py, float):
        check(bytes.fromhex(v["float"]) == struct.pack("<d", py), v, py)
    elif isinstance(py, (bytes, bytearray)):
        check(bytes.fromhex(v["text"]) == py, v, py)
    elif isinstance(py, str):
        check(bytes.fromhex(v["text"]) == py.encode("utf-8", "surrogatepass"), v, py)
        check(v["utf8"] == (not any(0xD800 <= ord(c) < 0xE000 for c in py)), v, py)
    elif isinstance(py, (bool, int)):
        check(PLAIN[v["kind"]](v) == py, v, py)
        check("big" not in v or not -2**63 <= py < 2**63, v, py)
    elif isinstance(py, (tuple, list)):
        check(len(v["items"]) == len(py), v, len(py))
        later.extend(zip(py, v["items"]))
    elif isinstance(py, (set, frozenset)):
        members = [simple(values, r) for r in v["items"]]
        if NotImplemented not in members and not any(x != x for x in members):
            check(set(members) == set(py), members, py)
    elif isinstance(py, dict):
        compare_map(v["map"], py, later)
    elif isinstance(py, Persistent):
        later.append((py.pid, v["id"]))


def check_same(data, mine):
    assert "root" in mine, (mine, data[:200])
    value, memo, end = read_by(Oracle, data)
    opcodes = [(op.name, pos) for op, _, pos in pickletools.genops(data)]
    try:
        compare(mine, value)
        check(mine["memo"] == memo, "memo", memo)
        check(mine["end"] == end == len(data), "end", end)
        check(mine["ops"] == len(opcodes), "opcodes", len(opcodes))
        check({v["at"] for v in mine["values"][1:]} <= {pos for _, pos in opcodes}, "positions")
    except Differs as difference:
        pytest.fail(f"{difference.args} in {data[:300]!r}")


# ---- values ----

class Plain:
    pass


class Slots:
    __slots__ = ("a", "b")


class OwnState:
    def __init__(self, state):
        self.kept = state

    def __getstate__(self):
        return self.kept

    def __setstate__(self, state):
        self.kept = state


class NewArgs(tuple):
    def __new__(cls, *args, **kwargs):
        return tuple.__new__(cls, args)

    def __getnewargs_ex__(self):
        return tuple(self), {"by": "name"}


class Reduced:
    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


class ListLike(list):
    pass


class DictLike(dict):
    pass


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Index:
    fqn: str
    offset: tuple


def random_text(rng):
    kinds = ["abcXYZ019 ._-", "äöüß\x00\x7f\n\\'\"", "名前\u2028\ufeff", "😀\U0010ffff",
             "\ud800\udfff", "\\u0041\\N\\"]
    return "".join(rng.choice(rng.choice(kinds)) for _ in range(rng.choice([0, 1, 3, 8, 40, 300])))


def random_scalar(rng):
    return rng.choice([
        lambda: None, lambda: rng.random() < 0.5, lambda: rng.randrange(-300, 300),
        lambda: rng.randrange(-2**17, 2**17), lambda: rng.choice([-1, 1]) *
        (1 << rng.randrange(130)) + rng.randrange(-2, 3), lambda: rng.randrange(-2**2100, 2**2100),
        lambda: rng.choice([0.0, -0.0, 1.0, 0.1, -1e300, 5e-324, math.inf, -math.inf, math.nan]),
        lambda: rng.gauss(0, 1), lambda: random_text(rng), lambda: random_text(rng),
        lambda: rng.randbytes(rng.choice([0, 1, 7, 255, 256, 300]))
    ])()


def random_key(rng):
    return rng.choice([
        lambda: random_scalar(rng), lambda: random_text(rng), lambda: (rng.randrange(3), random_text(rng)),
        lambda: frozenset(range(rng.randrange(4)))
    ])()


def random_object(rng, part):
    """Return an object that pickles as a call, with parts from part()."""
    def plain():
        made = Plain()
        made.__dict__.update({random_text(rng): part() for _ in range(rng.randrange(4))})
        return made

    def slots():
        made = Slots()
        made.a = part()
        return made

    pairs = [(random_text(rng), part()) for _ in range(rng.choice([0, 1, 3, 12]))]
    return rng.choice([
        plain, slots, lambda: OwnState(part()), lambda: NewArgs(part(), 2), lambda: Reduced(Plain, (part(), ), part()),
        lambda: Reduced(Plain, (), None, iter([part(), part()]), iter(pairs)), lambda: ListLike([part(), part()]),
        lambda: DictLike(pairs), lambda: collections.OrderedDict(pairs), lambda: collections.defaultdict(list, pairs),
        lambda: collections.Counter("abca"), lambda: collections.deque([part()], 5), lambda: Colour.RED,
        lambda: Index("a.b", (1, 2)), lambda: complex(1, -2), lambda: bytearray(rng.randbytes(9)), lambda: Plain,
        lambda: len, lambda: os.path.join, lambda: datetime.date(2020, 2, 3), lambda: torch.Size([2, 3]),
        lambda: torch.float32, lambda: torch.device("cpu"), lambda: range(3), lambda: slice(1, part())
    ])()


def random_value(rng):
    """Return a nested value with shared parts, and with lists, dicts and objects that contain themselves."""
    made = []

    def build(depth):
        if made and rng.random() < 0.15:
            return rng.choice(made)
        if depth == 0 or rng.random() < 0.3:
            return random_scalar(rng)
        def part():
            return build(depth - 1)
        size = rng.choice([0, 1, 2, 3, 4, 9, 20])
        kind = rng.randrange(8)
        if kind <= 1:
            value = [part() for _ in range(size)]
        elif kind <= 3:
            value = {random_key(rng): part() for _ in range(size)}
        elif kind == 4:
            value = tuple(part() for _ in range(min(size, 5)))
        elif kind == 5:
            value = rng.choice([set, frozenset])(random_key(rng) for _ in range(size))
        else:
            value = random_object(rng, part)
        made.append(value)
        if rng.random() < 0.1 and type(value) in (list, dict):
            value.append(value) if type(value) is list else value.update(me=value)
        return value

    return build(rng.randrange(1, 5))


def random_pickles(seed, count):
    rng = random.Random(seed)
    made = []
    while len(made) < count:
        value = random_value(rng)
        for protocol in PROTOCOLS:
            try:
                data = pickle.dumps(value, protocol)
            except (TypeError, pickle.PicklingError):
                continue  # slots below protocol 2
            made.append(data)
            if len(data) < 5000 and rng.random() < 0.3:
                made.append(pickletools.optimize(data))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_random_values_are_read_as_python_reads_them(seed):
    pickles = random_pickles(seed, 1500)
    for data, mine in zip(pickles, dump(pickles)):
        check_same(data, mine)


def test_the_oracle_in_c_agrees(monkeypatch):
    pickles = random_pickles(99, 300)
    for data, mine in zip(pickles, dump(pickles)):
        compare(mine, read_by(COracle, data)[0])


def test_large_containers_and_many_memo_entries():
    text = {f"model.layers.{i}.weight": (i, str(i)) for i in range(20000)}
    values = [
        text,
        list(range(-5000, 5000)), [[] for _ in range(5000)],
        tuple(map(str, range(3000))), {i: i for i in range(3000)},
        set(range(5000)),
        collections.OrderedDict(text), "x" * 70000, b"y" * 70000, [0.5] * 3000, {i / 7: None for i in range(2000)}
    ]
    pickles = [pickle.dumps(v, p) for v in values for p in PROTOCOLS]
    for data, mine in zip(pickles, dump(pickles)):
        check_same(data, mine)


def test_long_frames_and_bytes_outside_of_them():
    value = [b"a" * 100000, "b" * 100000, bytearray(100000), list(range(30000))]
    pickles = [pickle.dumps(value, p) for p in (4, 5)]
    for data, mine in zip(pickles, dump(pickles)):
        check_same(data, mine)


# ---- real checkpoints ----

def torch_pickle(obj, tmp_path):
    path = tmp_path / "x.pt"
    torch.save(obj, path)
    reader = torch._C.PyTorchFileReader(str(path))
    return reader.get_record("data.pkl")


@pytest.fixture(scope="module")
def module_and_optimizer():
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.LSTM(4, 2))
    optimizer = torch.optim.AdamW(module.parameters())
    module[1](module[0](torch.ones(5, 3))).sum().backward()
    optimizer.step()
    return module, optimizer


def test_checkpoints_by_torch(tmp_path, module_and_optimizer):
    module, optimizer = module_and_optimizer
    shared = torch.zeros(3)
    objects = [
        module.state_dict(),
        optimizer.state_dict(), module, {"model": module.state_dict(), "epoch": 3, "lr": 0.1},
        torch.ones(2, 3),
        torch.nn.Parameter(torch.ones(2)), [shared, shared[1:]],
        torch.ones(3).to_sparse(),
        torch.ones(2, dtype=torch.float8_e4m3fn),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 2, torch.qint8), {"generator": torch.get_rng_state()}
    ]
    pickles = [torch_pickle(o, tmp_path) for o in objects]
    for data, mine in zip(pickles, dump(pickles)):
        check_same(data, mine)


def test_metadata_of_distributed_checkpoints():
    from torch.distributed.checkpoint import metadata as dcp
    props = dcp.TensorProperties(dtype=torch.bfloat16)
    chunk = dcp.ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([2, 2]))
    value = dcp.Metadata(
        {"w": dcp.TensorStorageMetadata(props, torch.Size([2, 2]), [chunk]), "b": dcp.BytesStorageMetadata()},
        storage_data={dcp.MetadataIndex("w", [0, 0]): ("__0_0.distcp", 0, 100)})
    pickles = [pickle.dumps(value, p) for p in PROTOCOLS[2:]]
    for data, mine in zip(pickles, dump(pickles)):
        check_same(data, mine)


def llama_like(tmp_path):
    """A checkpoint of a Llama of 32 layers: 291 tensors, each of its own storage; saved without their bytes."""
    names = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    for i in range(32):
        names += [
            f"model.layers.{i}.{n}.weight"
            for n in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                      "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm")
        ]
    return torch_pickle({n: torch.ones(1 + (len(n) & 3), 2, dtype=torch.bfloat16) for n in names}, tmp_path)


def test_memo_entries_of_a_llama(tmp_path):
    data = llama_like(tmp_path)
    [mine] = dump([data])
    check_same(data, mine)
    puts = sum(op.name in ("BINPUT", "LONG_BINPUT") for op, _, _ in pickletools.genops(data))
    assert mine["memo"] == puts == 2334, puts


# ---- nothing is called ----

class Attack:
    def __init__(self, callable_, *args):
        self.parts = callable_, args

    def __reduce__(self):
        return self.parts


# shows: security.md content-pickle-calls
def test_nothing_is_ever_called(tmp_path):
    trace = tmp_path / "trace"
    command = f"touch {trace}"
    calls = [(os.system, command), (subprocess.getoutput, command), (eval, f"open({str(trace)!r}, 'w')"),
             (exec, f"open({str(trace)!r}, 'w')"), (open, str(trace), "w"), (os.mkdir, str(trace))]
    pickles = [pickle.dumps({"a": Attack(*c)}, p) for c in calls for p in PROTOCOLS]
    pickles.append(b"cos\nsystem\n(Vtouch " + str(trace).encode() + b"\ntR.")
    pickle.loads(pickles[-1])  # would be seen:
    assert trace.exists()
    trace.unlink()
    for data, mine in zip(pickles, dump(pickles)):
        check_same(data, mine)
    assert list(tmp_path.iterdir()) == []
    made = mine["values"][mine["root"]]
    assert made["kind"] == "an object" and mine["values"][made["callable"]]["kind"] == "a global"


# ---- verdicts ----

# Parts of tensord's messages for pickles that tensord refuses but the unpickler written in Python does not.
STRICTER = [
    "FRAME has",
    "arguments; they must be",  # the unpickler in C refuses it too
    "must find one value on the stack",
    "MARKs are open",
    "is not supported",
    "is not a decimal number",
    "which is not a number",
    "is malformed",
    "adds to",
    "sets items of",
    "gives a state to",
    "makes a dict of",
    "copies more items",
    "digits; Python reads at most",
    "is not a number below 2^32",
    "calls a",
    "would hash",
    "in quotes",
]


def mutants(seed, count):
    rng = random.Random(seed)
    good = [p for p in random_pickles(seed + 1000, 400) if len(p) < 3000]
    good += [
        p for p in (pickle.dumps(v, n) for n in PROTOCOLS
                    for v in ([1, [2, {"a": (3, )}]], {1: 2, True: 3.0, "x": "y"}, {1, 2}, Index("a", (1, ))))
    ]
    opcodes = bytes(ord(op.code) for op in pickletools.opcodes)
    for _ in range(count):
        data = bytearray(rng.choice(good))
        for _ in range(rng.choice([1, 1, 2, 4])):
            at = rng.randrange(len(data))
            kind = rng.randrange(5)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                data[at] = rng.choice(opcodes)
            elif kind == 2:
                data.insert(at, rng.choice(opcodes))
            elif kind == 3:
                del data[at:at + rng.choice([1, 1, 2, 5])]
            else:
                data[at:at] = data[at:at + rng.randrange(12)]
            if not data:
                data = bytearray(b".")
        yield bytes(data)


def python_verdict(data):
    try:
        value, memo, end = read_by(Oracle, data)
        return value, end, None
    except Exception as refused:  # hostile pickles raise nearly every exception
        return None, None, refused


@pytest.mark.parametrize("seed", range(4))
# shows: security.md content-broken-pickles
def test_broken_pickles_have_the_same_verdict(seed):
    pickles = list(mutants(seed, 4000))
    agreed = collections.Counter()
    for data, mine in zip(pickles, dump(pickles)):
        value, end, refused = python_verdict(data)
        if "root" in mine:
            assert refused is None or lax(mine, refused), (data, refused)
            if refused is None:
                assert end == len(data) == mine["end"]
                check_same_or_tuples(mine, value, data)
            agreed["accepted"] += refused is None
        else:
            assert 0 <= mine["pos"] <= len(data)
            assert refused is not None or end < len(data) or any(s in mine["message"] for s in STRICTER), (data, mine)
            agreed["refused"] += refused is not None
    assert agreed["accepted"] > 300 and agreed["refused"] > 300, agreed


def check_same_or_tuples(mine, value, data):
    """Check that both agree, except about tuples as keys, which only Python compares."""
    try:
        compare(mine, value)
    except Differs as difference:
        assert difference.args[0] == "items of a map", (difference.args, data)


def lax(mine, refused):
    """Return whether Python refuses and tensord accepts: text that is not UTF-8, an unhashable value within a tuple,
    calls of classes that are objects, opcodes across the end of a frame (as the unpickler in C)."""
    text = f"{type(refused).__name__}: {refused}"
    return any(s in text for s in ("UnicodeDecodeError", "unhashable type", "__new__", "before end of frame",
                                   "end of current frame"))


def test_every_prefix_is_refused():
    for protocol in PROTOCOLS:
        data = pickle.dumps({"a": [1, 2**80, 0.5, ("x", b"y")], "b": Index("n", (1, 2))}, protocol)
        for mine in dump([data[:n] for n in range(len(data))]):
            assert "root" not in mine and mine["code"] == 1, mine


def test_extensions_are_refused():
    copyreg.add_extension("collections", "OrderedDict", 240)
    try:
        data = pickle.dumps(collections.OrderedDict(), 2)
    finally:
        copyreg.remove_extension("collections", "OrderedDict", 240)
    [mine] = dump([data])
    assert "EXT1" in mine["message"], mine


def test_python_2_strings_and_mappings():
    pickles = [
        b"S'a\\nb\\x41\\101\\q\\\\'\n.", b"U\x03abc.", b"T\x02\x00\x00\x00ab.", b"V\\u0041\\\\u0041\\U0001f600\xe9\n.",
        b"ccollections\nOrderedDict\n((lp1\n(lp2\nS'a'\naI1\naa(lp3\nS'b'\naI2\naatR."
    ]
    dumped = dump(pickles)
    for data, mine in zip(pickles, dumped):
        check_same(data, mine)
    ordered = dumped[-1]["values"][dumped[-1]["root"]]["map"]
    assert [simple(dumped[-1]["values"], key) for key, _ in ordered] == ["a", "b"]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q"]))
