#include "core/buffer.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

static void builds_text(void **state)
{
    (void)state;
    struct td_buffer b;
    td_buffer_init(&b);
    td_buffer_puts(&b, "one");
    td_buffer_putc(&b, ' ');
    td_buffer_append(&b, "two\0three", 9);
    td_buffer_append(&b, NULL, 0);
    td_buffer_puts(&b, "");
    td_buffer_printf(&b, "[%d %s]", -7, "x");
    td_buffer_u64(&b, 0);
    td_buffer_u64(&b, UINT64_MAX);
    static const char wanted[] = "one two\0three[-7 x]018446744073709551615";
    assert_int_equal(b.len, sizeof wanted - 1);
    assert_memory_equal(b.data, wanted, b.len);
    assert_false(b.failed);
    td_buffer_fini(&b);
    assert_null(b.data);
}

static void terminate_is_not_counted(void **state)
{
    (void)state;
    struct td_buffer b;
    td_buffer_init(&b);
    assert_string_equal(td_buffer_terminate(&b), "");
    assert_int_equal(b.len, 0);
    td_buffer_puts(&b, "abc");
    assert_string_equal(td_buffer_terminate(&b), "abc");
    td_buffer_puts(&b, "d");
    assert_string_equal(td_buffer_terminate(&b), "abcd");
    assert_int_equal(b.len, 4);
    td_buffer_fini(&b);
}

/* Appends of random sizes give the bytes of a plain array. */
static void grows_without_losing_a_byte(void **state)
{
    (void)state;
    enum { TOTAL = 100000 };
    char *wanted = malloc(TOTAL);
    assert_non_null(wanted);
    for (size_t i = 0; i < TOTAL; i++)
        wanted[i] = (char)(i * 31 + i / 251);
    struct td_buffer b;
    td_buffer_init(&b);
    uint64_t seed = 1;
    while (b.len < TOTAL) {
        size_t n = random_below(&seed, 700);
        n = n < TOTAL - b.len ? n : TOTAL - b.len;
        if (n % 3 == 0)
            assert_true(td_buffer_reserve(&b, n));
        td_buffer_append(&b, wanted + b.len, n);
        assert_true(b.len <= b.capacity);
    }
    assert_memory_equal(b.data, wanted, TOTAL);
    assert_true(b.capacity < 2 * TOTAL);
    td_buffer_fini(&b);
    free(wanted);
}

static void printf_at_the_edge_of_the_room(void **state)
{
    (void)state;
    for (size_t n = 120; n < 140; n++) { /* around the first capacity */
        struct td_buffer b;
        td_buffer_init(&b);
        for (size_t i = 0; i < n; i++)
            td_buffer_putc(&b, 'x');
        td_buffer_printf(&b, "%s", "0123456789");
        assert_int_equal(b.len, n + 10);
        assert_memory_equal(b.data + n, "0123456789", 10);
        td_buffer_fini(&b);
    }
}

static void clear_keeps_the_memory(void **state)
{
    (void)state;
    struct td_buffer b;
    td_buffer_init(&b);
    td_buffer_puts(&b, "abc");
    const char *before = b.data;
    td_buffer_clear(&b);
    assert_int_equal(b.len, 0);
    td_buffer_puts(&b, "xy");
    assert_ptr_equal(b.data, before);
    assert_memory_equal(b.data, "xy", 2);
    td_buffer_fini(&b);
}

static void release_hands_over(void **state)
{
    (void)state;
    struct td_buffer b;
    size_t len = 99;
    td_buffer_init(&b);
    assert_null(td_buffer_release(&b, &len));
    assert_int_equal(len, 0);
    td_buffer_puts(&b, "abc");
    char *data = td_buffer_release(&b, &len);
    assert_int_equal(len, 3);
    assert_memory_equal(data, "abc", 3);
    assert_null(b.data);
    assert_int_equal(b.len + b.capacity, 0);
    free(data);
    td_buffer_fini(&b);
    struct td_budget budget;
    td_budget_init(&budget, 4096, "texts");
    td_buffer_init_budget(&b, &budget);
    assert_true(td_buffer_reserve(&b, 1000));
    assert_null(td_buffer_release(&b, &len)); /* NULL, because the buffer is empty */
    assert_int_equal(len, 0);
    assert_int_equal(td_budget_used(&budget), 0);
}

static void release_makes_strings(void **state)
{
    (void)state;
    struct td_buffer b;
    td_buffer_init(&b);
    char *empty = td_buffer_release_string(&b);
    assert_string_equal(empty, "");
    td_buffer_puts(&b, "abc");
    char *text = td_buffer_release_string(&b);
    assert_string_equal(text, "abc");
    assert_null(b.data);
    free(empty);
    free(text);
    td_buffer_puts(&b, "abc");
    assert_false(td_buffer_reserve(&b, SIZE_MAX));
    assert_null(td_buffer_release_string(&b));
    assert_null(b.data);
}

static void impossible_sizes_fail_once_and_for_all(void **state)
{
    (void)state;
    struct td_buffer b;
    td_buffer_init(&b);
    td_buffer_puts(&b, "abc");
    assert_false(td_buffer_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    td_buffer_puts(&b, "def");
    td_buffer_printf(&b, "%d", 1);
    td_buffer_u64(&b, 1);
    assert_int_equal(b.len, 3);
    assert_null(td_buffer_terminate(&b));
    size_t len = 99;
    assert_null(td_buffer_release(&b, &len)); /* also frees: the leak checker would report it */
    assert_int_equal(len, 0);
}

static void want_of_memory_is_remembered(void **state)
{
    (void)state;
    for (size_t k = 1; k < 100; k++) {
        struct td_buffer b;
        alloc_count_start();
        alloc_fail_at(k);
        td_buffer_init(&b);
        for (int i = 0; i < 1000; i++) {
            td_buffer_puts(&b, "0123456789");
            td_buffer_printf(&b, "%d", i);
        }
        alloc_fail_at(0);
        bool failed = b.failed;
        assert_true(failed || b.len == 10000 + 2890);
        assert_int_equal(failed, td_buffer_terminate(&b) == NULL);
        td_buffer_clear(&b);
        td_buffer_puts(&b, "again");
        assert_false(b.failed);
        td_buffer_fini(&b);
        assert_int_equal(alloc_count_get().live_bytes, 0);
        if (!failed)
            return;
        assert_true(alloc_count_get().calls >= k);
    }
    fail_msg("a thousand appends take more than a hundred allocations");
}

/* The budget is charged for the capacity. Released bytes stay charged until the caller gives them back. */
static void budgets_are_held_while_it_grows(void **state)
{
    (void)state;
    struct td_budget budget;
    struct td_buffer b;
    struct td_error err = TD_ERROR_INIT;
    size_t len;
    td_budget_init(&budget, 5000, "things");
    td_buffer_init_budget(&b, &budget);
    for (int i = 0; i < 3000; i++)
        td_buffer_putc(&b, 'x');
    assert_false(b.failed);
    assert_int_equal(td_budget_used(&budget), b.capacity);
    char *data = td_buffer_release(&b, &len);
    assert_int_equal(td_budget_used(&budget), 3000);
    free(data);
    td_buffer_init_budget(&b, &budget);
    for (int i = 0; i < 3000; i++)
        td_buffer_putc(&b, 'x');
    assert_true(b.failed && !td_buffer_refuse(&b, &err));
    assert_true(err.code == TD_RESOURCE_EXHAUSTED && strstr(err.message, "things"));
    assert_true(td_budget_used(&budget) <= 5000);
    td_buffer_fini(&b);
    assert_int_equal(td_budget_used(&budget), 3000);
    td_budget_give(&budget, 3000);
    td_buffer_init_budget(&b, &budget);
    alloc_fail_at(1);
    td_buffer_putc(&b, 'x');
    alloc_fail_at(0);
    td_error_init(&err);
    assert_true(b.failed && !td_buffer_refuse(&b, &err) && err.code == TD_RESOURCE_EXHAUSTED);
    assert_null(td_buffer_release(&b, &len));
    assert_int_equal(td_budget_used(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_text),
        cmocka_unit_test(budgets_are_held_while_it_grows),
        cmocka_unit_test(terminate_is_not_counted),
        cmocka_unit_test(grows_without_losing_a_byte),
        cmocka_unit_test(printf_at_the_edge_of_the_room),
        cmocka_unit_test(clear_keeps_the_memory),
        cmocka_unit_test(release_hands_over),
        cmocka_unit_test(release_makes_strings),
        cmocka_unit_test(impossible_sizes_fail_once_and_for_all),
        cmocka_unit_test(want_of_memory_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
