#include "core/arena.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

/* Blocks of many sizes, strings among them, are aligned, do not overlap and do not move. */
static void blocks_are_aligned_and_apart(void **state)
{
    (void)state;
    enum { BLOCKS = 3000 };
    static unsigned char *blocks[BLOCKS];
    static size_t sizes[BLOCKS];
    struct td_arena arena;
    td_arena_init(&arena, 0);
    uint64_t seed = 7;
    char text[600];
    for (size_t i = 0; i < BLOCKS; i++) {
        sizes[i] = random_below(&seed, i % 100 == 0 ? 300000 : 600);
        memset(text, (int)(i & 0xFF), sizeof text);
        if (i % 3 == 0 && sizes[i] < sizeof text) {
            blocks[i] = (unsigned char *)td_arena_strndup(&arena, td_text_n(text, sizes[i]));
            assert_non_null(blocks[i]);
            assert_int_equal(blocks[i][sizes[i]], 0);
        } else {
            blocks[i] = td_arena_alloc(&arena, sizes[i]);
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % sizeof(uint64_t), 0);
            memset(blocks[i], (int)(i & 0xFF), sizes[i]);
        }
    }
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t j = 0; j < sizes[i]; j++)
            CHECK(blocks[i][j] == (i & 0xFF), "block %zu, byte %zu", i, j);
    td_arena_fini(&arena);
    assert_null(arena.chunks);
    assert_int_equal(arena.used_bytes, 0);
}

static void strings_keep_their_bytes(void **state)
{
    (void)state;
    struct td_arena arena;
    td_arena_init(&arena, 0);
    char *empty = td_arena_strndup(&arena, TD_TEXT(""));
    char *part = td_arena_strndup(&arena, td_text_n("abcdef", 3));
    char *nul = td_arena_strndup(&arena, TD_TEXT("a\0b"));
    assert_string_equal(empty, "");
    assert_string_equal(part, "abc");
    assert_memory_equal(nul, "a\0b", 4);
    td_arena_fini(&arena);
}

static void nothing_is_a_valid_block(void **state)
{
    (void)state;
    struct td_arena arena;
    td_arena_init(&arena, 0);
    assert_non_null(td_arena_alloc(&arena, 0));
    assert_non_null(td_arena_array(&arena, 0, 8));
    assert_non_null(td_arena_array(&arena, 8, 0));
    td_arena_fini(&arena);
    td_arena_fini(&arena); /* a second call does no harm */
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct td_arena arena;
    td_arena_init(&arena, 0);
    assert_non_null(td_arena_alloc(&arena, 100));
    alloc_count_start();
    assert_null(td_arena_alloc(&arena, SIZE_MAX));
    assert_null(td_arena_alloc(&arena, SIZE_MAX - 64));
    assert_null(td_arena_array(&arena, SIZE_MAX / 2, 3));
    assert_null(td_arena_array(&arena, SIZE_MAX / 8 + 1, 8));
    assert_null(td_arena_strndup(&arena, td_text_n("x", SIZE_MAX)));
    assert_int_equal(alloc_count_get().calls, 0);
    assert_non_null(td_arena_alloc(&arena, 100));
    td_arena_fini(&arena);
}

static void limit_bounds_the_sum(void **state)
{
    (void)state;
    struct td_arena arena;
    td_arena_init(&arena, 1000);
    assert_non_null(td_arena_alloc(&arena, 992));
    assert_null(td_arena_alloc(&arena, 16));
    assert_null(td_arena_strndup(&arena, td_text_n("123456789", 8))); /* 9 with its NUL */
    assert_non_null(td_arena_strndup(&arena, td_text_n("12345678", 7)));
    assert_int_equal(arena.used_bytes, 1000);
    assert_null(td_arena_strndup(&arena, TD_TEXT("")));
    td_arena_fini(&arena);
    assert_int_equal(arena.limit_bytes, 1000);
    assert_non_null(td_arena_alloc(&arena, 1000));
    assert_null(td_arena_alloc(&arena, 1));
    td_arena_fini(&arena);
}

/* A manifest of many small blocks must not cost much more than its blocks. */
static void little_is_wasted(void **state)
{
    (void)state;
    struct td_arena arena;
    for (size_t blocks = 1; blocks <= 100000; blocks *= 10) {
        alloc_count_start();
        td_arena_init(&arena, 0);
        for (size_t i = 0; i < blocks; i++) {
            assert_non_null(td_arena_alloc(&arena, 8 + i % 5 * 8));
            assert_non_null(td_arena_strndup(&arena, TD_TEXT("model.layers.12.mlp.weight")));
        }
        size_t peak = alloc_count_get().peak_bytes;
        assert_true(peak <= 2048 + 2 * arena.used_bytes);
        assert_true(peak <= 2048 + arena.used_bytes + arena.used_bytes / 8 + 300000);
        td_arena_fini(&arena);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
}

/* The limit bounds the memory that the arena takes from malloc, not only what it hands out. */
static void limit_bounds_what_is_taken(void **state)
{
    (void)state;
    for (size_t limit = 1000; limit < 1000000; limit = limit * 5 / 4) {
        struct td_arena arena;
        alloc_count_start();
        td_arena_init(&arena, limit);
        while (td_arena_alloc(&arena, 40) != NULL)
            ;
        assert_true(arena.used_bytes <= limit && arena.used_bytes + 40 > limit);
        assert_true(alloc_count_get().peak_bytes <= limit + limit / 16 + 1024);
        td_arena_fini(&arena);
    }
}

static void want_of_memory_leaves_it_usable(void **state)
{
    (void)state;
    struct td_arena arena;
    alloc_count_start();
    td_arena_init(&arena, 0);
    for (size_t i = 0; i < 64; i++) {
        size_t used = arena.used_bytes;
        alloc_fail_at(1);
        assert_null(td_arena_alloc(&arena, 400000));
        alloc_fail_at(0);
        assert_int_equal(arena.used_bytes, used);
        assert_non_null(td_arena_alloc(&arena, 5000));
    }
    td_arena_fini(&arena);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

static void claims_share_the_limit(void **state)
{
    (void)state;
    struct td_arena arena;
    td_arena_init(&arena, 1000);
    assert_int_equal(td_arena_left(&arena), 1000);
    assert_non_null(td_arena_alloc(&arena, 400));
    assert_int_equal(td_arena_left(&arena), 600);
    assert_false(td_arena_claim(&arena, SIZE_MAX));
    assert_false(td_arena_claim(&arena, 601));
    assert_true(td_arena_claim(&arena, 500));
    assert_int_equal(td_arena_left(&arena), 100);
    assert_null(td_arena_alloc(&arena, 104));
    assert_non_null(td_arena_alloc(&arena, 96));
    assert_false(td_arena_claim(&arena, 4));
    arena.limit_bytes = 1000;
    assert_non_null(td_arena_alloc(&arena, 400));
    td_arena_fini(&arena);
    td_arena_init(&arena, 0);
    assert_true(td_arena_left(&arena) == 0 && td_arena_claim(&arena, SIZE_MAX));
    td_arena_fini(&arena);
}

static void arrays_grow(void **state)
{
    (void)state;
    struct td_arena arena;
    size_t capacity = 0;
    uint32_t *items = NULL;
    td_arena_init(&arena, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        items = td_arena_grow(&arena, items, i, &capacity, sizeof *items);
        assert_true(items != NULL && capacity > i);
        items[i] = i * 7;
    }
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(items[i], i * 7);
    assert_true(arena.used_bytes <= 4 * 1000 * sizeof *items);
    arena.limit_bytes = arena.used_bytes;
    size_t before = capacity;
    assert_null(td_arena_grow(&arena, items, capacity, &capacity, sizeof *items));
    assert_int_equal(capacity, before);
    td_arena_fini(&arena);
}

/* The arena takes its chunks from the budget and returns them. The error distinguishes an exhausted budget from a
 * request over the arena's own limit. */
static void budgets_are_held_until_the_end(void **state)
{
    (void)state;
    struct td_budget budget;
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    td_budget_init(&budget, 10000, "things");
    td_arena_init_budget(&arena, 20000, &budget);
    assert_non_null(td_arena_alloc(&arena, 8000));
    assert_true(td_budget_used(&budget) >= 8000);
    assert_null(td_arena_alloc(&arena, 4000));
    assert_non_null(td_arena_alloc(&arena, 8)); /* a later success keeps the reason of the failure */
    assert_false(td_arena_refuse(&arena, "the plan", &err));
    assert_true(err.code == TD_RESOURCE_EXHAUSTED && strstr(err.message, "things"));
    assert_null(td_arena_alloc(&arena, 16000));
    td_error_init(&err);
    assert_false(td_arena_refuse(&arena, "the plan", &err));
    assert_true(err.code == TD_FAILED_PRECONDITION && strstr(err.message, "the plan needs more than the limit of "));
    assert_null(td_arena_array(&arena, SIZE_MAX, 2));
    td_error_init(&err);
    assert_false(td_arena_refuse(&arena, "the plan", &err));
    assert_true(err.code == TD_RESOURCE_EXHAUSTED);
    td_arena_fini(&arena);
    assert_int_equal(td_budget_used(&budget), 0);
    td_arena_init_budget(&arena, 0, &budget);
    alloc_fail_at(1);
    assert_null(td_arena_alloc(&arena, 8));
    alloc_fail_at(0);
    td_arena_fini(&arena);
    assert_int_equal(td_budget_used(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_grow),
        cmocka_unit_test(budgets_are_held_until_the_end),
        cmocka_unit_test(blocks_are_aligned_and_apart),
        cmocka_unit_test(strings_keep_their_bytes),
        cmocka_unit_test(nothing_is_a_valid_block),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(limit_bounds_the_sum),
        cmocka_unit_test(little_is_wasted),
        cmocka_unit_test(claims_share_the_limit),
        cmocka_unit_test(limit_bounds_what_is_taken),
        cmocka_unit_test(want_of_memory_leaves_it_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
