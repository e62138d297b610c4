#include "parser/rows/parquet.h"

#include "core/checked.h"
#include "core/json/json.h"
#include "core/utf8.h"
#include "parser/rows/index/row_memory.h"
#include "parser/rows/thrift.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAGIC_BYTES = 4,
    TAIL_BYTES = 8, /* the footer's length, and the magic */
    WORDS = 3,
    MAX_DEPTH = 64,          /* of groups in the schema */
    COLUMNS_PER_FOOTER = 16, /* bytes of text about columns for each byte of the footer, at most */
    LEAST_COLUMNS_BYTES = 4096,
};

static const char reason[] = "rows of a Parquet file are in encoded pages and are cut by the client: "
                             "read row groups by Range, with pyarrow for example";

/* A group of the schema whose children come next. */
struct group {
    int64_t left;      /* children */
    bool is_repeated;  /* it or a group around it is repeated */
    size_t path_bytes; /* of the group's own path */
};

struct parse {
    const struct td_row_build *build;
    struct td_row_index *out;
    struct td_error *err;
    struct td_budget budget;
    struct td_thrift reader;
    uint64_t footer;        /* where it begins: the end of the column chunks */
    uint64_t columns_bytes; /* that the text about columns may take */
    struct td_buffer columns, path;
    struct group groups[MAX_DEPTH];
    size_t depth;
    bool has_root, has_columns; /* the text is not too long */
    size_t word_capacity;
    bool *leaves; /* for each column of the schema: whether a row may have several values or none */
    size_t leaf_count, leaf_capacity;
    int64_t rows; /* as the footer says */
};

static bool fail_footer(const struct parse *p, const char *what, uint64_t number)
{
    return td_error_at(p->err, TD_INVALID_ARGUMENT, p->reader.pos, "%s: %" PRIu64, what, number);
}

/* ---- the schema ---- */

struct element {
    int64_t type, repetition, children, converted;
    int32_t logical; /* number of the member of the union LogicalType; 0: none */
    uint64_t name, name_bytes;
};

static const char *physical_name(int64_t type)
{
    static const char *const names[] = {"BOOLEAN", "INT32",  "INT64",      "INT96",
                                        "FLOAT",   "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};
    return type >= 0 && type < (int64_t)(sizeof names / sizeof *names) ? names[type] : NULL;
}

/* Returns the logical type, by the union LogicalType, else by the older ConvertedType, or NULL. */
static const char *logical_name(const struct element *element)
{
    static const char *const names[] = {
        [1] = "STRING", [2] = "MAP",       [3] = "LIST",     [4] = "ENUM",      [5] = "DECIMAL",   [6] = "DATE",
        [7] = "TIME",   [8] = "TIMESTAMP", [10] = "INT",     [11] = "UNKNOWN",  [12] = "JSON",     [13] = "BSON",
        [14] = "UUID",  [15] = "FLOAT16",  [16] = "VARIANT", [17] = "GEOMETRY", [18] = "GEOGRAPHY"};
    static const char *const converted[] = {
        "STRING", "MAP", "MAP", "LIST", "ENUM", "DECIMAL", "DATE", "TIME", "TIME", "TIMESTAMP", "TIMESTAMP",
        "INT",    "INT", "INT", "INT",  "INT",  "INT",     "INT",  "INT",  "JSON", "BSON",      "INTERVAL"};
    if (element->logical > 0 && element->logical < (int32_t)(sizeof names / sizeof *names))
        return names[element->logical];
    if (element->converted >= 0 && element->converted < (int64_t)(sizeof converted / sizeof *converted))
        return converted[element->converted];
    return NULL;
}

/* Takes the number of the member that the union LogicalType holds. */
static bool read_logical(struct parse *p, const struct td_thrift_field *field, int32_t *out)
{
    struct td_thrift_field member = {0};
    if (field->type != TD_THRIFT_STRUCT)
        return fail_footer(p, "a logical type is no union but of type", (uint64_t)field->type);
    bool ok = true;
    while (td_thrift_each(&p->reader, &member, &ok)) {
        *out = member.id;
        ok = td_thrift_skip(&p->reader, &member);
    }
    return ok;
}

static bool read_element(struct parse *p, struct element *out)
{
    enum { TYPE = 1, REPETITION = 3, NAME = 4, NUM_CHILDREN = 5, CONVERTED_TYPE = 6, LOGICAL_TYPE = 10 };
    struct td_thrift_field field = {0};
    bool ok = true;
    *out = (struct element){.type = -1, .converted = -1};
    while (td_thrift_each(&p->reader, &field, &ok)) {
        int64_t *number = field.id == TYPE             ? &out->type
                          : field.id == REPETITION     ? &out->repetition
                          : field.id == NUM_CHILDREN   ? &out->children
                          : field.id == CONVERTED_TYPE ? &out->converted
                                                       : NULL;
        if (number != NULL)
            ok = td_thrift_int(&p->reader, &field, number);
        else if (field.id == NAME)
            ok = td_thrift_binary(&p->reader, &field, &out->name, &out->name_bytes);
        else if (field.id == LOGICAL_TYPE)
            ok = read_logical(p, &field, &out->logical);
        else
            ok = td_thrift_skip(&p->reader, &field);
    }
    return ok;
}

/* Appends a name to the path of the innermost group. */
static bool append_name(struct parse *p, const struct element *element)
{
    struct td_buffer *path = &p->path;
    size_t before = p->groups[p->depth - 1].path_bytes;
    path->len = before;
    if (before > 0)
        td_buffer_putc(path, '.');
    if (!td_buffer_reserve(path, (size_t)element->name_bytes + 1))
        return td_row_memory_check(path, p->err);
    if (!td_input_read(p->reader.input, element->name, path->data + path->len, (size_t)element->name_bytes, p->err))
        return false;
    if (!td_utf8_valid(path->data + path->len, (size_t)element->name_bytes))
        return td_error_at(p->err, TD_INVALID_ARGUMENT, element->name, "the name of a column is not UTF-8");
    path->len += (size_t)element->name_bytes;
    return true;
}

static bool add_column(struct parse *p, const struct element *element, bool is_repeated)
{
    if (!td_row_memory_reserve(&p->leaves, &p->leaf_capacity, p->leaf_count + 1, sizeof *p->leaves, &p->budget, p->err))
        return false;
    p->leaves[p->leaf_count++] = is_repeated;
    const char *physical = physical_name(element->type), *logical = logical_name(element);
    if (physical == NULL)
        return fail_footer(p, "a column has a physical type that there is not", (uint64_t)element->type);
    if (!p->has_columns)
        return true;
    td_buffer_puts(&p->columns, p->columns.len > 1 ? ",{\"name\":" : "{\"name\":");
    td_json_write_string(&p->columns, td_buffer_text(&p->path));
    td_buffer_printf(&p->columns, ",\"type\":\"%s", physical);
    if (logical != NULL)
        td_buffer_printf(&p->columns, " (%s)", logical);
    td_buffer_puts(&p->columns, "\"}");
    p->has_columns = p->columns.len <= p->columns_bytes;
    return td_row_memory_check(&p->columns, p->err);
}

/* Takes an element of the schema. A group comes before its members. */
static bool add_element(struct parse *p)
{
    enum { REPEATED = 2 };
    struct element element;
    if (!read_element(p, &element))
        return false;
    while (p->depth > 0 && p->groups[p->depth - 1].left == 0)
        p->depth--;
    if (p->has_root && p->depth == 0)
        return fail_footer(p, "the schema has an element that no group has; children of the element",
                           (uint64_t)element.children);
    if (element.children < 0 || element.children > INT32_MAX)
        return fail_footer(p, "a group of the schema has a wrong number of children", (uint64_t)element.children);
    bool is_repeated = false;
    if (p->has_root) {
        if (!append_name(p, &element))
            return false;
        is_repeated = element.repetition == REPEATED || p->groups[p->depth - 1].is_repeated;
        p->groups[p->depth - 1].left--;
        if (element.children == 0 && element.type >= 0)
            return add_column(p, &element, is_repeated);
    }
    if (p->depth == MAX_DEPTH)
        return fail_footer(p, "groups of the schema are nested too deep", MAX_DEPTH);
    p->groups[p->depth++] = (struct group){
        .left = element.children, .is_repeated = is_repeated, .path_bytes = p->has_root ? p->path.len : 0};
    p->has_root = true;
    return true;
}

static bool read_schema(struct parse *p, const struct td_thrift_field *field)
{
    uint64_t count;
    if (p->has_root)
        return fail_footer(p, "a second schema, as field", (uint64_t)field->id);
    if (!td_thrift_structs(&p->reader, field, &count))
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (!add_element(p))
            return false;
    for (; p->depth > 0; p->depth--)
        if (p->groups[p->depth - 1].left > 0)
            return fail_footer(p, "elements of the schema are missing", (uint64_t)p->groups[p->depth - 1].left);
    return true;
}

/* ---- row groups ---- */

struct chunk {
    int64_t values, bytes, data_page, dictionary_page;
    bool has_place, is_encrypted;
};

/* The bytes that the chunks of a row group span, and their number of rows. */
struct span {
    uint64_t begin, end;
    bool has_rows; /* `rows` is known: some column has one value for each row */
    int64_t rows;
};

static bool read_chunk_place(struct parse *p, const struct td_thrift_field *around, struct chunk *out)
{
    enum { VALUES = 5, COMPRESSED_BYTES = 7, DATA_PAGE = 9, DICTIONARY_PAGE = 11 };
    struct td_thrift_field field = {0};
    if (around->type != TD_THRIFT_STRUCT)
        return fail_footer(p, "the metadata of a column chunk is of type", (uint64_t)around->type);
    out->has_place = true;
    bool ok = true;
    while (td_thrift_each(&p->reader, &field, &ok)) {
        int64_t *number = field.id == VALUES             ? &out->values
                          : field.id == COMPRESSED_BYTES ? &out->bytes
                          : field.id == DATA_PAGE        ? &out->data_page
                          : field.id == DICTIONARY_PAGE  ? &out->dictionary_page
                                                         : NULL;
        ok = number != NULL ? td_thrift_int(&p->reader, &field, number) : td_thrift_skip(&p->reader, &field);
    }
    return ok;
}

static bool read_chunk(struct parse *p, struct chunk *out)
{
    enum { FILE_PATH = 1, META_DATA = 3, CRYPTO_METADATA = 8, ENCRYPTED_METADATA = 9 };
    struct td_thrift_field field = {0};
    *out = (struct chunk){.data_page = -1};
    bool ok = true;
    while (td_thrift_each(&p->reader, &field, &ok)) {
        uint64_t at, len = 0;
        out->is_encrypted = out->is_encrypted || field.id == CRYPTO_METADATA || field.id == ENCRYPTED_METADATA;
        if (field.id == FILE_PATH)
            ok = td_thrift_binary(&p->reader, &field, &at, &len);
        else if (field.id == META_DATA)
            ok = read_chunk_place(p, &field, out);
        else
            ok = td_thrift_skip(&p->reader, &field);
        if (ok && len > 0)
            return fail_footer(p, "a column chunk is in another file; bytes of its name", len);
    }
    return ok;
}

/* Sets or checks the row group's number of rows by a chunk whose column has one value for each row. */
static bool count_rows(struct parse *p, const struct chunk *chunk, uint64_t column, struct span *span)
{
    if (p->leaves[column])
        return true;
    if (span->has_rows && chunk->values != span->rows)
        return fail_footer(p, "the column chunks of a row group have different numbers of rows; column", column);
    span->has_rows = true;
    span->rows = chunk->values;
    return true;
}

/* Reads the column chunks of a row group, and finds the span of bytes from the first to the last. */
static bool read_chunks(struct parse *p, const struct td_thrift_field *field, struct span *span)
{
    uint64_t count;
    if (!td_thrift_structs(&p->reader, field, &count))
        return false;
    if (count != p->leaf_count)
        return fail_footer(p, "a row group has not as many column chunks as the schema before it has columns", count);
    for (uint64_t i = 0; i < count; i++) {
        struct chunk chunk;
        if (!read_chunk(p, &chunk))
            return false;
        if (chunk.is_encrypted)
            return fail_footer(p, "a column chunk is encrypted, of column", i);
        if (!chunk.has_place)
            return fail_footer(p, "a column chunk whose metadata is missing or encrypted", i);
        if (!count_rows(p, &chunk, i, span))
            return false;
        int64_t first = chunk.data_page;
        if (chunk.dictionary_page > 0 && (first <= 0 || chunk.dictionary_page < first))
            first = chunk.dictionary_page; /* it precedes the data pages; a chunk may have no data pages */
        if (chunk.bytes == 0)
            continue;
        if (first < MAGIC_BYTES || chunk.bytes < 0 ||
            !td_range_within((uint64_t)first, (uint64_t)chunk.bytes, p->footer))
            return fail_footer(p, "a column chunk is outside of the file", i);
        span->begin = (uint64_t)first < span->begin ? (uint64_t)first : span->begin;
        span->end = (uint64_t)(first + chunk.bytes) > span->end ? (uint64_t)(first + chunk.bytes) : span->end;
    }
    return true;
}

static bool add_row_group(struct parse *p)
{
    enum { COLUMNS = 1, NUM_ROWS = 3 };
    struct td_row_index *out = p->out;
    struct td_thrift_field field = {0};
    struct span span = {.begin = p->footer};
    int64_t rows = -1;
    bool ok = true;
    while (td_thrift_each(&p->reader, &field, &ok))
        ok = field.id == COLUMNS    ? read_chunks(p, &field, &span)
             : field.id == NUM_ROWS ? td_thrift_int(&p->reader, &field, &rows)
                                    : td_thrift_skip(&p->reader, &field);
    if (!ok)
        return false;
    if (rows < 0)
        return fail_footer(p, "a row group does not say how many rows it has", out->word_count / WORDS);
    if (span.has_rows && span.rows != rows)
        return fail_footer(p, "a row group has another number of rows than its columns", out->word_count / WORDS);
    if (!td_add_u64(out->row_count, (uint64_t)rows, &out->row_count))
        return fail_footer(p, "more than 2^64 rows in row groups", out->word_count / WORDS);
    if (!td_row_memory_reserve(&out->words, &p->word_capacity, out->word_count + WORDS, sizeof *out->words, &p->budget,
                               p->err))
        return false;
    uint64_t *words = out->words + out->word_count;
    words[0] = span.end == 0 ? MAGIC_BYTES : span.begin;
    words[1] = span.end == 0 ? 0 : span.end - span.begin;
    words[2] = (uint64_t)rows;
    out->word_count += WORDS;
    return true;
}

static bool read_row_groups(struct parse *p, const struct td_thrift_field *field)
{
    uint64_t count;
    if (!td_thrift_structs(&p->reader, field, &count))
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (!add_row_group(p) || !td_row_build_goes_on(p->build, p->reader.pos, p->err))
            return false;
    return true;
}

/* ---- the footer ---- */

static bool read_footer(struct parse *p)
{
    enum { SCHEMA = 2, NUM_ROWS = 3, ROW_GROUPS = 4 };
    struct td_thrift_field field = {0};
    bool ok = true;
    while (td_thrift_each(&p->reader, &field, &ok))
        ok = field.id == SCHEMA       ? read_schema(p, &field)
             : field.id == NUM_ROWS   ? td_thrift_int(&p->reader, &field, &p->rows)
             : field.id == ROW_GROUPS ? read_row_groups(p, &field)
                                      : td_thrift_skip(&p->reader, &field);
    return ok;
}

/* Finds the footer, and begins to read it. */
static bool find_footer(struct parse *p)
{
    const struct td_input *data = &p->build->files->data;
    uint8_t head[MAGIC_BYTES], tail[TAIL_BYTES];
    if (data->size_bytes < MAGIC_BYTES + TAIL_BYTES)
        return td_error_set(p->err, TD_INVALID_ARGUMENT, "%" PRIu64 " bytes, too few for a Parquet file",
                            data->size_bytes);
    const uint64_t at = data->size_bytes - TAIL_BYTES;
    if (!td_input_read(data, 0, head, sizeof head, p->err) || !td_input_read(data, at, tail, sizeof tail, p->err))
        return false;
    if (memcmp(tail + 4, "PARE", MAGIC_BYTES) == 0)
        return td_error_at(p->err, TD_INVALID_ARGUMENT, at, "the footer is encrypted");
    if (memcmp(tail + 4, "PAR1", MAGIC_BYTES) != 0 || memcmp(head, "PAR1", MAGIC_BYTES) != 0)
        return td_error_at(p->err, TD_INVALID_ARGUMENT, at, "not a Parquet file: PAR1 is missing at an end");
    const uint64_t len = td_load_le32(tail);
    if (len > at - MAGIC_BYTES)
        return td_error_at(p->err, TD_INVALID_ARGUMENT, at,
                           "a footer of %" PRIu64 " bytes, where the file has %" PRIu64 " for it", len,
                           at - MAGIC_BYTES);
    if (len > p->build->limits->max_header_bytes)
        return td_error_at(p->err, TD_RESOURCE_EXHAUSTED, at,
                           "a footer of %" PRIu64 " bytes, more than the limit of %" PRIu64, len,
                           p->build->limits->max_header_bytes);
    p->footer = at - len;
    p->columns_bytes = COLUMNS_PER_FOOTER * len + LEAST_COLUMNS_BYTES;
    td_thrift_init(&p->reader, data, p->footer, at, p->err);
    return true;
}

static bool finish_index(struct parse *p)
{
    struct td_row_index *out = p->out;
    size_t len;
    if (!p->has_root)
        return td_error_at(p->err, TD_INVALID_ARGUMENT, p->footer, "the footer has no schema");
    if (p->rows < 0 || (uint64_t)p->rows != out->row_count)
        return td_error_at(p->err, TD_INVALID_ARGUMENT, p->footer,
                           "the footer says %" PRId64 " rows, its row groups have %" PRIu64, p->rows, out->row_count);
    out->layout = TD_ROWS_BLOCKS;
    out->params[0] = WORDS;
    if (!td_row_index_set_reason(out, reason, p->err))
        return false;
    if (!p->has_columns)
        return true;
    td_buffer_append(&p->columns, "]", 2); /* with a NUL */
    if (!td_row_memory_check(&p->columns, p->err))
        return false;
    out->columns = td_buffer_release(&p->columns, &len);
    return true;
}

static bool build_index(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    struct parse p = {.build = build, .out = out, .err = err, .has_columns = true};
    size_t memory = build->limits->max_memory_bytes;
    td_budget_init(&p.budget, memory == 0 ? SIZE_MAX : memory, "the index of a Parquet file");
    td_buffer_init_budget(&p.columns, &p.budget);
    td_buffer_init_budget(&p.path, &p.budget);
    td_buffer_putc(&p.columns, '[');
    bool ok = find_footer(&p) && read_footer(&p) && finish_index(&p);
    td_buffer_fini(&p.columns);
    td_buffer_fini(&p.path);
    td_row_memory_free(p.leaves, p.leaf_capacity, sizeof *p.leaves, &p.budget);
    return ok;
}

static const char *const extensions[] = {".parquet", NULL};

const struct td_row_format td_row_format_parquet = {
    .name = "parquet", .extensions = extensions, .row_type = "application/vnd.apache.parquet", .build = build_index};
