/* Indexes of rows of files in memory, and files below tests/data/rows/ with the rows that their formats' own readers
 * gave (tests/data/make_rows.py). Needs WRAP_MALLOC, zlib and TD_TEST_DATA. */
#ifndef TD_TESTS_UNIT_PARSER_ROW_FIXTURE_H
#define TD_TESTS_UNIT_PARSER_ROW_FIXTURE_H

#include "core/json/json.h"
#include "core/json/json_document.h"
#include "parser/rows/index/row_format.h"
#include "parser/rows/row_formats.h"
#include "tests/fuzz/fuzz_rows.h"
#include "tests/unit/alloc_trials.h"

#include <inttypes.h>
#include <zlib.h>

/* A file, with its table (NULL: none), and the index of its rows. */
struct row_case {
    const struct td_row_format *format;
    const char *name;
    const void *bytes;
    size_t len;
    const void *table;
    size_t table_len;
};

static inline struct td_row_files row_case_files(const struct row_case *c)
{
    return fuzz_row_files(c->bytes, c->len, c->table, c->table_len);
}

/* Makes the index, which the caller ends by td_row_index_fini, and checks what must hold for every index. */
static inline bool row_case_build(const struct row_case *c, size_t memory, struct td_row_index *index,
                                  struct td_error *err)
{
    struct td_row_files files = row_case_files(c);
    bool ok = fuzz_rows_build(c->format, c->name, &files, memory, index, err);
    if (ok)
        fuzz_rows_check(index, &files);
    return ok;
}

static inline struct td_row_index row_case_index(const struct row_case *c)
{
    struct td_row_index index;
    struct td_error err;
    bool ok = row_case_build(c, 0, &index, &err);
    CHECK(ok, "%s: %s", c->name, err.message);
    return index;
}

/* Checks that the file is refused at this position, in these words. */
static inline void row_case_refused(const struct row_case *c, uint64_t pos, const char *says)
{
    struct td_row_index index;
    struct td_error err;
    bool ok = row_case_build(c, 0, &index, &err);
    td_row_index_fini(&index);
    CHECK(!ok, "%s is accepted", says);
    CHECK(err.code == TD_INVALID_ARGUMENT && err.pos == pos, "%s: code %d at %" PRIu64 ": %s", says, (int)err.code,
          err.pos, err.message);
    check_says(&err, says, c->name);
}

static inline struct td_row row_case_find(const struct row_case *c, const struct td_row_index *index, uint64_t row)
{
    struct td_row_files files = row_case_files(c);
    struct td_row found = {0};
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_row_index_find(index, &files, row, 1, &found, &err);
    CHECK(ok, "row %" PRIu64 ": %s", row, err.message);
    return found;
}

/* Returns the error of a row that cannot be found. */
static inline struct td_error row_case_error(const struct row_case *c, const struct td_row_index *index, uint64_t row)
{
    struct td_row_files files = row_case_files(c);
    struct td_row found;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_row_index_find(index, &files, row, 1, &found, &err));
    return err;
}

/* Cuts the file, and then its table, to every length: each is refused with a position, or accepted as another file. */
static inline void row_case_prefixes(const struct row_case *c)
{
    for (size_t len = 0; len < c->len + c->table_len; len++) {
        struct row_case cut = *c;
        bool cuts_table = len >= c->len;
        size_t left = cuts_table ? len - c->len : len;
        uint8_t *bytes = __real_malloc(left + 1); /* exact: the sanitizer sees a read past the end */
        memcpy(bytes, cuts_table ? c->table : c->bytes, left);
        if (cuts_table) {
            cut.table = bytes;
            cut.table_len = left;
        } else {
            cut.bytes = bytes;
            cut.len = left;
        }
        struct td_row_index index;
        struct td_error err;
        if (!row_case_build(&cut, 0, &index, &err))
            check_error(&err, c->len + c->table_len, true, c->name);
        td_row_index_fini(&index);
        __real_free(bytes);
    }
}

/* Lets every allocation of a build fail. Nothing may be left in memory, and an index that was made all the same says
 * all that it says otherwise. */
static inline void row_case_allocations(const struct row_case *c, size_t least)
{
    struct td_limits limits = td_limits_default();
    struct td_row_files files = row_case_files(c);
    struct td_row_build build = {.files = &files, .name = c->name, .limits = &limits};
    struct td_row_index whole = row_case_index(c);
    struct alloc_trials trials = {.may_do_without = true};
    while (alloc_try(&trials)) {
        struct td_row_index index;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_row_index_build(c->format, &build, &index, &err);
        alloc_tried(&trials, ok, &err);
        if (ok) {
            CHECK(fuzz_same_text(index.columns, whole.columns), "%s: columns %s", c->name, index.columns);
            CHECK(fuzz_same_text(index.reason, whole.reason), "%s: reason %s", c->name, index.reason);
        }
        td_row_index_fini(&index);
    }
    CHECK(trials.k > least, "%s: %zu allocations", c->name, trials.k - 1);
    td_row_index_fini(&whole);
}

/* ---- files of the real writers ---- */

static inline char *row_fixture_read(const char *name, size_t *len)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/rows/%s", TD_TEST_DATA, name);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL, "%s is missing", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *len = (size_t)ftell(file);
    rewind(file);
    char *bytes = __real_malloc(*len + 1);
    assert_int_equal(fread(bytes, 1, *len, file), *len);
    assert_int_equal(fclose(file), 0);
    return bytes;
}

/* Checks one row beside [bytes, "crc32"]. */
static inline void row_fixture_check_row(const struct row_case *c, const struct td_row_index *index, uint64_t number,
                                         const struct td_json_document *document, const cJSON *expected)
{
    uint64_t bytes;
    char crc[16];
    assert_true(td_json_document_u64(document, expected->child, &bytes));
    struct td_row row = row_case_find(c, index, number);
    CHECK(row.bytes == bytes, "%s, row %" PRIu64 ": %" PRIu64 " bytes, not %" PRIu64, c->name, number, row.bytes,
          bytes);
    const Bytef *begin = (const Bytef *)c->bytes + row.offset;
    (void)snprintf(crc, sizeof crc, "%08lx", crc32(crc32(0, NULL, 0), begin, (uInt)row.bytes));
    assert_string_equal(crc, td_json_document_string(document, expected->child->next));
}

/* Checks that two JSON texts have the same tokens, whatever their blanks and escapes. */
static inline void row_fixture_check_json(const char *got, struct td_text wanted)
{
    struct td_json a, b;
    enum td_json_token token;
    td_json_init(&a, td_text_of(got), 0, NULL);
    td_json_init(&b, wanted, 0, NULL);
    do {
        char text[256];
        size_t len;
        token = td_json_next(&a);
        CHECK(token != TD_JSON_ERROR && token == td_json_next(&b), "%s, not %.*s", got, TD_SHOW(wanted, 200));
        if (token == TD_JSON_KEY || token == TD_JSON_STRING)
            CHECK(td_json_string(&b, text, sizeof text, &len) && td_json_equals(&a, text), "%s in %s", text, got);
        if (token == TD_JSON_NUMBER)
            assert_true(td_text_compare(td_json_raw(&a), td_json_raw(&b)) == 0);
    } while (token != TD_JSON_END);
}

/* Checks an index beside the members of an entry of expected.json. */
static inline void row_fixture_check(const struct row_case *c, const struct td_json_document *document,
                                     const cJSON *entry)
{
    struct td_row_index index = row_case_index(c);
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(entry, "rows"), *row;
    const cJSON *says = cJSON_GetObjectItemCaseSensitive(entry, "says");
    const cJSON *columns = cJSON_GetObjectItemCaseSensitive(entry, "columns");
    CHECK(index.row_count == (uint64_t)cJSON_GetArraySize(rows), "%s: %" PRIu64 " rows", c->name, index.row_count);
    if (says != NULL && cJSON_IsString(says)) {
        struct td_error err = row_case_error(c, &index, 0);
        check_says(&err, td_json_document_string(document, says), c->name);
    } else {
        uint64_t number = 0;
        cJSON_ArrayForEach(row, rows) row_fixture_check_row(c, &index, number++, document, row);
    }
    if (cJSON_IsNull(columns)) {
        assert_null(index.columns);
    } else {
        CHECK(index.columns != NULL, "%s has no columns", c->name);
        row_fixture_check_json(index.columns, td_json_document_spelled(document, columns));
    }
    td_row_index_fini(&index);
}

/* Checks every file of this format, with its prefixes (unless it is longer than `most_prefix`) and with failing
 * allocations. A build makes at least `allocations` of them. There must be `least` files. */
static inline void row_fixtures_check(const char *format, size_t least, size_t most_prefix, size_t allocations)
{
    size_t len, count = 0;
    char *text = row_fixture_read("expected.json", &len);
    struct td_arena arena;
    struct td_json_document document;
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&arena, 0);
    td_json_document_read(&document, td_text_n(text, len), &arena, &err);
    CHECK(td_json_document_end(&document), "%s", err.message);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, document.root)
    {
        const cJSON *file = cJSON_GetObjectItemCaseSensitive(entry, "file");
        const cJSON *format_name = cJSON_GetObjectItemCaseSensitive(entry, "format");
        if (strcmp(td_json_document_string(&document, format_name), format) != 0)
            continue;
        struct row_case c = {.format = td_row_format_named(td_text_of(format))};
        assert_non_null(c.format);
        c.name = td_json_document_string(&document, file);
        c.bytes = row_fixture_read(c.name, &c.len);
        if (c.format->table_extension != NULL) {
            char table[64];
            (void)snprintf(table, sizeof table, "%.*s%s", (int)(strlen(c.name) - 4), c.name, c.format->table_extension);
            c.table = row_fixture_read(table, &c.table_len);
        }
        row_fixture_check(&c, &document, entry);
        if (c.len <= most_prefix)
            row_case_prefixes(&c);
        row_case_allocations(&c, allocations);
        __real_free((void *)(uintptr_t)c.bytes);
        __real_free((void *)(uintptr_t)c.table);
        count++;
    }
    CHECK(count >= least, "%zu files of %s, %zu expected", count, format, least);
    td_arena_fini(&arena);
    __real_free(text);
}

#endif
