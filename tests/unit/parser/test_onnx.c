/* shows: security.md content-all-formats */
#include "parser/onnx/onnx.h"

#include "tests/unit/parser/format_fixture.h"

/* ---- what the onnx package wrote ------------------------------------------------------------------------ */

static void what_onnx_wrote(void **state)
{
    (void)state;
    each_fixture("onnx", ".onnx", 9, &td_format_onnx, check_fixture);
}

/* Protobuf marks no end: a model cut between its fields is valid if it has an opset. The opset is the last field in
 * these fixtures, except in "metadata", where a second opset and properties follow. */
static void prefixes(const struct td_format *format, const struct fixture *f)
{
    struct sample s = fixture_sample(format, f);
    if (strcmp(f->name, "metadata") != 0) {
        check_each_prefix(&s, f->len);
        return;
    }
    size_t accepted = 0;
    for (size_t len = 0; len < f->len; len++) {
        struct parsed p;
        parse_exact(format, f->bytes, len, &p);
        accepted += p.ok;
        CHECK(p.ok || p.err.code == TD_INVALID_ARGUMENT, "%zu: %s", len, p.err.message);
        parsed_fini(&p);
    }
    assert_int_equal(accepted, 3); /* those that end after the first opset, the second, and the first property */
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    each_fixture("onnx", ".onnx", 9, &td_format_onnx, prefixes);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    each_fixture("onnx", ".onnx", 9, &td_format_onnx, check_allocations);
}

static void reads(const struct td_format *format, const struct fixture *f)
{
    struct sample s = fixture_sample(format, f);
    assert_true(check_each_read(&s) >= 2);
    check_without_error(&s, f->len, true);
    check_without_error(&s, f->len / 2, false);
}

static void every_read_may_fail(void **state)
{
    (void)state;
    each_fixture("onnx", ".onnx", 9, &td_format_onnx, reads);
}

static void changes(const struct td_format *format, const struct fixture *f)
{
    static const uint8_t bits[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x80, 0xFF};
    struct sample s = fixture_sample(format, f);
    const struct changes each = {
        .end = f->len, .step = 1, .by = bits, .count = sizeof bits, .flip = true, .unplaced = any_refusal};
    if (f->len < 2000)
        check_each_change(&s, &each);
}

static void any_byte_may_change(void **state)
{
    (void)state;
    each_fixture("onnx", ".onnx", 9, &td_format_onnx, changes);
}

/* ---- written by hand; tests/interop/test_onnx.py checks onnx.checker's verdicts on the same ------------- */

/* Appends a message: its tag, its length in four bytes (the last may be 0), and its content. */
static void put_message(struct td_buffer *out, int number, const void *bytes, size_t len)
{
    assert_true(len < 1 << 28 && number < 16);
    td_buffer_putc(out, (char)(number << 3 | 2));
    for (int shift = 0; shift < 21; shift += 7)
        td_buffer_putc(out, (char)(len >> shift | 0x80));
    td_buffer_putc(out, (char)(len >> 21));
    td_buffer_append(out, bytes, len);
}

/* Returns a model of ir_version 8, a graph with this content, and opset 17. */
static struct td_buffer model_of(const void *graph, size_t len)
{
    struct td_buffer out;
    td_buffer_init(&out);
    td_buffer_append(&out, "\x08\x08", 2);
    put_message(&out, 7, graph, len);
    put_message(&out, 8, "\x10\x11", 2);
    return out;
}

static struct td_buffer model_with(const void *tensor, size_t len)
{
    struct td_buffer graph;
    td_buffer_init(&graph);
    put_message(&graph, 5, tensor, len);
    struct td_buffer out = model_of(graph.data, graph.len);
    td_buffer_fini(&graph);
    return out;
}

struct tensor_case {
    const char *bytes; /* a TensorProto */
    size_t len;
    const char *listing; /* DTYPE [shape] reason; NULL: refused */
    const char *says;
};

#define W "\x42\x01w" /* name: "w" */
#define F "\x10\x01"  /* data_type: FLOAT */
#define D2 "\x08\x02" /* dims: 2 */
#define RAW8   \
    "\x4a\x08" \
    "abcdefgh" /* raw_data of 8 bytes */
#define FLOATS \
    "\x22\x08" \
    "abcdefgh"              /* float_data: 2, packed */
#define EXTERNAL "\x70\x01" /* data_location: EXTERNAL */
#define LOCATION(len, k, path) \
    "\x6a" len "\x0a\x08"      \
    "location"                 \
    "\x12" k path
#define OFFSET(len, k, n) \
    "\x6a" len "\x0a\x06" \
    "offset"              \
    "\x12" k n
#define LENGTH(len, k, n) \
    "\x6a" len "\x0a\x06" \
    "length"              \
    "\x12" k n
#define NINE "\xff\xff\xff\xff\xff\xff\xff\xff\xff"
#define CASE(bytes, listing, says)              \
    {                                           \
        bytes, sizeof(bytes) - 1, listing, says \
    }

static const struct tensor_case cases[] = {
    CASE(W F D2 RAW8, "F32 [2] -", NULL),
    CASE(RAW8 D2 F W, "F32 [2] -", NULL),
    CASE(W F "\x0a\x02\x02\x01" RAW8, "F32 [2,1] -", NULL),   /* packed dims */
    CASE(W F "\x08\x82\x80\x80\x00" RAW8, "F32 [2] -", NULL), /* in more bytes than needed */
    CASE(W F D2 FLOATS, "F32 [2] -", NULL),
    CASE(W F D2 "\x22\x04"
                "abcd"
                "\x22\x04"
                "efgh",
         "F32 [2] stored in several runs", NULL),
    CASE(W F D2 "\x25"
                "abcd"
                "\x25"
                "efgh",
         "F32 [2] stored in several runs", NULL),
    CASE(W "\x10\x07" D2 "\x3a\x02\x01\x02", "I64 [2] stored as protobuf numbers of variable length", NULL),
    CASE(W "\x10\x07" D2 "\x38\x01\x38\x02", "I64 [2] stored as protobuf numbers of variable length", NULL),
    CASE(W "\x10\x07" D2 "\x3a\x01\x01\x38\x02", "I64 [2] stored as protobuf numbers of variable length", NULL),
    CASE(W "\x10\x07" D2 "\x3a\x0b" NINE "\x01\x02", "I64 [2] stored as protobuf numbers of variable length", NULL),
    CASE(W "\x10\x15\x08\x09\x2a\x02\x01\x02", "U4 [9] stored as protobuf numbers of variable length",
         NULL), /* the checker allows 8 in one number */
    CASE(W "\x10\x15\x08\x08\x2a\x04\x01\x02\x03\x04", "U4 [8] stored as protobuf numbers of variable length", NULL),
    CASE(W "\x10\x08" D2 "\x32\x00\x32\x01x", "STRING [2] strings", NULL),
    CASE(W "\x10\x63" D2 "\x3a\x01\x01", "OPAQUE [2] of a type that is not known", NULL),
    CASE(W "\x10\x63" D2 RAW8, "OPAQUE [2] of a type that is not known", NULL),
    CASE(W F "\x08\x00", "F32 [0] -", NULL),
    CASE(W F "\x08\x00\x4a\x00", "F32 [0] -", NULL), /* empty raw_data counts as none */
    CASE(W F D2 RAW8 "\x1a\x00", "F32 [2] a segment of a tensor", NULL),
    CASE(W F D2 RAW8 "\x70\x00", "F32 [2] -", NULL),
    CASE(W F D2 RAW8 "\xf2\x7d\x01x", "F32 [2] -", NULL), /* field 2014, which is unknown */
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d"), "F32 [2] stored in another file", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x10", "\x04", "./d/"), "F32 [2] stored in another file", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") LENGTH("\x0b", "\x01", "8"), "F32 [2] stored in another file",
         NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") LENGTH("\x0b", "\x01", "0"), "F32 [2] stored in another file",
         NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") LENGTH("\x10", "\x06", "\t+0_8 "),
         "F32 [2] stored in another file", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") OFFSET("\x0c", "\x02", "-0"), "F32 [2] stored in another file",
         NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") LENGTH("\x1e", "\x14", "99999999999999999999"),
         "F32 [2] its external data do not have the length that its shape and type imply", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") OFFSET("\x0a", "\x00", ""),
         "F32 [2] the offset or length of its external data is not a number", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") OFFSET("\x0d", "\x03", "0x8"),
         "F32 [2] the offset or length of its external data is not a number", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") OFFSET("\x0c", "\x02", "8_"),
         "F32 [2] the offset or length of its external data is not a number", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") OFFSET("\x0c", "\x02", "_8"),
         "F32 [2] the offset or length of its external data is not a number", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") OFFSET("\x0e", "\x04", "1__8"),
         "F32 [2] the offset or length of its external data is not a number", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") LENGTH("\x0b", "\x01", "9"),
         "F32 [2] its external data do not have the length that its shape and type imply", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") OFFSET("\x0c", "\x02", "-1"),
         "F32 [2] the offset or length of its external data is not a number", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0e", "\x02", "/d"),
         "F32 [2] its external data are not below the model's directory", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x10", "\x04", "../d"),
         "F32 [2] its external data are not below the model's directory", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x10", "\x04", "a/.."),
         "F32 [2] its external data are not below the model's directory", NULL),
    CASE(W F D2 EXTERNAL LOCATION("\x0c", "\x00", ""), "F32 [2] its external data are not below the model's directory",
         NULL),
    CASE(W F D2 EXTERNAL, NULL, "stored externally, but has no location"),
    CASE(W F D2 EXTERNAL RAW8 LOCATION("\x0d", "\x01", "d"), NULL, "stored externally, but has data"),
    CASE(W F D2 EXTERNAL LOCATION("\x0d", "\x01", "d") LOCATION("\x0d", "\x01", "e"), NULL, "\"location\" twice"),
    CASE(W F D2 LOCATION("\x0d", "\x01", "d"), NULL, "it has no data"),
    CASE(W F D2 "\x70\x02" RAW8, NULL, "neither 0 (here) nor 1"),
    CASE(F D2 RAW8, NULL, "has no name"),
    CASE("\x42\x00" F D2 RAW8, NULL, "has no name"),
    CASE("\x42\x02\xff\xfe" F D2 RAW8, NULL, "not UTF-8"),
    CASE("\x42\x03"
         "a\0b" F D2 RAW8,
         NULL, "holds a NUL"),
    CASE(W D2 RAW8, NULL, "no data_type"),
    CASE(W "\x10\x00" D2 RAW8, NULL, "no data_type"),
    CASE(W "\x10\x81\x80\x80\x80\x10" D2 RAW8, NULL, "no data_type"), /* 2^32 + 1 */
    CASE(W F D2, NULL, "it has no data"),
    CASE(W F D2 "\x4a\x00", NULL, "it has no data"),
    CASE(W F D2 RAW8 FLOATS, NULL, "data in two fields"),
    CASE(W F D2 "\x3a\x02\x01\x02", NULL, "a field of another type"),
    CASE(W F D2 "\x22\x04"
                "abcd",
         NULL, "not have as many elements"),
    CASE(W "\x10\x07" D2 "\x3a\x01\x01", NULL, "not have as many elements"),
    CASE(W "\x10\x07" D2 "\x3a\x03\x01\x02\x03", NULL, "not have as many elements"),
    CASE(W "\x10\x07" D2 "\x38\x01", NULL, "not have as many elements"),
    CASE(W "\x10\x15\x08\x09\x2a\x01\x01", NULL, "not have as many elements"),
    CASE(W "\x10\x15\x08\x08\x2a\x05\x01\x02\x03\x04\x05", NULL, "not have as many elements"),
    CASE(W "\x10\x08" D2 "\x32\x00", NULL, "not have as many elements"),
    CASE(W "\x10\x08" D2 "\x3a\x02\x01\x02", NULL, "a field of another type"),
    CASE(W "\x10\x07" D2 "\x3a\x02\x01\x80", NULL, "cut off by the end of its message"),
    CASE(W "\x10\x07" D2 "\x3a\x0c" NINE "\xff\x01\x01", NULL, "more than ten bytes"),
    CASE(W F D2 "\x4a\x04"
                "abcd",
         NULL, "raw_data has 4 bytes, its shape and type imply 8"),
    CASE(W F "\x08\x01" RAW8, NULL, "raw_data has 8 bytes, its shape and type imply 4"),
    CASE(W "\x10\x08" D2 RAW8, NULL, "strings cannot be in raw_data"),
    CASE(W F "\x08\x00" RAW8, NULL, "no elements by its shape, but data"),
    CASE(W F "\x08" NINE "\x01" RAW8, NULL, "a dimension is negative"),
    CASE(W F "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40" RAW8, NULL,
         "2^63 elements or more"),
    CASE(W F "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40" RAW8, NULL, "2^63 bytes or more"),
    CASE(W W F D2 RAW8, NULL, "field 8 occurs twice"),
    CASE(W F F D2 RAW8, NULL, "field 2 occurs twice"),
    CASE(W F D2 RAW8 RAW8, NULL, "field 9 occurs twice"),
    CASE("\x40\x01" F D2 RAW8, NULL, "wire type 0 where ONNX has 2"),
    CASE(W "\x12\x01\x01" D2 RAW8, NULL, "wire type 2 where ONNX has 0"),
    CASE(W F "\x0d"
             "abcd" RAW8,
         NULL, "wire type 5 where ONNX has 2"),
    CASE(W F D2 "\x21"
                "abcdefgh",
         NULL, "wire type 1 where ONNX has 5"),
    CASE(W F D2 "\x4b"
                "abcdefgh\x4c",
         NULL, "wire type 3"),
    CASE(W F D2 RAW8 "\xf6\x01", NULL, "wire type 6"),
    CASE(W F D2 RAW8 "\x02\x00", NULL, "not a number of a protobuf field"),
    CASE(W F D2 RAW8 "\xfa\xff\xff\xff\xff\x01", NULL, "not a number of a protobuf field"),
    CASE(W F D2 "\x4a\x09"
                "abcdefgh",
         NULL, "field 9 has 9 bytes, but its message has 8 left"),
    CASE(W F D2 "\x4a" NINE "\x01"
                "abcdefgh",
         NULL, "its message has"),
    CASE(W F D2 RAW8 "\x08\x80", NULL, "cut off by the end of its message"),
    CASE(W F D2 RAW8 "\x08" NINE "\x02", NULL, "more than 64 bits"),
    CASE(W F D2 RAW8 "\x08" NINE "\xff\x01", NULL, "more than 64 bits"),
};

static void check_case(const struct tensor_case *c)
{
    struct td_buffer file = model_with(c->bytes, c->len);
    struct parsed p;
    size_t n = (size_t)(c - cases);
    parse_exact(&td_format_onnx, file.data, file.len, &p);
    CHECK(p.ok == (c->listing != NULL), "case %zu: %s", n, p.ok ? "accepted" : p.err.message);
    if (p.ok) {
        struct td_buffer got;
        const struct td_tensor *t = &p.manifest.tensors[0];
        assert_int_equal(p.manifest.tensor_count, 1);
        td_buffer_init(&got);
        td_buffer_printf(&got, "%s ", t->dtype->name);
        list_shape(&got, t->shape, t->rank);
        td_buffer_printf(&got, " %s", t->reason == NULL ? "-" : t->reason);
        CHECK(strcmp(td_buffer_terminate(&got), c->listing) == 0, "case %zu: %s, wanted %s", n, got.data, c->listing);
        td_buffer_fini(&got);
        if (t->reason == NULL && t->nbytes > 0)
            assert_memory_equal(file.data + t->offset, "abcdefgh", 8);
        assert_int_equal(t->file != 0, strcmp(c->listing, "F32 [2] stored in another file") == 0);
        assert_int_equal(p.manifest.file_count, t->file);
        if (t->file == 1)
            assert_string_equal(p.manifest.files[0], "d");
    } else {
        CHECK(strstr(p.err.message, c->says) != NULL, "case %zu: %s, wanted %s", n, p.err.message, c->says);
        assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
        assert_true(p.err.pos <= file.len);
    }
    parsed_fini(&p);
    td_buffer_fini(&file);
}

/* shows: security.md content-onnx */
static void tensors_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i]);
}

/* ---- models --------------------------------------------------------------------------------------------- */

static void check_refused(const void *bytes, size_t len, const char *says)
{
    struct parsed p;
    parse_exact(&td_format_onnx, bytes, len, &p);
    CHECK(!p.ok && p.err.code == TD_INVALID_ARGUMENT && strstr(p.err.message, says) != NULL, "%s: %s", says,
          p.err.message);
    parsed_fini(&p);
}

static void names_are_unique(void **state)
{
    static const char tensor[] = W F D2 RAW8;
    struct td_buffer graph;
    (void)state;
    td_buffer_init(&graph);
    put_message(&graph, 5, tensor, sizeof tensor - 1);
    put_message(&graph, 5, tensor, sizeof tensor - 1);
    struct td_buffer file = model_of(graph.data, graph.len);
    check_refused(file.data, file.len, "two tensors are named \"w\"");
    td_buffer_fini(&graph);
    td_buffer_fini(&file);
}

static void what_a_model_needs(void **state)
{
    (void)state;
    check_refused("", 0, "no ir_version");
    check_refused("\x08\x08", 2, "no graph");
    check_refused("\x08\x08\x3a\x00", 4, "no opset_import");
    check_refused("\x3a\x00\x42\x00", 4, "no ir_version");
    check_refused("\x08\x08\x3a\x00\x3a\x00\x42\x00", 8, "field 7 occurs twice");
    check_refused("\x08\x08\x08\x08\x3a\x00\x42\x00", 8, "field 1 occurs twice");
    check_refused("\x08\x08\x3a\x00\x42\x02\x10\x01\x42\x02\x10\x02", 12, "\"opset_import\" twice");
    check_refused("\x08\x08\x3a\x05\x7a\x03\x0a\x01\x00\x42\x00", 11, "not a number of a protobuf field");
    check_refused("\x08\x08\x3a\x02\x7a\x00\x42\x00", 8, "lacks its values or indices");
    check_refused("PK\3\4 not a model", 16, "");
}

static void long_names(void **state)
{
    enum { NAME_BYTES = 100000 };
    static char name[NAME_BYTES];
    struct td_buffer tensor;
    struct parsed p;
    (void)state;
    memset(name, 'n', sizeof name);
    td_buffer_init(&tensor);
    put_message(&tensor, 8, name, sizeof name);
    td_buffer_puts(&tensor, F D2 RAW8);
    struct td_buffer file = model_with(tensor.data, tensor.len);
    parse_exact(&td_format_onnx, file.data, file.len, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(p.manifest.tensors[0].name_len, NAME_BYTES);
    parsed_fini(&p);
    td_buffer_fini(&file);
    td_buffer_fini(&tensor);
}

/* Reads a model of 2^30 bytes: ir_version 8, and a graph with as many empty nodes as fit. */
static bool read_nodes(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    static const uint8_t begin[8] = "\x08\x08\x3a\xf8\xff\xff\xff\x03"; /* the graph has 2^30 - 8 bytes */
    (void)context;
    (void)err;
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)out)[i] = off + i < sizeof begin ? begin[off + i] : (off + i) % 2 == 0 ? 0x0a : 0x00;
    return true;
}

/* shows: security.md content-onnx */
static void structure_is_bounded(void **state)
{
    struct td_limits limits = td_limits_default();
    struct td_input input = {.size_bytes = UINT64_C(1) << 30, .read = read_nodes};
    struct parsed p;
    (void)state;
    limits.max_header_bytes = 1000;
    parse_input(&td_format_onnx, &input, &limits, &p);
    check_refusal(&p, TD_INVALID_ARGUMENT, input.size_bytes, "names and structure take more bytes", "nodes");
    assert_int_equal(p.err.pos, limits.max_header_bytes);
    parsed_fini(&p);
    input.size_bytes = UINT64_C(1) << 31;
    parse_input(&td_format_onnx, &input, &limits, &p);
    assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
    assert_non_null(strstr(p.err.message, "2,147,483,647"));
    parsed_fini(&p);
}

/* The content of nodes is skipped: of large nodes only the beginning is read. */
/* shows: security.md content-onnx */
static void nodes_are_passed_over(void **state)
{
    enum { NODE_BYTES = 1 << 13, NODES = 200 };
    struct td_buffer graph;
    struct watched watched;
    struct td_limits limits = td_limits_default();
    struct parsed p;
    char *node = __real_malloc(NODE_BYTES);
    (void)state;
    assert_non_null(node);
    memset(node, 0xff, NODE_BYTES);
    td_buffer_init(&graph);
    for (int i = 0; i < NODES; i++)
        put_message(&graph, 1, node, NODE_BYTES);
    struct td_buffer file = model_of(graph.data, graph.len);
    struct td_input input = watched_input(&watched, file.data, file.len);
    parse_input(&td_format_onnx, &input, &limits, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_true(watched.reads <= NODES + 2);
    assert_true(watched.read_sum <= graph.len / 2 + 8192);
    parsed_fini(&p);
    td_buffer_fini(&file);
    td_buffer_fini(&graph);
    __real_free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_onnx_wrote),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_read_may_fail),
        cmocka_unit_test(any_byte_may_change),
        cmocka_unit_test(tensors_by_hand),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(what_a_model_needs),
        cmocka_unit_test(long_names),
        cmocka_unit_test(structure_is_bounded),
        cmocka_unit_test(nodes_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
