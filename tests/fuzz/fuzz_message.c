/* The readers of messages: the first byte chooses the message and the codec. What is read is written in both forms and
 * read again, and must not change. */
#include "api/proto/schema.h"
#include "core/message/decode.h"
#include "core/message/document.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* Writes the record in the form. */
static void write_record(const struct td_record *record, enum td_document_form form, struct td_buffer *out)
{
    const struct td_document_kind kind = {.form = form, .message = record->message};
    struct td_document document;
    td_buffer_init(out);
    td_document_init_kind(&document, out, &kind);
    td_document_begin_object(&document, NULL);
    td_record_add(record, UINT64_MAX, &document);
    td_document_end(&document);
}

static bool read_record(struct td_record *record, const struct td_message *message, struct td_text text, bool is_json,
                        struct td_arena *arena)
{
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(arena, TD_DECODE_FREE_BYTES + TD_DECODE_PER_BYTE * text.len);
    bool ok = is_json ? td_record_read_json(record, message, text, arena, &err)
                      : td_record_read(record, message, text, arena, &err);
    FUZZ_CHECK(ok || err.code == TD_INVALID_ARGUMENT); /* the arena's limit suffices for every input */
    FUZZ_CHECK(ok || err.message[0] != '\0');
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const struct td_message *message = td_schema_messages[(data[0] >> 1) % TD_SCHEMA_MESSAGES];
    struct td_arena arena, again;
    struct td_record record, copy;
    struct td_buffer first, second;
    if (read_record(&record, message, td_text_n((const char *)data + 1, size - 1), (data[0] & 1) != 0, &arena)) {
        for (int form = TD_DOCUMENT_PROTO_JSON; form <= TD_DOCUMENT_PROTOBUF; form++) {
            write_record(&record, (enum td_document_form)form, &first);
            if (!first.failed) { /* a document may be nested too deep to be written */
                FUZZ_CHECK(read_record(&copy, message, td_buffer_text(&first), form == TD_DOCUMENT_PROTO_JSON, &again));
                write_record(&copy, (enum td_document_form)form, &second);
                FUZZ_CHECK(!second.failed && first.len == second.len &&
                           (first.len == 0 || memcmp(first.data, second.data, first.len) == 0));
                td_buffer_fini(&second);
                td_arena_fini(&again);
            }
            td_buffer_fini(&first);
        }
    }
    td_arena_fini(&arena);
    return 0;
}
