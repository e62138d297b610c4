"""Objects of distributed checkpoints by TensordReader: torch's own reader, which unpickles them, says what they are."""
import io
import math
import pickle
import random
import re
import shutil
import warnings
import zipfile

import harness
import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp
from conftest import bytes_of, url_of
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

import tensord
from tensord.engines import dcp_objects, pickles
from tensord.dcp import TensordReader

SCHEDULERS = {
    "steps": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [3, 5]),
    "cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, 10),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o),
    "warm": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "then": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]),
}
VALUES = {
    "epoch": 3, "negative": -1, "numbers": [0, 255, 256, 65535, 65536, 2**31 - 1, -2**31, 2**31, 2**63, -2**63, 2**64],
    "big": 2**3000 + 1, "small": -2**2500, "yes": True, "no": False, "nothing": None,
    "floats": [0.0, -0.0, 1.5e-3, 5e-324, math.inf, -math.inf], "nan": math.nan,
    "texts": ["", "ü", "日本", "\U0001f600", "\ud800", "a" * 300, "nul\0"], "long": "x" * 70000,
    "nested": [1, [2, (3, "ü", None, True), []], ()], "pair": (1, 2), "deep": [[[[[[[(((1,),),)]]]]]]],
    "many": list(range(5000)), "empty": [], "none": (),
}
OTHERS = {
    "np.float64": (numpy.float64(2), "numpy"), "np.int64": (numpy.int64(3), "numpy"),
    "bytes": (b"abc", "_codecs.encode"),
    "set": ({1, 2}, "set"), "dtype": (torch.float32, "torch.float32"), "complex": (1j, "complex"),
    "size": (torch.Size([3]), "torch.Size"), "slice": (slice(1), "slice"),
}


def optimizer(make, seed):
    """Return the parameters of a layer with an optimizer of it that has made two steps, and schedulers."""
    torch.manual_seed(seed)
    layer = torch.nn.Linear(3, 2)
    made = make([{"params": [layer.weight], "lr": 0.5}, {"params": [layer.bias]}])
    schedulers = {name: one(made) for name, one in SCHEDULERS.items()}
    for _ in range(seed):
        layer(torch.rand(4, 3)).sum().backward()
        made.step()
        for name, one in schedulers.items():
            one.step(*([float(seed)] if name == "plateau" else []))
    return {"model": layer.state_dict(), "optim": made.state_dict(),
            **{name: one.state_dict() for name, one in schedulers.items()}}


class Newer(dcp.DefaultSavePlanner):
    """Pickles objects by protocol 5."""

    def transform_object(self, write_item, object):
        return io.BytesIO(archive_of(object, pickle_protocol=5))


def archive_of(value, **settings):
    file = io.BytesIO()
    torch.save(value, file, **settings)
    return file.getvalue()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server, and the folder, of checkpoints: `adamw`, `sgd`, `values`, `others`."""
    root = tmp_path_factory.mktemp("objects") / "root"
    root.mkdir()
    states = {"adamw": optimizer(lambda p: torch.optim.AdamW(p, lr=1.5e-3, betas=(0.8, 0.95), amsgrad=True), 2),
              "sgd": optimizer(lambda p: torch.optim.SGD(p, lr=0.25, momentum=0.9, nesterov=True), 2),
              "values": {"w": torch.ones(2), **VALUES},
              "others": {"w": torch.ones(2), "epoch": 3, **{name: value for name, (value, _) in OTHERS.items()}},
              "bare": {"epoch": 4}}
    for name, state in states.items():
        dcp.save(state, checkpoint_id=root / name, no_dist=True)
    dcp.save({"epoch": 3}, checkpoint_id=root / "newer", planner=Newer(), no_dist=True)
    harness.age(root)
    with harness.Server(root) as server:
        yield server, root


def load(state, reader, planner=None):
    dcp.load(state, storage_reader=reader, planner=planner, no_dist=True)
    return state


def rebuilt(reader, **settings):
    """Return the whole state dict that `.metadata` describes."""
    state = {}
    _load_state_dict(state, storage_reader=reader, planner=_EmptyStateDictLoadPlanner(**settings), no_dist=True)
    return state


def same(a, b):
    """Return whether two state dicts are the same, types too."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return repr(a) == repr(b)


@pytest.mark.parametrize("lenient", (False, True))
@pytest.mark.parametrize("name,make", (
    ("adamw", lambda p: torch.optim.AdamW(p, lr=1.0, amsgrad=True)),
    ("sgd", lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.1, nesterov=True))))
def test_optimizers_and_schedulers(served, name, make, lenient):
    """Learning rates, steps and all the rest are those of torch's reader, with a strict planner and with a lenient one.
    Nothing is said."""
    server, root = served
    planner = dcp.DefaultLoadPlanner(allow_partial_load=lenient)
    want = load(optimizer(make, 1), FsspecReader(root / name))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*not read")
        found = load(optimizer(make, 1), TensordReader(url_of(server, name)), planner)
    assert same(found, want)
    assert found["cycle"]["last_epoch"] == 2
    assert same(rebuilt(TensordReader(url_of(server, name))), rebuilt(FsspecReader(root / name)))
    fresh = make([{"params": [torch.nn.Parameter(torch.zeros(shape))]} for shape in ((2, 3), (2,))])
    fresh.load_state_dict(found["optim"])
    assert fresh.param_groups[0]["lr"] == want["optim"]["param_groups"][0]["lr"] != 1.0


def test_plain_values(served):
    server, root = served
    empty = {"w": torch.zeros(2), **dict.fromkeys(VALUES, "before")}
    found = load(dict(empty), TensordReader(url_of(server, "values")))
    assert same(found, load(dict(empty), FsspecReader(root / "values")))
    assert same({name: found[name] for name in VALUES}, VALUES)
    assert load({"epoch": 0}, TensordReader(url_of(server, "bare"))) == {"epoch": 4}


def test_one_warning_names_what_is_not_read(served):
    """They stay as they were, and the tensors and plain values beside them are read."""
    server, root = served
    state = {"w": torch.zeros(2), "epoch": 0, "absent": 1, **dict.fromkeys(OTHERS, "before")}
    with pytest.warns(UserWarning, match="objects of others are not read") as told:
        load(state, TensordReader(url_of(server, "others")), dcp.DefaultLoadPlanner(allow_partial_load=True))
    told = [str(one.message) for one in told if "objects of others" in str(one.message)]
    assert len(told) == 1 and told[0].startswith(f"{len(OTHERS)} objects")
    for name, (_, kind) in OTHERS.items():
        assert re.search(rf"{re.escape(name)} \(it is or has [\w.]*{kind}", told[0]), (name, told[0])
    assert "epoch (" not in told[0] and "absent (" not in told[0]
    assert state["epoch"] == 3 and torch.equal(state["w"], torch.ones(2)) and state["absent"] == 1
    assert all(state[name] == "before" for name in OTHERS)


def test_a_strict_load_ends_with_an_error_that_names_the_planner(served):
    """Before anything is written."""
    server, _ = served
    state = {"w": torch.zeros(2), "epoch": 0, "set": None, "bytes": None}
    with pytest.raises(dcp.CheckpointException) as caught:
        load(state, TensordReader(url_of(server, "others")))
    text = str(caught.value)
    assert "set (it is or has __builtin__.set)" in text and "bytes (" in text and "epoch (" not in text
    assert "planner=DefaultLoadPlanner(allow_partial_load=True)" in text
    assert state["epoch"] == 0 and torch.equal(state["w"], torch.zeros(2))
    with pytest.raises(dcp.CheckpointException, match="Missing key in checkpoint state_dict: absent"):
        load({"absent": 1}, TensordReader(url_of(server, "others")))


def test_a_planner_of_its_own_gets_an_archive_of_this_process(served):
    """A planner unpickles bytes that the client makes from the value; the server's bytes never reach it."""
    server, root = served
    index, nothing = MetadataIndex("epoch"), torch.Size([])
    item = ReadItem(LoadItemType.BYTE_IO, index, nothing, index, nothing, nothing)
    given = []

    class Keep(dcp.DefaultLoadPlanner):
        def load_bytes(self, read_item, value):
            given.append((read_item, value.getvalue()))

    TensordReader(url_of(server, "newer")).read_data(LoadPlan([item]), Keep())
    assert given == [(item, archive_of(3))]
    assert given[0][1] not in (root / "newer/__0_0.distcp").read_bytes()


def test_little_is_read(served):
    """The objects of a large file, and not the file."""
    server, root = served
    tensord.net.http.USER_AGENT, agent = "objects-little", tensord.net.http.USER_AGENT
    try:
        load({"epoch": 0}, TensordReader(url_of(server, "values")))
    finally:
        tensord.net.http.USER_AGENT = agent
    assert 1000 < bytes_of(server, ".distcp", "objects-little") < 3000 < (root / "values/__0_0.distcp").stat().st_size


# shows: security.md python-object-versions
def test_a_checkpoint_that_changes_before_its_objects_are_read(serve):
    """The values would be of another step than the tensors."""
    dcp.save({"w": torch.ones(2), "step": 1}, checkpoint_id=serve.root / "m", no_dist=True)
    server = serve()
    reader = TensordReader(url_of(server, "m"))
    reader.read_metadata()
    dcp.save({"w": torch.zeros(2), "step": 2}, checkpoint_id=serve.root / "m", no_dist=True)
    client = tensord.connect(url_of(server, "m"))
    etag = reader._model.manifest().etag
    server.wait_for(lambda: client.manifest().etag != etag, "the new version is published")
    index, nothing = MetadataIndex("step"), torch.Size([])
    item = ReadItem(LoadItemType.BYTE_IO, index, nothing, index, nothing, nothing)
    with pytest.raises(tensord.ChangedError, match="load again"):
        reader.read_data(LoadPlan([item]), dcp.DefaultLoadPlanner())
    assert load({"step": 0}, reader) == {"step": 2}


def test_objects_come_from_servers_of_the_same_version(tmp_path):
    """When the first of two servers goes, the other one takes part if it has the same version. Else it is left out, and
    the first one waited for."""
    for name, step in (("first", 1), ("copy", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        if name == "copy":
            shutil.copytree(tmp_path / "first/m", tmp_path / "copy/m")
        else:
            dcp.save({"w": torch.ones(2), "step": step}, checkpoint_id=tmp_path / name / "m", no_dist=True)
        harness.age(tmp_path / name)
    index, nothing = MetadataIndex("step"), torch.Size([])
    item = ReadItem(LoadItemType.BYTE_IO, index, nothing, index, nothing, nothing)
    for second, error in (("copy", None), ("other", tensord.ConnectError)):
        with harness.Server(tmp_path / "first") as first, harness.Server(tmp_path / second) as other:
            for server in (first, other):
                server.wait_hashed()
            reader = TensordReader(f"tensord://127.0.0.1:{first.port},127.0.0.1:{other.port}/m", retry_for=5.0)
            planner, state = dcp.DefaultLoadPlanner(), {"step": 0}
            planner.set_up_planner(state, reader.read_metadata(), True)
            first.stop()
            if error is None:
                reader.read_data(LoadPlan([item]), planner)
                assert state == {"step": 1}
            else:
                with pytest.raises(error, match=f"{first.port} cannot be reached"):
                    reader.read_data(LoadPlan([item]), planner)
                assert state == {"step": 0}


# ---- the reader of pickles

class Trap:
    """Unpickled by pickle it ends the test."""

    def __reduce__(self):
        return pytest.fail, ("a pickle was run",)


def random_value(source, depth=0):
    kind = source.randrange(9 if depth < 5 else 6)
    if kind < 6:
        text = "".join(chr(source.randrange(0xD000)) for _ in range(source.randrange(9)))
        return (None, bool(source.getrandbits(1)), source.getrandbits(source.randrange(1, 200)),
                -source.getrandbits(40), source.uniform(-1e300, 1e300), text)[kind]
    made = [random_value(source, depth + 1) for _ in range(source.randrange(6))]
    return tuple(made) if kind == 6 else made


@pytest.mark.parametrize("protocol", (2, 3, 4, 5))
# shows: security.md python-pickles
def test_plain_pickles_of_all_protocols(protocol):
    source = random.Random(protocol)
    for _ in range(300):
        value = random_value(source)
        assert same(pickles.read_plain(pickle.dumps(value, protocol)), value)
    shared = [1]
    found = pickles.read_plain(pickle.dumps([shared, shared], protocol))
    assert found == [[1], [1]] and found[0] is found[1]
    for value in (Trap(), [1, (Trap(),)], {}, [{}], {1}, frozenset(), bytearray(), print, Trap, pytest):
        with pytest.raises((pickles.NotReadable, TypeError)):
            pickles.read_plain(pickle.dumps(value, protocol))


# shows: security.md python-pickles
def test_every_prefix_and_many_mutations_of_a_pickle():
    """They end with a value or with NotReadable, and nothing else."""
    for protocol in (2, 4):
        data = pickle.dumps([1, -5, 2**70, 1.5, "text", (True, None, [2, 3], (4, 5, 6, 7)), list(range(400))], protocol)
        for end in range(len(data)):
            with pytest.raises(pickles.NotReadable):
                pickles.read_plain(data[:end])
        source = random.Random(protocol)
        for _ in range(5000):
            changed = bytearray(data)
            for _ in range(source.randrange(1, 4)):
                changed[source.randrange(len(changed))] = source.randrange(256)
            for read in (pickles.read_plain, pickles.read_records):
                try:
                    read(bytes(changed))
                except pickles.NotReadable:
                    pass


@pytest.mark.parametrize("data,why", (
    (b"", "damaged"), (b".", "damaged"), (b"(.", "damaged"), (b"\x80\x02K\x01(.", "damaged"), (b"h\x00.", "damaged"),
    (b"K\x01a.", "damaged"), (b"K\x01K\x02a.", "is not a list"), (b"]t.", "damaged"), (b"](a.", "damaged"),
    (b"X\xff\xff\xff\xffa.", "cut off"), (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.", "cut off"),
    (b"\x8b\xff\xff\xff\xff.", "damaged"), (b"\x8b\xff\xff\xff\x7f.", "cut off"),
    (b"X\x01\x00\x00\x00\xff.", "not UTF-8"),
    (b"cos\nsystem\n(X\x02\x00\x00\x00idtR.", "os.system"), (b"\x8c\x02os\x8c\x06system\x93.", "os.system"),
    (b"K\x01K\x02\x93.", "name that is not text"), (b"cos\nsystem", "cut off"), (b"}.", "a dict"), (b"\x8f.", "a set"),
    (b"C\x01a.", "bytes"), (b"I1\n.", "opcode 0x49"), (b"]" + b"]a" * 1_000_000 + b".", "more than 2000000 opcodes")))
# shows: security.md python-pickles
def test_pickles_that_are_not_read(data, why):
    with pytest.raises(pickles.NotReadable, match=why):
        pickles.read_plain(data)


def metadata_of(objects, paths=None):
    """Return a `.metadata` as torch pickles it, of objects by name with their places."""
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

    return pickle.dumps(Metadata({name: BytesStorageMetadata() for name in objects}, paths,
                                 {MetadataIndex(name): _StorageInfo(*place) for name, place in objects.items()}))


# shows: security.md python-pickles
def test_indexes_that_are_not_believed():
    read = dcp_objects.parse_index
    assert read(metadata_of({"a": ("f", 1, 2)})).places == {"a": dcp_objects.Place("f", 1, 2)}
    for place in (("../f", 0, 1), ("a/b", 0, 1), (1, 0, 1), ("f", -1, 1), ("f", 0, -1), ("f", 2**70, 1), ("f", True, 1),
                  ("f", 0, 1.5)):
        with pytest.raises(pickles.NotReadable, match="the place of an object"):
            read(metadata_of({"a": place}))
    assert "the limit is 16777216" in read(metadata_of({"a": ("f", 0, 2**30)})).places["a"].reason
    assert "transformed" in read(metadata_of({"a": ("f", 0, 1, ["zstd"])})).places["a"].reason
    for data in (b"N.", b"].", pickle.dumps(Trap), pickle.dumps({}), pickle.dumps(Trap())):
        with pytest.raises(pickles.NotReadable, match="not a Metadata"):
            read(data)
    paths = {"a.0": ("a", 0), "a.b": ("a", "b", 2, 1)}
    assert read(metadata_of({"a.0": ("f", 0, 1)}, paths)).paths == paths
    for path in ((0,), (), ("a", -1), ("a", 2**40), ("a", 1.5), ["a"], ("a",) * 200, ("a", None)):
        assert read(metadata_of({"x": ("f", 0, 1)}, {"x": path})).paths is None
    assert read(metadata_of({}, {f"x{n}": ("a", f"{n}", 999_999) for n in range(2)})).paths is None
    alike = {f"x{n}": ("a", n * (2**61 - 1), 0) for n in range(1, 200_000)}  # of one hash: slow as keys
    assert read(metadata_of({}, alike)).paths is None
    shared = ("a",) * 99
    assert read(metadata_of({}, {f"{n}": shared for n in range(1000)})).paths is None


# shows: security.md python-pickles
def test_archives_that_are_not_read():
    whole = archive_of([1, 2])
    assert dcp_objects.value_of(whole) == [1, 2]
    two = io.BytesIO()
    with zipfile.ZipFile(two, "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps(1))
        archive.writestr("b/data.pkl", pickle.dumps(2))
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"N" * (dcp_objects.MAX_OBJECT_BYTES + 1))
    for data in (b"", b"x" * 100, two.getvalue(), bomb.getvalue(), archive_of(1, _use_new_zipfile_serialization=False),
                 archive_of(torch.ones(1)), archive_of([1, Trap]), whole.replace(b"data.pkl", b"data.pkx")):
        with pytest.raises(pickles.NotReadable):
            dcp_objects.value_of(data)
    for end in range(len(whole)):
        with pytest.raises(pickles.NotReadable):
            dcp_objects.value_of(whole[:end])
    source = random.Random(1)
    for _ in range(1000):
        changed = bytearray(whole)
        for _ in range(3):
            changed[source.randrange(len(changed))] = source.randrange(256)
        try:
            dcp_objects.value_of(bytes(changed))
        except pickles.NotReadable:
            pass


# shows: security.md python-pickles
def test_objects_that_overlap_are_read_once(serve):
    """Of many names for the same bytes one is read, since each costs work."""
    folder = serve.root / "m"
    dcp.save({"w": torch.ones(2), "a": 1, "b": 2}, checkpoint_id=folder, no_dist=True)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    places = {index.fqn: index for index in metadata.storage_data}
    metadata.storage_data[places["b"]] = metadata.storage_data[places["a"]]
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    state = {"w": torch.zeros(2), "a": 0, "b": 0}
    with pytest.warns(UserWarning, match=r"b \(it overlaps another object\)"):
        load(state, TensordReader(url_of(serve(), "m")), dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert state["a"] == 1 and state["b"] == 0
