/* Pickles by Python and torch, whole and damaged. */
/* shows: security.md content-all-formats */
#include "tests/unit/alloc_trials.h"
#include "tests/unit/parser/pickle_fixture.h"

#include "core/buffer.h"

static struct bytes load(const char *name)
{
    char path[512];
    static uint8_t data[65536];
    snprintf(path, sizeof path, "%s/pickle/%s", TD_TEST_DATA, name);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL, "%s", path);
    size_t len = fread(data, 1, sizeof data, file);
    CHECK(len > 0 && len < sizeof data && fclose(file) == 0, "%s", path);
    return bytes_of(data, len);
}

static void put_hex(struct td_buffer *out, char letter, const void *bytes, size_t len)
{
    td_buffer_putc(out, letter);
    for (size_t i = 0; i < len; i++)
        td_buffer_printf(out, "%02x", ((const uint8_t *)bytes)[i]);
}

/* Appends a value as tests/data/make_pickle.py writes it. */
// NOLINTNEXTLINE(misc-no-recursion): over our own small files
static void put_value(struct td_buffer *out, const struct td_pickle *p, td_pickle_ref ref)
{
    struct td_pickle_map map;
    int64_t number;
    double real;
    size_t len;
    const uint8_t *big = td_pickle_big_int(p, ref, &len);
    enum td_pickle_kind kind = td_pickle_kind(p, ref);
    if (kind == TD_PICKLE_NONE)
        td_buffer_puts(out, "None");
    else if (kind == TD_PICKLE_BOOL)
        td_buffer_puts(out, td_pickle_bool(p, ref) ? "True" : "False");
    else if (big != NULL)
        put_hex(out, 'i', big, len);
    else if (td_pickle_int(p, ref, &number))
        td_buffer_printf(out, "%" PRId64, number);
    else if (td_pickle_float(p, ref, &real))
        put_hex(out, 'f', &real, sizeof real);
    else if (kind == TD_PICKLE_STRING) {
        const char *text = td_pickle_text(p, ref, &len);
        put_hex(out, 's', text, len);
    } else if (td_pickle_map(p, ref, &map)) {
        td_buffer_putc(out, '{');
        for (uint32_t i = 0; i < map.count; i++) {
            put_value(out, p, td_pickle_map_key(p, &map, i));
            td_buffer_putc(out, ':');
            put_value(out, p, td_pickle_map_value(p, &map, i));
            td_buffer_putc(out, ',');
        }
        td_buffer_putc(out, '}');
    } else {
        td_buffer_putc(out, kind == TD_PICKLE_TUPLE ? '(' : '[');
        for (uint32_t i = 0; i < td_pickle_count(p, ref); i++) {
            put_value(out, p, td_pickle_item(p, ref, i));
            td_buffer_putc(out, ',');
        }
        td_buffer_putc(out, kind == TD_PICKLE_TUPLE ? ')' : ']');
    }
}

static void check_is(const struct td_buffer *out, const char *expected_name)
{
    struct bytes expected = load(expected_name);
    assert_false(out->failed);
    CHECK(out->len == expected.len && memcmp(out->data, expected.data, out->len) == 0, "%s: %.*s", expected_name,
          (int)out->len, out->data);
    bytes_free(expected);
}

static void plain_values_by_python(void **state)
{
    (void)state;
    for (int protocol = 0; protocol <= 5; protocol++) {
        char name[32];
        struct parsed p;
        struct td_buffer out;
        snprintf(name, sizeof name, "plain.%d.pkl", protocol);
        struct bytes file = load(name);
        parse(file.data, file.len, &p);
        CHECK(p.ok, "%s: %s", name, p.err.message);
        td_buffer_init(&out);
        put_value(&out, &p.pickle, p.pickle.root);
        td_buffer_putc(&out, '\n');
        check_is(&out, "plain.txt");
        td_buffer_fini(&out);
        parsed_fini(&p);
        bytes_free(file);
    }
}

static void put_tensor_shape(struct td_buffer *out, const struct td_pickle *p, td_pickle_ref tensor, bool strides)
{
    assert_true(td_pickle_is_call(p, tensor, "torch._utils", "_rebuild_tensor_v2"));
    td_pickle_ref args = td_pickle_args(p, tensor);
    td_pickle_ref id = td_pickle_persistent(p, td_pickle_item(p, args, 0));
    assert_true(td_pickle_string_is(p, td_pickle_item(p, id, 0), "storage"));
    put_value(out, p, td_pickle_item(p, args, 2));
    if (strides) {
        td_buffer_putc(out, ' ');
        put_value(out, p, td_pickle_item(p, args, 3));
    }
    td_buffer_putc(out, '\n');
}

static void a_state_dict_by_torch(void **state)
{
    (void)state;
    struct bytes file = load("state.pkl");
    struct parsed p;
    struct td_buffer out;
    struct td_pickle_map map;
    parse(file.data, file.len, &p);
    td_buffer_init(&out);
    assert_true(td_pickle_map(&p.pickle, p.pickle.root, &map));
    for (uint32_t i = 0; i < map.count; i++) {
        size_t len;
        const char *name = td_pickle_text(&p.pickle, td_pickle_map_key(&p.pickle, &map, i), &len);
        td_buffer_append(&out, name, len);
        td_buffer_putc(&out, ' ');
        put_tensor_shape(&out, &p.pickle, td_pickle_map_value(&p.pickle, &map, i), true);
    }
    check_is(&out, "state.txt");
    assert_int_not_equal(td_pickle_get(&p.pickle, td_pickle_state(&p.pickle, p.pickle.root), "_metadata"),
                         TD_PICKLE_NIL);
    td_buffer_fini(&out);
    parsed_fini(&p);
    bytes_free(file);
}

static void an_optimizer_by_torch(void **state)
{
    (void)state;
    struct bytes file = load("optimizer.pkl");
    struct parsed p;
    struct td_buffer out;
    struct td_pickle_map parameters, parts;
    parse(file.data, file.len, &p);
    td_buffer_init(&out);
    assert_true(td_pickle_map(&p.pickle, td_pickle_get(&p.pickle, p.pickle.root, "state"), &parameters));
    for (uint32_t i = 0; i < parameters.count; i++) {
        assert_true(td_pickle_map(&p.pickle, td_pickle_map_value(&p.pickle, &parameters, i), &parts));
        for (uint32_t k = 0; k < parts.count; k++) {
            size_t len;
            const char *name = td_pickle_text(&p.pickle, td_pickle_map_key(&p.pickle, &parts, k), &len);
            put_value(&out, &p.pickle, td_pickle_map_key(&p.pickle, &parameters, i));
            td_buffer_printf(&out, " %.*s ", (int)len, name);
            put_tensor_shape(&out, &p.pickle, td_pickle_map_value(&p.pickle, &parts, k), false);
        }
    }
    check_is(&out, "optimizer.txt");
    td_buffer_fini(&out);
    parsed_fini(&p);
    bytes_free(file);
}

static const char *const files[] = {"plain.0.pkl", "plain.2.pkl", "plain.4.pkl",
                                    "plain.5.pkl", "state.pkl",   "optimizer.pkl"};

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct bytes file = load(files[i]);
        for (size_t len = 0; len < file.len; len++) {
            struct bytes prefix = bytes_of(file.data, len);
            struct parsed p;
            parse(prefix.data, len, &p);
            CHECK(!p.ok && p.err.code == TD_INVALID_ARGUMENT, "%s, %zu bytes", files[i], len);
            check_error(&p.err, len, true, files[i]);
            parsed_fini(&p);
            bytes_free(prefix);
        }
        bytes_free(file);
    }
}

/* Each allocation fails in turn, then the memory limit varies: the error is TD_RESOURCE_EXHAUSTED. */
static void memory_may_run_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct bytes file = load(files[i]);
        struct parsed p;
        struct alloc_trials trials = {0};
        while (alloc_try(&trials)) {
            parse(file.data, file.len, &p);
            alloc_tried(&trials, p.ok, &p.err);
            parsed_fini(&p);
        }
        CHECK(trials.k > 9, "%s", files[i]);
        size_t refused = 0;
        for (size_t limit = 1; limit < 100000; limit += limit / 16 + 1) {
            struct td_pickle_options options = {.max_memory_bytes = limit};
            parse_with(file.data, file.len, 0, options, &p);
            refused += !p.ok;
            CHECK(p.ok || p.err.code == TD_RESOURCE_EXHAUSTED, "%s, %zu bytes: %s", files[i], limit, p.err.message);
            CHECK(p.memory.peak_bytes < limit + 1024, "%s, %zu bytes: %zu", files[i], limit, p.memory.peak_bytes);
            parsed_fini(&p);
        }
        assert_in_range(refused, 50, 180);
        bytes_free(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_values_by_python), cmocka_unit_test(a_state_dict_by_torch),
        cmocka_unit_test(an_optimizer_by_torch),  cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
