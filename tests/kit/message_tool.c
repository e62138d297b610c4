/* Reads messages of the schema and writes them again, for tests/interop/test_messages.py. Standard input has cases: the
 * name of a message and '\n'; the form that it comes in and the form to write, 'j' or 'b' for JSON and binary; the
 * length of the message, four bytes in big-endian order; the message. Standard output has an answer for each: '+' and
 * the message in the form, or '-' and the error; its length stands before it, again in four bytes. */
#include "api/proto/schema.h"
#include "core/message/decode.h"
#include "core/message/document.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct td_message *find_message(const char *name)
{
    for (size_t i = 0; i < TD_SCHEMA_MESSAGES; i++)
        if (strcmp(td_schema_messages[i]->name, name) == 0)
            return td_schema_messages[i];
    return NULL;
}

static void put(char sign, struct td_text text)
{
    const uint8_t length[] = {(uint8_t)(text.len >> 24), (uint8_t)(text.len >> 16), (uint8_t)(text.len >> 8),
                              (uint8_t)text.len};
    (void)putchar(sign);
    (void)fwrite(length, 1, sizeof length, stdout);
    (void)fwrite(text.p, 1, text.len, stdout);
}

static void convert(const struct td_message *message, char from, char to, struct td_text text)
{
    struct td_arena arena;
    struct td_record record;
    struct td_document document;
    struct td_buffer out;
    struct td_error err = TD_ERROR_INIT;
    const struct td_document_kind kind = {.form = to == 'j' ? TD_DOCUMENT_PROTO_JSON : TD_DOCUMENT_PROTOBUF,
                                          .message = message};
    td_arena_init(&arena, TD_DECODE_FREE_BYTES + TD_DECODE_PER_BYTE * text.len);
    td_buffer_init(&out);
    bool ok = from == 'j' ? td_record_read_json(&record, message, text, &arena, &err)
                          : td_record_read(&record, message, text, &arena, &err);
    if (ok) {
        td_document_init_kind(&document, &out, &kind);
        td_document_begin_object(&document, NULL);
        td_record_add(&record, UINT64_MAX, &document);
        td_document_end(&document);
    }
    put(ok && !out.failed ? '+' : '-', ok ? td_buffer_text(&out) : td_text_of(err.message));
    td_buffer_fini(&out);
    td_arena_fini(&arena);
}

int main(void)
{
    char name[128];
    while (fgets(name, sizeof name, stdin) != NULL) {
        uint8_t head[6];
        name[strcspn(name, "\n")] = '\0';
        const struct td_message *message = find_message(name);
        if (message == NULL || fread(head, 1, sizeof head, stdin) != sizeof head)
            return 2;
        size_t len = (size_t)head[2] << 24 | (size_t)head[3] << 16 | (size_t)head[4] << 8 | head[5];
        char *text = malloc(len + 1); /* of its very length, so that a read past the end is found */
        if (text == NULL || fread(text, 1, len, stdin) != len)
            return 2;
        convert(message, (char)head[0], (char)head[1], td_text_n(text, len));
        free(text);
    }
    return 0;
}
