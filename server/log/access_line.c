#include "server/log/access_line.h"

#include "core/json/json.h"
#include "core/utf8.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

/* FIRST_BYTES: first size of the buffer, enough for nearly every line. KEPT_BYTES: a larger buffer is freed after its
 * line. SHOWN_BYTES: most bytes of an escaped text, with its NUL. */
enum { FIRST_BYTES = 512, KEPT_BYTES = 1024, SHOWN_BYTES = 1024 };

void td_access_lines_init(struct td_access_lines *lines, const struct in6_addr *client, enum td_log_form form)
{
    bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(client);
    const void *from = is_ipv4 ? client->s6_addr + 12 : client->s6_addr;
    *lines = (struct td_access_lines){.form = form};
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

/* The members of a line, in their order. */
enum key {
    KEY_TIME,
    KEY_CLIENT,
    KEY_METHOD,
    KEY_TARGET,
    KEY_STATUS,
    KEY_SENT,
    KEY_LENGTH,
    KEY_SECONDS,
    KEY_ROUTE,
    KEY_WAITED,
    KEY_CUT,
    KEY_RANGE,
    KEY_AGENT,
    KEY_TOKEN,
    KEY_REQUEST_ID,
    KEY_TRACE,
    KEY_PARENT,
    KEY_COUNT
};

/* The text before the value of each member. */
#define KEYS(first, before, after)                                                                            \
    {                                                                                                         \
        TD_TEXT(first "time" after), TD_TEXT(before "client" after), TD_TEXT(before "method" after),          \
            TD_TEXT(before "target" after), TD_TEXT(before "status" after), TD_TEXT(before "sent" after),     \
            TD_TEXT(before "length" after), TD_TEXT(before "seconds" after), TD_TEXT(before "route" after),   \
            TD_TEXT(before "waited" after), TD_TEXT(before "cut" after), TD_TEXT(before "range" after),       \
            TD_TEXT(before "agent" after), TD_TEXT(before "token" after), TD_TEXT(before "request_id" after), \
            TD_TEXT(before "trace" after), TD_TEXT(before "parent" after),                                    \
    }
static const struct td_text keys[2][KEY_COUNT] = {
    [TD_LOG_TEXT] = KEYS("", " ", "="),
    [TD_LOG_JSON] = KEYS("{\"", ",\"", "\":"),
};

static void append_key(struct td_access_lines *lines, enum key key)
{
    td_buffer_append(&lines->line, keys[lines->form][key].p, keys[lines->form][key].len);
}

/* Appends a member whose value is a word without blanks, quotes and backslashes: in quotes in JSON alone. */
static void append_word(struct td_access_lines *lines, enum key key, struct td_text word)
{
    append_key(lines, key);
    if (lines->form == TD_LOG_JSON)
        td_buffer_putc(&lines->line, '"');
    td_buffer_append(&lines->line, word.p, word.len);
    if (lines->form == TD_LOG_JSON)
        td_buffer_putc(&lines->line, '"');
}

static void append_client_text(struct td_access_lines *lines, enum key key, struct td_text value)
{
    append_key(lines, key);
    append_text(&lines->line, value);
}

static void append_number(struct td_access_lines *lines, enum key key, uint64_t number)
{
    append_key(lines, key);
    td_buffer_u64(&lines->line, number);
}

struct td_text td_access_lines_write(struct td_access_lines *lines, const struct td_access_event *event)
{
    struct td_buffer *line = &lines->line;
    if (line->capacity > KEPT_BYTES)
        td_buffer_fini(line);
    td_buffer_clear(line);
    (void)td_buffer_reserve(line, FIRST_BYTES);
    set_time(lines, event->end);
    append_word(lines, KEY_TIME, td_text_n(lines->time, lines->time_len));
    append_word(lines, KEY_CLIENT, td_text_n(lines->client, lines->client_len));
    append_client_text(lines, KEY_METHOD, event->method);
    append_client_text(lines, KEY_TARGET, event->target);
    append_number(lines, KEY_STATUS, (uint64_t)event->status);
    append_number(lines, KEY_SENT, event->sent_bytes);
    append_number(lines, KEY_LENGTH, event->length_bytes);
    append_key(lines, KEY_SECONDS);
    append_seconds(line, event->took_ns);
    append_word(lines, KEY_ROUTE, td_text_of(event->route));
    if (event->waited_ns > 0) {
        append_key(lines, KEY_WAITED);
        append_seconds(line, event->waited_ns);
    }
    if (event->cut != NULL)
        append_word(lines, KEY_CUT, td_text_of(event->cut));
    if (event->range != NULL)
        append_client_text(lines, KEY_RANGE, *event->range);
    if (event->agent != NULL)
        append_client_text(lines, KEY_AGENT, *event->agent);
    if (event->token[0] != '\0')
        append_word(lines, KEY_TOKEN, td_text_of(event->token));
    if (event->request_id[0] != '\0')
        append_client_text(lines, KEY_REQUEST_ID, td_text_of(event->request_id));
    if (event->trace != NULL) {
        append_word(lines, KEY_TRACE, event->trace->trace_id);
        append_word(lines, KEY_PARENT, event->trace->parent_id);
    }
    if (lines->form == TD_LOG_JSON)
        td_buffer_putc(line, '}');
    td_buffer_putc(line, '\n');
    return line->failed ? td_text_n("", 0) : td_buffer_text(line);
}
