/* Parses pickles and prints their values, for tests/interop/test_pickle.py to compare with Python's own reading.
 *
 * Standard input: pickles, each after its length (u32le). Standard output: a line of JSON for each, either
 * {"code":N,"pos":N,"message":"..."} or {"root":REF,"values":[...]}. Every value is at its number, and containers hold
 * the numbers of their items, so sharing and cycles stay visible. */
#include "core/buffer.h"
#include "core/input.h"
#include "core/json/json.h"
#include "parser/pickle/pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_hex(struct td_buffer *out, const char *key, const void *bytes, size_t len)
{
    td_buffer_printf(out, ",\"%s\":\"", key);
    for (size_t i = 0; i < len; i++)
        td_buffer_printf(out, "%02x", ((const uint8_t *)bytes)[i]);
    td_buffer_putc(out, '"');
}

static void put_int(struct td_buffer *out, const struct td_pickle *p, td_pickle_ref ref)
{
    int64_t number;
    size_t len;
    const uint8_t *big = td_pickle_big_int(p, ref, &len);
    if (big != NULL)
        put_hex(out, "big", big, len);
    else if (td_pickle_int(p, ref, &number))
        td_buffer_printf(out, ",\"int\":%" PRId64, number);
}

static void put_items(struct td_buffer *out, const struct td_pickle *p, td_pickle_ref ref)
{
    td_buffer_puts(out, ",\"items\":[");
    for (uint32_t i = 0; i < td_pickle_count(p, ref); i++)
        td_buffer_printf(out, "%s%" PRIu32, i > 0 ? "," : "", td_pickle_item(p, ref, i));
    td_buffer_putc(out, ']');
}

static void put_map(struct td_buffer *out, const struct td_pickle *p, td_pickle_ref ref)
{
    struct td_pickle_map map;
    if (!td_pickle_map(p, ref, &map))
        return;
    td_buffer_puts(out, ",\"map\":[");
    for (uint32_t i = 0; i < map.count; i++)
        td_buffer_printf(out, "%s[%" PRIu32 ",%" PRIu32 "]", i > 0 ? "," : "", td_pickle_map_key(p, &map, i),
                         td_pickle_map_value(p, &map, i));
    td_buffer_putc(out, ']');
}

static void put_object(struct td_buffer *out, const struct td_pickle *p, td_pickle_ref ref)
{
    td_buffer_printf(out, ",\"call\":%d,\"callable\":%" PRIu32 ",\"args\":%" PRIu32, (int)td_pickle_call(p, ref),
                     td_pickle_callable(p, ref), td_pickle_args(p, ref));
    td_buffer_printf(out, ",\"kwargs\":%" PRIu32 ",\"state\":%" PRIu32, td_pickle_kwargs(p, ref),
                     td_pickle_state(p, ref));
}

static void put_value(struct td_buffer *out, const struct td_pickle *p, td_pickle_ref ref)
{
    double real;
    size_t len;
    const char *text = td_pickle_text(p, ref, &len);
    enum td_pickle_kind kind = td_pickle_kind(p, ref);
    td_buffer_printf(out, "{\"kind\":\"%s\",\"at\":%" PRIu64, td_pickle_kind_name(kind), td_pickle_position(p, ref));
    if (text != NULL)
        put_hex(out, "text", text, len);
    if (kind == TD_PICKLE_STRING)
        td_buffer_printf(out, ",\"utf8\":%s", td_pickle_is_utf8(p, ref) ? "true" : "false");
    if (kind == TD_PICKLE_BOOL)
        td_buffer_printf(out, ",\"bool\":%s", td_pickle_bool(p, ref) ? "true" : "false");
    if (td_pickle_float(p, ref, &real))
        put_hex(out, "float", &real, sizeof real);
    if (kind == TD_PICKLE_GLOBAL)
        td_buffer_printf(out, ",\"module\":%" PRIu32 ",\"name\":%" PRIu32, td_pickle_module(p, ref),
                         td_pickle_name(p, ref));
    if (kind == TD_PICKLE_PERSISTENT)
        td_buffer_printf(out, ",\"id\":%" PRIu32, td_pickle_persistent(p, ref));
    if (kind == TD_PICKLE_OBJECT)
        put_object(out, p, ref);
    put_int(out, p, ref);
    put_items(out, p, ref);
    put_map(out, p, ref);
    td_buffer_putc(out, '}');
}

static void put_pickle(struct td_buffer *out, const struct td_pickle *p)
{
    td_buffer_printf(out,
                     "{\"root\":%" PRIu32 ",\"end\":%zu,\"ops\":%" PRIu64 ",\"memo\":%" PRIu32
                     ",\"duplicates\":%" PRIu32 ",\"duplicate\":%" PRIu32 ",\"values\":[",
                     p->root, p->end, p->op_count, p->memo_count, p->duplicate_count, p->duplicate);
    for (td_pickle_ref ref = 0; ref <= p->value_count; ref++) {
        if (ref > 0)
            td_buffer_putc(out, ',');
        put_value(out, p, ref);
    }
    td_buffer_puts(out, "]}");
}

static void put_error(struct td_buffer *out, const struct td_error *err)
{
    td_buffer_printf(out, "{\"code\":%d,\"pos\":%" PRId64 ",\"message\":", (int)err->code, (int64_t)err->pos);
    td_json_write_cstring(out, err->message);
    td_buffer_putc(out, '}');
}

static bool dump(const uint8_t *bytes, size_t len)
{
    struct td_pickle pickle;
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer out;
    const struct td_pickle_options options = {.max_memory_bytes = (size_t)256 << 20};
    td_buffer_init(&out);
    if (td_pickle_parse(&pickle, bytes, len, 0, &options, &err))
        put_pickle(&out, &pickle);
    else
        put_error(&out, &err);
    td_buffer_putc(&out, '\n');
    bool ok = !out.failed && fwrite(out.data, 1, out.len, stdout) == out.len && fflush(stdout) == 0;
    td_buffer_fini(&out);
    td_pickle_fini(&pickle);
    return ok;
}

int main(void)
{
    uint8_t prefix[4];
    bool ok = true;
    while (ok && fread(prefix, 1, sizeof prefix, stdin) == sizeof prefix) {
        size_t len = td_load_le32(prefix);
        uint8_t *bytes = malloc(len + (len == 0)); /* exact size, so that AddressSanitizer sees a read past the end */
        ok = bytes != NULL && fread(bytes, 1, len, stdin) == len && dump(bytes, len);
        free(bytes);
    }
    return ok ? 0 : 1;
}
