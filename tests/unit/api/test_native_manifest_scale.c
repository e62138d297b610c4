/* A manifest of 100,000 tensors: its memory, and that the time to render it is linear. */
#include "api/call/state.h"
#include "http/rendered.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/api/view_text.h"

enum { TENSORS = 100000 / (SANITIZED ? 5 : 1), WINDOW = 256 * 1024 };

static void open_big(struct tree *tree, struct scanner *scanner, size_t count)
{
    struct tree_tensor *tensors = calloc(count, sizeof *tensors);
    char(*names)[64] = calloc(count, sizeof *names);
    assert_true(tensors != NULL && names != NULL);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(names[i], sizeof names[i], "model.layers.%zu.mlp.experts.weight", i);
        tensors[i] = (struct tree_tensor){names[i], "F32", "[1]", 4};
    }
    tree_open(tree);
    (void)tree_tensors(tree, "m/model.safetensors", tensors, count, NULL, 0);
    free(tensors);
    free(names);
    scanner_open(scanner, tree);
    (void)scanner_scan(scanner);
}

/* Reads the text once, window by window; returns its length. */
static uint64_t read_all(struct td_blob *blob, char *window, uint64_t *sum)
{
    struct td_error err = TD_ERROR_INIT;
    for (uint64_t off = 0; off < blob->len_bytes;) {
        uint64_t n = blob->len_bytes - off < WINDOW ? blob->len_bytes - off : WINDOW;
        assert_true(td_blob_read(blob, off, window, (size_t)n, &err));
        for (uint64_t i = 0; i < n; i++)
            *sum = *sum * 31 + (unsigned char)window[i];
        off += n;
    }
    return blob->len_bytes;
}

static void memory_is_bounded(void **state)
{
    (void)state;
    struct tree tree;
    struct scanner scanner;
    struct view_options whole = {0};
    struct td_lru cache;
    uint64_t sums[3] = {0};
    uint64_t len = 0;
    char *window = malloc(WINDOW);
    assert_non_null(window);
    open_big(&tree, &scanner, TENSORS);
    const struct td_model *model = scanner_model(&scanner, "m");
    assert_int_equal(model->checkpoints[0].tensor_count, TENSORS);
    assert_true(td_lru_init(&cache, &td_rendered_index_class, TD_MANIFEST_CACHE_BYTES));
    for (int round = 0; round < 3; round++) {
        alloc_count_start();
        struct td_blob *blob = view_create(&cache, scanner.snapshot, model, &model->checkpoints[0], &whole);
        size_t laid_out = alloc_count_get().peak_bytes;
        len = read_all(blob, window, &sums[round]);
        size_t peak = alloc_count_get().peak_bytes;
        td_blob_unref(blob);
        /* the first round keeps text in a growing buffer until there is too much of it */
        CHECK(laid_out < (round == 0 ? 1024 : 256) * 1024, "laid out: %zu bytes", laid_out);
        CHECK(peak < (round == 0 ? 1024 : 256) * 1024, "read: %zu bytes", peak);
        CHECK(round == 0 || alloc_count_get().live_bytes == 0, "round %d", round);
        assert_true(sums[round] == sums[0]);
        if (round == 0)
            print_message("%d tensors, text of %llu bytes, peak %zu bytes\n", TENSORS, (unsigned long long)len, peak);
    }
    assert_true(len > (uint64_t)TENSORS * 100); /* the text is far longer than the memory it took */
    alloc_count_start();
    td_lru_fini(&cache);
    scanner_close(&scanner);
    tree_close(&tree);
    free(window);
}

/* Layout and reading of four times the tensors take about four times as long; quadratic time would be sixteen times. */
static void time_is_linear(void **state)
{
    (void)state;
    double seconds[2];
    char *window = malloc(WINDOW);
    assert_non_null(window);
    for (size_t i = 0; i < 2; i++) {
        struct tree tree;
        struct scanner scanner;
        struct view_options filtered = {.match = "*weight"};
        uint64_t sum = 0;
        open_big(&tree, &scanner, (i == 0 ? 1 : 4) * (size_t)TENSORS / 4);
        const struct td_model *model = scanner_model(&scanner, "m");
        seconds[i] = 1e9;
        for (int round = 0; round < 3; round++) {
            double before = cpu_seconds();
            struct td_blob *blob = view_create(NULL, scanner.snapshot, model, &model->checkpoints[0], &filtered);
            (void)read_all(blob, window, &sum);
            td_blob_unref(blob);
            double took = cpu_seconds() - before;
            if (took < seconds[i])
                seconds[i] = took;
        }
        scanner_close(&scanner);
        tree_close(&tree);
    }
    print_message("%.4f s, four times as many %.4f s\n", seconds[0], seconds[1]);
    assert_true(seconds[1] < 8 * seconds[0] + 0.01);
    free(window);
}

/* Every failing allocation is an error without a leak. */
static void want_of_memory_is_an_error(void **state)
{
    (void)state;
    struct tree tree;
    struct scanner scanner;
    struct alloc_trials trials = {.may_do_without = true};
    open_big(&tree, &scanner, 500);
    const struct td_model *model = scanner_model(&scanner, "m");
    struct td_text match = {.p = "*1*", .len = 3};
    struct td_manifest_query query = {.match = &match, .page_size = 100, .page_first = true};
    char *window = malloc(WINDOW);
    assert_non_null(window);
    while (alloc_try(&trials)) {
        struct td_blob *blob = NULL;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_manifest_view_create(NULL, scanner.snapshot, model, &model->checkpoints[0], &query, &blob, &err);
        ok = ok && td_blob_read(blob, 0, window, (size_t)blob->len_bytes, &err);
        alloc_tried(&trials, ok, &err);
        if (blob != NULL)
            td_blob_unref(blob);
    }
    assert_true(trials.failed > 5);
    free(window);
    scanner_close(&scanner);
    tree_close(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(time_is_linear),
        cmocka_unit_test(want_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
