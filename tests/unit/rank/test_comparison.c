/* The comparison of two checkpoints: what counts as which change, what is known without reading, and the limits. The
 * files differ where the tests have written other bytes into them. */
#include "rank/comparison.h"

#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

struct place {
    struct tree tree;
    struct loopback loop;
    struct td_snapshot *snapshot;
    struct td_budget budget;
    struct td_comparison_limits limits;
    struct td_comparison comparison;
};

/* The models "a" and "b" are made before the scan. */
static const struct tree_tensor of_a[] = {
    {"same", "F32", "[2]", 8},    {"content", "F32", "[4]", 16}, {"dtype", "F32", "[2]", 8},
    {"removed", "F32", "[2]", 8}, {"shape", "F32", "[2,2]", 16}, {"empty", "F32", "[0,3]", 0},
    {"both", "F32", "[2,2]", 16},
};
static const struct tree_tensor of_b[] = {
    {"same", "F32", "[2]", 8},   {"content", "F32", "[4]", 16}, {"dtype", "I32", "[2]", 8}, {"added", "F32", "[2]", 8},
    {"shape", "F32", "[4]", 16}, {"empty", "F32", "[0,3]", 0},  {"both", "I32", "[4]", 16},
};

static void open_place(struct place *place)
{
    tree_open(&place->tree);
    (void)tree_tensors(&place->tree, "a/model.safetensors", of_a, COUNT_OF(of_a), NULL, 0);
    uint64_t data = tree_tensors(&place->tree, "b/model.safetensors", of_b, COUNT_OF(of_b), NULL, 0);
    tree_poke(&place->tree, "b/model.safetensors", data + 23, "?", 1); /* the last byte of "content" */
    (void)tree_tensors(&place->tree, "copy/model.safetensors", of_a, COUNT_OF(of_a), NULL, 0);
    tree_set_age(&place->tree, "b/model.safetensors", 60000000000);
    loopback_open(&place->loop, &place->tree);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
    td_budget_init(&place->budget, 8 << 20, "the comparisons of the test");
    place->limits = (struct td_comparison_limits){.read_bytes = UINT64_MAX, .read_ns = UINT64_C(3600000000000)};
}

static void close_place(struct place *place)
{
    td_comparison_fini(&place->comparison);
    assert_int_equal(td_budget_used(&place->budget), 0);
    td_snapshot_unref(place->snapshot);
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

static struct td_tensor_sums_source source_of(struct place *place, const char *id)
{
    const struct td_model *model = td_snapshot_find_model(place->snapshot, td_text_of(id));
    assert_non_null(model);
    assert_int_equal(model->checkpoint_count, 1);
    return (struct td_tensor_sums_source){.catalog = place->loop.catalog,
                                          .snapshot = place->snapshot,
                                          .model = model,
                                          .checkpoint = &model->checkpoints[0]};
}

static bool compare(struct place *place, const char *a, const char *b, struct td_error *err)
{
    struct td_tensor_sums_source a_source = source_of(place, a);
    struct td_tensor_sums_source b_source = source_of(place, b);
    td_comparison_fini(&place->comparison);
    return td_comparison_make(&place->comparison, &a_source, &b_source,
                              td_virtual_hasher_digests(place->loop.api.virtual_hasher), &place->limits, &place->budget,
                              err);
}

/* Returns the differences as "name change, name change". */
static const char *differences(struct place *place, const char *a, const char *b)
{
    static char text[1024];
    struct td_error err = TD_ERROR_INIT;
    size_t len = 0;
    uint64_t counts[TD_CHANGES] = {0};
    CHECK(compare(place, a, b, &err), "%s", err.message);
    const struct td_comparison *comparison = &place->comparison;
    text[0] = '\0';
    for (size_t i = 0; i < comparison->count; i++) {
        const struct td_compared *item = &comparison->items[i];
        const struct td_tensor_sums_source *side = item->a > 0 ? &comparison->a : &comparison->b;
        size_t number = (item->a > 0 ? item->a : item->b) - 1;
        CHECK((item->a == 0) == (item->change == TD_CHANGE_ADDED), "%zu", i);
        CHECK((item->b == 0) == (item->change == TD_CHANGE_REMOVED), "%zu", i);
        len +=
            (size_t)snprintf(text + len, sizeof text - len, "%s%s %s", i > 0 ? ", " : "",
                             td_checkpoint_tensor(side->checkpoint, number).tensor->name, td_change_name(item->change));
        counts[item->change]++;
    }
    for (int change = TD_CHANGE_SAME + 1; change < TD_CHANGES; change++)
        CHECK(comparison->counts[change] == counts[change], "%s", td_change_name((enum td_change)change));
    return text;
}

static void lists_every_kind_of_change_by_name(void **state)
{
    struct place *place = *state;
    assert_string_equal(differences(place, "a", "b"),
                        "added added, both dtype, content content, dtype dtype, removed removed, shape shape");
    assert_int_equal(place->comparison.counts[TD_CHANGE_SAME], 2); /* "same" and "empty" */
}

static void a_model_is_the_same_as_itself_and_as_its_copy(void **state)
{
    struct place *place = *state;
    assert_string_equal(differences(place, "a", "copy"), "");
    assert_int_equal(place->comparison.counts[TD_CHANGE_SAME], COUNT_OF(of_a));
    place->limits.read_bytes = 0;
    assert_string_equal(differences(place, "a", "a"), "");
}

/* a and copy have 72 bytes of tensors, of 8, 8, 8, 16, 16, 16 bytes; none of the empty one are read. */
static void reads_the_smallest_first_and_no_more_than_allowed(void **state)
{
    static const struct {
        uint64_t read_bytes;
        uint64_t unknown;
    } cases[] = {{0, 6}, {7, 6}, {8, 5}, {24, 3}, {39, 3}, {40, 2}, {71, 1}, {72, 0}};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        place->limits.read_bytes = cases[i].read_bytes;
        (void)differences(place, "a", "copy");
        CHECK(place->comparison.counts[TD_CHANGE_UNKNOWN] == cases[i].unknown, "%zu", i);
        CHECK(place->comparison.counts[TD_CHANGE_SAME] == COUNT_OF(of_a) - cases[i].unknown, "%zu", i);
    }
    place->limits.read_bytes = 16; /* of two with 8 bytes: the first by name */
    assert_string_equal(differences(place, "a", "copy"), "both unknown, content unknown, same unknown, shape unknown");
    place->limits = (struct td_comparison_limits){.read_bytes = UINT64_MAX, .read_ns = 0};
    (void)differences(place, "a", "copy");
    assert_int_equal(place->comparison.counts[TD_CHANGE_UNKNOWN], 6);
}

static struct td_file *file_of(struct place *place, const char *path)
{
    const struct td_entry *entry = td_snapshot_find_entry(place->snapshot, td_text_of(path));
    assert_non_null(entry);
    return entry->file;
}

static void equal_files_are_not_read(void **state)
{
    static const uint8_t one[TD_SHA256_BYTES] = {1};
    static const uint8_t two[TD_SHA256_BYTES] = {2};
    struct place *place = *state;
    place->limits.read_bytes = 0;
    assert_true(td_file_set_sha256(file_of(place, "a/model.safetensors"), one));
    (void)differences(place, "a", "copy");
    assert_int_equal(place->comparison.counts[TD_CHANGE_UNKNOWN], 6); /* the other file's is not known */
    assert_true(td_file_set_sha256(file_of(place, "copy/model.safetensors"), one));
    assert_string_equal(differences(place, "a", "copy"), "");
    assert_true(td_file_set_sha256(file_of(place, "b/model.safetensors"), two));
    assert_string_equal(differences(place, "b", "copy"), "added removed, both dtype, content unknown, dtype dtype, "
                                                         "removed added, same unknown, shape shape");
}

/* Records a digest of the model's tensor as ?digests=1 does. */
static void know_digest(struct place *place, const char *model, const char *tensor, uint8_t first)
{
    struct td_tensor_sums sums;
    struct td_tensor_sums_source source = source_of(place, model);
    struct td_virtual_digest digest = {.sum = {first}, .origin = {.kind = TD_REVISION_FILES}, .is_tensor = true};
    size_t number;
    td_tensor_sums_init(&sums, &source, NULL);
    assert_true(td_checkpoint_find_number(source.checkpoint, td_text_of(tensor), &number));
    assert_true(td_tensor_sums_add(&sums, number, NULL));
    td_virtual_digests_add(td_virtual_hasher_digests(place->loop.api.virtual_hasher), &sums.items[0].key, &digest);
    td_tensor_sums_fini(&sums);
}

static void tensors_with_known_digests_are_not_read(void **state)
{
    struct place *place = *state;
    place->limits.read_bytes = 0;
    know_digest(place, "a", "content", 1);
    know_digest(place, "a", "same", 1);
    know_digest(place, "b", "content", 2);
    assert_string_equal(differences(place, "a", "b"), "added added, both dtype, content content, dtype dtype, removed "
                                                      "removed, same unknown, shape shape");
    know_digest(place, "b", "same", 1);
    assert_string_equal(differences(place, "a", "b"),
                        "added added, both dtype, content content, dtype dtype, removed removed, shape shape");
}

static void a_file_that_has_changed_leaves_its_tensors_unknown(void **state)
{
    struct place *place = *state;
    tree_poke(&place->tree, "copy/model.safetensors", 0, "\0", 1);
    (void)differences(place, "a", "copy");
    assert_int_equal(place->comparison.counts[TD_CHANGE_UNKNOWN], 6);
}

static bool is_asked(void *context)
{
    int *looks = context;
    return --*looks < 0;
}

static void ends_when_it_is_asked_to(void **state)
{
    struct place *place = *state;
    for (int looks = 0; looks < 4; looks++) {
        int left = looks;
        struct td_error err = TD_ERROR_INIT;
        const struct td_cancel cancel = {.is_asked = is_asked, .context = &left};
        place->limits.cancel = &cancel;
        CHECK(!compare(place, "a", "copy", &err) && err.code == TD_UNAVAILABLE, "after %d looks: %s", looks,
              err.message);
    }
}

static void takes_no_more_than_its_budget(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    td_budget_init(&place->budget, 100000, "the comparisons of the test");
    assert_false(compare(place, "a", "copy", &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    td_comparison_fini(&place->comparison);
    assert_int_equal(td_budget_used(&place->budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, lists_every_kind_of_change_by_name),
        TEST_IN(place, a_model_is_the_same_as_itself_and_as_its_copy),
        TEST_IN(place, reads_the_smallest_first_and_no_more_than_allowed),
        TEST_IN(place, equal_files_are_not_read),
        TEST_IN(place, tensors_with_known_digests_are_not_read),
        TEST_IN(place, a_file_that_has_changed_leaves_its_tensors_unknown),
        TEST_IN(place, ends_when_it_is_asked_to),
        TEST_IN(place, takes_no_more_than_its_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
