/* The first byte says what follows: 0 the bytes of events that a parser's process which was taken over may send, else a
 * README.md. The HTML of either has only what an independent reader allows, and is bounded; of a README.md, it is the
 * same with the process and without. */
#include "catalog/sandbox/card_wire.h"
#include "rank/card_html.h"

#include "tests/fuzz/card_oracle.h"
#include "tests/fuzz/fuzz_error.h"

#define BASE "/org/model/resolve/main/"

static bool append(void *context, const void *bytes, size_t len)
{
    td_buffer_append(context, bytes, len);
    return true;
}

static void check_html(const struct td_buffer *out)
{
    const char *fault = oracle_check(out->data, out->len, BASE);
    if (fault != NULL)
        (void)fprintf(stderr, "%s\n%.*s\n", fault, (int)out->len, out->data);
    FUZZ_CHECK(fault == NULL);
    FUZZ_CHECK(out->len <= TD_CARD_HTML_BYTES);
    FUZZ_CHECK(td_utf8_valid(out->data, out->len));
}

/* Makes the HTML of bytes that a process has sent. Returns whether they are right. */
static bool read_wire(const void *bytes, size_t len, struct td_buffer *out)
{
    struct td_wire_reader in = td_wire_reader_of(bytes, len);
    struct td_error err = TD_ERROR_INIT;
    struct td_error of_parser;
    struct td_card_html html;
    bool is_cut;
    td_card_html_begin(&html, TD_TEXT(BASE), out);
    const struct td_card_sink sink = {.take = td_card_html_take, .context = &html};
    bool ok = td_card_read(&in, &sink, &of_parser, &is_cut, &err);
    FUZZ_CHECK(td_card_html_end(&html, is_cut, NULL));
    FUZZ_CHECK(ok || err.code == TD_INTERNAL);
    check_html(out);
    return ok;
}

static void read_card(const uint8_t *data, size_t size)
{
    static struct td_wire_writer writer;
    const struct td_input input = td_input_memory(data, size);
    struct td_error err = TD_ERROR_INIT;
    struct td_card_html html;
    struct td_buffer here, there, wire;
    td_buffer_init(&here);
    td_buffer_init(&there);
    td_buffer_init(&wire);
    td_card_html_begin(&html, TD_TEXT(BASE), &here);
    const struct td_card_sink sink = {.take = td_card_html_take, .context = &html};
    bool ok = td_card_text_read(td_text_n((const char *)data, size), &sink, &err);
    FUZZ_CHECK(ok || err.code == TD_INVALID_ARGUMENT || err.code == TD_INTERNAL); /* by a fault of md4c */
    FUZZ_CHECK(td_card_html_end(&html, false, NULL));
    check_html(&here);
    td_wire_writer_init(&writer, append, &wire);
    td_card_write(&input, &writer);
    td_buffer_append(&wire, writer.part, writer.len);
    FUZZ_CHECK(read_wire(wire.data, wire.len, &there));
    FUZZ_CHECK(!ok || here.len == there.len);
    FUZZ_CHECK(!ok || here.len == 0 || memcmp(here.data, there.data, here.len) == 0);
    td_buffer_fini(&here);
    td_buffer_fini(&there);
    td_buffer_fini(&wire);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_buffer out;
    if (size == 0 || size > TD_CARD_TEXT_BYTES)
        return 0;
    if (data[0] != 0) {
        read_card(data + 1, size - 1);
        return 0;
    }
    td_buffer_init(&out);
    (void)read_wire(data + 1, size - 1, &out);
    td_buffer_fini(&out);
    return 0;
}
