/* A flatbuffer that is made by hand, by "FlatBuffers Internals": every value is read, and nothing outside of the bytes,
 * whichever of them are cut off or other ones. */
#include "parser/rows/arrow/flatbuffer.h"
#include "tests/unit/parser/flat_bytes.h"

enum { BYTE, SHORT, INT, LONG, CHILD, NUMBERS, TEXT, TABLES, ABSENT };

/* Makes a table with a field of each kind. */
static void make(struct flat_bytes *flat)
{
    static const uint16_t fields[] = {4, 6, 8, 12, 20, 24, 28, 32, 0};
    static const uint16_t one[] = {4};
    flat->len = 0;
    size_t root = flat_put(flat, 0, 4);
    flat_lead(flat, root);
    size_t table = flat_table(flat, 36, fields, COUNT_OF(fields));
    flat_set(flat, root, table - root);
    (void)flat_put(flat, 0xfe, 2);
    (void)flat_put(flat, 0xfffd, 2);
    (void)flat_put(flat, 0xfffffffc, 4);
    (void)flat_put(flat, UINT64_MAX - 4, 8);
    size_t child = flat_put(flat, 0, 4), numbers = flat_put(flat, 0, 4), text = flat_put(flat, 0, 4);
    size_t tables = flat_put(flat, 0, 4);
    assert_int_equal(flat->len, table + 36);
    flat_lead(flat, numbers);
    (void)flat_put(flat, 2, 4);
    (void)flat_put(flat, 11, 8);
    (void)flat_put(flat, 12, 8);
    flat_lead(flat, text);
    (void)flat_put(flat, 3, 4);
    (void)flat_put(flat, 'a' | 'b' << 8 | 'c' << 16, 4);
    size_t inner = flat_table(flat, 6, one, 1);
    (void)flat_put(flat, 77, 2);
    flat_set(flat, child, inner - child);
    flat_lead(flat, tables);
    (void)flat_put(flat, 2, 4);
    size_t first = flat_put(flat, 0, 4), second = flat_put(flat, 0, 4);
    size_t last = flat_table(flat, 6, one, 1);
    (void)flat_put(flat, 78, 2);
    flat_set(flat, first, last - first);
    flat_set(flat, second, last - second);
}

/* Reads everything. Returns whether all of it could be read; the sum of the values is then in *sum. */
static bool read_all(const uint8_t *bytes, size_t len, uint64_t *sum, struct td_error *err)
{
    struct td_flatbuffer buffer = {.bytes = bytes, .len = len, .err = err};
    struct td_flat_table root, child, table;
    struct td_flat_vector numbers, tables;
    struct td_text text;
    int64_t a, b, c, d, e;
    if (!td_flat_root(&buffer, &root) || !td_flat_signed(&buffer, &root, BYTE, 1, 9, &a) ||
        !td_flat_signed(&buffer, &root, SHORT, 2, 9, &b) || !td_flat_signed(&buffer, &root, INT, 4, 9, &c) ||
        !td_flat_signed(&buffer, &root, LONG, 8, 9, &d) || !td_flat_child(&buffer, &root, CHILD, &child) ||
        !td_flat_vector(&buffer, &root, NUMBERS, 8, &numbers) || !td_flat_text(&buffer, &root, TEXT, &text) ||
        !td_flat_vector(&buffer, &root, TABLES, 4, &tables) || !td_flat_signed(&buffer, &child, 0, 2, 0, &e))
        return false;
    *sum = (uint64_t)a + (uint64_t)b + (uint64_t)c + (uint64_t)d + (uint64_t)e + numbers.count;
    for (size_t i = 0; i < text.len; i++)
        *sum += (uint8_t)text.p[i];
    for (uint32_t i = 0; i < numbers.count; i++)
        *sum += bytes[numbers.at + 8 * i];
    for (uint32_t i = 0; i < tables.count; i++) {
        if (!td_flat_element(&buffer, &tables, i, &table) || !td_flat_signed(&buffer, &table, 0, 2, 0, &e))
            return false;
        *sum += (uint64_t)e;
    }
    return true;
}

static void every_kind_of_field_is_read(void **state)
{
    (void)state;
    struct flat_bytes flat;
    struct td_error err = TD_ERROR_INIT;
    int64_t number;
    uint64_t sum = 0, plain;
    struct td_flat_table root, child;
    struct td_flat_vector vector;
    struct td_text text;
    make(&flat);
    assert_true(read_all(flat.bytes, flat.len, &sum, &err));
    assert_int_equal(sum, -2 - 3 - 4 - 5 + 77 + 2 + 'a' + 'b' + 'c' + 11 + 12 + 78 + 78);
    struct td_flatbuffer buffer = {.bytes = flat.bytes, .len = flat.len, .err = &err};
    assert_true(td_flat_root(&buffer, &root));
    assert_true(td_flat_unsigned(&buffer, &root, SHORT, 2, 0, &plain) && plain == 0xfffd);
    for (unsigned absent = ABSENT; absent < 70000; absent += 34000) { /* in the vtable, and after it */
        assert_true(td_flat_signed(&buffer, &root, absent, 8, -7, &number) && number == -7);
        assert_true(td_flat_signed(&buffer, &root, absent, 2, -7, &number) && number == -7);
        assert_true(td_flat_unsigned(&buffer, &root, absent, 1, 200, &plain) && plain == 200);
        assert_true(td_flat_child(&buffer, &root, absent, &child) && child.vtable_bytes == 0);
        assert_true(td_flat_vector(&buffer, &root, absent, 8, &vector) && vector.count == 0);
        assert_true(td_flat_text(&buffer, &root, absent, &text) && text.len == 0);
        assert_true(td_flat_signed(&buffer, &child, 0, 8, 5, &number) && number == 5); /* a table that is not there */
    }
}

/* Reads a copy in a block of exactly len bytes, so that AddressSanitizer sees a read outside. */
static bool read_copy(const uint8_t *bytes, size_t len, struct td_error *err)
{
    uint64_t sum;
    uint8_t *copy = malloc(len + (len == 0));
    memcpy(copy, bytes, len);
    td_error_init(err);
    bool ok = read_all(copy, len, &sum, err);
    free(copy);
    return ok;
}

static void no_prefix_is_read(void **state)
{
    (void)state;
    struct flat_bytes flat;
    struct td_error err;
    make(&flat);
    for (size_t len = 0; len < flat.len; len++) {
        CHECK(!read_copy(flat.bytes, len, &err), "%zu bytes", len);
        check_error(&err, len, true, "a prefix");
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    }
}

static void any_byte_may_be_another(void **state)
{
    (void)state;
    static const uint8_t values[] = {0, 1, 3, 5, 0x7f, 0x80, 0xff};
    struct flat_bytes flat;
    struct td_error err;
    size_t refused = 0;
    make(&flat);
    for (size_t at = 0; at < flat.len; at++)
        for (size_t i = 0; i < COUNT_OF(values); i++) {
            uint8_t was = flat.bytes[at];
            flat.bytes[at] = values[i];
            if (!read_copy(flat.bytes, flat.len, &err)) {
                check_error(&err, flat.len, true, "another byte");
                refused++;
            }
            flat.bytes[at] = was;
        }
    assert_true(refused > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_field_is_read),
        cmocka_unit_test(no_prefix_is_read),
        cmocka_unit_test(any_byte_may_be_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
