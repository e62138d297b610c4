"""Takes rows from pyarrow tables, joins and checks these tables, for every Arrow type.

This module fills gaps of pyarrow: its `take` supports neither views nor run-end encoded columns, it cannot join tables
without columns or make an empty column of some types, and validate(full=True) refuses values that pyarrow can read.

Functions recurse into the children of a type. pyarrow reads types of at most 64 levels, which bounds the depth. The
length of a run-end encoded or null array does not bound its memory, so no object is made per element.
"""
from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

if TYPE_CHECKING:
    import pyarrow


def empty_table(schema: "pyarrow.Schema") -> "pyarrow.Table":
    """Returns a table without rows. pyarrow's own empty_table fails for some types of columns."""
    import pyarrow

    return pyarrow.Table.from_batches([], schema)


def pick(table: "pyarrow.Table", names: Sequence[str]) -> "pyarrow.Table":
    """Returns the columns with these names, in the order of the names. If several columns share a name, returns all of
    them. Raises ValueError for a name that the table lacks."""
    return table.select(places_of(table.schema, names))


def places_of(schema: "pyarrow.Schema", names: Sequence[str], subject: str = "it") -> List[int]:
    """Returns the indices of the columns with these names. Raises ValueError for a name that the schema lacks; its
    message begins with `subject`."""
    known = set(schema.names)
    lacking = [name for name in names if name not in known]
    if lacking:
        raise ValueError(f"{subject} has no column {', '.join(lacking)}, but {', '.join(schema.names)}")
    return [place for name in names for place in schema.get_all_field_indices(name)]


def concat(tables: Sequence["pyarrow.Table"]) -> "pyarrow.Table":
    """Joins the rows of one or more tables. If a table lacks a column, its rows are null there. Raises
    pyarrow.ArrowException for columns of different types."""
    import pyarrow

    schema = tables[0].schema
    if not all(table.schema.equals(schema) for table in tables):
        return pyarrow.concat_tables(tables, promote_options="default")
    return _with_rows(schema, sum(map(len, tables))) if not len(schema) else pyarrow.concat_tables(tables)


def take(table: "pyarrow.Table", rows: Sequence[int]) -> "pyarrow.Table":
    """Returns rows in the order of a list, which may repeat rows. Raises pyarrow.ArrowException if an array of a
    column's type cannot hold so many."""
    import pyarrow

    if not table.num_columns:
        return _with_rows(table.schema, len(rows))
    places = pyarrow.array(rows, pyarrow.int64())
    return pyarrow.Table.from_arrays([_take_column(column, places) for column in table.columns], schema=table.schema)


def _with_rows(schema: "pyarrow.Schema", count: int) -> "pyarrow.Table":
    """Returns a table with `count` rows and no columns."""
    import pyarrow

    rows = pyarrow.StructArray.from_buffers(pyarrow.struct([]), count, [None])
    batch = pyarrow.RecordBatch.from_struct_array(rows)
    return pyarrow.Table.from_batches([batch.replace_schema_metadata(schema.metadata)])


# ---- rows in any order

def _take_column(column: Any, places: Any) -> Any:
    import pyarrow

    if _has_kernel(column.type):
        return column.take(places)
    if not column.num_chunks:
        return column
    return _take(pyarrow.concat_arrays(column.chunks), places)  # a new array, since _take accepts no slice


def _children_of(kind: Any) -> List[Any]:
    """Returns the child types of a type: the storage type of an extension type, none of a dictionary."""
    import pyarrow

    if isinstance(kind, pyarrow.BaseExtensionType):
        return [kind.storage_type]
    return [kind.field(number).type for number in range(kind.num_fields)]


def _has_kernel(kind: Any) -> bool:
    """Returns whether pyarrow's `take` supports a type."""
    from pyarrow import types

    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_run_end_encoded(kind):
        return False
    return all(map(_has_kernel, _children_of(kind)))


def _take(array: Any, places: Any) -> Any:
    """Returns elements of an array, which must not be a slice of another one."""
    import pyarrow
    from pyarrow import types

    kind = array.type
    if _has_kernel(kind):
        return array.take(places)
    if isinstance(kind, pyarrow.BaseExtensionType):
        return pyarrow.ExtensionArray.from_storage(kind, _take(array.storage, places))
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _take_views(array, places)
    if types.is_run_end_encoded(kind):
        return _take_runs(array, places)
    if types.is_struct(kind):
        children = [_take(array.field(number), places) for number in range(kind.num_fields)]
        return pyarrow.StructArray.from_arrays(children, fields=list(kind), mask=_nulls_of(array, places))
    if types.is_union(kind):
        return _take_union(array, places)
    return _take_lists(array, places)


def _take_views(array: Any, places: Any) -> Any:
    """Returns views with new buffers, so that the buffers of the whole array can be freed.

    The view of a null may hold any bytes, and pyarrow's cast would follow it, so the function empties it first.
    """
    import pyarrow

    kind, buffers = array.type, array.buffers()
    found = pyarrow.Array.from_buffers(pyarrow.binary(16), len(array), buffers[:2], offset=array.offset).take(places)
    views = found.fill_null(bytes(16)).buffers()[1]
    view = pyarrow.binary_view()  # also for texts: a cast of these would check for UTF-8
    made = pyarrow.Array.from_buffers(view, len(found), [found.buffers()[0], views, *buffers[2:]])
    return pyarrow.Array.from_buffers(kind, len(found), made.cast(pyarrow.large_binary()).cast(view).buffers())


def _take_runs(array: Any, places: Any) -> Any:
    import pyarrow
    import pyarrow.compute

    ends, values = array.run_ends.to_pylist(), array.values
    numbers = pyarrow.array([None if place is None else bisect.bisect_right(ends, place)
                             for place in places.to_pylist()], pyarrow.int64())
    runs = pyarrow.compute.run_end_encode(numbers, run_end_type=array.type.run_end_type)
    return _as_type(runs, array.type, [runs.run_ends, _take(values, runs.values)])


def _take_union(array: Any, places: Any) -> Any:
    import pyarrow

    kind = array.type
    names = [kind.field(number).name for number in range(kind.num_fields)]
    children = [array.field(number) for number in range(kind.num_fields)]
    codes = array.type_codes.take(places).fill_null(kind.type_codes[0])  # a null is one of the first child
    if kind.mode == "sparse":
        found = [_take(child, places) for child in children]
        made = pyarrow.UnionArray.from_sparse(codes, found, names, kind.type_codes)
        return _as_type(made, kind, found)
    wanted: Dict[int, List[Any]] = {code: [] for code in kind.type_codes}
    offsets = []
    for code, place in zip(codes.to_pylist(), array.offsets.take(places).to_pylist()):
        offsets.append(len(wanted[code]))
        wanted[code].append(place)
    found = [_take(child, pyarrow.array(wanted[code], pyarrow.int64()))
             for child, code in zip(children, kind.type_codes)]
    made = pyarrow.UnionArray.from_dense(codes, pyarrow.array(offsets, pyarrow.int32()), found, names, kind.type_codes)
    return _as_type(made, kind, found)


def _take_lists(array: Any, places: Any) -> Any:
    """Takes lists of any kind, including maps, which are lists of pairs."""
    import pyarrow

    spans = (each.to_pylist() for each in (*_spans_of(array, places), _nulls_of(array, places)))
    numbers = [None if is_null else range(begin, end) for begin, end, is_null in zip(*spans)]
    numbered = pyarrow.array(numbers, _list_type(array.type, pyarrow.int64()))
    return _as_type(numbered, array.type, [_take(_items_of(array), numbered.values)])


def _nulls_of(array: Any, places: Any) -> Any:
    """Returns whether each of the elements at `places` is null."""
    if array.null_count == 0:  # is_null() would make an array as long as `array`
        return places.is_null()
    return array.is_null().take(places).fill_null(True)


def _spans_of(array: Any, places: Any) -> Tuple[Any, Any]:
    """Returns the positions where the elements of the lists at `places` begin and end."""
    import pyarrow.compute
    from pyarrow import types

    kind = array.type
    if types.is_fixed_size_list(kind):
        begins = pyarrow.compute.multiply(places, kind.list_size)
        return begins, pyarrow.compute.add(begins, kind.list_size)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        begins = array.offsets.take(places)
        return begins, pyarrow.compute.add(begins, array.sizes.take(places))
    return array.offsets.take(places), array.offsets.take(pyarrow.compute.add(places, 1))


def _items_of(array: Any) -> Any:
    """Returns the elements of all lists of an array; for maps, the pairs."""
    import pyarrow
    from pyarrow import types

    if not types.is_map(array.type):
        return array.values
    return pyarrow.StructArray.from_arrays([array.keys, array.items], fields=[array.type.key_field,
                                                                              array.type.item_field])


def _list_type(kind: Any, item: Any) -> Any:
    """Returns the type of lists with the layout of a type of lists or maps, but with elements of type `item`."""
    import pyarrow
    from pyarrow import types

    if types.is_fixed_size_list(kind):
        return pyarrow.list_(item, kind.list_size)
    if types.is_large_list(kind):
        return pyarrow.large_list(item)
    if types.is_list_view(kind):
        return pyarrow.list_view(item)
    return pyarrow.large_list_view(item) if types.is_large_list_view(kind) else pyarrow.list_(item)


def _as_type(array: Any, kind: Any, children: List[Any]) -> Any:
    """Returns an array with the same buffers, as another nested type of the same layout and with other children."""
    import pyarrow

    return pyarrow.Array.from_buffers(kind, len(array), array.buffers()[: kind.num_buffers], offset=array.offset,
                                      children=children)


# ---- checks

def check(table: "pyarrow.Table") -> None:
    """Raises pyarrow.ArrowInvalid if lengths, offsets or indices make a table unsafe to read.

    Accepts values that pyarrow can read although validate(full=True) refuses them: dates with a part of a day, times
    outside a day, decimals with more digits than their type has, texts that are not UTF-8.
    """
    import pyarrow

    try:
        table.validate(full=True)
    except pyarrow.ArrowInvalid:
        table.validate()
        for column in table.columns:
            for chunk in column.chunks:
                _plain(chunk).validate(full=True)


def _plain_type(kind: Any) -> Any:
    """Returns a type of the same layout for which every value is valid: bytes or whole numbers."""
    import pyarrow
    from pyarrow import types

    if types.is_decimal(kind):
        return pyarrow.binary(kind.bit_width // 8)
    if types.is_date64(kind) or types.is_time64(kind):
        return pyarrow.int64()
    if types.is_time32(kind):
        return pyarrow.int32()
    if types.is_string(kind):
        return pyarrow.binary()
    if types.is_large_string(kind):
        return pyarrow.large_binary()
    return pyarrow.binary_view() if types.is_string_view(kind) else kind


def _plain(array: Any) -> Any:
    """Returns an array of the same layout with values that are, at any depth, bytes and whole numbers."""
    import pyarrow
    from pyarrow import types

    kind = array.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _plain(array.storage)
    if types.is_dictionary(kind):
        return pyarrow.DictionaryArray.from_arrays(array.indices, _plain(array.dictionary), safe=False)
    if types.is_run_end_encoded(kind):
        return pyarrow.RunEndEncodedArray.from_arrays(array.run_ends, _plain(array.values))
    if types.is_struct(kind) and kind.num_fields:
        children = [_plain(array.field(number)) for number in range(kind.num_fields)]
        return pyarrow.StructArray.from_arrays(children, names=[str(number) for number in range(len(children))])
    if types.is_union(kind):
        children = [_plain(array.field(number)) for number in range(kind.num_fields)]
        if kind.mode == "sparse":
            return pyarrow.UnionArray.from_sparse(array.type_codes, children, type_codes=kind.type_codes)
        return pyarrow.UnionArray.from_dense(array.type_codes, array.offsets, children, type_codes=kind.type_codes)
    if kind.num_fields:
        items = _plain(_items_of(array))
        return _as_type(array, _list_type(kind, items.type), [items])
    plain = _plain_type(kind)
    return array if plain == kind else pyarrow.Array.from_buffers(plain, len(array), array.buffers(),
                                                                  offset=array.offset)
