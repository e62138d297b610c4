"""The index of Parquet files, as parser/rows reads their footers, beside what pyarrow says of them."""
import base64
import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from test_arrow_rows import INVALID_ARGUMENT, Refused, index_of

ROWS = 1000


def table():
    return pa.table({
        "i": pa.array(range(ROWS), pa.int64()), "u": pa.array(range(ROWS), pa.uint16()),
        "s": ["é" * (i % 9) for i in range(ROWS)], "b": pa.array([b"x" * 100] * ROWS),
        "f": pa.array([1.5] * ROWS, pa.float32()), "bool": [True, None] * (ROWS // 2),
        "ts": pa.array(range(ROWS), pa.timestamp("us", tz="UTC")), "date": pa.array(range(ROWS), pa.date32()),
        "time": pa.array(range(ROWS), pa.time64("us")), "fixed": pa.array([b"abcd"] * ROWS, pa.binary(4)),
        "dec": pa.array([decimal.Decimal("1.25")] * ROWS, pa.decimal128(9, 2)),
        "half": pa.array([1.0] * ROWS, pa.float16()), "list": [[i] * (i % 3) for i in range(ROWS)],
        "map": pa.array([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
        "struct": [{"a": {"b\"\n": i}, "c": None if i % 2 else "x"} for i in range(ROWS)],
        "dict": pa.array(["x", "y"] * (ROWS // 2)).dictionary_encode(), "日本": pa.array([None] * ROWS, pa.null())
    })


def check(path):
    meta, index = pq.read_metadata(path), index_of(path)
    assert index["format"] == "parquet" and index["rows"] == meta.num_rows
    assert "are cut by the client" in index["reason"] and index["params"][0] == 3
    leaves = [meta.schema.column(i) for i in range(meta.num_columns)]
    assert [c["name"] for c in index["columns"]] == [leaf.path for leaf in leaves]
    for column, leaf in zip(index["columns"], leaves):
        logical = leaf.logical_type.type
        assert column["type"] == leaf.physical_type + (f" ({logical})" if logical != "NONE" else ""), leaf
    words = index["words"]
    assert len(words) == 3 * meta.num_row_groups
    for i in range(meta.num_row_groups):
        group = meta.row_group(i)
        chunks = [group.column(c) for c in range(group.num_columns) if group.column(c).total_compressed_size > 0]
        begins = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in chunks]
        ends = [begin + c.total_compressed_size for begin, c in zip(begins, chunks)]
        assert words[3 * i:3 * i + 3] == [min(begins), max(ends) - min(begins), group.num_rows]


@pytest.mark.parametrize("options", [
    {}, {"compression": "none"}, {"compression": "zstd", "row_group_size": 77}, {"use_dictionary": False},
    {"version": "1.0"}, {"write_page_index": True, "row_group_size": 300}, {"data_page_version": "2.0"},
    {"write_statistics": False, "store_schema": False}, {"write_page_checksum": True}
], ids=str)
def test_row_groups_and_columns(tmp_path, options):
    pq.write_table(table(), tmp_path / "t.parquet", **options)
    check(tmp_path / "t.parquet")


def test_no_rows_and_sorted_and_bloom(tmp_path):
    pq.write_table(table().slice(0, 0), tmp_path / "t.parquet")
    check(tmp_path / "t.parquet")
    pq.write_table(table(), tmp_path / "t.parquet", sorting_columns=[pq.SortingColumn(0)], row_group_size=500)
    check(tmp_path / "t.parquet")


def test_the_bytes_of_a_row_group_are_enough(tmp_path):
    """A client that has the bytes of one row group and the footer, and nothing else, reads its rows."""
    path = tmp_path / "t.parquet"
    pq.write_table(table(), path, row_group_size=250)
    data, words = path.read_bytes(), index_of(path)["words"]
    offset, size, rows = words[6:9]
    footer = pq.read_metadata(path).serialized_size
    holes = bytearray(len(data))
    for begin, end in ((0, 4), (offset, offset + size), (len(data) - 8 - footer, len(data))):
        holes[begin:end] = data[begin:end]
    got = pq.ParquetFile(pa.BufferReader(bytes(holes))).read_row_group(2)
    assert rows == 250 and got.equals(pq.ParquetFile(path).read().slice(500, 250))


def test_what_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(table(), path)
    good = path.read_bytes()
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    for data, message in [
        (good[:-4] + b"PARE", "the footer is encrypted"), (good[:-1], "PAR1 is missing"),
        (b"PAR2" + good[4:], "PAR1 is missing"),
        (good[:-8] + b"\xff\xff\xff\x7f" + good[-4:], "a footer of 2147483647 bytes"), (b"PAR1", "too few"),
        (good[:4] + good[footer:], "outside of the file")
    ]:
        path.write_bytes(data)
        with pytest.raises(Refused, match=message) as refused:
            index_of(path)
        assert refused.value.code == INVALID_ARGUMENT


class Keys(pe.KmsClient):
    """Keeps keys by adding the name of the master key, which hides nothing."""

    def wrap_key(self, key_bytes, master_key_identifier):
        return base64.b64encode(master_key_identifier.encode() + key_bytes)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return base64.b64decode(wrapped_key)[len(master_key_identifier):]


@pytest.mark.parametrize("plaintext", [True, False], ids=["plain footer", "encrypted footer"])
@pytest.mark.parametrize("columns", [["i"], ["s"], ["i", "s", "f"]], ids=",".join)
def test_encrypted_columns_are_refused(tmp_path, plaintext, columns):
    """A plain footer shows columns, row groups and places, but the pages of encrypted columns are for key holders."""
    path, factory, connection = tmp_path / "t.parquet", pe.CryptoFactory(lambda _: Keys()), pe.KmsConnectionConfig()
    config = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": columns}, plaintext_footer=plaintext)
    written = table().select(["i", "s", "f"])
    with pq.ParquetWriter(path, written.schema,
                          encryption_properties=factory.file_encryption_properties(connection, config)) as writer:
        writer.write_table(written)
    properties = factory.file_decryption_properties(connection)
    assert pq.read_table(path, decryption_properties=properties).equals(written)
    with pytest.raises(OSError):
        pq.read_table(path)
    first = ["i", "s", "f"].index(columns[0])
    with pytest.raises(Refused, match=f"a column chunk is encrypted, of column: {first}" if plaintext else
                       "the footer is encrypted") as refused:
        index_of(path)
    assert refused.value.code == INVALID_ARGUMENT
