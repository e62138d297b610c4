#include "slicing/rank_file.h"

#include "tests/unit/alloc_trials.h"
#include "tests/unit/slicing/tensor_library.h"

enum { ROWS = 4, COLUMNS = 6, MOST_BYTES = 4096 };

static const uint64_t matrix[] = {ROWS, COLUMNS};
static const uint64_t vector[] = {8};
static const uint64_t none[] = {0, 3};
static const uint64_t blocks[] = {2, 64};
static const uint64_t cube[] = {3, 2, 3, 2, 3};

static struct tensor_library library;
static uint8_t *bytes_of[LIBRARY_TENSORS];

/* Fills the library; its tensors are sorted by name, as those of a checkpoint are. */
static void fill_library(void)
{
    memset(&library, 0, sizeof library);
    bytes_of[0] = library_add(&library, "a", "F32", 2, matrix);
    bytes_of[1] = library_add(&library, "b", "BF16", 1, vector);
    bytes_of[2] = library_add(&library, "c", "F32", 0, NULL);
    bytes_of[3] = library_add(&library, "d", "F32", 2, none);
    bytes_of[4] = library_add(&library, "q", "Q8_0", 2, blocks);
    bytes_of[5] = library_add(&library, "refused", "U8", 1, vector);
    bytes_of[6] = library_add(&library, "v", "U8", 5, cube);
    library.tensors[5].reason = "it is elsewhere";
}

static bool create(const struct td_plan_item *boxes, size_t count, struct td_budget *budget, struct td_rank_file **out,
                   struct td_error *err)
{
    struct td_tensor_list list = library_list(&library);
    td_error_init(err);
    *out = NULL;
    return td_box_file_create(boxes, count, &list, budget, out, err);
}

/* Collects the bytes that a file should have. */
struct wanted {
    uint8_t bytes[MOST_BYTES];
    size_t len;
};

static void want(struct wanted *wanted, size_t tensor, size_t off, size_t len)
{
    assert_true(wanted->len + len <= MOST_BYTES);
    memcpy(wanted->bytes + wanted->len, bytes_of[tensor] + off, len);
    wanted->len += len;
}

static void check_file(const struct td_plan_item *boxes, size_t count, const struct wanted *wanted)
{
    struct td_rank_file *file;
    struct td_error err;
    CHECK(create(boxes, count, NULL, &file, &err), "%s", err.message);
    assert_null(file->own);
    assert_int_equal(file->nbytes, wanted->len);
    uint8_t *bytes = library_read(&library, file->layout);
    assert_memory_equal(bytes, wanted->bytes, wanted->len);
    free(bytes);
    td_rank_file_unref(file);
}

static void bytes_lie_back_to_back(void **state)
{
    (void)state;
    static const struct td_plan_item boxes[] = {
        {"b", NULL, "2:-1"}, {"a", NULL, "1"},   {"a", NULL, NULL}, {"c", NULL, NULL},         {"d", NULL, NULL},
        {"a", NULL, ":,5"},  {"b", NULL, "3:3"}, {"b", NULL, NULL}, {"v", NULL, "2,:,1,0,1:"}, {"c", NULL, "..."},
    };
    struct wanted wanted = {.len = 0};
    fill_library();
    want(&wanted, 1, 2 * 2, 5 * 2);
    want(&wanted, 0, 4 * COLUMNS, 4 * COLUMNS);
    want(&wanted, 0, 0, 4 * ROWS * COLUMNS);
    want(&wanted, 2, 0, 4);
    for (size_t row = 0; row < ROWS; row++)
        want(&wanted, 0, 4 * (row * COLUMNS + 5), 4);
    want(&wanted, 1, 0, 16);
    for (size_t i = 0; i < 2; i++)
        want(&wanted, 6, (((2 * 2 + i) * 3 + 1) * 2) * 3 + 1, 2);
    want(&wanted, 2, 0, 4);
    check_file(boxes, COUNT_OF(boxes), &wanted);
    check_file(NULL, 0, &(struct wanted){.len = 0});
    library_free(&library);
}

/* Blocks are cut between blocks; ends of 34 bytes each, from ggml's block_q8_0. */
static void types_of_blocks(void **state)
{
    (void)state;
    static const struct td_plan_item boxes[] = {{"q", NULL, ":,32:"}, {"q", NULL, "1"}, {"q", NULL, NULL}};
    static const struct td_plan_item within = {"q", NULL, "0,:16"};
    struct wanted wanted = {.len = 0};
    struct td_rank_file *file;
    struct td_error err;
    fill_library();
    want(&wanted, 4, 34, 34);
    want(&wanted, 4, 3 * 34, 34);
    want(&wanted, 4, 2 * 34, 2 * 34);
    want(&wanted, 4, 0, 4 * 34);
    check_file(boxes, COUNT_OF(boxes), &wanted);
    assert_false(create(&within, 1, NULL, &file, &err));
    CHECK(err.code == TD_INVALID_ARGUMENT && strstr(err.message, "box 0, tensor \"q\": ") == err.message &&
              strstr(err.message, "Q8_0") != NULL,
          "%s", err.message);
    library_free(&library);
}

static void errors_name_the_box(void **state)
{
    (void)state;
    static const struct {
        struct td_plan_item box;
        enum td_code code;
        const char *says;
    } cases[] = {
        {{"x", NULL, NULL}, TD_NOT_FOUND, "box 2, tensor \"x\": "},
        {{"", NULL, NULL}, TD_NOT_FOUND, "box 2, tensor \"\": "},
        {{"a", NULL, "::2"}, TD_INVALID_ARGUMENT, "box 2, tensor \"a\": "},
        {{"a", NULL, "4,0"}, TD_INVALID_ARGUMENT, "box 2, tensor \"a\": "},
        {{"a", NULL, ""}, TD_INVALID_ARGUMENT, "box 2, tensor \"a\": "},
        {{"refused", NULL, NULL}, TD_FAILED_PRECONDITION, "box 2, tensor \"refused\": it is elsewhere"},
    };
    fill_library();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_plan_item boxes[] = {{"a", NULL, NULL}, {"a", NULL, "0"}, cases[i].box};
        struct td_rank_file *file;
        struct td_error err;
        CHECK(!create(boxes, COUNT_OF(boxes), NULL, &file, &err), "case %zu", i);
        assert_null(file);
        CHECK(err.code == cases[i].code && strstr(err.message, cases[i].says) == err.message, "case %zu: %s", i,
              err.message);
    }
    library_free(&library);
}

/* Each column of a matrix is a block of the layout. A block takes 80 bytes, as rank_file.h says; the array grows by
 * half, with a copy into a new array. */
static void memory_is_of_the_budget(void **state)
{
    (void)state;
    enum { COUNT = 20000, BYTES = COUNT * 80 * 3 };
    struct td_plan_item *boxes = calloc(COUNT, sizeof *boxes);
    struct td_budget budget;
    struct td_rank_file *file;
    struct td_error err;
    assert_non_null(boxes);
    fill_library();
    for (size_t i = 0; i < COUNT; i++)
        boxes[i] = (struct td_plan_item){.name = "a", .slice = i % 2 == 0 ? ":,3" : ":,1"};
    td_budget_init(&budget, BYTES, "boxes");
    alloc_count_start();
    CHECK(create(boxes, COUNT, &budget, &file, &err), "%s", err.message);
    assert_int_equal(file->nbytes, COUNT * ROWS * 4);
    assert_int_equal(td_budget_used(&budget), td_rank_file_memory_bytes(file));
    assert_true(file->layout->block_capacity == COUNT && file->layout->run_capacity == COUNT); /* without spare room */
    td_rank_file_unref(file);
    assert_int_equal(td_budget_used(&budget), 0);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    td_budget_init(&budget, COUNT * 40, "boxes");
    assert_false(create(boxes, COUNT, &budget, &file, &err));
    assert_int_equal(td_budget_used(&budget), 0);
    free(boxes);
    library_free(&library);
}

static void failing_allocations(void **state)
{
    (void)state;
    static const struct td_plan_item boxes[] = {{"b", NULL, "2:-1"}, {"a", NULL, ":,3"}};
    struct alloc_trials trials = {.may_do_without = true};
    fill_library();
    while (alloc_try(&trials)) {
        struct td_rank_file *file;
        struct td_error err;
        bool ok = create(boxes, COUNT_OF(boxes), NULL, &file, &err);
        alloc_tried(&trials, ok, &err);
        td_rank_file_unref(file);
    }
    assert_true(trials.failed > 2);
    library_free(&library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_lie_back_to_back), cmocka_unit_test(types_of_blocks),
        cmocka_unit_test(errors_name_the_box),    cmocka_unit_test(memory_is_of_the_budget),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
