#include "catalog/remote/event_reader.h"

#include <string.h>

static const char byte_order_mark[] = "\xef\xbb\xbf";

/* Where events go. */
struct sink {
    void (*on_event)(void *context, const struct td_read_event *event);
    void *context;
};

/* Calls the function for each buffer of the reader. */
static void for_each_buffer(struct td_event_reader *reader, void (*call)(struct td_buffer *buffer))
{
    struct td_buffer *const buffers[] = {&reader->line, &reader->type, &reader->data, &reader->id, &reader->last_id};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        call(buffers[i]);
}

void td_event_reader_init(struct td_event_reader *reader)
{
    *reader = (struct td_event_reader){.has_begun = false};
    for_each_buffer(reader, td_buffer_init);
}

void td_event_reader_fini(struct td_event_reader *reader)
{
    for_each_buffer(reader, td_buffer_fini);
}

void td_event_reader_begin_again(struct td_event_reader *reader)
{
    td_buffer_clear(&reader->line);
    td_buffer_clear(&reader->type);
    td_buffer_clear(&reader->data);
    td_buffer_clear(&reader->id);
    td_buffer_append(&reader->id, reader->last_id.data, reader->last_id.len);
    reader->has_data = reader->is_after_cr = reader->has_begun = false;
}

static void set_text(struct td_buffer *buffer, struct td_text text)
{
    td_buffer_clear(buffer);
    td_buffer_append(buffer, text.p, text.len);
}

/* Ends the event that was arriving, after an empty line. Without data there is no event, but its id counts. */
static void end_event(struct td_event_reader *reader, const struct sink *sink)
{
    set_text(&reader->last_id, td_buffer_text(&reader->id));
    bool is_whole = !reader->data.failed && !reader->type.failed;
    if (reader->has_data && is_whole) {
        struct td_text type = reader->type.len > 0 ? td_buffer_text(&reader->type) : TD_TEXT("message");
        const struct td_read_event event = {.type = type, .data = td_buffer_text(&reader->data)};
        sink->on_event(sink->context, &event);
    }
    td_buffer_clear(&reader->type);
    td_buffer_clear(&reader->data);
    reader->has_data = false;
}

static bool add_data(struct td_event_reader *reader, struct td_text value, struct td_error *err)
{
    if (value.len + 1 > TD_EVENT_DATA_BYTES - reader->data.len)
        return td_error_set(err, TD_FAILED_PRECONDITION, "an event has more than %d bytes", TD_EVENT_DATA_BYTES);
    if (reader->has_data)
        td_buffer_putc(&reader->data, '\n');
    td_buffer_append(&reader->data, value.p, value.len);
    reader->has_data = true;
    return true;
}

/* Takes one line, without its end. A line that begins with a colon is a comment, and fields that are unknown are
 * ignored; so is `retry`. */
static bool take_line(struct td_event_reader *reader, struct td_text line, const struct sink *sink,
                      struct td_error *err)
{
    if (line.len == 0) {
        end_event(reader, sink);
        return true;
    }
    struct td_text value = line;
    struct td_text name = td_text_take_until(&value, ':');
    (void)td_text_take_char(&value, ' ');
    if (td_text_equals(name, "data"))
        return add_data(reader, value, err);
    if (td_text_equals(name, "event"))
        set_text(&reader->type, value);
    else if (td_text_equals(name, "id") && (value.len == 0 || memchr(value.p, '\0', value.len) == NULL))
        set_text(&reader->id, value);
    return true;
}

/* Takes the line that is complete, from the buffer. */
static bool end_line(struct td_event_reader *reader, const struct sink *sink, struct td_error *err)
{
    struct td_text line = td_buffer_text(&reader->line);
    if (!reader->has_begun && td_text_begins(line, td_text_of(byte_order_mark)))
        line = td_text_skip(line, strlen(byte_order_mark));
    reader->has_begun = true;
    bool ok = !reader->line.failed && take_line(reader, line, sink, err);
    td_buffer_clear(&reader->line);
    return ok;
}

bool td_event_reader_take(struct td_event_reader *reader, struct td_text bytes,
                          void (*on_event)(void *context, const struct td_read_event *event), void *context,
                          struct td_error *err)
{
    const struct sink sink = {.on_event = on_event, .context = context};
    while (bytes.len > 0) {
        if (reader->is_after_cr) {
            reader->is_after_cr = false;
            (void)td_text_take_char(&bytes, '\n');
            continue;
        }
        size_t len = 0;
        while (len < bytes.len && bytes.p[len] != '\n' && bytes.p[len] != '\r')
            len++;
        if (len > TD_EVENT_LINE_BYTES - reader->line.len)
            return td_error_set(err, TD_FAILED_PRECONDITION, "a line of the events has more than %d bytes",
                                TD_EVENT_LINE_BYTES);
        td_buffer_append(&reader->line, bytes.p, len);
        if (len < bytes.len) {
            reader->is_after_cr = bytes.p[len] == '\r';
            if (!end_line(reader, &sink, err))
                return td_error_no_memory(err); /* unless there is another error already */
            len++;
        }
        bytes = td_text_skip(bytes, len);
    }
    bool failed = reader->line.failed || reader->id.failed || reader->last_id.failed || reader->data.failed;
    return !failed || td_error_no_memory(err);
}
