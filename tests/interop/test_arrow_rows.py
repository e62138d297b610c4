"""Rows of Arrow IPC files, as parser/rows cuts and gathers them, beside pyarrow: the stream that tests/kit/arrow_dump
writes has the schema and the values of table.slice() and table.take(), and passes validate(full=True)."""
import decimal
import json
import random
import struct
import subprocess

import numpy as np
import pyarrow as pa
import pytest

from harness import SANITIZER_MARKS, tensord_binary

INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED = 1, 4, 6  # enum td_code
LIMIT = 64 << 20


class Refused(Exception):
    def __init__(self, line):
        code, _, self.message = line.partition(" ")
        self.code = int(code)
        super().__init__(self.message)


def answers(path, requests):
    """Return the answer to each request, or a Refused: all of one run of the program."""
    tool = tensord_binary().parent / "tests/kit/arrow_dump"
    done = subprocess.run([str(tool), str(path)], input="\n".join(requests).encode(), capture_output=True, timeout=120)
    err = done.stderr.decode("utf-8", "replace")
    for mark in SANITIZER_MARKS:
        assert mark not in err, err[:4000]
    assert done.returncode == 0 and err == "", f"exit code {done.returncode}: {err[-3000:]}"
    found, rest = [], done.stdout
    while rest:
        line, _, rest = rest.partition(b"\n")
        word, _, line = line.decode().partition(" ")
        if word == "error":
            found.append(Refused(line))
        else:
            found.append(rest[:int(line)])
            rest = rest[int(line):]
    assert len(found) == len(requests)
    return found


def answer(path, request):
    found, = answers(path, [request])
    if isinstance(found, Refused):
        raise found
    return found


def index_of(path):
    return json.loads(answer(path, "index"))


def read(stream):
    """Return the table of a stream whose every batch is valid and whose messages begin at multiples of 8 bytes."""
    with pa.ipc.open_stream(stream) as reader:
        batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
        table = pa.Table.from_batches(batches, reader.schema)
    table.validate(full=True)
    assert len(stream) % 8 == 0 and stream.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    return table


def equal(got, expected):
    assert got.schema.equals(expected.schema, check_metadata=True)
    assert got.num_rows == expected.num_rows
    # Table.equals compares dictionaries as such; values count here.
    assert got.equals(expected) or got.to_pylist() == expected.to_pylist()
    for a, b in zip(got.columns, expected.columns):
        assert a.null_count == b.null_count


def to_cut(first, count, limit=LIMIT):
    return f"cut {first} {count} {limit}"


def to_gather(rows, limit=LIMIT):
    return " ".join(map(str, ["gather", limit, *rows]))


def cut(path, first, count, limit=LIMIT):
    return read(answer(path, to_cut(first, count, limit)))


def gather(path, rows, limit=LIMIT):
    return read(answer(path, to_gather(rows, limit)))


def compare(path, table, slices, takes):
    """Compare slices and gathered rows with those of the table."""
    found = answers(path, [to_cut(*pair) for pair in slices] + [to_gather(rows) for rows in takes])
    expected = [table.slice(*pair) for pair in slices] + [table.take(pa.array(rows, pa.int64())) for rows in takes]
    for what, one, other in zip(slices + takes, found, expected):
        assert not isinstance(one, Refused), f"{what}: {one}"
        equal(read(one), other)


def write_stream(path, table, batch_rows=None, **options):
    with pa.ipc.new_stream(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return path


def write_file(path, table, batch_rows=None, **options):
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return path


def check(path, table, seed=1, slices=None):
    """Compare what the index says, slices and gathered rows with the table that pyarrow read."""
    n, index = table.num_rows, index_of(path)
    assert index["format"] == "arrow" and index["rows"] == n and index["reason"] is None
    assert index["columns"] == [{"name": f.name, "type": str(storage(f.type))} for f in table.schema]
    rng = random.Random(seed)
    edges = sorted({0, 1, 7, 8, 9, n // 2, n - 1, n} & set(range(n + 1)))
    pairs = slices or [(a, b - a) for a in edges for b in edges if a <= b]
    pairs += [(a, rng.randint(0, n - a)) for a in [rng.randint(0, n) for _ in range(4)]]
    takes = [[], list(range(n)), [rng.randrange(n) for _ in range(2 * n)] if n else [], [n - 1, 0, n - 1][:3 * n]]
    compare(path, table, pairs, takes)


def storage(kind):
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def values(kind, n, rng, nulls=True):
    """Return n values of the type, about a fifth of them None."""
    def one(kind):
        if nulls and rng.random() < 0.2 or pa.types.is_null(kind):
            return None
        return some(kind)

    def some(kind):
        t = pa.types
        if t.is_dictionary(kind):
            return some(kind.value_type)
        if t.is_boolean(kind):
            return rng.random() < 0.5
        if t.is_decimal(kind):
            return decimal.Decimal(rng.randrange(10**7)).scaleb(-kind.scale)
        if t.is_floating(kind):
            return float(np.float16(rng.uniform(-9, 9)))
        if t.is_integer(kind):
            low = 0 if t.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
            return rng.randrange(low, low + (1 << kind.bit_width))
        if t.is_date64(kind):
            return 86_400_000 * rng.randrange(20000)
        if t.is_temporal(kind) and not t.is_interval(kind):
            return rng.randrange(80000)
        if t.is_interval(kind):
            return pa.MonthDayNano([rng.randrange(12), rng.randrange(30), rng.randrange(10**9)])
        if t.is_fixed_size_binary(kind):
            return rng.randbytes(kind.byte_width)
        if t.is_string(kind) or t.is_large_string(kind):
            return "".join(rng.choice("ab é日\U0001f600") for _ in range(rng.randrange(9)))
        if t.is_binary(kind) or t.is_large_binary(kind):
            return rng.randbytes(rng.randrange(9))
        if t.is_map(kind):
            return [(some(kind.key_type), one(kind.item_type)) for _ in range(rng.randrange(4))]
        if t.is_fixed_size_list(kind):
            return [one(kind.value_type) for _ in range(kind.list_size)]
        if t.is_list(kind) or t.is_large_list(kind):
            return [one(kind.value_type) for _ in range(rng.randrange(4))]
        assert t.is_struct(kind), kind
        return {f.name: one(f.type) if f.nullable else some(f.type) for f in kind}
    return [one(kind) for _ in range(n)]


PRIMITIVES = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(), pa.bool_(), pa.null(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
    pa.binary(5), pa.binary(0), pa.decimal32(8, 2), pa.decimal64(9, 3), pa.decimal128(10, 2), pa.decimal256(50, 4),
    pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.timestamp("s"),
    pa.timestamp("us", tz="UTC"), pa.timestamp("ns", tz="Europe/Berlin"), pa.duration("ms"), pa.duration("ns"),
    pa.month_day_nano_interval()
]
NESTED = [
    pa.list_(pa.int32()), pa.large_list(pa.string()), pa.list_(pa.list_(pa.bool_())), pa.list_(pa.int16(), 3),
    pa.list_(pa.list_(pa.string(), 2)), pa.list_(pa.bool_(), 5), pa.list_(pa.null()), pa.list_(pa.int8(), 0),
    pa.struct([("a", pa.int64()), pa.field("b", pa.string(), nullable=False)]), pa.struct([]),
    pa.struct([("x", pa.list_(pa.struct([("y", pa.list_(pa.float32())), ("z", pa.bool_())])))]),
    pa.map_(pa.string(), pa.int64()), pa.map_(pa.int32(), pa.list_(pa.string()), keys_sorted=True),
    pa.list_(pa.map_(pa.string(), pa.struct([("v", pa.binary(3))]))), pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.int64(), ordered=True), pa.list_(pa.dictionary(pa.int32(), pa.large_string())),
    pa.struct([("d", pa.dictionary(pa.int64(), pa.binary())), ("n", pa.null())])
]


@pytest.mark.parametrize("kind", PRIMITIVES + NESTED, ids=str)
@pytest.mark.parametrize("nulls", [True, False], ids=["nulls", "full"])
def test_every_type(tmp_path, kind, nulls):
    rng = random.Random(str(kind))
    column = pa.array(values(kind, 43, rng, nulls), kind)
    table = pa.table({"c": column, "i": pa.array(range(43), pa.int32())})
    write_stream(tmp_path / "one.arrow", table)
    check(tmp_path / "one.arrow", table)
    write_file(tmp_path / "many.feather", table, batch_rows=10)
    check(tmp_path / "many.feather", table, slices=[(3, 5), (5, 20), (10, 10), (10, 25), (0, 43), (39, 4)])


def test_all_types_in_one_table(tmp_path):
    rng = random.Random(7)
    table = pa.table({f"c{i}": pa.array(values(k, 200, rng), k) for i, k in enumerate(PRIMITIVES + NESTED)})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": "é"}), "k": "v" * 3000})
    write_stream(tmp_path / "t.arrow", table, batch_rows=64)
    check(tmp_path / "t.arrow", table)


def test_random_schemas(tmp_path):
    rng = random.Random(16)

    def kind(depth):
        if depth == 0 or rng.random() < 0.4:
            return rng.choice(PRIMITIVES)
        inner, other = kind(depth - 1), kind(depth - 1)
        can_be_null = pa.types.is_null(other) or rng.random() < 0.5
        return rng.choice([
            pa.list_(inner), pa.large_list(inner), pa.list_(inner, rng.randrange(1, 4)),
            pa.struct([("p", inner), pa.field("q", other, nullable=can_be_null)]), pa.map_(pa.string(), inner)
        ])
    for number in range(60):
        n = rng.randrange(1, 60)
        columns = {f"c{i}": kind(4) for i in range(rng.randrange(1, 5))}
        table = pa.table({name: pa.array(values(k, n, rng), k) for name, k in columns.items()})
        path = write_stream(tmp_path / f"{number}.arrow", table, batch_rows=rng.randrange(1, 70))
        table = pa.ipc.open_stream(path.read_bytes()).read_all()
        firsts = [rng.randrange(n) for _ in range(6)]
        compare(path, table, [(first, rng.randrange(n - first + 1)) for first in firsts],
                [[rng.randrange(n) for _ in range(rng.randrange(2 * n))] for _ in range(4)])


def test_sliced_arrays_and_empty_batches(tmp_path):
    rng = random.Random(3)
    kinds = [pa.string(), pa.bool_(), pa.list_(pa.int32()), pa.int64(), pa.struct([("a", pa.string())])]
    whole = pa.table({f"c{i}": pa.array(values(k, 100, rng), k) for i, k in enumerate(kinds)})
    batches = [whole.slice(a, b).combine_chunks().to_batches() or [] for a, b in [(5, 20), (31, 0), (33, 13), (60, 40)]]
    sliced = [whole.to_batches()[0].slice(a, b) for a, b in [(5, 20), (31, 0), (33, 13), (50, 0), (60, 40), (0, 0)]]
    for name, parts in (("combined", sum(batches, [])), ("sliced", sliced)):
        path = tmp_path / f"{name}.arrow"
        with pa.ipc.new_stream(path, whole.schema) as writer:
            for batch in parts:
                writer.write_batch(batch)
        table = pa.Table.from_batches(parts, whole.schema)
        assert index_of(path)["rows"] == 73
        check(path, table)


def test_no_rows_and_no_columns(tmp_path):
    schema = pa.schema([("a", pa.string()), ("d", pa.dictionary(pa.int8(), pa.string()))])
    for name, write in (("s.arrow", pa.ipc.new_stream), ("f.arrow", pa.ipc.new_file)):
        with write(tmp_path / name, schema):
            pass
        check(tmp_path / name, schema.empty_table())
        with write(tmp_path / name, pa.schema([])) as writer:
            for rows in (3, 0, 4):
                writer.write_batch(pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([]))))
        assert index_of(tmp_path / name)["rows"] == 7
        assert cut(tmp_path / name, 2, 4).num_rows == 4 and gather(tmp_path / name, [6, 6, 0]).num_rows == 3


def test_names_and_types_are_shown(tmp_path):
    kinds = [
        pa.list_(pa.field("odd", pa.int64(), nullable=False)), pa.map_(pa.field("k", pa.string(), nullable=False),
                                                                       pa.field("v", pa.int8())),
        pa.dictionary(pa.int8(), pa.string(), ordered=True), pa.list_view(pa.int8()), pa.large_list_view(pa.string()),
        pa.string_view(), pa.binary_view(), pa.run_end_encoded(pa.int32(), pa.string()),
        pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string(), nullable=False)], [5, 9]),
        pa.dense_union([pa.field("a", pa.list_(pa.int8()))]), pa.struct([("é\n\"", pa.struct([]))])
    ]
    schema = pa.schema([pa.field(f"日{i}\"\\\n", kind) for i, kind in enumerate(kinds)])
    with pa.ipc.new_stream(tmp_path / "t.arrow", schema):
        pass
    assert index_of(tmp_path / "t.arrow")["columns"] == [{"name": f.name, "type": str(f.type)} for f in schema]


def dictionary_batches(*dictionaries):
    rng = random.Random(5)

    def batch(words):
        indices = pa.array([rng.randrange(len(words)) for _ in range(10)], pa.int8())
        return pa.record_batch({"d": pa.DictionaryArray.from_arrays(indices, words), "i": pa.array(range(10))})
    return [batch(words) for words in dictionaries]


def test_dictionaries_that_grow_and_that_are_replaced(tmp_path):
    grow = dictionary_batches(["a"], ["a", "b"], ["a", "b"], ["a", "b", "c", "d"])
    for name, write in (("s.arrow", pa.ipc.new_stream), ("f.arrow", pa.ipc.new_file)):
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        with write(tmp_path / name, grow[0].schema, options=options) as writer:
            for batch in grow:
                writer.write_batch(batch)
        check(tmp_path / name, pa.Table.from_batches(grow))
    path = tmp_path / "replaced.arrow"
    words = [["a", "b"], ["b", "c" * 3000], ["c" * 3000, "d", "e"], ["x"]]
    replaced = dictionary_batches(*words)
    with pa.ipc.new_stream(path, replaced[0].schema) as writer:
        for batch in replaced:
            writer.write_batch(batch)
    table = pa.Table.from_batches(replaced)
    compare(path, table, [(0, 40), (3, 4), (12, 5), (8, 14), (25, 15), (31, 2)], [])
    assert len(answer(path, to_cut(31, 2))) < 2000  # the dictionaries before are not sent
    with pytest.raises(Refused, match="replaces the values of a dictionary") as refused:
        gather(path, [1])
    assert refused.value.code == FAILED_PRECONDITION


def test_old_streams(tmp_path):
    rng = random.Random(2)
    table = pa.table({"s": values(pa.string(), 50, rng), "l": pa.array(values(pa.list_(pa.int8()), 50, rng))})
    for version in (pa.ipc.MetadataVersion.V4, pa.ipc.MetadataVersion.V5):
        for legacy in (True, False):
            path = write_stream(tmp_path / "old.arrow", table, 17, use_legacy_format=legacy, metadata_version=version)
            assert (path.read_bytes()[:4] != b"\xff\xff\xff\xff") == legacy
            check(path, table)


@pytest.mark.parametrize("kind", [
    pa.string_view(), pa.run_end_encoded(pa.int32(), pa.int64()), pa.list_view(pa.int8()),
    pa.dense_union([pa.field("a", pa.int8())])
], ids=str)
def test_what_is_not_cut_is_sent_whole(tmp_path, kind):
    if pa.types.is_union(kind):
        column = pa.UnionArray.from_dense(pa.array([0] * 20, pa.int8()), pa.array(range(20), pa.int32()),
                                          [pa.array(range(20), pa.int8())], ["a"])
    elif pa.types.is_run_end_encoded(kind):
        column = pa.RunEndEncodedArray.from_arrays(pa.array([5, 20], pa.int32()), pa.array([7, 8]))
    else:
        column = pa.array(["x" * 20] * 20 if kind == pa.string_view() else [[1]] * 20, kind)
    table = pa.table({"c": column})
    with pa.ipc.new_stream(tmp_path / "t.arrow", table.schema) as writer:
        for _ in range(3):
            writer.write_table(table)
    refuses(tmp_path / "t.arrow", pa.concat_tables([table] * 3))


def test_compressed_batches_are_sent_whole(tmp_path):
    table = pa.table({"c": pa.array(["x" * 100] * 20)})
    for codec in ("lz4", "zstd"):
        if pa.Codec.is_available(codec):
            three = pa.concat_tables([table] * 3)
            refuses(write_file(tmp_path / "t.arrow", three, 20, compression=codec), three)


def refuses(path, table):
    index = index_of(path)
    assert index["rows"] == 60 and index["reason"]
    for act in (lambda: cut(path, 20, 19), lambda: gather(path, [3])):
        with pytest.raises(Refused) as refused:
            act()
        assert refused.value.code == FAILED_PRECONDITION and refused.value.message == index["reason"]
    assert cut(path, 20, 40).to_pylist() == table.slice(20, 40).to_pylist()
    assert read(answer(path, f"whole 25 20 {LIMIT}")).to_pylist() == table.slice(20, 40).to_pylist()


def test_batches_are_of_a_mebibyte_and_memory_has_a_limit(tmp_path):
    rng = random.Random(9)
    table = pa.table({"b": [rng.randbytes(40000) for _ in range(100)] + [rng.randbytes(3_000_000)], "i": range(101)})
    path = write_stream(tmp_path / "t.arrow", table, 30)
    rows = [100, 3, 100] + list(range(99, 20, -1))
    stream = answer(path, to_gather(rows))
    equal(read(stream), table.take(rows))
    sizes = [batch.nbytes for batch in pa.ipc.open_stream(stream)]
    assert sizes[0] > 3_000_000 and sizes[2] > 3_000_000 and sizes[1] < 50_000
    assert all(900_000 < size <= 1 << 20 for size in sizes[3:-1]), sizes
    with pytest.raises(Refused, match="more than 4000000 bytes of memory") as refused:
        gather(path, rows, limit=4_000_000)
    assert refused.value.code == RESOURCE_EXHAUSTED
    equal(cut(path, 5, 90, limit=20_000), table.slice(5, 90))  # the blobs are sent from the file
    with pytest.raises(Refused, match="more than 1000 bytes of memory"):
        cut(path, 5, 90, limit=1000)


def test_the_cache_of_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({
        "text": datasets.Value("string"), "label": datasets.ClassLabel(names=["a", "b"]),
        "tokens": datasets.Sequence(datasets.Value("int32")), "grid": datasets.Array2D((2, 3), "float32"),
        "image": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    })
    rng = random.Random(1)

    def rows():
        for i in range(2500):
            yield {"text": f"row {i} é", "label": i % 2, "tokens": list(range(i % 5)), "grid": [[i, 1, 2], [3, 4, 5]],
                   "image": {"bytes": rng.randbytes(i % 50), "path": None}}
    made = datasets.Dataset.from_generator(rows, features=features, cache_dir=str(tmp_path / "cache"))
    made.save_to_disk(tmp_path / "saved")
    paths = [p for p in tmp_path.rglob("*.arrow")]
    assert len(paths) >= 2
    for path in paths:
        table = pa.ipc.open_stream(path.read_bytes()).read_all()
        assert table.num_rows == 2500
        picked = [rng.randrange(2500) for _ in range(100)]
        equal(cut(path, 990, 1050), table.slice(990, 1050))
        equal(gather(path, picked), table.take(picked))
        again = datasets.Dataset.from_buffer(pa.py_buffer(answer(path, to_gather(picked))))
        assert again.features == features and again[7] == made[picked[7]]


def test_errors_name_what_is_wrong(tmp_path):
    table = pa.table({"s": ["a", "bb", "ccc", "dddd"] * 5})
    path = write_stream(tmp_path / "t.arrow", table, 10)
    for act in (lambda: cut(path, 15, 6), lambda: gather(path, [20]), lambda: cut(path, 21, 0)):
        with pytest.raises(Refused, match="there are 20 rows") as refused:
            act()
        assert refused.value.code == INVALID_ARGUMENT
    data = bytearray(path.read_bytes())
    words = index_of(path)["words"]
    offsets = words[6] + words[6 + 3]  # the body of the second batch
    struct.pack_into("<i", data, offsets + 4 * 5, 2**31 - 1)
    path.write_bytes(data)
    equal(cut(path, 0, 9), table.slice(0, 9))
    with pytest.raises(Refused, match="^record batch 1: offset 2147483647 of item 4 descends"):
        cut(path, 11, 8)
    with pytest.raises(Refused, match="^record batch 1: "):
        gather(path, [14])


# schemas of one size: what pyarrow writes of them differs in the schema alone
TWINS = {
    "name": (pa.schema([("a", pa.int32())]), pa.schema([("b", pa.int32())])),
    "type": (pa.schema([("a", pa.int32())]), pa.schema([("a", pa.uint32())])),
    "width": (pa.schema([("a", pa.int32())]), pa.schema([("a", pa.int64())])),
    "not null": (pa.schema([pa.field("a", pa.int32())]), pa.schema([pa.field("a", pa.int32(), nullable=False)])),
    "time zone": (pa.schema([("a", pa.timestamp("s", "UTC"))]), pa.schema([("a", pa.timestamp("s", "CET"))])),
    "unit": (pa.schema([("a", pa.timestamp("s"))]), pa.schema([("a", pa.timestamp("ms"))])),
    "field's metadata": (pa.schema([pa.field("a", pa.int32(), metadata={"k": "v"})]),
                         pa.schema([pa.field("a", pa.int32(), metadata={"k": "w"})])),
    "metadata": (pa.schema([("a", pa.int32())], {"k": "v"}), pa.schema([("a", pa.int32())], {"k": "w"})),
    "inner name": (pa.schema([("a", pa.struct([("x", pa.int32())]))]),
                   pa.schema([("a", pa.struct([("y", pa.int32())]))])),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_footer_with_another_schema_is_refused(tmp_path, name):
    """pyarrow reads a file by the footer's schema, and the stream in it by that of the first message."""
    files = []
    for schema in TWINS[name]:
        field = schema.field("a" if "a" in schema.names else "b")
        value = {"x": 1, "y": 2} if pa.types.is_struct(field.type) else 1
        files.append(write_file(tmp_path / "t.arrow", pa.table([pa.array([value], field.type)], schema)).read_bytes())
    one, two = files
    ends = [len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0] for data in files]
    mixed = tmp_path / "t.arrow"
    mixed.write_bytes(one[:ends[0]] + two[ends[1]:])
    if ends[0] == ends[1]:
        assert pa.ipc.open_file(mixed).schema.equals(TWINS[name][1], check_metadata=True)
        with pa.ipc.open_stream(mixed.read_bytes()[8:]) as reader:
            assert reader.schema.equals(TWINS[name][0], check_metadata=True)
    with pytest.raises(Refused, match="the footer has another schema than the first message of the file") as refused:
        index_of(mixed)
    assert refused.value.code == INVALID_ARGUMENT
    for data in files:
        mixed.write_bytes(data)
        assert index_of(mixed)["rows"] == 1


def test_a_footer_that_says_something_else_of_a_batch(tmp_path):
    """Of each block of the footer, one number after the other is changed: pyarrow reads no such file, or the same."""
    table = pa.table({"a": pa.array(range(40), pa.int32()), "d": pa.array(["x", "y"] * 20).dictionary_encode()})
    path = write_file(tmp_path / "t.arrow", table, 10)
    data = path.read_bytes()
    footer = len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0]
    words = index_of(path)["words"]
    refused = 0
    for offset in words[0::6]:
        at = data.index(struct.pack("<q", offset), footer)
        for place in (at, at + 8, at + 16):
            for change in (8, -8):
                changed = bytearray(data)
                struct.pack_into("<i", changed, place, struct.unpack_from("<i", changed, place)[0] + change)
                path.write_bytes(changed)
                with pytest.raises(Refused):
                    index_of(path)
                refused += 1
    assert refused == 6 * 5
