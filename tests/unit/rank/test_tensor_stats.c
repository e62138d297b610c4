/* tests/http/test_tensor_stats.py compares the figures with NumPy's; here is the rest: cancelling, memory, waiting. */
#include "rank/tensor_stats.h"

#include "core/waiting.h"
#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

#include <limits.h>

enum { ROWS = 1100, COLUMNS = 1000, ELEMENTS = ROWS * COLUMNS, MIB = 1024 * 1024 };

/* A model of one matrix: more than TD_STATS_SAMPLE_ELEMS elements, so that the sample is runs. */
struct place {
    struct tree tree;
    struct loopback loop;
    struct td_snapshot *snapshot;
    struct td_selection all;
    struct td_budget budget;
    struct td_tensor_slice slice;
};

static void open_place(struct place *place)
{
    static const struct tree_tensor tensors[] = {{"w", "U8", "[1100,1000]", ELEMENTS}};
    static const uint64_t shape[] = {ROWS, COLUMNS};
    tree_open(&place->tree);
    (void)tree_tensors(&place->tree, "m/model.safetensors", tensors, COUNT_OF(tensors), NULL, 0);
    loopback_open(&place->loop, &place->tree);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
    td_selection_all(2, shape, &place->all);
    td_budget_init(&place->budget, (size_t)64 * MIB, "the test");
    place->slice = (struct td_tensor_slice){.catalog = place->loop.catalog,
                                            .snapshot = place->snapshot,
                                            .checkpoint = &place->snapshot->models[0].checkpoints[0],
                                            .selection = &place->all,
                                            .budget = &place->budget};
}

/* Closes the place. Checks that all memory was returned. */
static void close_place(struct place *place)
{
    assert_int_equal(td_budget_used(&place->budget), 0);
    td_snapshot_unref(place->snapshot);
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

static void fails(const struct place *place, enum td_code code, const char *part)
{
    struct td_error err = TD_ERROR_INIT;
    assert_null(td_tensor_stats_create(&place->slice, TD_STATS_BINS, &err));
    CHECK(err.code == code && strstr(err.message, part) != NULL, "%d %s", (int)err.code, err.message);
}

static void a_sample_of_runs(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_tensor_stats *stats = td_tensor_stats_create(&place->slice, 7, &err);
    CHECK(stats != NULL, "%s", err.message);
    assert_true(stats->elements == ELEMENTS && stats->sampled == TD_STATS_SAMPLE_ELEMS);
    assert_true(stats->nbytes == stats->elements && stats->summary.finite == TD_STATS_SAMPLE_ELEMS);
    assert_true(stats->bin_count == 7 && stats->map_rows == 32 && stats->map_columns == 32);
    assert_int_equal(stats->first_count, TD_STATS_FIRST);
    for (size_t i = 0; i < TD_STATS_FIRST; i++)
        assert_true(stats->first[i] == tree_data_byte(i, 0));
    free(stats);
}

struct asking {
    int left; /* times that is_asked says no */
};

static bool is_asked(void *context)
{
    struct asking *asking = context;
    return asking->left-- <= 0;
}

static void a_cancelled_request_reads_no_more(void **state)
{
    struct place *place = *state;
    struct asking asking = {.left = 5};
    const struct td_cancel cancel = {.is_asked = is_asked, .context = &asking};
    place->slice.cancel = &cancel;
    fails(place, TD_UNAVAILABLE, "cancelled");
    assert_int_equal(asking.left, -1); /* nothing was asked or read afterwards */
}

static void memory_is_bounded(void **state)
{
    struct place *place = *state;
    place->budget.max_bytes = (size_t)10 * MIB; /* as the header says */
    struct td_tensor_stats *stats = td_tensor_stats_create(&place->slice, TD_STATS_BINS, NULL);
    assert_non_null(stats);
    free(stats);
    place->budget.max_bytes = MIB;
    fails(place, TD_FAILED_PRECONDITION, "the test");
}

static void a_thread_that_may_not_wait_is_refused(void **state)
{
    struct place *place = *state;
    free(td_tensor_stats_create(&place->slice, TD_STATS_BINS, NULL)); /* the file is mapped, its pages are in memory */
    td_waiting_forbid();
    struct td_tensor_stats *stats = td_tensor_stats_create(&place->slice, TD_STATS_BINS, NULL);
    const bool was_refused = td_waiting_allow();
    assert_true(stats == NULL && was_refused);
}

struct changing {
    const struct place *place;
    int left;     /* runs and cells that are read before the file changes */
    bool shrinks; /* else only its last byte changes */
};

static bool change(void *context)
{
    struct changing *changing = context;
    char path[PATH_MAX];
    if (changing->left-- != 0)
        return false;
    (void)snprintf(path, sizeof path, "%s/m/model.safetensors", changing->place->tree.path);
    FILE *file = fopen(path, changing->shrinks ? "w" : "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, changing->shrinks ? 0 : -1, SEEK_END), 0);
    assert_int_equal(fputc('x', file), 'x');
    assert_int_equal(fclose(file), 0);
    return false;
}

static void a_file_changes_while_it_is_read(void **state)
{
    struct place *place = *state;
    for (int shrinks = 0; shrinks <= 1; shrinks++) {
        struct changing changing = {.place = place, .left = 5, .shrinks = shrinks != 0};
        const struct td_cancel cancel = {.is_asked = change, .context = &changing};
        place->slice.cancel = &cancel;
        fails(place, TD_UNAVAILABLE, changing.shrinks ? "shrank" : "changed");
        if (!changing.shrinks)
            fails(place, TD_UNAVAILABLE, ""); /* the snapshot is of the file before */
        place->slice.cancel = NULL;
        close_place(place);
        open_place(place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, a_sample_of_runs),
        TEST_IN(place, a_cancelled_request_reads_no_more),
        TEST_IN(place, memory_is_bounded),
        TEST_IN(place, a_thread_that_may_not_wait_is_refused),
        TEST_IN(place, a_file_changes_while_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
