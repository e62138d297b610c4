#include "catalog/sandbox/card_wire.h"

#include "catalog/sandbox/content_wire.h"

#include <stdlib.h>

/* Follows the last event. */
enum { NO_EVENT = TD_CARD_EVENTS };

struct writing {
    struct td_wire_writer *out;
    size_t len;
    bool is_cut;
};

static bool has_text(const struct td_card_event *event)
{
    return event->kind == TD_CARD_TEXT || event->kind == TD_CARD_ENTITY;
}

static bool has_address(const struct td_card_event *event)
{
    return event->kind == TD_CARD_BEGIN && (event->node == TD_CARD_LINK || event->node == TD_CARD_IMAGE);
}

/* Appends an event, unless all would be too long. */
static bool write_event(void *context, const struct td_card_event *event, struct td_error *err)
{
    enum { BEGIN_BYTES = 5 };
    struct writing *w = context;
    size_t len = 1 + (event->kind == TD_CARD_BEGIN ? BEGIN_BYTES : 0);
    (void)err;
    if (has_text(event) || has_address(event))
        len += sizeof(uint64_t) + event->text.len;
    if (has_address(event))
        len += sizeof(uint64_t) + event->title.len;
    w->is_cut = len > TD_CARD_WIRE_BYTES - w->len;
    if (w->is_cut)
        return false;
    w->len += len;
    td_wire_put_u8(w->out, (uint8_t)event->kind);
    if (event->kind == TD_CARD_BEGIN) {
        td_wire_put_u8(w->out, (uint8_t)event->node);
        td_wire_put_u32(w->out, event->number);
    }
    if (has_text(event) || has_address(event))
        td_wire_put_text(w->out, event->text);
    if (has_address(event))
        td_wire_put_text(w->out, event->title);
    return !w->out->failed;
}

void td_card_write(const struct td_input *input, struct td_wire_writer *out)
{
    struct writing w = {.out = out};
    const struct td_card_sink sink = {.take = write_event, .context = &w};
    struct td_error err = TD_ERROR_INIT;
    char *text = (char *)td_input_load(input, 0, input->size_bytes, TD_CARD_TEXT_BYTES + 1, &err);
    if (text != NULL)
        (void)td_card_text_read(td_text_n(text, (size_t)input->size_bytes), &sink, &err);
    free(text);
    td_wire_put_u8(out, NO_EVENT);
    td_wire_put_u8(out, w.is_cut);
    td_error_write(&err, out);
}

/* Reads an event, whose texts borrow the reader's bytes. Returns false at the end and when the reader has failed. */
static bool read_event(struct td_wire_reader *in, struct td_card_event *event)
{
    uint8_t kind = td_wire_get_u8(in);
    *event = (struct td_card_event){.kind = (enum td_card_event_kind)kind};
    if (!td_wire_check(in, kind <= NO_EVENT) || kind == NO_EVENT)
        return false;
    if (event->kind == TD_CARD_BEGIN) {
        uint8_t node = td_wire_get_u8(in);
        event->node = (enum td_card_node)node;
        event->number = td_wire_get_u32(in);
        if (!td_wire_check(in, node < TD_CARD_NODES))
            return false;
    }
    if (has_text(event) || has_address(event))
        event->text = td_wire_get_text(in);
    if (has_address(event))
        event->title = td_wire_get_text(in);
    return !in->failed;
}

bool td_card_read(struct td_wire_reader *in, const struct td_card_sink *sink, struct td_error *of_parser, bool *is_cut,
                  struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_card_event event;
    td_error_init(of_parser);
    *is_cut = false;
    while (read_event(in, &event))
        if (!sink->take(sink->context, &event, &why))
            return why.code == TD_OK || td_error_copy(err, &why);
    *is_cut = td_wire_get_bool(in);
    td_error_read(in, of_parser);
    return td_wire_check(in, in->p == in->end) || td_wire_refuse(in, err);
}
