#include "server/access_line.h"

#include "core/json.h"
#include "core/utf8.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

/* FIRST_BYTES: room for nearly every line. KEPT_BYTES: a larger buffer is freed. SHOWN_BYTES: of an escaped text with
 * its NUL. */
enum { FIRST_BYTES = 384, KEPT_BYTES = 1024, SHOWN_BYTES = 1024 };

void td_access_lines_init(struct td_access_lines *lines, const struct in6_addr *client)
{
    bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(client);
    const void *from = is_ipv4 ? client->s6_addr + 12 : client->s6_addr;
    *lines = (struct td_access_lines){.time_len = 0};
    td_buffer_init(&lines->line);
    if (inet_ntop(is_ipv4 ? AF_INET : AF_INET6, from, lines->client, sizeof lines->client) == NULL)
        memcpy(lines->client, "?", 2);
    lines->client_len = strlen(lines->client);
}

void td_access_lines_fini(struct td_access_lines *lines)
{
    td_buffer_fini(&lines->line);
}

/* Sets `time` to the text of a moment. Within one second only the milliseconds change, which are the three digits
 * before the Z at the end. */
static void set_time(struct td_access_lines *lines, struct td_wall wall)
{
    if (lines->time_len == 0 || lines->time_second != wall.seconds) {
        lines->time_len = td_wall_rfc3339(wall, lines->time, sizeof lines->time);
        lines->time_second = wall.seconds;
        return;
    }
    uint32_t ms = wall.nanoseconds / 1000000U;
    char *digits = lines->time + lines->time_len - 4;
    digits[0] = (char)('0' + ms / 100);
    digits[1] = (char)('0' + ms / 10 % 10);
    digits[2] = (char)('0' + ms % 10);
}

/* Appends a time in seconds with six decimals, rounded to the nearest microsecond. */
static void append_seconds(struct td_buffer *line, uint64_t ns)
{
    uint64_t us = ns / 1000 + (ns % 1000 >= 500 ? 1 : 0);
    char decimals[7] = ".";
    td_buffer_u64(line, us / 1000000);
    us %= 1000000;
    for (size_t i = sizeof decimals - 1; i > 0; i--, us /= 10)
        decimals[i] = (char)('0' + us % 10);
    td_buffer_append(line, decimals, sizeof decimals);
}

static void append_escaped(struct td_buffer *line, struct td_text value)
{
    char shown[SHOWN_BYTES];
    td_utf8_escape(value, shown, sizeof shown);
    td_json_write_cstring(line, shown);
}

/* Appends a text in quotes. Nearly all are plain and are copied as they are. */
static void append_text(struct td_buffer *line, struct td_text value)
{
    if (value.len >= SHOWN_BYTES || !td_json_is_plain(value)) {
        append_escaped(line, value);
        return;
    }
    td_buffer_putc(line, '"');
    td_buffer_append(line, value.p, value.len);
    td_buffer_putc(line, '"');
}

/* Appends a key, which is a string literal. */
#define APPEND_KEY(line, key) td_buffer_append((line), (key), sizeof(key) - 1)

struct td_text td_access_lines_write(struct td_access_lines *lines, const struct td_access_event *event)
{
    struct td_buffer *line = &lines->line;
    if (line->capacity > KEPT_BYTES)
        td_buffer_fini(line);
    td_buffer_clear(line);
    (void)td_buffer_reserve(line, FIRST_BYTES);
    set_time(lines, event->end);
    APPEND_KEY(line, "time=");
    td_buffer_append(line, lines->time, lines->time_len);
    APPEND_KEY(line, " client=");
    td_buffer_append(line, lines->client, lines->client_len);
    APPEND_KEY(line, " method=");
    append_text(line, event->method);
    APPEND_KEY(line, " target=");
    append_text(line, event->target);
    APPEND_KEY(line, " status=");
    td_buffer_u64(line, (uint64_t)event->status);
    APPEND_KEY(line, " sent=");
    td_buffer_u64(line, event->sent_bytes);
    APPEND_KEY(line, " length=");
    td_buffer_u64(line, event->length_bytes);
    APPEND_KEY(line, " seconds=");
    append_seconds(line, event->took_ns);
    APPEND_KEY(line, " route=");
    td_buffer_puts(line, event->route);
    if (event->cut != NULL) {
        APPEND_KEY(line, " cut=");
        td_buffer_puts(line, event->cut);
    }
    if (event->range != NULL) {
        APPEND_KEY(line, " range=");
        append_text(line, *event->range);
    }
    if (event->agent != NULL) {
        APPEND_KEY(line, " agent=");
        append_text(line, *event->agent);
    }
    td_buffer_putc(line, '\n');
    return line->failed ? td_text_n("", 0) : td_buffer_text(line);
}
