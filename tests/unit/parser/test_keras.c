#include "parser/keras.h"

#include "core/json/json.h"
#include "tests/unit/parser/format_fixture.h"
#include "tests/unit/parser/zip_file.h"

static void plain(void (*check)(const struct td_format *, const struct fixture *))
{
    struct fixture f = fixture_read("keras", "plain", ".keras");
    check(&td_format_keras, &f);
    fixture_free(&f);
}

static void what_keras_wrote(void **state)
{
    (void)state;
    plain(check_fixture);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    plain(check_prefixes);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    plain(check_allocations);
}

static void metadata_of_the_archive(void **state)
{
    (void)state;
    struct fixture f = fixture_read("keras", "plain", ".keras");
    struct parsed p;
    parse_bytes(&td_format_keras, f.bytes, f.len, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_true(p.manifest.metadata_count >= 2);
    assert_string_equal(p.manifest.metadata[0].key, "keras_version");
    assert_string_equal(p.manifest.metadata[1].key, "date_saved");
    assert_string_equal(p.manifest.metadata[1].value, "\"2024-05-06@07:08:09\"");
    parsed_fini(&p);
    fixture_free(&f);
}

static void check_refused(const char *bytes, size_t len, const char *says)
{
    struct parsed p;
    parse_bytes(&td_format_keras, bytes, len, &p);
    assert_false(p.ok);
    check_error(&p.err, len, false, says);
    check_says(&p.err, says, "keras");
    parsed_fini(&p);
}

static void compressed_weights_are_refused(void **state)
{
    (void)state;
    size_t len;
    char *bytes = read_file("keras", "deflated", ".keras", &len);
    check_refused(bytes, len, "model.weights.h5 compressed (deflate)");
    __real_free(bytes);
}

static void other_archives_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *metadata, *weights, *says;
    } cases[] = {
        {"{}", NULL, "holds no model.weights.h5"},
        {"{}", "no HDF5", "model.weights.h5: "},
        {"[]", "", "keras member \"metadata.json\": "},
        {"{\"a\":1,\"a\":2}", "", "holds \"a\" twice"},
        {"{\"a\":1} x", "", "keras member \"metadata.json\": "},
        {"", "", "keras member \"metadata.json\": "},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *weights = cases[i].weights;
        struct zip_spec spec = {
            .count = weights == NULL ? 1 : 2,
            .members = {
                {.name = "metadata.json", .data = cases[i].metadata, .data_len = strlen(cases[i].metadata)},
                {.name = "model.weights.h5", .data = weights, .data_len = weights == NULL ? 0 : strlen(weights)}}};
        struct zip_file f = zip_build(&spec);
        check_refused((const char *)f.bytes, f.len, cases[i].says);
        __real_free(f.bytes);
    }
    struct td_buffer many; /* members are bounded */
    td_buffer_init(&many);
    for (size_t i = 0; i < 65; i++)
        td_buffer_printf(&many, "%s\"k%zu\":[ %zu ]", i == 0 ? "{" : ",", i, i);
    td_buffer_putc(&many, '}');
    struct zip_spec spec = {.count = 1,
                            .members = {{.name = "metadata.json", .data = many.data, .data_len = many.len}}};
    struct zip_file f = zip_build(&spec);
    td_buffer_fini(&many);
    check_refused((const char *)f.bytes, f.len, "more than 64 members");
    __real_free(f.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_keras_wrote),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(metadata_of_the_archive),
        cmocka_unit_test(compressed_weights_are_refused),
        cmocka_unit_test(other_archives_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
