/* Arrow IPC: the index of files by pyarrow, and rows of them, cut and gathered: of files that are cut off, that have
 * other bytes, or that lead to themselves, without memory and within a limit. Whether the values are right is compared
 * with pyarrow by tests/interop/test_arrow_rows.py. */
#include "parser/rows/arrow/arrow.h"

#include "parser/rows/arrow/arrow_cut.h"
#include "parser/rows/row_index_file.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/parser/flat_bytes.h"
#include "tests/unit/parser/rows_fixture.h"

static const char *const names[] = {"flat.arrow",    "nested.arrow", "nested.feather",  "delta.arrow",
                                    "delta.feather", "old.arrow",    "replaced.arrow",  "empty_batches.arrow",
                                    "views.arrow",   "other.arrow",  "no_batches.arrow"};

static void the_index_is_what_pyarrow_tells(void **state)
{
    (void)state;
    rows_check_fixtures(".arrow", &td_row_format_arrow, 10);
    rows_check_fixtures(".feather", &td_row_format_arrow, 4);
}

static void check_pieces(const struct td_arrow_answer *answer, size_t len)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < answer->piece_count; i++) {
        const struct td_arrow_piece *piece = &answer->pieces[i];
        uint64_t end = piece->in_file ? len : answer->memory.len;
        assert_true(piece->bytes > 0 && piece->bytes <= end && piece->offset <= end - piece->bytes);
        bytes += piece->bytes;
    }
    assert_int_equal(bytes, answer->bytes);
}

static bool cut(const struct td_row_index *index, const char *bytes, size_t len, uint64_t first, uint64_t count,
                size_t limit, struct td_error *err)
{
    struct td_row_files files = {.data = td_input_memory(bytes, len)};
    struct td_arrow_answer answer;
    td_error_init(err);
    td_arrow_answer_init(&answer, limit);
    bool ok = td_arrow_cut(index, &files, first, count, &answer, err);
    if (ok)
        check_pieces(&answer, len);
    td_arrow_answer_fini(&answer);
    return ok;
}

static bool gather(const struct td_row_index *index, const char *bytes, size_t len, const uint64_t *rows, size_t count,
                   size_t limit, struct td_error *err)
{
    struct td_row_files files = {.data = td_input_memory(bytes, len)};
    struct td_arrow_answer answer;
    td_error_init(err);
    td_arrow_answer_init(&answer, limit);
    bool ok = td_arrow_gather(index, &files, rows, count, &answer, err);
    if (ok)
        check_pieces(&answer, len);
    td_arrow_answer_fini(&answer);
    return ok;
}

static void check_refused(const struct td_error *err, size_t len, const char *what)
{
    check_error(err, len, false, what);
    CHECK(err->code == TD_INVALID_ARGUMENT || err->code == TD_FAILED_PRECONDITION || err->code == TD_UNAVAILABLE ||
              err->code == TD_RESOURCE_EXHAUSTED,
          "%s: code %d: %s", what, (int)err->code, err->message);
}

/* Cuts every run of rows, and gathers rows; returns how many of these were refused. */
static size_t answer_all(const struct td_row_index *index, const char *bytes, size_t len)
{
    struct td_error err;
    size_t refused = 0;
    uint64_t rows = index->row_count < 6 ? index->row_count : 6;
    for (uint64_t first = 0; first < rows; first++)
        for (uint64_t count = 1; count <= rows - first; count++)
            if (!cut(index, bytes, len, first, count, 1 << 20, &err)) {
                check_refused(&err, len, "cutting");
                refused++;
            }
    const uint64_t some[] = {rows - 1, 0, index->row_count - 1};
    if (rows > 0 && !gather(index, bytes, len, some, COUNT_OF(some), 1 << 20, &err)) {
        check_refused(&err, len, "gathering");
        refused++;
    }
    return refused;
}

/* Makes the index of bytes in a block of exactly len, and answers rows of it. Returns whether there was an index. */
static bool try_bytes(const char *name, const char *bytes, size_t len, size_t *refused)
{
    struct td_row_index index;
    struct td_error err;
    char *copy = __real_malloc(len + (len == 0));
    memcpy(copy, bytes, len);
    bool ok = rows_index(name, copy, len, 1 << 20, &index, &err);
    if (ok)
        *refused += answer_all(&index, copy, len);
    else
        check_refused(&err, len, "an index");
    td_row_index_fini(&index);
    __real_free(copy);
    return ok;
}

/* A stream may end after any message; a file may not. */
static void prefixes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        size_t len, refused = 0, good = 0;
        char *bytes = rows_file(names[i], &len);
        for (size_t n = 0; n < len; n++)
            good += try_bytes(names[i], bytes, n, &refused) ? 1 : 0;
        if (strstr(names[i], ".feather") != NULL)
            CHECK(good == 0, "%s: %d prefixes", names[i], (int)good);
        else
            CHECK(good >= 1 && good <= 8, "%s: %d prefixes", names[i], (int)good);
        __real_free(bytes);
    }
}

static void any_byte_may_be_another(void **state)
{
    (void)state;
    static const uint8_t values[] = {0, 1, 4, 0x10, 0x7f, 0x80, 0xff};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        size_t len, refused = 0, bad = 0;
        char *bytes = rows_file(names[i], &len);
        for (size_t at = 0; at < len; at++)
            for (size_t v = 0; v < (SANITIZED ? 3 : COUNT_OF(values)); v++) {
                char was = bytes[at];
                bytes[at] = (char)values[(at + v) % COUNT_OF(values)];
                bad += try_bytes(names[i], bytes, len, &refused) ? 0 : 1;
                bytes[at] = was;
            }
        CHECK(bad > 100, "%s: %d", names[i], (int)bad);
        __real_free(bytes);
    }
}

/* ---- single faults ---- */

static void store(char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(value >> (8 * i));
}

/* Returns the place of the second record batch's buffers in its metadata: pairs of offset and bytes. The last pair ends
 * the metadata of pyarrow but for padding. */
static char *find_pair(char *bytes, const uint64_t *block, uint64_t offset, uint64_t len)
{
    for (size_t at = 0; at + 16 <= block[TD_ARROW_METADATA]; at += 8) {
        char *pair = bytes + block[TD_ARROW_OFFSET] + at;
        if (td_load_le64((uint8_t *)pair) == offset && td_load_le64((uint8_t *)pair + 8) == len)
            return pair;
    }
    fail_msg("no buffer of %d bytes at %d", (int)len, (int)offset);
    return NULL;
}

/* two.arrow, columns i: int32 and t: string, the first batch: rows 1, null, 3 and "a", "", null. Its body: bitmap at
 * 0, values at 8, bitmap at 24, offsets at 32, bytes at 48. */
static void faults_are_named(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset, len;         /* of the buffer that is changed */
        uint64_t new_offset, new_len; /* to this */
        const char *says;
    } cases[] = {
        {8, 20, 8, 7, "record batch 0: buffer 1 has 7 bytes, too few for its items"},
        {8, 20, UINT64_MAX - 4, 12, "record batch 0: buffer 1 leaves the body"},
        {8, 20, 8, UINT64_MAX, "record batch 0: buffer 1 leaves the body"},
        {0, 1, 0, 0, "record batch 0: node 0 has nulls, but no bitmap"},
        {40, 16, 40, 8, "record batch 0: buffer 3 has 8 bytes, too few for its items"},
        {56, 8, 56, 0, "record batch 0: buffer 4 has 0 bytes, too few for its items"},
        {56, 8, 0, 60, "record batch 0: the buffers are longer than the body together"},
    };
    const uint64_t rows[] = {0, 1};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t len;
        struct td_row_index index;
        struct td_error err;
        char *bytes = rows_file("two.arrow", &len);
        assert_true(rows_index("two.arrow", bytes, len, 1 << 20, &index, &err));
        assert_true(cut(&index, bytes, len, 0, 2, 1 << 20, &err));
        char *pair = find_pair(bytes, index.words, cases[i].offset, cases[i].len);
        store(pair, cases[i].new_offset, 8);
        store(pair + 8, cases[i].new_len, 8);
        CHECK(!cut(&index, bytes, len, 0, 2, 1 << 20, &err), "case %zu", i);
        check_says(&err, cases[i].says, "cutting");
        CHECK(!gather(&index, bytes, len, rows, 2, 1 << 20, &err), "case %zu", i);
        check_says(&err, cases[i].says, "gathering");
        assert_true(cut(&index, bytes, len, 0, 3, 1 << 20, &err)); /* whole batches are sent as they are */
        td_row_index_fini(&index);
        __real_free(bytes);
    }
}

/* Offsets of the first batch, 0 1 1 1, that descend, leave the bytes, or are negative. */
static void wrong_offsets_are_named(void **state)
{
    (void)state;
    static const uint32_t offsets[][3] = {{0, UINT32_MAX, 1}, {1, 0, 1}, {0, 5, 1}, {0, 1, 9}, {UINT32_MAX, 1, 1}};
    for (size_t i = 0; i < COUNT_OF(offsets); i++) {
        size_t len;
        struct td_row_index index;
        struct td_error err;
        char *bytes = rows_file("two.arrow", &len);
        assert_true(rows_index("two.arrow", bytes, len, 1 << 20, &index, &err));
        char *at = bytes + index.words[TD_ARROW_OFFSET] + index.words[TD_ARROW_METADATA] + 40;
        for (size_t j = 0; j < 3; j++)
            store(at + 4 * j, offsets[i][j], 4);
        CHECK(!cut(&index, bytes, len, 0, 2, 1 << 20, &err), "case %zu", i);
        check_says(&err, "record batch 0: ", "cutting");
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        const uint64_t rows[] = {0, 1};
        CHECK(!gather(&index, bytes, len, rows, 2, 1 << 20, &err), "case %zu", i);
        check_says(&err, "record batch 0: ", "gathering");
        assert_true(cut(&index, bytes, len, 3, 1, 1 << 20, &err)); /* the other batch */
        td_row_index_fini(&index);
        __real_free(bytes);
    }
}

static void fails(const struct td_row_index *index, const char *bytes, size_t len, enum td_code code)
{
    const uint64_t rows[] = {4};
    struct td_error err;
    assert_false(cut(index, bytes, len, 4, 1, 1 << 20, &err) && gather(index, bytes, len, rows, 1, 1 << 20, &err));
    CHECK(err.code == code, "%d %s", (int)err.code, err.message);
}

static void an_index_of_another_file_is_refused(void **state)
{
    (void)state;
    size_t len, nested_len;
    struct td_row_index index;
    struct td_error err;
    char *bytes = rows_file("flat.arrow", &len), *nested = rows_file("nested.arrow", &nested_len);
    assert_true(rows_index("flat.arrow", bytes, len, 1 << 20, &index, &err));
    fails(&index, bytes, len - 8, TD_UNAVAILABLE);
    assert_true(nested_len >= len);
    fails(&index, nested, len, TD_INVALID_ARGUMENT); /* of the same size */
    const uint64_t past[] = {0, 5};
    assert_false(gather(&index, bytes, len, past, 2, 1 << 20, &err));
    check_says(&err, "row 5 is asked for; there are 5 rows", "gathering");
    assert_false(cut(&index, bytes, len, UINT64_MAX, 2, 1 << 20, &err));
    check_says(&err, "there are 5 rows", "cutting");
    for (size_t word = 0; word < index.word_count;
         word++) { /* words that somebody changed, and that were not checked */
        uint64_t was = index.words[word];
        if (word % TD_ARROW_WORDS == TD_ARROW_OFFSET || word % TD_ARROW_WORDS == TD_ARROW_BYTES_WORD)
            continue; /* td_row_index_read checks these */
        for (uint64_t value = 0; value < 9; value++) {
            index.words[word] = value < 8 ? value : UINT64_MAX;
            (void)answer_all(&index, bytes, len);
        }
        index.words[word] = was;
    }
    assert_int_equal(answer_all(&index, bytes, len), 0);
    td_row_index_fini(&index);
    __real_free(bytes);
    __real_free(nested);
}

/* ---- what leads to itself ---- */

enum { LEVELS = 40 };

/* Writes a schema message of a column that is a struct of `children` fields. All of these are one table: a struct of as
 * many fields that are one table, and so on, LEVELS deep. */
static size_t shared_schema(struct flat_bytes *flat, size_t children)
{
    static const uint16_t message[] = {4, 6, 8}, schema[] = {0, 4}, field[] = {0, 0, 4, 8, 0, 12};
    flat->len = 0;
    (void)flat_put(flat, UINT32_MAX, 4);
    size_t length = flat_put(flat, 0, 4), root = flat_put(flat, 0, 4);
    flat_set(flat, root, flat_table(flat, 12, message, COUNT_OF(message)) - root);
    (void)flat_put(flat, 4, 2); /* V5 */
    (void)flat_put(flat, 1, 2); /* a schema */
    size_t header = flat_put(flat, 0, 4);
    flat_set(flat, header, flat_table(flat, 8, schema, COUNT_OF(schema)) - header);
    size_t vector = flat_put(flat, 0, 4), count = 1;
    for (size_t level = 0; level < LEVELS; level++) {
        flat_lead(flat, vector);
        (void)flat_put(flat, count, 4);
        size_t first = flat->len;
        for (size_t i = 0; i < count; i++)
            (void)flat_put(flat, 0, 4);
        size_t table = flat_table(flat, 16, field, COUNT_OF(field));
        for (size_t i = 0; i < count; i++)
            flat_set(flat, first + 4 * i, table - (first + 4 * i));
        (void)flat_put(flat, level + 1 < LEVELS ? 13 : 1, 4); /* Struct_, Null */
        size_t details = flat_put(flat, 0, 4);
        vector = flat_put(flat, 0, 4);
        flat_set(flat, details, flat_table(flat, 4, NULL, 0) - details);
        count = children;
    }
    flat_lead(flat, vector); /* the last one is no struct, and has no children */
    (void)flat_put(flat, 0, 4);
    flat_set(flat, length, flat->len - 8);
    return flat->len;
}

/* A schema of 40 levels in which each field is named several times: 2^40 fields, were they all walked. */
static void shared_fields_are_refused(void **state)
{
    (void)state;
    struct td_row_index index;
    struct td_error err;
    struct flat_bytes *flat = malloc(sizeof *flat);
    size_t len = shared_schema(flat, 1);
    bool ok = rows_index("a.arrow", flat->bytes, len, 1 << 20, &index, &err);
    CHECK(ok, "%s", err.message);
    assert_int_equal(strncmp(index.columns, "[{\"name\":\"\",\"type\":\"struct<: struct<: ", 36), 0);
    td_row_index_fini(&index);
    for (size_t children = 2; children < 5; children++) {
        len = shared_schema(flat, children);
        assert_false(rows_index("a.arrow", flat->bytes, len, 1 << 20, &index, &err));
        check_says(&err, "fields of a schema share their bytes", "a schema");
    }
    free(flat);
}

/* Appends the file's schema message, and sets the offset at `at` to the schema in it. */
static void put_schema(struct flat_bytes *flat, size_t at, const char *file, const struct td_row_index *index)
{
    enum { PREFIX_BYTES = 8, HEADER = 2 }; /* the mark and the length before a message; number of a message's field */
    const uint8_t *message = (const uint8_t *)file + index->params[TD_ARROW_PARAM_SCHEMA] + PREFIX_BYTES;
    size_t len = (size_t)index->params[TD_ARROW_PARAM_SCHEMA_BYTES] - PREFIX_BYTES;
    size_t root = td_load_le32(message);
    size_t vtable = root - td_load_le32(message + root);
    size_t header = root + td_load_le16(message + vtable + 4 + 2 * HEADER);
    size_t schema = header + td_load_le32(message + header);
    flat_set(flat, at, flat->len + schema - at);
    for (size_t i = 0; i < len; i++)
        (void)flat_put(flat, message[i], 1);
}

/* A footer that names one batch a thousand times. */
static void overlapping_blocks_are_refused(void **state)
{
    (void)state;
    static const uint16_t fields[] = {0, 4, 0, 8};
    size_t len;
    struct td_row_index index;
    struct td_error err;
    char *bytes = rows_file("flat.feather", &len);
    assert_true(rows_index("a.feather", bytes, len, 1 << 20, &index, &err));
    for (size_t blocks = 1; blocks <= 1000; blocks += 999) {
        struct flat_bytes *flat = calloc(1, sizeof *flat);
        size_t messages = (size_t)(index.words[TD_ARROW_OFFSET] + index.words[TD_ARROW_BYTES_WORD]);
        memcpy(flat->bytes, bytes, messages);
        flat->len = messages;
        size_t root = flat_put(flat, 0, 4), table = flat_table(flat, 12, fields, COUNT_OF(fields));
        flat_set(flat, root, table - root);
        size_t schema = flat_put(flat, 0, 4);
        size_t vector = flat_put(flat, 0, 4);
        flat_lead(flat, vector);
        (void)flat_put(flat, blocks, 4);
        for (size_t i = 0; i < blocks; i++) {
            (void)flat_put(flat, index.words[TD_ARROW_OFFSET], 8);
            (void)flat_put(flat, index.words[TD_ARROW_METADATA], 8);
            (void)flat_put(flat, index.words[TD_ARROW_BYTES_WORD] - index.words[TD_ARROW_METADATA], 8);
        }
        put_schema(flat, schema, bytes, &index);
        (void)flat_put(flat, flat->len - messages, 4);
        memcpy(flat->bytes + flat->len, "ARROW1", 6);
        struct td_row_index other;
        bool ok = rows_index("a.feather", flat->bytes, flat->len + 6, 1 << 20, &other, &err);
        CHECK(ok == (blocks == 1), "%s", err.message);
        if (!ok)
            check_says(&err, "the footer's batches overlap", "a footer");
        td_row_index_fini(&other);
        free(flat);
    }
    td_row_index_fini(&index);
    __real_free(bytes);
}

/* ---- memory ---- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const uint64_t rows[] = {3, 1, 1, 0};
    for (size_t i = 0; i < 5; i++) {
        size_t len;
        char *bytes = rows_file(names[i], &len);
        struct alloc_trials trials = {.may_do_without = true};
        while (alloc_try(&trials)) {
            struct td_row_index index;
            struct td_error err;
            bool ok = rows_index(names[i], bytes, len, 1 << 20, &index, &err) &&
                      cut(&index, bytes, len, 1, 3, 1 << 20, &err) &&
                      gather(&index, bytes, len, rows, 4, 1 << 20, &err);
            alloc_tried(&trials, ok, &err);
            td_row_index_fini(&index);
        }
        CHECK(trials.failed > 8, "%s", names[i]);
        __real_free(bytes);
    }
}

/* Never takes more than the limit, but for what malloc adds to each block and keeps of an old one in realloc. */
static void memory_has_a_limit(void **state)
{
    (void)state;
    const uint64_t rows[] = {3, 1, 1, 0, 2, 3, 2};
    size_t len, refused = 0;
    struct td_row_index index;
    struct td_error err;
    char *bytes = rows_file("nested.arrow", &len);
    assert_true(rows_index("nested.arrow", bytes, len, 1 << 20, &index, &err));
    for (size_t limit = 0; limit < 20000; limit += 50)
        for (int gathered = 0; gathered < 2; gathered++) {
            alloc_count_start();
            bool ok = gathered ? gather(&index, bytes, len, rows, COUNT_OF(rows), limit, &err)
                               : cut(&index, bytes, len, 1, 3, limit, &err);
            if (!ok) {
                char says[100];
                (void)snprintf(says, sizeof says, "would take more than %zu bytes of memory", limit);
                assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
                if (strstr(err.message, says) == NULL)
                    check_says(&err, "more than the limit of", "the metadata");
                refused++;
            }
            CHECK(alloc_count_get().peak_bytes <= 2 * limit + 2000, "%d of %d", (int)alloc_count_get().peak_bytes,
                  (int)limit);
        }
    assert_true(refused > 20 && refused < 600);
    td_row_index_fini(&index);
    for (size_t limit = 1; !rows_index("a.arrow", bytes, len, limit, &index, &err); limit += 16) {
        assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
        check_says(&err, "the index of an Arrow file would take more than", "a limit");
    }
    td_row_index_fini(&index);
    __real_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_index_is_what_pyarrow_tells), cmocka_unit_test(prefixes),
        cmocka_unit_test(any_byte_may_be_another),         cmocka_unit_test(faults_are_named),
        cmocka_unit_test(wrong_offsets_are_named),         cmocka_unit_test(an_index_of_another_file_is_refused),
        cmocka_unit_test(shared_fields_are_refused),       cmocka_unit_test(overlapping_blocks_are_refused),
        cmocka_unit_test(every_allocation_may_fail),       cmocka_unit_test(memory_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
