#include "catalog/sandbox/wire.h"

#include "core/array.h"
#include "core/json/json.h"
#include "core/utf8.h"
#include "parser/format/names.h"

#include <string.h>

/* ---- writing ------------------------------------------------------------------------------------------- */

void td_wire_writer_init(struct td_wire_writer *writer, bool (*take)(void *context, const void *bytes, size_t len),
                         void *context)
{
    writer->take = take;
    writer->context = context;
    writer->len = 0;
    writer->failed = false;
}

void td_wire_put(struct td_wire_writer *writer, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    while (len > 0 && !writer->failed) {
        size_t n = td_array_fill(writer->part, sizeof writer->part, &writer->len, p, len);
        p += n;
        len -= n;
        if (writer->len < sizeof writer->part)
            continue;
        writer->failed = !writer->take(writer->context, writer->part, writer->len);
        writer->len = 0;
    }
}

void td_wire_put_u8(struct td_wire_writer *writer, uint8_t value)
{
    td_wire_put(writer, &value, sizeof value);
}

void td_wire_put_u32(struct td_wire_writer *writer, uint32_t value)
{
    td_wire_put(writer, &value, sizeof value);
}

void td_wire_put_u64(struct td_wire_writer *writer, uint64_t value)
{
    td_wire_put(writer, &value, sizeof value);
}

void td_wire_put_numbers(struct td_wire_writer *writer, const uint64_t *numbers, size_t count)
{
    td_wire_put(writer, numbers, count * sizeof *numbers);
}

void td_wire_put_text(struct td_wire_writer *writer, struct td_text text)
{
    td_wire_put_u64(writer, text.len);
    td_wire_put(writer, text.p, text.len);
}

void td_wire_put_string(struct td_wire_writer *writer, const char *string)
{
    td_wire_put_u8(writer, string != NULL);
    if (string != NULL)
        td_wire_put_text(writer, td_text_of(string));
}

void td_wire_put_paths(struct td_wire_writer *writer, const char *const *paths, size_t count)
{
    td_wire_put_u64(writer, count);
    for (size_t i = 0; i < count; i++)
        td_wire_put_text(writer, td_text_of(paths[i]));
}

/* ---- reading ------------------------------------------------------------------------------------------- */

struct td_wire_reader td_wire_reader_of(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    return (struct td_wire_reader){.p = p, .end = len == 0 ? p : p + len};
}

static size_t bytes_left(const struct td_wire_reader *reader)
{
    return (size_t)(reader->end - reader->p);
}

void td_wire_get(struct td_wire_reader *reader, void *out, size_t len)
{
    if (!td_wire_check(reader, len <= bytes_left(reader))) {
        memset(out, 0, len);
        return;
    }
    if (len > 0)
        memcpy(out, reader->p, len);
    reader->p += len;
}

uint8_t td_wire_get_u8(struct td_wire_reader *reader)
{
    uint8_t value;
    td_wire_get(reader, &value, sizeof value);
    return value;
}

bool td_wire_get_bool(struct td_wire_reader *reader)
{
    uint8_t value = td_wire_get_u8(reader);
    (void)td_wire_check(reader, value <= 1);
    return value == 1;
}

uint32_t td_wire_get_u32(struct td_wire_reader *reader)
{
    uint32_t value;
    td_wire_get(reader, &value, sizeof value);
    return value;
}

uint64_t td_wire_get_u64(struct td_wire_reader *reader)
{
    uint64_t value;
    td_wire_get(reader, &value, sizeof value);
    return value;
}

size_t td_wire_get_count(struct td_wire_reader *reader, size_t item_bytes)
{
    uint64_t count = td_wire_get_u64(reader);
    return td_wire_check(reader, count <= bytes_left(reader) / item_bytes) ? (size_t)count : 0;
}

void *td_wire_need(struct td_wire_reader *reader, void *memory)
{
    if (memory == NULL)
        reader->no_memory = reader->failed = true;
    return memory;
}

void *td_wire_get_array(struct td_wire_reader *reader, struct td_arena *arena, size_t count, size_t size)
{
    return reader->failed ? NULL : td_wire_need(reader, td_arena_array(arena, count, size));
}

const uint64_t *td_wire_get_numbers(struct td_wire_reader *reader, size_t count, struct td_arena *arena)
{
    if (count == 0 || !td_wire_check(reader, count <= bytes_left(reader) / sizeof(uint64_t)))
        return NULL;
    uint64_t *numbers = td_wire_get_array(reader, arena, count, sizeof *numbers);
    if (numbers != NULL)
        td_wire_get(reader, numbers, count * sizeof *numbers);
    return numbers;
}

struct td_text td_wire_get_text(struct td_wire_reader *reader)
{
    uint64_t len = td_wire_get_u64(reader);
    if (!td_wire_check(reader, len <= bytes_left(reader)))
        return td_text_n("", 0);
    struct td_text text = td_text_n((const char *)reader->p, (size_t)len);
    reader->p += len;
    bool is_text = text.len == 0 || (memchr(text.p, '\0', text.len) == NULL && td_utf8_valid(text.p, text.len));
    return td_wire_check(reader, is_text) ? text : td_text_n("", 0);
}

const char *td_wire_get_copy(struct td_wire_reader *reader, struct td_arena *arena)
{
    struct td_text text = td_wire_get_text(reader);
    return reader->failed ? NULL : td_wire_need(reader, td_arena_strndup(arena, text));
}

const char *td_wire_get_string(struct td_wire_reader *reader, struct td_arena *arena)
{
    return td_wire_get_bool(reader) ? td_wire_get_copy(reader, arena) : NULL;
}

const char **td_wire_get_paths(struct td_wire_reader *reader, struct td_arena *arena, size_t *count)
{
    *count = td_wire_get_count(reader, sizeof(uint64_t));
    const char **paths = td_wire_get_array(reader, arena, *count, sizeof *paths);
    for (size_t i = 0; i < *count && !reader->failed; i++) {
        paths[i] = td_wire_get_copy(reader, arena);
        (void)td_wire_check(reader, paths[i] != NULL && td_is_path_below(td_text_of(paths[i])) &&
                                        (i == 0 || strcmp(paths[i - 1], paths[i]) < 0));
    }
    *count = reader->failed ? 0 : *count;
    return paths;
}

void td_wire_check_json(struct td_wire_reader *reader, const char *text, char first)
{
    struct td_error none = TD_ERROR_INIT;
    struct td_json json;
    td_json_init(&json, td_text_of(text), 0, &none);
    (void)td_wire_check(reader, (first == '\0' || text[0] == first) && td_json_skip(&json) &&
                                    td_json_next(&json) == TD_JSON_END);
}

bool td_wire_refuse(const struct td_wire_reader *in, struct td_error *err)
{
    return in->no_memory ? td_error_no_memory(err)
                         : td_error_set(err, TD_INTERNAL, "the parser's process gave an answer that cannot be right");
}
