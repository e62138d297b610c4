#include "core/digits.h"
#include "core/message/document.h"
#include "core/message/wire.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

/* Adds values of every kind. */
static void build(struct td_document *builder)
{
    static const char odd[] = "\" \\ / \b\t\n\r \x1f \x7f \xc3\xa9 \xe2\x80\xa8 \0.";
    td_document_begin_object(builder, NULL);
    for (int i = 0; i < 2; i++) {
        td_document_add_text(builder, "odd", td_text_n(odd, sizeof odd - 1));
        td_document_add_u64(builder, "u64", UINT64_MAX - 6);
        td_document_add_string(builder, "format", "a\"-7");
        td_document_begin_object(builder, "empty");
        td_document_end(builder);
        td_document_add_members(builder, TD_TEXT("\"m\":1,\"n\":2"));
        td_document_begin_array(builder, "list");
        td_document_end(builder);
        td_document_begin_array(builder, "rows");
        for (int k = 0; k < 3; k++) {
            td_document_begin_object(builder, NULL);
            td_document_add_bool(builder, "yes", k > 0);
            td_document_begin_array(builder, "deep");
            td_document_add_null(builder, NULL);
            td_document_add_raw(builder, NULL, TD_TEXT("1.5e300"));
            td_document_end(builder);
            td_document_end(builder);
        }
        td_document_end(builder);
        td_document_add_seconds(builder, "seconds", 1.0005);
    }
    td_document_end(builder);
}

#define HALF                                                                                                  \
    "\"odd\":\"\\\" \\\\ / \\u0008\\u0009\\n\\u000d \\u001f \\u007f \xc3\xa9 \xe2\x80\xa8 \\u0000.\","        \
    "\"u64\":18446744073709551609,\"format\":\"a\\\"-7\",\"empty\":{},\"m\":1,\"n\":2,\"list\":[],\"rows\":[" \
    "{\"yes\":false,\"deep\":[null,1.5e300]},{\"yes\":true,\"deep\":[null,1.5e300]},"                         \
    "{\"yes\":true,\"deep\":[null,1.5e300]}],\"seconds\":1.000"
#define WHOLE "before {" HALF "," HALF "}"

static void values_of_every_kind(void **state)
{
    (void)state;
    struct td_document builder;
    struct td_buffer out;
    td_buffer_init(&out);
    td_buffer_puts(&out, "before ");
    td_document_init(&builder, &out);
    build(&builder);
    assert_false(out.failed);
    const char *text = td_buffer_terminate(&out);
    CHECK(text != NULL && strcmp(text, WHOLE) == 0, "%s\n%s", text, WHOLE);
    td_buffer_fini(&out);
}

/* Values of many lengths. */
static void long_values_fit(void **state)
{
    (void)state;
    static char text[10000];
    memset(text, '7', sizeof text);
    for (size_t len = 1; len < sizeof text; len += len < 300 ? 1 : 97) {
        struct td_document builder;
        struct td_buffer out;
        td_buffer_init(&out);
        td_document_init(&builder, &out);
        td_document_begin_object(&builder, NULL);
        td_document_begin_array(&builder, "a");
        for (int i = 0; i < 3; i++)
            td_document_add_raw(&builder, NULL, td_text_n(text, len));
        td_document_end(&builder);
        td_document_add_raw(&builder, "b", td_text_n(text, len));
        td_document_add_text(&builder, "c", td_text_n(text, len));
        td_document_end(&builder);
        assert_false(out.failed);
        assert_int_equal(out.len, 5 * len + strlen("{'a':[,,],'b':,'c':''}"));
        assert_memory_equal(out.data, "{\"a\":[", 6);
        assert_memory_equal(out.data + out.len - 3, "7\"}", 3);
        td_buffer_fini(&out);
    }
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    bool failed = true;
    size_t k = 1;
    for (; failed; k++) {
        struct td_document builder;
        struct td_buffer out;
        alloc_count_start();
        td_buffer_init(&out);
        td_document_init(&builder, &out);
        alloc_fail_at(k);
        td_buffer_puts(&out, "before ");
        build(&builder);
        alloc_fail_at(0);
        failed = out.failed;
        assert_true(failed || (out.len == strlen(WHOLE) && memcmp(out.data, WHOLE, out.len) == 0));
        td_buffer_fini(&out);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
    assert_true(k > 3);
}

/* A document nested too deep fails, and so does a value outside of an object or array. */
/* A document nested too deep fails, and so does a value outside of an object or array. */
static void the_depth_has_a_limit(void **state)
{
    (void)state;
    for (size_t depth = 0; depth <= TD_DOCUMENT_DEPTH + 1; depth++) {
        struct td_document builder;
        struct td_buffer out;
        td_buffer_init(&out);
        td_document_init(&builder, &out);
        for (size_t i = 0; i < depth; i++)
            td_document_begin_array(&builder, NULL);
        td_document_add_string(&builder, NULL, "x");
        assert_int_equal(out.failed, depth == 0 || depth > TD_DOCUMENT_DEPTH);
        td_buffer_fini(&out);
    }
}

static const uint8_t *read_varint(const uint8_t *p, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0;; shift += 7) {
        *value |= (uint64_t)(*p & 0x7F) << shift;
        if (*p++ < 0x80)
            return p;
    }
}

/* ---- messages ------------------------------------------------------------------------------------------- */

static const struct td_message item;
static const struct td_field item_fields[] = {
    {.name = "path", .json_name = "path", .number = 1, .type = TD_FIELD_STRING},
    {.name = "size_bytes", .json_name = "sizeBytes", .number = 2, .type = TD_FIELD_UINT64, .has_presence = true},
    {.name = "items",
     .json_name = "items",
     .message = &item,
     .number = 3,
     .type = TD_FIELD_MESSAGE,
     .is_repeated = true},
};
static const struct td_message item = {.name = "Item", .fields = item_fields, .field_count = 3};
static const struct td_field root_fields[] = {
    {.name = "name", .json_name = "name", .number = 1, .type = TD_FIELD_STRING},
    {.name = "is_new", .json_name = "isNew", .number = 2, .type = TD_FIELD_BOOL},
    {.name = "shape", .json_name = "shape", .number = 3, .type = TD_FIELD_UINT64, .is_repeated = true},
    {.name = "rank", .json_name = "rank", .number = 4, .type = TD_FIELD_UINT32},
    {.name = "item",
     .json_name = "item",
     .message = &item,
     .number = 5,
     .type = TD_FIELD_MESSAGE,
     .has_presence = true},
    {.name = "seconds", .json_name = "seconds", .number = 6, .type = TD_FIELD_DOUBLE},
    {.name = "updated", .json_name = "updated", .number = 7, .type = TD_FIELD_TIMESTAMP, .has_presence = true},
    {.name = "config", .json_name = "config", .number = 8, .type = TD_FIELD_STRUCT, .has_presence = true},
    {.name = "columns", .json_name = "columns", .number = 9, .type = TD_FIELD_STRUCT, .is_repeated = true},
    {.name = "rows",
     .json_name = "rows",
     .message = &item,
     .number = 20,
     .type = TD_FIELD_MESSAGE,
     .is_repeated = true},
};
static const struct td_message root = {.name = "Root", .fields = root_fields, .field_count = 10};

static void write_message(struct td_document *document)
{
    td_document_begin_object(document, NULL);
    td_document_add_string(document, "name", "\xc3\xa9\"");
    td_document_add_bool(document, "is_new", true);
    td_document_add_string(document, "of_rest_alone", "x");
    td_document_begin_array(document, "list_of_rest_alone");
    td_document_begin_object(document, NULL);
    td_document_add_u64(document, "rank", 1);
    td_document_end(document);
    td_document_end(document);
    td_document_begin_array(document, "shape");
    td_document_add_u64(document, NULL, 0);
    td_document_add_u64(document, NULL, 300);
    td_document_end(document);
    td_document_add_u64(document, "rank", 7);
    td_document_begin_object(document, "item");
    td_document_add_string(document, "path", "");
    td_document_add_u64(document, "size_bytes", 0);
    td_document_end(document);
    td_document_add_seconds(document, "seconds", 1.5);
    td_document_add_time(document, "updated", (struct td_wall){.seconds = 1, .nanoseconds = 2000999});
    td_document_add_raw(document, "config", TD_TEXT("{\"a\":[1,null,true],\"b\":{\"c\":\"\\u00e9\"}}"));
    td_document_add_raw(document, "columns", TD_TEXT("[{\"n\":1},{}]"));
    td_document_begin_array(document, "rows");
    for (int i = 0; i < 2; i++) {
        td_document_begin_object(document, NULL);
        td_document_add_string(document, "path", i == 0 ? "x" : "y");
        td_document_begin_array(document, "items");
        td_document_begin_object(document, NULL);
        td_document_end(document);
        td_document_end(document);
        td_document_end(document);
    }
    td_document_end(document);
    td_document_end(document);
}

static void check_message(const struct td_document_kind *kind, const char *expected, size_t len)
{
    struct td_document document;
    struct td_buffer out;
    td_buffer_init(&out);
    td_document_init_kind(&document, &out, kind);
    write_message(&document);
    assert_false(out.failed);
    CHECK(out.len == len, "%zu bytes: %.*s", out.len, (int)out.len, out.data);
    assert_memory_equal(out.data, expected, len);
    td_buffer_fini(&out);
}

/* The bytes are those that google.protobuf 6 for Python writes, SerializeToString(deterministic=True), of the message
 * that its json_format reads from the text. */
static void a_message_in_both_forms(void **state)
{
    (void)state;
    static const char text[] =
        "{\"name\":\"\xc3\xa9\\\"\",\"isNew\":true,\"shape\":[\"0\",\"300\"],\"rank\":7,\"item\":{\"sizeBytes\":\"0\"},"
        "\"seconds\":1.500,\"updated\":\"1970-01-01T00:00:01.002Z\",\"config\":{\"a\":[1,null,true],\"b\":{\"c\":"
        "\"\\u00e9\"}},\"columns\":[{\"n\":1},{}],\"rows\":[{\"path\":\"x\",\"items\":[{}]},{\"path\":\"y\",\"items\":["
        "{}]}]}";
    static const char hex[] =
        "0a03c3a92210011a0300ac0220072a02100031000000000000f83f3a0608011080897a42300a1a0a016112153213"
        "0a0911000000000000f03f0a0208000a0220010a120a0162120d2a0b0a090a016312041a02c3a94a100a0e0a016e"
        "120911000000000000f03f4a00a201050a01781a00a201050a01791a00";
    char bytes[sizeof hex / 2];
    const struct td_document_kind json = {.form = TD_DOCUMENT_PROTO_JSON, .message = &root};
    const struct td_document_kind binary = {.form = TD_DOCUMENT_PROTOBUF, .message = &root};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(td_hex_digit(hex[2 * i]) << 4 | td_hex_digit(hex[2 * i + 1]));
    check_message(&json, text, sizeof text - 1);
    check_message(&binary, bytes, sizeof bytes);
}

/* Lengths of one, two and three bytes, of a message and of packed numbers. */
static void lengths_of_any_size(void **state)
{
    (void)state;
    const struct td_document_kind binary = {.form = TD_DOCUMENT_PROTOBUF, .message = &root};
    static const size_t lengths[] = {0, 1, 125, 126, 127, 128, 129, 16380, 16383, 16384, 16385, 100000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct td_document document;
        struct td_buffer out;
        const uint8_t *p;
        uint64_t len;
        td_buffer_init(&out);
        td_document_init_kind(&document, &out, &binary);
        td_document_begin_object(&document, NULL);
        td_document_begin_array(&document, "shape");
        for (size_t k = 0; k < lengths[i]; k++)
            td_document_add_u64(&document, NULL, 5);
        td_document_end(&document);
        td_document_begin_object(&document, "item");
        if (td_document_begin_text(&document, "path")) {
            for (size_t k = 0; k < lengths[i]; k++)
                td_buffer_putc(&out, 'x');
            td_document_end_text(&document);
        }
        td_document_end(&document);
        td_document_end(&document);
        assert_false(out.failed);
        p = (const uint8_t *)out.data;
        if (lengths[i] > 0) { /* an empty list is not written */
            assert_int_equal(*p++, 3 << 3 | 2);
            p = read_varint(p, &len);
            assert_int_equal(len, lengths[i]);
            for (size_t k = 0; k < len; k++)
                assert_int_equal(*p++, 5);
        }
        assert_int_equal(*p++, 5 << 3 | 2);
        p = read_varint(p, &len);
        assert_int_equal(p + len - (const uint8_t *)out.data, out.len);
        assert_int_equal(*p++, 1 << 3 | 2);
        p = read_varint(p, &len);
        assert_int_equal(len, lengths[i]);
        assert_int_equal(p + len - (const uint8_t *)out.data, out.len);
        td_buffer_fini(&out);
    }
}

/* A mask leaves fields out, and the elements of a list are written alone, in each form. */
static void a_mask_and_single_elements(void **state)
{
    (void)state;
    static const char *const expected[][2] = {
        {"{\"rank\":7,\"rows\":[{\"path\":\"x\",\"items\":[{}]},{\"path\":\"y\",\"items\":[{}]}]}",
         ",{\"path\":\"z\"}"},
        {" \x07\xa2\x01\x05\x0a\x01x\x1a", "\xa2\x01\x03\x0a\x01z"},
    };
    for (int form = TD_DOCUMENT_PROTO_JSON; form <= TD_DOCUMENT_PROTOBUF; form++) {
        const struct td_document_kind kind = {.form = (enum td_document_form)form,
                                              .message = &root,
                                              .masked = &root,
                                              .mask = UINT64_C(1) << 4 | UINT64_C(1) << 20};
        const char *const *texts = expected[form - TD_DOCUMENT_PROTO_JSON];
        struct td_document document;
        struct td_buffer out;
        td_buffer_init(&out);
        td_document_init_kind(&document, &out, &kind);
        write_message(&document);
        assert_memory_equal(out.data, texts[0], strlen(texts[0]));
        td_buffer_clear(&out);
        td_document_resume(&document, &out, &kind, "rows", true);
        td_document_begin_object(&document, NULL);
        td_document_add_string(&document, "path", "z");
        td_document_end(&document);
        CHECK(out.len == strlen(texts[1]) && memcmp(out.data, texts[1], out.len) == 0, "%.*s", (int)out.len, out.data);
        td_buffer_clear(&out);
        td_document_resume(&document, &out, &kind, "columns", true);
        td_document_begin_object(&document, NULL);
        td_document_end(&document);
        assert_int_equal(out.len, 0);
        td_buffer_fini(&out);
    }
}

/* A Struct is left out when it is nested too deep, has a number beyond the doubles, or is no object. */
static void structs_that_do_not_fit(void **state)
{
    (void)state;
    for (size_t depth = 1; depth < 40; depth++) {
        struct td_buffer text, out;
        td_buffer_init(&text);
        td_buffer_init(&out);
        for (size_t i = 0; i < depth; i++)
            td_buffer_puts(&text, i % 2 == 0 ? "{\"a\":" : "[");
        td_buffer_putc(&text, '1');
        for (size_t i = depth; i-- > 0;)
            td_buffer_putc(&text, i % 2 == 0 ? '}' : ']');
        assert_int_equal(td_struct_fits(td_buffer_text(&text), true), depth <= TD_STRUCT_DEPTH);
        assert_int_equal(td_wire_struct(&out, td_buffer_text(&text)), depth <= TD_STRUCT_DEPTH);
        assert_int_equal(out.len > 0, depth <= TD_STRUCT_DEPTH);
        td_buffer_fini(&text);
        td_buffer_fini(&out);
    }
    static const char *const wrong[] = {"",     "1", "[]", "null", "{", "{\"a\":1e999}", "{} {}", "{\"a\":-1e400}",
                                        "{a:1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct td_buffer out;
        td_buffer_init(&out);
        td_buffer_puts(&out, "x");
        CHECK(!td_struct_fits(td_text_of(wrong[i]), true) && !td_wire_struct(&out, td_text_of(wrong[i])), "%s",
              wrong[i]);
        assert_int_equal(out.len, 1);
        td_buffer_fini(&out);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_every_kind),       cmocka_unit_test(long_values_fit),
        cmocka_unit_test(any_allocation_may_fail),    cmocka_unit_test(the_depth_has_a_limit),
        cmocka_unit_test(a_message_in_both_forms),    cmocka_unit_test(lengths_of_any_size),
        cmocka_unit_test(a_mask_and_single_elements), cmocka_unit_test(structs_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
