/* Indexes of rows: finding by every layout, and indexes that were written, read again, cut, and changed. */
#include "parser/rows/index/row_index.h"

#include "parser/rows/index/row_format.h"
#include "parser/rows/mds.h"
#include "parser/rows/row_formats.h"
#include "parser/rows/row_index_file.h"
#include "tests/unit/alloc_trials.h"

enum { DATA_BYTES = 96, TABLE_BYTES = 64 };

static uint8_t data[DATA_BYTES], table[TABLE_BYTES];

static struct td_row_files files_of(size_t data_bytes, size_t table_bytes)
{
    struct td_row_files files = {.data = td_input_memory(data, data_bytes)};
    if (table_bytes > 0)
        files.table = td_input_memory(table, table_bytes);
    return files;
}

static void put(uint8_t *at, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static void check_found(const struct td_row_index *index, const struct td_row_files *files,
                        const struct td_row *expected, size_t count)
{
    struct td_row rows[8] = {{0}};
    for (size_t first = 0; first <= count; first++)
        for (size_t n = 0; n <= count - first; n++) {
            struct td_error err = TD_ERROR_INIT;
            CHECK(td_row_index_find(index, files, first, n, rows, &err), "%s", err.message);
            for (size_t i = 0; i < n; i++)
                assert_true(rows[i].offset == expected[first + i].offset && rows[i].bytes == expected[first + i].bytes);
        }
}

static void check_fails(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                        size_t count, enum td_code code, const char *says)
{
    struct td_row rows[8];
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_row_index_find(index, files, first, count, rows, &err));
    CHECK(err.code == code, "%d: %s", (int)err.code, err.message);
    check_says(&err, says, "find");
}

/* ---- indexes of each layout ---- */

static struct td_row_index lines_index(void)
{
    static uint64_t words[3];
    memcpy(words, (uint64_t[]){2, 2, 12}, sizeof words); /* a step, and an extra place: of row 2 */
    (void)snprintf((char *)data, sizeof data, "h\n\"a\n\"\nbc\n\n\nd\n");
    return (struct td_row_index){.format = td_row_format_named(TD_TEXT("csv")),
                                 .layout = TD_ROWS_LINES,
                                 .row_count = 3,
                                 .data_bytes = 14,
                                 .params = {0, 2, ',', 1},
                                 .words = words,
                                 .word_count = 3};
}

static struct td_row_index even_index(void)
{
    return (struct td_row_index){.format = td_row_format_named(TD_TEXT("tokens")),
                                 .layout = TD_ROWS_EVEN,
                                 .row_count = 4,
                                 .data_bytes = 24,
                                 .params = {4, 5}};
}

/* Rows of 2, 0 and 4 bytes after 3 bytes and a table. */
static struct td_row_index offsets_index(size_t width)
{
    static const uint64_t offsets[] = {40, 42, 42, 46};
    for (size_t i = 0; i < COUNT_OF(offsets); i++)
        put(data + 3 + i * width, offsets[i], width);
    return (struct td_row_index){.format = &td_row_format_mds,
                                 .layout = TD_ROWS_OFFSETS,
                                 .row_count = 3,
                                 .data_bytes = 50,
                                 .params = {3, width}};
}

/* Rows of 2, 0 and 3 items of 4 bytes. */
static struct td_row_index pointers_index(void)
{
    static const uint32_t lengths[] = {2, 0, 3};
    static const uint64_t pointers[] = {5, 50, 1};
    for (size_t i = 0; i < 3; i++) {
        put(table + 1 + 4 * i, lengths[i], 4);
        put(table + 20 + 8 * i, pointers[i], 8);
    }
    return (struct td_row_index){.format = td_row_format_named(TD_TEXT("megatron")),
                                 .layout = TD_ROWS_POINTERS,
                                 .row_count = 3,
                                 .data_bytes = 50,
                                 .table_bytes = 44,
                                 .params = {1, 20, 4}};
}

static struct td_row_index places_index(void)
{
    static uint64_t words[] = {0, 10, 20, 0, 12, 8};
    return (struct td_row_index){.format = td_row_format_named(TD_TEXT("webdataset")),
                                 .layout = TD_ROWS_PLACES,
                                 .row_count = 3,
                                 .data_bytes = 20,
                                 .words = words,
                                 .word_count = 6};
}

static struct td_row_index blocks_index(void)
{
    static uint64_t words[] = {0, 10, 5, 77, 10, 10, 2, 88};
    static char columns[] = "[{\"name\":\"a\"}]", reason[] = "rows are in blocks";
    return (struct td_row_index){.format = td_row_format_named(TD_TEXT("npy")),
                                 .layout = TD_ROWS_BLOCKS,
                                 .row_count = 7,
                                 .data_bytes = 20,
                                 .params = {4},
                                 .words = words,
                                 .word_count = 8,
                                 .columns = columns,
                                 .reason = reason};
}

/* ---- finding ---- */

static void every_layout_finds_rows(void **state)
{
    (void)state;
    static const struct td_row lines[] = {{2, 4}, {7, 2}, {12, 1}};
    static const struct td_row even[] = {{4, 5}, {9, 5}, {14, 5}, {19, 5}};
    static const struct td_row offsets[] = {{40, 2}, {42, 0}, {42, 4}};
    static const struct td_row pointers[] = {{5, 8}, {50, 0}, {1, 12}};
    static const struct td_row places[] = {{0, 10}, {20, 0}, {12, 8}};
    struct td_row_index index = even_index();
    struct td_row_files files = files_of(24, 0);
    check_found(&index, &files, even, 4);
    for (size_t width = 4; width <= 8; width += 4) {
        index = offsets_index(width);
        files = files_of(50, 0);
        check_found(&index, &files, offsets, 3);
    }
    index = pointers_index();
    files = files_of(50, 44);
    check_found(&index, &files, pointers, 3);
    index = places_index();
    files = files_of(20, 0);
    check_found(&index, &files, places, 3);
    index = lines_index();
    index.words[1] = 1; /* kept: the second row, in place of the third */
    index.words[2] = 7;
    files = files_of(14, 0);
    check_found(&index, &files, lines, 3);
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    struct td_row_index index = even_index();
    struct td_row_files files = files_of(24, 0), shorter = files_of(23, 0), other = files_of(24, 8);
    check_fails(&index, &files, 4, 1, TD_INVALID_ARGUMENT, "there are 4 rows");
    check_fails(&index, &files, 3, 2, TD_INVALID_ARGUMENT, "there are 4 rows");
    check_fails(&index, &files, UINT64_MAX, 2, TD_INVALID_ARGUMENT, "there are 4 rows");
    check_fails(&index, &files, 0, SIZE_MAX, TD_INVALID_ARGUMENT, "there are 4 rows");
    check_fails(&index, &shorter, 0, 1, TD_UNAVAILABLE, "another size");
    check_fails(&index, &other, 0, 1, TD_UNAVAILABLE, "another size");
    index = blocks_index();
    files = files_of(20, 0);
    check_fails(&index, &files, 0, 1, TD_FAILED_PRECONDITION, "rows are in blocks");
    index.reason = NULL;
    check_fails(&index, &files, 0, 1, TD_FAILED_PRECONDITION,
                "rows are in blocks, and cannot be cut out by their bytes");
    check_fails(&index, &files, 7, 1, TD_INVALID_ARGUMENT, "there are 7 rows");
}

static void wrong_offsets_name_their_row(void **state)
{
    (void)state;
    static const struct {
        size_t entry;
        uint64_t value;
        bool fails[3];
    } cases[] = {
        {0, 39, {false, false, false}}, /* bytes before the first row are nobody's */
        {0, 43, {true, false, false}},        {0, 18, {true, false, false}}, /* in the table */
        {1, 43, {false, true, false}},        {1, 39, {true, false, false}}, {2, 47, {false, false, true}},
        {3, 41, {false, false, true}},        {3, 51, {false, false, true}}, {3, UINT32_MAX, {false, false, true}},
        {1, UINT32_MAX, {true, true, false}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (size_t width = 4; width <= 8; width += 4) {
            struct td_row_index index = offsets_index(width);
            struct td_row_files files = files_of(50, 0);
            put(data + 3 + cases[i].entry * width, cases[i].value, width);
            for (uint64_t row = 0; row < 3; row++) {
                char says[16];
                struct td_row found;
                (void)snprintf(says, sizeof says, "row %d:", (int)row);
                if (cases[i].fails[row])
                    check_fails(&index, &files, row, 1, TD_FAILED_PRECONDITION, says);
                else
                    CHECK(td_row_index_find(&index, &files, row, 1, &found, NULL), "case %d, row %d", (int)i, (int)row);
            }
        }
}

static void wrong_pointers_name_their_row(void **state)
{
    (void)state;
    static const struct {
        size_t at, width;
        uint64_t value;
    } cases[] = {
        {1 + 4, 4, 1},   {1 + 4, 4, UINT32_MAX},  {1 + 4, 4, INT32_MAX},   {1 + 4, 4, 1U << 31},
        {20 + 8, 8, 51}, {20 + 8, 8, UINT64_MAX}, {20 + 8, 8, 1ULL << 63},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_row_index index = pointers_index();
        struct td_row_files files = files_of(50, 44);
        put(table + cases[i].at, cases[i].value, cases[i].width);
        check_fails(&index, &files, 1, 1, TD_FAILED_PRECONDITION, "row 1:");
        check_fails(&index, &files, 0, 3, TD_FAILED_PRECONDITION, "row 1:");
    }
    struct td_row_index index = pointers_index();
    struct td_row_files files = files_of(50, 44);
    put(table + 1 + 4, UINT32_MAX, 4); /* below 0, although a file of 1 TiB would have room for it */
    index.data_bytes = files.data.size_bytes = 1ULL << 40;
    check_fails(&index, &files, 1, 1, TD_FAILED_PRECONDITION, "row 1:");
    index = pointers_index();
    files = files_of(50, 44);
    index.params[2] = UINT64_MAX; /* bytes of an item: the product passes 2^64 */
    check_fails(&index, &files, 2, 1, TD_FAILED_PRECONDITION, "row 2:");
}

/* More rows than are read from a table at once. */
static void tables_are_read_in_parts(void **state)
{
    (void)state;
    enum { ROWS = 1000, BEGIN = 4 + 4 * (ROWS + 1), SIZE = BEGIN + ROWS * 3 };
    static uint8_t bytes[SIZE];
    static struct td_row rows[ROWS];
    for (size_t i = 0; i <= ROWS; i++)
        put(bytes + 4 + 4 * i, BEGIN + 3 * i, 4);
    put(bytes, ROWS, 4);
    struct td_row_files files = {.data = td_input_memory(bytes, SIZE)};
    struct td_limits limits = td_limits_default();
    struct td_row_build build = {.files = &files, .name = "a.mds", .limits = &limits};
    struct td_row_index index;
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_row_index_build(&td_row_format_mds, &build, &index, &err));
    assert_true(td_row_index_find(&index, &files, 0, ROWS, rows, &err));
    for (size_t i = 0; i < ROWS; i++)
        assert_true(rows[i].offset == BEGIN + 3 * i && rows[i].bytes == 3);
    put(bytes + 4 + 4 * 700, 0, 4);
    struct td_row some[2];
    assert_false(td_row_index_find(&index, &files, 0, ROWS, rows, &err));
    check_says(&err, "row 699:", "a wrong offset in the third part");
    assert_true(td_row_index_find(&index, &files, 701, 2, some, NULL));
    td_row_index_fini(&index);
}

/* ---- writing and reading ---- */

typedef struct td_row_index (*make_index)(void);

static struct td_row_index narrow_offsets(void)
{
    return offsets_index(4);
}

static struct td_row_index wide_offsets(void)
{
    return offsets_index(8);
}

static const struct {
    make_index make;
    size_t data_bytes, table_bytes;
} layouts[] = {
    {lines_index, 14, 0},     {even_index, 24, 0},   {narrow_offsets, 50, 0}, {wide_offsets, 50, 0},
    {pointers_index, 50, 44}, {places_index, 20, 0}, {blocks_index, 20, 0},
};

static void write_index(size_t i, struct td_buffer *out)
{
    struct td_row_index index = layouts[i].make();
    td_buffer_init(out);
    td_row_index_write(&index, out);
    assert_false(out->failed);
}

static void check_same(const struct td_row_index *a, const struct td_row_index *b)
{
    assert_ptr_equal(a->format, b->format);
    assert_int_equal(a->layout, b->layout);
    assert_int_equal(a->row_count, b->row_count);
    assert_int_equal(a->data_bytes, b->data_bytes);
    assert_int_equal(a->table_bytes, b->table_bytes);
    assert_memory_equal(a->params, b->params, sizeof a->params);
    assert_int_equal(a->word_count, b->word_count);
    if (a->word_count > 0)
        assert_memory_equal(a->words, b->words, a->word_count * sizeof *a->words);
    assert_int_equal(a->columns == NULL, b->columns == NULL);
    assert_int_equal(a->reason == NULL, b->reason == NULL);
    if (a->columns != NULL)
        assert_string_equal(a->columns, b->columns);
    if (a->reason != NULL)
        assert_string_equal(a->reason, b->reason);
}

static void indexes_are_read_as_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct td_row_index index = layouts[i].make(), again;
        struct td_buffer bytes;
        struct td_error err = TD_ERROR_INIT;
        write_index(i, &bytes);
        CHECK(td_row_index_read(bytes.data, bytes.len, &again, &err), "layout %d: %s", (int)i, err.message);
        check_same(&index, &again);
        assert_true(td_row_index_bytes(&again) >= sizeof again + again.word_count * 8);
        td_row_index_fini(&again);
        td_buffer_fini(&bytes);
    }
}

/* Reads an index that somebody changed, and finds all of its rows: they are in the file. Returns whether it was read.
 */
static bool read_changed(const uint8_t *bytes, size_t len, const struct td_row_files *files)
{
    struct td_row_index index;
    struct td_error err = TD_ERROR_INIT;
    struct td_row rows[4];
    if (!td_row_index_read(bytes, len, &index, &err)) {
        check_error(&err, len, false, "read");
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        assert_true(index.words == NULL && index.columns == NULL && index.reason == NULL);
        return false;
    }
    uint64_t most = index.row_count < 40 ? index.row_count : 40;
    for (uint64_t row = 0; row < most; row++) {
        uint64_t at = row < 20 ? row : index.row_count - 1 - (row - 20);
        size_t count = index.row_count - at < 3 ? (size_t)(index.row_count - at) : 3;
        if (td_row_index_find(&index, files, at, count, rows, NULL))
            for (size_t i = 0; i < count; i++)
                CHECK(rows[i].offset <= index.data_bytes && rows[i].bytes <= index.data_bytes - rows[i].offset,
                      "row %d: %llu", (int)(at + i), (unsigned long long)rows[i].offset);
    }
    td_row_index_fini(&index);
    return true;
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct td_buffer bytes;
        write_index(i, &bytes);
        struct td_row_files files = files_of(layouts[i].data_bytes, layouts[i].table_bytes);
        for (size_t len = 0; len <= bytes.len; len++) {
            uint8_t *exact = malloc(len + (len == 0));
            memcpy(exact, bytes.data, len);
            CHECK(read_changed(exact, len, &files) == (len == bytes.len), "layout %d, %d bytes", (int)i, (int)len);
            free(exact);
        }
        td_buffer_putc(&bytes, '\0');
        assert_false(read_changed((uint8_t *)bytes.data, bytes.len, &files));
        td_buffer_fini(&bytes);
    }
}

static void every_changed_byte_stays_in_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct td_buffer bytes;
        write_index(i, &bytes);
        struct td_row_files files = files_of(layouts[i].data_bytes, layouts[i].table_bytes);
        for (size_t at = 0; at < bytes.len; at++)
            for (unsigned value = 0; value < 256; value++) {
                char old = bytes.data[at];
                bytes.data[at] = (char)value;
                (void)read_changed((uint8_t *)bytes.data, bytes.len, &files);
                bytes.data[at] = old;
            }
        td_buffer_fini(&bytes);
    }
}

/* Numbers that each layout relies on, and which no single byte makes wrong. */
static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    enum { FORMAT_AT = 8, LAYOUT_AT = 24, ROWS_AT = 32, DATA_AT = 40, PARAMS_AT = 56, WORDS_AT = 104, HEAD = 128 };
    static const struct {
        size_t layout, at;
        uint64_t value;
    } cases[] = {
        {0, ROWS_AT, 0},
        {0, ROWS_AT, 2}, /* the second kept row is row 2 */
        {0, PARAMS_AT, 2},
        {0, PARAMS_AT + 8, 3}, /* not where the first row is */
        {0, PARAMS_AT + 16, ';'},
        {0, PARAMS_AT + 16, 256 + ','},
        {0, HEAD, 1},
        {0, HEAD + 8, 3},   /* kept: a row that there is not */
        {0, HEAD + 16, 14}, /* past the end */
        {0, PARAMS_AT + 24, 0},
        {0, PARAMS_AT + 24, 2},
        {0, PARAMS_AT + 24, UINT64_MAX},
        {1, ROWS_AT, 5},
        {1, ROWS_AT, UINT64_MAX},
        {1, PARAMS_AT, 5},
        {1, PARAMS_AT, UINT64_MAX},
        {1, PARAMS_AT + 8, UINT64_MAX},
        {1, DATA_AT, 23},
        {2, PARAMS_AT + 8, 0},
        {2, PARAMS_AT + 8, 5},
        {2, PARAMS_AT + 8, 16},
        {2, ROWS_AT, 11},
        {2, ROWS_AT, UINT64_MAX},
        {2, ROWS_AT, UINT64_MAX / 4},
        {2, PARAMS_AT, 35},
        {2, PARAMS_AT, UINT64_MAX - 8},
        {4, PARAMS_AT, 33},
        {4, PARAMS_AT + 8, 21},
        {4, ROWS_AT, 4},
        {4, ROWS_AT, UINT64_MAX / 8},
        {5, ROWS_AT, 2},
        {5, HEAD, 11},
        {5, HEAD + 8, 21},
        {5, HEAD + 8, UINT64_MAX},
        {6, PARAMS_AT, 2},
        {6, PARAMS_AT, 3},
        {6, PARAMS_AT, 0},
        {6, PARAMS_AT, UINT64_MAX},
        {6, ROWS_AT, 6},
        {6, HEAD + 8, 21},
        {6, HEAD + 16, UINT64_MAX}, /* the sum of rows passes 2^64 */
        {1, LAYOUT_AT, TD_ROWS_LAYOUTS},
        {1, LAYOUT_AT, TD_ROWS_LINES},
        {1, WORDS_AT, UINT64_MAX / 8 + 1},
        {6, WORDS_AT + 8, UINT64_MAX},
        {6, WORDS_AT + 16, UINT64_MAX},
        {1, FORMAT_AT, 'x'},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_buffer bytes;
        write_index(cases[i].layout, &bytes);
        struct td_row_files files = files_of(layouts[cases[i].layout].data_bytes, layouts[cases[i].layout].table_bytes);
        memcpy(bytes.data + cases[i].at, &cases[i].value, 8);
        CHECK(!read_changed((uint8_t *)bytes.data, bytes.len, &files), "case %d", (int)i);
        td_buffer_fini(&bytes);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        struct td_buffer bytes;
        write_index(i, &bytes);
        struct alloc_trials trials = {0};
        while (alloc_try(&trials)) {
            struct td_row_index again;
            struct td_error err = TD_ERROR_INIT;
            bool ok = td_row_index_read(bytes.data, bytes.len, &again, &err);
            alloc_tried(&trials, ok, &err);
            td_row_index_fini(&again);
        }
        td_buffer_fini(&bytes);
    }
}

/* ---- formats ---- */

static void formats_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *file, *format; /* NULL: none */
    } cases[] = {
        {"a.jsonl", "jsonl"},    {"a.NDJSON", "jsonl"}, {"a.csv", "csv"},
        {"a.tsv", "csv"},        {"a.TSV", "csv"},      {"a.tar", "webdataset"},
        {"a.tar.gz", NULL},      {"a.mds", "mds"},      {"a.mds.zstd", NULL},
        {"a.npy", "npy"},        {"a.npz", NULL},       {"a.bin", NULL},
        {"chunk-0-0.bin", NULL}, {"a.idx", NULL},       {"a.uint16.bin", NULL},
        {".csv", NULL},          {"csv", NULL},         {"", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct td_row_format *format = td_row_format_of(cases[i].file);
        CHECK((format == NULL) == (cases[i].format == NULL), "%s", cases[i].file);
        if (format != NULL)
            assert_string_equal(format->name, cases[i].format);
    }
    static const char *const names[] = {"csv", "jsonl", "litdata", "mds", "megatron", "npy", "tokens", "webdataset"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        assert_string_equal(td_row_format_named(td_text_of(names[i]))->name, names[i]);
    assert_null(td_row_format_named(TD_TEXT("CSV")));
    assert_null(td_row_format_named(TD_TEXT("")));
    for (size_t i = 0; td_row_format_at(i) != NULL; i++) {
        const struct td_row_format *format = td_row_format_at(i);
        assert_true(strlen(format->name) < 16); /* as td_row_index_write keeps it */
        assert_ptr_equal(td_row_format_named(td_text_of(format->name)), format);
        for (const char *const *extension = format->extensions; *extension != NULL; extension++)
            assert_ptr_equal(td_row_format_of(*extension), NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_finds_rows),
        cmocka_unit_test(what_is_not_there_is_refused),
        cmocka_unit_test(wrong_offsets_name_their_row),
        cmocka_unit_test(wrong_pointers_name_their_row),
        cmocka_unit_test(tables_are_read_in_parts),
        cmocka_unit_test(indexes_are_read_as_written),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_changed_byte_stays_in_bounds),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(formats_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
