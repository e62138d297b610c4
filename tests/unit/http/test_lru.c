#include "http/lru.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

struct value {
    int refs;
    char text[8];
};

static void *ref(void *value)
{
    ((struct value *)value)->refs++;
    return value;
}

static void unref(void *value)
{
    ((struct value *)value)->refs--;
}

static bool idle(const void *value)
{
    return ((const struct value *)value)->refs == 1;
}

static const struct td_lru_class class = {.ref = ref, .unref = unref, .idle = idle};

static bool has(struct td_lru *lru, const char *key)
{
    void *value = td_lru_get(lru, key);
    if (value != NULL)
        unref(value);
    return value != NULL;
}

static void what_was_used_least_recently_goes(void **state)
{
    (void)state;
    struct td_lru lru;
    struct value values[4] = {{0}};
    assert_true(td_lru_init(&lru, &class, 3000));
    assert_true(td_lru_put(&lru, "a", &values[0], 900));
    assert_true(td_lru_put(&lru, "b", &values[1], 900));
    assert_true(td_lru_put(&lru, "c", &values[2], 900));
    assert_true(has(&lru, "a")); /* now b is the oldest */
    assert_true(td_lru_put(&lru, "d", &values[3], 900));
    assert_true(has(&lru, "a") && !has(&lru, "b") && has(&lru, "c") && has(&lru, "d"));
    assert_true(values[0].refs == 1 && values[1].refs == 0 && values[2].refs == 1 && values[3].refs == 1);
    td_lru_fini(&lru);
    for (size_t i = 0; i < COUNT_OF(values); i++)
        assert_int_equal(values[i].refs, 0);
}

static void the_first_of_two_stays(void **state)
{
    (void)state;
    struct td_lru lru;
    struct value values[2] = {{0}};
    assert_true(td_lru_init(&lru, &class, 3000));
    assert_true(td_lru_put(&lru, "a", &values[0], 100));
    assert_false(td_lru_put(&lru, "a", &values[1], 100));
    assert_ptr_equal(td_lru_get(&lru, "a"), &values[0]);
    assert_true(values[0].refs == 2 && values[1].refs == 0);
    td_lru_fini(&lru);
    assert_int_equal(values[0].refs, 1); /* this test's reference */
}

static bool begins_with(const void *value, const void *letter)
{
    return ((const struct value *)value)->text[0] == *(const char *)letter;
}

/* Those that were used last come first; looking for them is no use. */
static void values_are_found_by_what_they_hold(void **state)
{
    (void)state;
    struct td_lru lru;
    struct value values[4] = {{.text = "a1"}, {.text = "b"}, {.text = "a2"}, {.text = "a3"}};
    void *found[4];
    assert_true(td_lru_init(&lru, &class, 3000));
    assert_int_equal(td_lru_find(&lru, begins_with, "a", found, COUNT_OF(found)), 0);
    for (size_t i = 0; i < COUNT_OF(values); i++)
        assert_true(td_lru_put(&lru, values[i].text, &values[i], 600));
    assert_true(has(&lru, "a1"));
    assert_int_equal(td_lru_find(&lru, begins_with, "a", found, COUNT_OF(found)), 3);
    assert_true(found[0] == &values[0] && found[1] == &values[3] && found[2] == &values[2]);
    assert_int_equal(td_lru_find(&lru, begins_with, "a", found, 2), 2);
    assert_true(found[0] == &values[0] && found[1] == &values[3]);
    assert_true(values[0].refs == 3 && values[1].refs == 1 && values[2].refs == 2 && values[3].refs == 3);
    struct value last = {.text = "c"};
    assert_true(td_lru_put(&lru, "c", &last, 600));
    assert_true(has(&lru, "a1") && !has(&lru, "b") && has(&lru, "a2"));
    td_lru_fini(&lru);
}

static void what_is_too_large_is_not_kept(void **state)
{
    (void)state;
    struct td_lru lru;
    struct value values[2] = {{0}};
    assert_true(td_lru_init(&lru, &class, 1000));
    assert_true(td_lru_put(&lru, "a", &values[0], 100));
    assert_false(td_lru_put(&lru, "b", &values[1], 1000));
    assert_false(td_lru_put(&lru, "b", &values[1], SIZE_MAX));
    assert_true(has(&lru, "a") && values[1].refs == 0);
    td_lru_fini(&lru);
}

static void there_are_never_too_many(void **state)
{
    (void)state;
    struct td_lru lru;
    struct value value = {0};
    char key[16];
    assert_true(td_lru_init(&lru, &class, SIZE_MAX));
    for (int i = 0; i < TD_LRU_MAX_ENTRIES + 10; i++) {
        (void)snprintf(key, sizeof key, "%d", i);
        assert_true(td_lru_put(&lru, key, &value, 1));
    }
    assert_int_equal(value.refs, TD_LRU_MAX_ENTRIES);
    assert_true(!has(&lru, "9") && has(&lru, "10"));
    td_lru_fini(&lru);
    assert_int_equal(value.refs, 0);
}

static void what_nobody_has_goes_first(void **state)
{
    (void)state;
    struct td_lru lru;
    struct value values[3] = {{0}};
    assert_true(td_lru_init(&lru, &class, 3000));
    assert_false(td_lru_drop_idle(&lru));
    assert_true(td_lru_put(&lru, "a", &values[0], 100));
    assert_true(td_lru_put(&lru, "b", &values[1], 100));
    assert_true(td_lru_put(&lru, "c", &values[2], 100));
    size_t bytes = lru.bytes;
    assert_ptr_equal(td_lru_get(&lru, "a"), &values[0]); /* held; now b is the oldest, then c */
    assert_ptr_equal(td_lru_get(&lru, "b"), &values[1]); /* held */
    assert_true(td_lru_drop_idle(&lru));
    assert_true(has(&lru, "a") && has(&lru, "b") && !has(&lru, "c"));
    assert_true(lru.count == 2 && lru.bytes < bytes && values[2].refs == 0);
    assert_false(td_lru_drop_idle(&lru));
    unref(&values[0]);
    unref(&values[1]);
    assert_true(td_lru_drop_idle(&lru)); /* a was used before b */
    assert_true(!has(&lru, "a") && has(&lru, "b"));
    assert_true(td_lru_drop_idle(&lru));
    assert_true(lru.count == 0 && lru.bytes == 0);
    assert_true(td_lru_put(&lru, "d", &values[0], 100) && has(&lru, "d"));
    td_lru_fini(&lru);
}

/* A value that is held elsewhere takes its memory anyway, so it stays in the cache, even past the bound. Without the
 * function idle any value may go. */
static void what_somebody_has_stays(void **state)
{
    (void)state;
    static const struct td_lru_class blind = {.ref = ref, .unref = unref};
    static const struct td_lru_class *const classes[] = {&class, &blind};
    for (size_t i = 0; i < COUNT_OF(classes); i++) {
        struct td_lru lru;
        struct value values[4] = {{.refs = 1}, {.refs = 1}, {0}, {0}};
        assert_true(td_lru_init(&lru, classes[i], 2000));
        assert_true(td_lru_put(&lru, "a", &values[0], 1200));
        assert_true(td_lru_put(&lru, "b", &values[1], 1200));
        assert_int_equal(has(&lru, "a"), i == 0);
        assert_true(td_lru_put(&lru, "c", &values[2], 300)); /* the only one that can go */
        assert_int_equal(has(&lru, "c"), i == 1);
        unref(&values[0]);
        assert_true(td_lru_put(&lru, "d", &values[3], 300));
        assert_true(!has(&lru, "a") && has(&lru, "b") && has(&lru, "d"));
        td_lru_fini(&lru);
    }
}

static void want_of_memory_keeps_nothing(void **state)
{
    (void)state;
    struct td_lru lru;
    struct value value = {0};
    assert_true(td_lru_init(&lru, &class, 1000));
    alloc_fail_at(1);
    assert_false(td_lru_put(&lru, "a", &value, 1));
    alloc_fail_at(0);
    assert_true(value.refs == 0 && !has(&lru, "a"));
    td_lru_fini(&lru);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_used_least_recently_goes), cmocka_unit_test(the_first_of_two_stays),
        cmocka_unit_test(what_is_too_large_is_not_kept),     cmocka_unit_test(there_are_never_too_many),
        cmocka_unit_test(what_nobody_has_goes_first),        cmocka_unit_test(what_somebody_has_stays),
        cmocka_unit_test(want_of_memory_keeps_nothing),      cmocka_unit_test(values_are_found_by_what_they_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
