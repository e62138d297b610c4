#include "api/s3/s3_documents.h"

#include "core/buffer.h"
#include "tests/unit/alloc_trials.h"

#define PART(number, etag) "<Part><PartNumber>" number "</PartNumber><ETag>" etag "</ETag></Part>"
#define COMPLETE(parts) \
    "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" parts "</CompleteMultipartUpload>"
#define DELETE(objects) "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Delete>" objects "</Delete>"

static void parts(void **state)
{
    (void)state;
    struct td_arena arena;
    struct td_s3_part_list list;
    td_arena_init(&arena, 0);
    struct td_text document = TD_TEXT(COMPLETE("\n <Part>\n<ETag>&quot;a-1&quot;</ETag> <PartNumber>7</PartNumber>"
                                               "<ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part>" PART("10000", "b")));
    assert_int_equal(td_s3_read_parts(document, &arena, &list), TD_S3_DOCUMENT_OK);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.items[0].number, 7);
    assert_true(td_text_equals(list.items[0].etag, "\"a-1\"") && td_text_equals(list.items[0].sum, "AAAAAA=="));
    assert_int_equal(list.items[0].algorithm, TD_S3_CRC32);
    assert_int_equal(list.items[1].number, 10000);
    assert_true(td_text_equals(list.items[1].etag, "b") && list.items[1].sum.len == 0);
    assert_int_equal(list.items[1].algorithm, TD_S3_NO_ALGORITHM);
    td_arena_fini(&arena);
}

static void malformed_parts(void **state)
{
    (void)state;
    static const char *const documents[] = {
        "",
        "x",
        COMPLETE(""),
        COMPLETE("<Part/>"),
        COMPLETE("<Part><PartNumber>1</PartNumber></Part>"),
        COMPLETE("<Part><ETag>a</ETag></Part>"),
        COMPLETE(PART("0", "a")),
        COMPLETE(PART("10001", "a")),
        COMPLETE(PART("-1", "a")),
        COMPLETE(PART("<b/>", "a")),
        COMPLETE(PART("1", "&x;")),
        COMPLETE("x"),
        COMPLETE("<Part><PartNumber>1</PartNumber><ETag>a</ETag><ChecksumXXHASH64>a</ChecksumXXHASH64></Part>"),
        COMPLETE(PART("1", "a")) "<a/>",
        "<Delete><Object><Key>a</Key></Object></Delete>",
        "<CompleteMultipartUpload>" PART("1", "a"),
    };
    for (size_t i = 0; i < COUNT_OF(documents); i++) {
        struct td_arena arena;
        struct td_s3_part_list list;
        td_arena_init(&arena, 0);
        CHECK(td_s3_read_parts(td_text_of(documents[i]), &arena, &list) == TD_S3_DOCUMENT_MALFORMED, "%s",
              documents[i]);
        td_arena_fini(&arena);
    }
}

static void keys(void **state)
{
    (void)state;
    struct td_arena arena;
    struct td_s3_key_list list;
    td_arena_init(&arena, 0);
    struct td_text document = TD_TEXT(DELETE(
        "<Object><Key>a/b &amp; c</Key></Object><Quiet> true </Quiet><Object><Key>d</Key><VersionId>null</VersionId>"
        "<ETag>\"e\"</ETag><Size>3</Size></Object>"));
    assert_int_equal(td_s3_read_keys(document, &arena, &list), TD_S3_DOCUMENT_OK);
    assert_int_equal(list.count, 2);
    assert_true(list.is_quiet);
    assert_true(td_text_equals(list.items[0].key, "a/b & c"));
    assert_true(td_text_equals(list.items[1].version_id, "null") && td_text_equals(list.items[1].etag, "\"e\""));
    assert_int_equal(td_s3_read_keys(TD_TEXT(DELETE("<Object><Key>a</Key></Object>")), &arena, &list),
                     TD_S3_DOCUMENT_OK);
    assert_false(list.is_quiet);
    static const char *const wrong[] = {"",
                                        DELETE(""),
                                        DELETE("<Object/>"),
                                        DELETE("<Object><Key/></Object>"),
                                        DELETE("<Object><Key>a</Key></Object><Quiet>1</Quiet>"),
                                        DELETE("<Key>a</Key>"),
                                        "<!DOCTYPE x>" DELETE("<Object><Key>a</Key></Object>")};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        CHECK(td_s3_read_keys(td_text_of(wrong[i]), &arena, &list) == TD_S3_DOCUMENT_MALFORMED, "%s", wrong[i]);
    td_arena_fini(&arena);
}

/* Lists are bounded, whatever the document has. */
static void long_lists(void **state)
{
    (void)state;
    struct td_buffer document;
    td_buffer_init(&document);
    for (int more = 0; more <= 1; more++) {
        struct td_arena arena;
        struct td_s3_key_list list;
        struct td_s3_part_list part_list;
        td_arena_init(&arena, 0);
        td_buffer_clear(&document);
        td_buffer_puts(&document, "<Delete>");
        for (int i = 0; i < TD_S3_MOST_KEYS + more; i++)
            td_buffer_puts(&document, "<Object><Key>a</Key></Object>");
        td_buffer_puts(&document, "</Delete>");
        assert_int_equal(td_s3_read_keys(td_buffer_text(&document), &arena, &list),
                         more == 0 ? TD_S3_DOCUMENT_OK : TD_S3_DOCUMENT_TOO_MANY);
        td_buffer_clear(&document);
        td_buffer_puts(&document, "<CompleteMultipartUpload>");
        for (int i = 0; i < TD_S3_MOST_PARTS + more; i++)
            td_buffer_printf(&document, PART("%d", "a"), i % TD_S3_MOST_PARTS + 1);
        td_buffer_puts(&document, "</CompleteMultipartUpload>");
        assert_int_equal(td_s3_read_parts(td_buffer_text(&document), &arena, &part_list),
                         more == 0 ? TD_S3_DOCUMENT_OK : TD_S3_DOCUMENT_TOO_MANY);
        assert_true(document.len < TD_S3_DOCUMENT_BYTES);
        td_arena_fini(&arena);
    }
    td_buffer_fini(&document);
}

static void bucket_configurations(void **state)
{
    (void)state;
    assert_true(td_s3_is_bucket_configuration(TD_TEXT("")));
    assert_true(td_s3_is_bucket_configuration(
        TD_TEXT("<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>"
                "eu-west-1</LocationConstraint></CreateBucketConfiguration>")));
    assert_false(td_s3_is_bucket_configuration(TD_TEXT("<Delete/>")));
    assert_false(td_s3_is_bucket_configuration(TD_TEXT("<CreateBucketConfiguration>")));
    assert_false(td_s3_is_bucket_configuration(TD_TEXT("x")));
}

static void without_memory(void **state)
{
    (void)state;
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_arena arena;
        struct td_s3_key_list list;
        struct td_s3_part_list part_list;
        td_arena_init(&arena, 0);
        enum td_s3_document_fault fault =
            td_s3_read_keys(TD_TEXT(DELETE("<Object><Key>a</Key></Object>")), &arena, &list);
        if (fault == TD_S3_DOCUMENT_OK)
            fault = td_s3_read_parts(TD_TEXT(COMPLETE(PART("1", "a"))), &arena, &part_list);
        assert_true(fault == TD_S3_DOCUMENT_OK || fault == TD_S3_DOCUMENT_NO_MEMORY);
        td_arena_fini(&arena);
        alloc_tried(&trials, fault == TD_S3_DOCUMENT_OK, NULL);
    }
    assert_true(trials.k > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts),      cmocka_unit_test(malformed_parts),       cmocka_unit_test(keys),
        cmocka_unit_test(long_lists), cmocka_unit_test(bucket_configurations), cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
