"""All types that pyarrow's constructors make, alone and in one another, and arrays of them."""
import decimal

import numpy
import pyarrow
from pyarrow import types


class Point(pyarrow.ExtensionType):
    """An extension type of a test's own."""

    def __init__(self):
        super().__init__(pyarrow.struct([("x", pyarrow.int32()), ("y", pyarrow.string_view())]), "tensord.test.point")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, data):
        return cls()

    def __hash__(self):
        return hash(str(self))


UNITS = ("s", "ms", "us", "ns")
PLAIN = [
    pyarrow.null(), pyarrow.bool_(), pyarrow.int8(), pyarrow.int16(), pyarrow.int32(), pyarrow.int64(),
    pyarrow.uint8(), pyarrow.uint16(), pyarrow.uint32(), pyarrow.uint64(), pyarrow.float16(), pyarrow.float32(),
    pyarrow.float64(), pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(), pyarrow.binary(),
    pyarrow.large_binary(), pyarrow.binary_view(), pyarrow.binary(5), pyarrow.binary(0), pyarrow.decimal32(8, 2),
    pyarrow.decimal64(9, 3), pyarrow.decimal128(10, 2), pyarrow.decimal128(38, -2), pyarrow.decimal256(50, 4),
    pyarrow.date32(), pyarrow.date64(), pyarrow.time32("s"), pyarrow.time32("ms"), pyarrow.time64("us"),
    pyarrow.time64("ns"), *map(pyarrow.timestamp, UNITS), pyarrow.timestamp("us", "UTC"),
    pyarrow.timestamp("ns", "Europe/Berlin"), *map(pyarrow.duration, UNITS), pyarrow.month_day_nano_interval()
]
RUNS = [pyarrow.run_end_encoded(ends, kind) for ends, kind in (
    (pyarrow.int16(), pyarrow.string()), (pyarrow.int32(), pyarrow.int64()), (pyarrow.int64(), pyarrow.bool_()),
    (pyarrow.int32(), pyarrow.string_view()), (pyarrow.int32(), pyarrow.list_(pyarrow.int8())),
    (pyarrow.int32(), pyarrow.date64()))]
UNIONS = [
    pyarrow.dense_union([pyarrow.field("i", pyarrow.int32()), pyarrow.field("s", pyarrow.string())], [5, 7]),
    pyarrow.sparse_union([pyarrow.field("i", pyarrow.int32()), pyarrow.field("s", pyarrow.string())]),
    pyarrow.dense_union([pyarrow.field("v", pyarrow.string_view()), pyarrow.field("r", RUNS[1])]),
    pyarrow.sparse_union([pyarrow.field("v", pyarrow.binary_view()), pyarrow.field("n", pyarrow.int8())])
]
EXTENSIONS = [pyarrow.uuid(), pyarrow.json_(), pyarrow.json_(pyarrow.string_view()), pyarrow.bool8(), Point(),
              pyarrow.opaque(pyarrow.binary(), "kind", "vendor"), pyarrow.fixed_shape_tensor(pyarrow.float32(), [2, 2])]
DICTIONARIES = [pyarrow.dictionary(index, kind, ordered) for index, kind, ordered in (
    (pyarrow.int8(), pyarrow.string(), False), (pyarrow.uint16(), pyarrow.int64(), True),
    (pyarrow.int32(), pyarrow.large_string(), False), (pyarrow.int64(), pyarrow.binary(), False),
    (pyarrow.int32(), pyarrow.string_view(), False), (pyarrow.int8(), pyarrow.decimal128(10, 2), False),
    (pyarrow.int8(), pyarrow.date64(), False), (pyarrow.int8(), pyarrow.list_(pyarrow.int8()), False),
    (pyarrow.int8(), pyarrow.month_day_nano_interval(), False))]
INNER = [pyarrow.int32(), pyarrow.string(), pyarrow.string_view(), pyarrow.binary_view(), pyarrow.bool_(),
         pyarrow.date64(), pyarrow.decimal128(10, 2), pyarrow.month_day_nano_interval(), RUNS[1], *UNIONS[:2],
         pyarrow.uuid(), DICTIONARIES[0]]
NESTED = [make(kind) for kind in INNER for make in (
    pyarrow.list_, pyarrow.large_list, lambda kind: pyarrow.list_(kind, 3), pyarrow.list_view, pyarrow.large_list_view,
    lambda kind: pyarrow.struct([("a", kind), ("b", pyarrow.int8())]), lambda kind: pyarrow.map_(pyarrow.string(), kind)
)] + [pyarrow.struct([]), pyarrow.list_(pyarrow.list_(pyarrow.binary_view())), pyarrow.list_(pyarrow.struct([]))]
KINDS = PLAIN + DICTIONARIES + RUNS + UNIONS + EXTENSIONS + NESTED


def value(kind, rng):
    """Return a value of a type that pyarrow.array takes."""
    if types.is_boolean(kind):
        return rng.random() < 0.5
    if types.is_decimal(kind):
        return decimal.Decimal(rng.randrange(10**6)).scaleb(-kind.scale)
    if types.is_floating(kind):
        return float(numpy.float16(rng.uniform(-9, 9)))
    if types.is_integer(kind):
        low = 0 if types.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
        return rng.randrange(low, low + (1 << kind.bit_width))
    if types.is_interval(kind):
        return pyarrow.MonthDayNano([rng.randrange(12), rng.randrange(30), rng.randrange(10**9)])
    if types.is_date64(kind):
        return 86_400_000 * rng.randrange(20000)
    if types.is_temporal(kind):
        return rng.randrange(80000)
    if types.is_fixed_size_binary(kind):
        return rng.randbytes(kind.byte_width)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "".join(rng.choice("ab é日\U0001f600") for _ in range(rng.randrange(30)))
    return rng.randbytes(rng.randrange(30))  # binary types


def array_of(kind, count, rng, nulls=True):
    """Return an array of a type, about a fifth of its values null."""
    def is_null():
        return nulls and rng.random() < 0.2

    if isinstance(kind, pyarrow.BaseExtensionType):
        return pyarrow.ExtensionArray.from_storage(kind, array_of(kind.storage_type, count, rng, nulls))
    if types.is_run_end_encoded(kind):
        ends = sorted(rng.sample(range(1, count), min(count, 9) - 1)) + [count] if count else []
        values = array_of(kind.value_type, len(ends), rng, nulls)
        return pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array(ends, kind.run_end_type), values, kind)
    if types.is_dictionary(kind):
        places = [None if is_null() else rng.randrange(5) for _ in range(count)]
        return pyarrow.DictionaryArray.from_arrays(pyarrow.array(places, kind.index_type),
                                                   array_of(kind.value_type, 5, rng, False), ordered=kind.ordered)
    if types.is_union(kind):
        return union_of(kind, count, rng, nulls)
    if types.is_struct(kind) and kind.num_fields:
        return pyarrow.StructArray.from_arrays([array_of(field.type, count, rng, nulls) for field in kind],
                                               fields=list(kind),
                                               mask=pyarrow.array([is_null() for _ in range(count)], pyarrow.bool_()))
    if types.is_struct(kind):
        return pyarrow.array([None if is_null() else {} for _ in range(count)], kind)
    return lists_of(kind, count, rng, nulls) if types.is_nested(kind) else pyarrow.array(
        [None if types.is_null(kind) or is_null() else value(kind, rng) for _ in range(count)], kind)


def union_of(kind, count, rng, nulls):
    fields = [kind.field(number) for number in range(kind.num_fields)]
    which = [rng.randrange(len(fields)) for _ in range(count)]
    names = [field.name for field in fields]
    codes = pyarrow.array([kind.type_codes[one] for one in which], pyarrow.int8())
    if kind.mode == "sparse":
        children = [array_of(field.type, count, rng, nulls) for field in fields]
        return pyarrow.UnionArray.from_sparse(codes, children, names, kind.type_codes)
    places = pyarrow.array([which[:at].count(one) for at, one in enumerate(which)], pyarrow.int32())
    children = [array_of(field.type, which.count(number), rng, nulls) for number, field in enumerate(fields)]
    return pyarrow.UnionArray.from_dense(codes, places, children, names, kind.type_codes)


def lists_of(kind, count, rng, nulls):
    """Return lists of any kind, or maps; some are null and some empty."""
    valid = pyarrow.array([not nulls or rng.random() < 0.8 for _ in range(count)], pyarrow.bool_()).buffers()[1]
    if types.is_fixed_size_list(kind):
        return pyarrow.Array.from_buffers(kind, count, [valid], children=[
            array_of(kind.value_type, count * kind.list_size, rng, nulls)])
    sizes = [rng.randrange(4) for _ in range(count)]
    ends = [sum(sizes[:at]) for at in range(count + 1)]
    wide = types.is_large_list(kind) or types.is_large_list_view(kind)
    width = pyarrow.int64() if wide else pyarrow.int32()
    buffers = [valid, pyarrow.array(ends, width).buffers()[1]]
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        buffers.append(pyarrow.array(sizes, width).buffers()[1])
    items = array_of(kind.field(0).type, ends[-1], rng, nulls) if not types.is_map(kind) else \
        pyarrow.StructArray.from_arrays([array_of(kind.key_type, ends[-1], rng, False),
                                         array_of(kind.item_type, ends[-1], rng, nulls)],
                                        fields=[kind.key_field, kind.item_field])
    return pyarrow.Array.from_buffers(kind, count, buffers, children=[items])
