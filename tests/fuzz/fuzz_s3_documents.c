/* The input is a document of a client of S3. Lists that are read from it are bounded and whole. */
#include "api/s3/s3_documents.h"

#include "http/xml_reader.h"
#include "tests/fuzz/fuzz.h"

/* Reads all events: as many elements end as begin. */
static void check_events(struct td_text document)
{
    struct td_xml_reader reader;
    size_t depth = 0;
    td_xml_reader_begin(&reader, document);
    while (true) {
        enum td_xml_event event = td_xml_reader_next(&reader);
        if (event == TD_XML_BAD)
            return;
        if (event == TD_XML_OVER)
            break;
        depth += event == TD_XML_BEGIN ? 1 : 0;
        FUZZ_CHECK(event != TD_XML_END || depth > 0);
        depth -= event == TD_XML_END ? 1 : 0;
        FUZZ_CHECK(depth <= TD_XML_DEPTH);
    }
    FUZZ_CHECK(depth == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_text document = td_text_n((const char *)data, size);
    struct td_arena arena;
    struct td_s3_part_list parts;
    struct td_s3_key_list keys;
    td_arena_init(&arena, 0);
    check_events(document);
    if (td_s3_read_parts(document, &arena, &parts) == TD_S3_DOCUMENT_OK) {
        FUZZ_CHECK(parts.count > 0 && parts.count <= TD_S3_MOST_PARTS);
        for (size_t i = 0; i < parts.count; i++)
            FUZZ_CHECK(parts.items[i].number >= 1 && parts.items[i].number <= TD_S3_MOST_PARTS &&
                       parts.items[i].etag.len > 0);
    }
    if (td_s3_read_keys(document, &arena, &keys) == TD_S3_DOCUMENT_OK) {
        FUZZ_CHECK(keys.count > 0 && keys.count <= TD_S3_MOST_KEYS);
        for (size_t i = 0; i < keys.count; i++)
            FUZZ_CHECK(keys.items[i].key.len > 0 && keys.items[i].key.len <= size);
    }
    (void)td_s3_is_bucket_configuration(document);
    td_arena_fini(&arena);
    return 0;
}
