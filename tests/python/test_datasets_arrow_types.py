"""Rows of every type of Arrow, as stream, file, compressed file and Parquet: pyarrow is what they are compared with.

Where pyarrow reads a table, `arrow()` returns the same one; where it makes dicts, rows are these; where it fails with
whatever error, the client raises DecodeError.
"""
import io
import random

import pyarrow
import pyarrow.parquet
import pytest
from arrow_types import KINDS, Point, array_of
from conftest import rows_url

import harness
import tensord
from tensord.rows import columns
from tensord.rows.arrow import table_of

pytestmark = pytest.mark.timeout(300)
QUIET = {"progress": False, "retry_for": 20.0}
FORMS = ("stream", "file", "lz4", "zstd", "parquet")
COUNT, BATCH = 43, 15
SCATTERED = [42, 0, 3, 3, 17, 30, 29]


def write(path, table, form):
    """Write a table in one of the forms, and return it as pyarrow reads it; None: pyarrow does not write it."""
    try:
        if form == "parquet":
            pyarrow.parquet.write_table(table, path, row_group_size=BATCH)
            return pyarrow.parquet.ParquetFile(path).read()
    except (pyarrow.ArrowException, OSError):
        path.unlink(missing_ok=True)
        return None
    options = pyarrow.ipc.IpcWriteOptions(compression=None if form in ("stream", "file") else form)
    write, read = (pyarrow.ipc.new_stream, pyarrow.ipc.open_stream) if form == "stream" else (
        pyarrow.ipc.new_file, pyarrow.ipc.open_file)
    with write(path, table.schema, options=options) as writer:
        for batch in table.to_batches(BATCH if table.num_columns else None):
            writer.write_batch(batch)
    return read(path).read_all()


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """tables(name, table) writes it in all forms; then .get(name, form) gives it as pyarrow reads it, and the
    dataset."""
    server = []
    root = tmp_path_factory.mktemp("types")
    read = {}

    class Tables:
        def __call__(self, name, table):
            assert not server, "all tables are written before the first one is read"
            for form in FORMS:
                path = root / "datasets" / f"{name}-{form}" / ("train.parquet" if form == "parquet" else "train.arrow")
                path.parent.mkdir(parents=True)
                read[name, form] = write(path, table, form)

        def get(self, name, form, **options):
            if not server:
                harness.age(root)
                server.append(harness.Server(root))
            if read[name, form] is None:
                return None
            return read[name, form], tensord.Dataset(rows_url(server[0], f"{name}-{form}"), **QUIET, **options)

    made = Tables()
    pyarrow.register_extension_type(Point())
    for number, kind in enumerate(KINDS):
        column = array_of(kind, COUNT, random.Random(number))
        column.validate(full=True)
        made(f"kind-{number}", pyarrow.table({"c": column, "i": pyarrow.array(range(COUNT), pyarrow.int32())},
                                             metadata={"key": "value"}))
    for name, table in shapes().items():
        made(name, table)
    for name, column in odd_values().items():
        made(name, pyarrow.table({"c": column, "i": pyarrow.array(range(len(column)))}))
    yield made
    pyarrow.unregister_extension_type("tensord.test.point")
    for one in server:
        one.stop()


def without_columns(count, metadata):
    rows = pyarrow.StructArray.from_buffers(pyarrow.struct([]), count, [None])
    return pyarrow.Table.from_batches([pyarrow.RecordBatch.from_struct_array(rows).replace_schema_metadata(metadata)])


def shapes():
    """Return tables whose names, metadata or columns are unusual."""
    ids = pyarrow.array(range(COUNT), pyarrow.int32())
    texts = ids.cast(pyarrow.string())
    fields = [pyarrow.field("a", pyarrow.int8(), metadata={"f": "g"})]
    return {
        "same-names": pyarrow.Table.from_arrays([ids, texts, ids], ["a", "b", "a"]),
        "same-names-of-views": pyarrow.Table.from_arrays([ids, texts.cast(pyarrow.string_view())], ["a", "a"]),
        "no-columns": without_columns(COUNT, None), "no-columns-metadata": without_columns(COUNT, {"key": "value"}),
        "nothing": without_columns(0, {"key": "value"}),
        "no-rows": pyarrow.Table.from_batches([], pyarrow.schema(fields, {"key": "value"})),
        "empty-metadata": pyarrow.table({"a": ids}).replace_schema_metadata({}),
        "names": pyarrow.Table.from_arrays([ids, texts, ids], ["", "a.b", "a"], metadata={"": ""}),
    }


def bad(kind, values, storage):
    """Return an array of a type whose values are those of another type of the same layout."""
    return pyarrow.Array.from_buffers(kind, len(values), pyarrow.array(values, storage).buffers())


def odd_values():
    """Return arrays that pyarrow reads, although validate(full=True) refuses most of them; of some it makes no
    Python values."""
    wide = [bytes([0x7F]) * 16, bytes(16)]
    odd = {
        "date64": bad(pyarrow.date64(), [1, 86_400_000], pyarrow.int64()),
        "date64-far": bad(pyarrow.date64(), [0, 2**62], pyarrow.int64()),
        "date32-far": bad(pyarrow.date32(), [0, 2**31 - 1], pyarrow.int32()),
        "time32": bad(pyarrow.time32("s"), [0, 90_000], pyarrow.int32()),
        "time64": bad(pyarrow.time64("us"), [0, 2**62], pyarrow.int64()),
        "timestamp": bad(pyarrow.timestamp("s"), [0, 2**62], pyarrow.int64()),
        "zone": bad(pyarrow.timestamp("us", "Nowhere/Else"), [0, 1], pyarrow.int64()),
        "duration": bad(pyarrow.duration("s"), [0, 2**62], pyarrow.int64()),
        "decimal32": bad(pyarrow.decimal32(3, 1), [2**31 - 1, 0], pyarrow.int32()),
        "decimal64": bad(pyarrow.decimal64(3, 1), [2**63 - 1, 0], pyarrow.int64()),
        "decimal128": bad(pyarrow.decimal128(3, 1), wide, pyarrow.binary(16)),
        "decimal256": bad(pyarrow.decimal256(3, 1), [one * 2 for one in wide], pyarrow.binary(32)),
        "text": bad(pyarrow.string(), [b"a", b"\xff"], pyarrow.binary()),
        "large-text": bad(pyarrow.large_string(), [b"a", b"\xff"], pyarrow.large_binary()),
        "text-view": bad(pyarrow.string_view(), [b"a", b"\xff" * 20], pyarrow.binary_view()),
        "names-of-struct": pyarrow.StructArray.from_arrays([pyarrow.array([1, 2]), pyarrow.array([3, 4])], ["x", "x"]),
    }
    for name, column in list(odd.items()):
        odd[f"{name}-in-lists"] = pyarrow.ListArray.from_arrays(pyarrow.array([0, 1, 2], pyarrow.int32()), column)
        odd[f"{name}-in-structs"] = pyarrow.StructArray.from_arrays([column], ["x"])
        odd[f"{name}-in-dictionaries"] = pyarrow.DictionaryArray.from_arrays([0, 1], column, safe=False)
        odd[f"{name}-in-runs"] = pyarrow.Array.from_buffers(
            pyarrow.run_end_encoded(pyarrow.int32(), column.type), 2, [None],
            children=[pyarrow.array([1, 2], pyarrow.int32()), column])
        odd[f"{name}-in-unions"] = pyarrow.UnionArray.from_sparse(pyarrow.array([0, 0], pyarrow.int8()), [column])
        odd[f"{name}-in-maps"] = pyarrow.MapArray.from_arrays(
            pyarrow.array([0, 1, 2], pyarrow.int32()), pyarrow.array(["k", "k"]), column)
    return {f"odd-{name}": column for name, column in odd.items()}


def equal(found, wanted, what):
    assert found.schema.equals(wanted.schema, check_metadata=True), f"{what}: {found.schema}, not {wanted.schema}"
    assert found.num_rows == wanted.num_rows, what
    # Table.equals compares dictionaries as such, and no nulls of floats; values count here.
    assert found.equals(wanted) or found.to_pylist() == wanted.to_pylist(), f"{what}: {found}, not {wanted}"


def rows_of(table, rows):
    return pyarrow.concat_tables([table.slice(row, 1) for row in rows])


def test_all_types_are_there():
    """Fails when pyarrow has a type that the list above lacks."""
    known = {getattr(pyarrow.lib, name) for name in dir(pyarrow.lib) if name.startswith("Type_")}
    found = {kind.id for kind in KINDS if not isinstance(kind, pyarrow.BaseExtensionType)}
    assert found == known - {pyarrow.lib.Type_INTERVAL_MONTHS, pyarrow.lib.Type_INTERVAL_DAY_TIME}  # has no constructor


@pytest.mark.parametrize("number", range(len(KINDS)), ids=[str(kind) for kind in KINDS])
def test_every_type(tables, number):
    written = 0
    for form in FORMS:
        found = tables.get(f"kind-{number}", form)
        if found is None:
            continue
        (whole, dataset), written = found, written + 1
        dicts = whole.to_pylist()
        assert len(dataset) == COUNT and dataset.column_names == ["c", "i"]
        equal(dataset.arrow(), whole, form)
        equal(dataset.arrow(slice(10, 20)), whole.slice(10, 10), form)
        equal(dataset.arrow([1, 2, 5]), rows_of(whole, [1, 2, 5]), form)
        for empty in ([], slice(7, 7)):
            equal(dataset.arrow(empty), whole.slice(0, 0), form)
        equal(dataset.arrow(SCATTERED), rows_of(whole, SCATTERED), form)
        assert list(dataset) == dicts and dataset[42] == dicts[42], form
        assert dataset.__getitems__(SCATTERED) == [dicts[row] for row in SCATTERED], form
        order = list(tensord.ShuffleSampler(dataset, seed=3))
        assert dataset.shuffled(0, COUNT, seed=3) == [dicts[row] for row in order], form
    assert written >= 4  # pyarrow writes each type but to Parquet


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", shapes())
def test_names_metadata_and_columns(tables, name, form):
    whole, dataset = tables.get(name, form)
    count, names = len(whole), whole.schema.names
    assert len(dataset) == count and dataset.column_names == names
    assert list(dataset) == whole.to_pylist() and dataset[0:3] == whole.to_pylist()[:3]
    equal(dataset.arrow(), whole, "all")
    equal(dataset.arrow([]), whole.slice(0, 0), "none")
    if count:  # pyarrow slices tables without columns beyond their end
        equal(dataset.arrow(slice(1, 4)), whole.slice(1, 3), "some")
        rows = [count - 1, 0, 0, 20]
        found = dataset.arrow(rows)
        assert found.num_rows == 4 and found.schema.equals(whole.schema, check_metadata=True)
        assert found.to_pylist() == [whole.to_pylist()[row] for row in rows]
    for chosen in ([], names[:1], list(dict.fromkeys(names[::-1]))):
        places = [place for name in chosen for place in whole.schema.get_all_field_indices(name)]
        part = tables.get(name, form, columns=chosen)[1]
        assert part.arrow().num_rows == count and len(list(part)) == count
        equal(part.arrow(), whole.select(places), chosen)
        equal(part.arrow([]), whole.select(places).slice(0, 0), chosen)
    with pytest.raises(ValueError, match="no column zzz, but"):
        tables.get(name, form, columns=["zzz"])[1].arrow()


@pytest.mark.parametrize("name", odd_values())
def test_values_that_pyarrow_reads(tables, name):
    written = 0
    for form in FORMS:
        found = tables.get(name, form)
        if found is None:
            continue
        (whole, dataset), written = found, written + 1
        for rows in (slice(0, 2), [1, 0, 1]):
            wanted = whole.slice(0, 2) if isinstance(rows, slice) else rows_of(whole, rows)
            table = dataset.arrow(rows)
            assert table.schema.equals(wanted.schema) and table.num_rows == wanted.num_rows, form
            assert table.equals(wanted) or values_of(table) == values_of(wanted), form
        for row in (0, 1):
            wanted = values_of(whole.slice(row, 1))
            if wanted is None:
                with pytest.raises(tensord.DecodeError, match=f"row {row} of {name}-{form} .split train. cannot be "):
                    dataset[row]
            else:
                assert [dataset[row]] == wanted, form
    assert written >= 4


def values_of(table):
    """Return the rows as dicts, or None where pyarrow raises any error."""
    try:
        return table.to_pylist()
    except Exception:
        return None


def test_more_runs_than_their_type_numbers(tables):
    """A run-end encoded array whose ends have 16 bits holds 32,767 values; an answer may have more."""
    class Groups(tensord.rows.grouped.GroupedRows):
        def _read_group(self, row):
            first = row - row % 30000
            ends = pyarrow.array([10000, 30000], pyarrow.int16())
            numbers = pyarrow.array([first, first + 1], pyarrow.int64())
            return first, pyarrow.table({"r": pyarrow.RunEndEncodedArray.from_arrays(ends, numbers)})

    rows = random.Random(1).choices(range(90000), k=70000)
    found = Groups().table(rows)["r"].to_pylist()
    assert found == [row - row % 30000 + (row % 30000 >= 10000) for row in rows]


def test_few_bytes_that_stand_for_many_elements():
    """Runs and nulls of any length need a few bytes; taking rows needs memory for what these rows hold."""
    many, texts = 2**27, pyarrow.array(["x", "y"], pyarrow.string_view())
    runs = pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([many // 2, many], pyarrow.int64()), texts)
    lists = pyarrow.LargeListArray.from_arrays(pyarrow.array([0, 1, many], pyarrow.int64()), runs)
    views = pyarrow.LargeListViewArray.from_arrays(pyarrow.array([many - 1, 0], pyarrow.int64()),
                                                   pyarrow.array([1, many], pyarrow.int64()), runs)
    pairs, structs = pyarrow.FixedSizeListArray.from_arrays(runs, 2), pyarrow.StructArray.from_arrays([runs], ["r"])
    union = pyarrow.UnionArray.from_dense(pyarrow.array([0], pyarrow.int8()), pyarrow.array([1], pyarrow.int32()),
                                          [texts, pyarrow.nulls(many)])
    default = pyarrow.default_memory_pool()
    counted = pyarrow.proxy_memory_pool(default)
    pyarrow.set_memory_pool(counted)
    try:
        for array, rows, wanted in ((runs, [0, many - 1, many // 2 - 1], ["x", "y", "x"]),
                                    (lists, [0, 0], [["x"]] * 2), (views, [0], [["y"]]), (union, [0, 0], ["y", "y"]),
                                    (pairs, [0, many // 2 - 1], [["x", "x"], ["y", "y"]]),
                                    (structs, [0, many - 1], [{"r": "x"}, {"r": "y"}])):
            assert columns.take(pyarrow.table({"c": array}), rows)["c"].to_pylist() == wanted
            assert counted.max_memory() < 2**20, array.type
    finally:
        pyarrow.set_memory_pool(default)


def test_damaged_streams():
    """Whatever bytes arrive, only DecodeError comes out, and what is read can be used."""
    rng = random.Random(7)
    for number in range(1500):
        kind = KINDS[number % len(KINDS)]
        column = array_of(kind, COUNT, rng)
        sink = io.BytesIO()
        options = pyarrow.ipc.IpcWriteOptions(compression=(None, "lz4", "zstd")[number % 3])
        with pyarrow.ipc.new_stream(sink, pyarrow.schema([("c", kind)]), options=options) as writer:
            writer.write_batch(pyarrow.record_batch([column], ["c"]))
        data = bytearray(sink.getvalue())
        for _ in range(rng.choice((1, 1, 2, 5))):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            table = table_of(data[: rng.choice((None, None, None, rng.randrange(len(data))))], "d")
        except tensord.DecodeError as error:
            assert "rows of d cannot be read as Arrow: " in str(error)
            continue
        if 0 < len(table) <= COUNT:
            values_of(table)
            values_of(columns.take(table, [len(table) - 1, 0, 0]))


def test_tables_of_rows_that_fit_no_column(serve_rows):
    """JSON allows numbers and mixtures that no column of Arrow holds."""
    for name, rows in (("big", '{"n": 100000000000000000000000}\n'), ("mixed", '{"n": 1}\n{"n": "x"}\n')):
        path = serve_rows.root / "datasets" / name / "train.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(rows)
    server = serve_rows()
    for name in ("big", "mixed"):
        dataset = tensord.Dataset(rows_url(server, name), **QUIET)
        for read in (dataset.arrow, dataset.to_datasets):
            with pytest.raises(tensord.DecodeError, match=f"rows of {name} cannot be made columns of one table"):
                read()
