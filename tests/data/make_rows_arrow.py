#!/usr/bin/env python3
"""Writes tests/data/rows_arrow/: small files of Arrow IPC and Parquet by pyarrow, for unit tests and as seeds of the
fuzz targets, and beside each NAME.txt with the number of rows and the columns that pyarrow tells."""
import decimal
import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).resolve().parent / "rows_arrow"


def tables():
    nested = pa.table({
        "l": pa.array([[1, None], [], None, [4, 5, 6]], pa.list_(pa.int16())), "f": pa.array(
            [[True, False, None], None, [None] * 3, [True] * 3], pa.list_(pa.bool_(), 3)), "s": pa.array(
                [{"a": "x", "b": [b"y"]}, None, {"a": None, "b": []}, {"a": "é", "b": None}],
                pa.struct([("a", pa.string()), ("b", pa.large_list(pa.binary()))])),
        "m": pa.array([[("k", 1)], [], None, [("p", 2), ("q", None)]], pa.map_(pa.string(), pa.int8()))
    })
    flat = pa.table({
        "i": pa.array([1, None, 3, 4, 5], pa.int32()), "t": ["a", "", None, "日本", "e"],
        "b": [True, False, None, True, True],
        "d": pa.array([decimal.Decimal("1.25"), None] * 2 + [None], pa.decimal128(9, 2)), "n": pa.nulls(5),
        "x": pa.array([b"abc", None, b"def", b"ghi", b"jkl"], pa.binary(3)),
        "u": pa.array(range(5), pa.timestamp("us", tz="UTC"))
    })
    return {"flat": flat, "nested": nested}


def describe(name, rows, columns):
    text = json.dumps(columns, ensure_ascii=False, separators=(",", ":"))
    (HERE / f"{name}.txt").write_text(f"{rows}\n{text}\n", encoding="utf-8")


def write(name, schema, batches, make=pa.ipc.new_stream, **options):
    with make(HERE / name, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    columns = [{"name": field.name, "type": str(field.type)} for field in schema]
    describe(name, sum(batch.num_rows for batch in batches), columns)


def with_dictionary(*words):
    return [pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int8()), w)}) for w in words]


def main():
    HERE.mkdir(exist_ok=True)
    for old in HERE.iterdir():
        old.unlink()
    for name, table in tables().items():
        batches = table.to_batches(max_chunksize=3)
        write(f"{name}.arrow", table.schema, batches)
        write(f"{name}.feather", table.schema, batches, pa.ipc.new_file)
    flat = tables()["flat"].select(["i", "t"])
    write("two.arrow", flat.schema, flat.to_batches(max_chunksize=3))
    batches = flat.to_batches(max_chunksize=2)
    write("empty_batches.arrow", flat.schema, [batches[0].slice(0, 0), *batches, batches[0].slice(0, 0)])
    write("old.arrow", flat.schema, batches, use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    write("no_batches.arrow", flat.schema, [])
    write("no_columns.arrow", pa.schema([]), [pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))])
    write("compressed.feather", flat.schema, batches, pa.ipc.new_file, compression="zstd")
    grow = with_dictionary(["a", "b"], ["a", "b", "c"])
    write("delta.arrow", grow[0].schema, grow, emit_dictionary_deltas=True)
    write("delta.feather", grow[0].schema, grow, pa.ipc.new_file, emit_dictionary_deltas=True)
    replaced = with_dictionary(["a", "b"], ["x", "y"])
    write("replaced.arrow", replaced[0].schema, replaced)
    lists = pa.array([[1], []], pa.list_view(pa.int8()))
    views = pa.record_batch({"v": pa.array(["a", "b" * 20], pa.string_view()), "l": lists})
    write("views.arrow", views.schema, [views])
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int16()), pa.array([7]))
    other = pa.record_batch({"u": union, "r": runs})
    write("other.arrow", other.schema, [other])
    for name, table in tables().items():
        pq.write_table(table, HERE / f"{name}.parquet", row_group_size=3, store_schema=False, compression="none")
        schema = pq.read_metadata(HERE / f"{name}.parquet").schema
        columns = []
        for leaf in (schema.column(i) for i in range(len(schema))):
            logical = "" if leaf.logical_type.type == "NONE" else f" ({leaf.logical_type.type})"
            columns.append({"name": leaf.path, "type": leaf.physical_type + logical})
        describe(f"{name}.parquet", table.num_rows, columns)


if __name__ == "__main__":
    main()
