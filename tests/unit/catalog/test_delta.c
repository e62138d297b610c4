/* The base of a delta: the version beside it that has the number of base_version, else that text. */
#include "catalog/names/delta.h"

#include "tests/unit/catalog/scan_place.h"

static void make_delta(const struct tree *tree, const char *folder, const char *base)
{
    char path[300];
    char text[512];
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    (void)snprintf(text, sizeof text, "{\"metadata\":{\"delta_encoding\":\"xor\"%s%s%s},\"weight_map\":{}}",
                   base == NULL ? "" : ",\"base_version\":\"", base == NULL ? "" : base, base == NULL ? "" : "\"");
    tree_text(tree, path, text);
}

static void make_full(const struct tree *tree, const char *folder)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    tree_simple(tree, path, "a");
}

static void check_base(struct place *place, const char *id, const char *base)
{
    const struct td_model *model = scanner_model(&place->scanner, id);
    CHECK(model != NULL && model->is_delta, "%s", id);
    CHECK(model->checkpoint_count == 0 && model->partial_count == 0 && model->total_bytes == 0, "%s", id);
    CHECK(base == NULL || model->base == NULL ? base == model->base : strcmp(base, model->base) == 0, "%s: %s", id,
          model->base == NULL ? "none" : model->base);
}

static void a_base_is_a_version_beside_the_delta(void **state)
{
    struct place *place = *state;
    static const char *const fulls[] = {"run/weight_v000001", "run/step-1", "run/other", "v1",       "deep/er/step_10",
                                        "deep/er/010",        "deep/5",     "two/v1",    "two/v001", "two/a/v2"};
    static const struct {
        const char *id, *base_version, *base;
    } deltas[] = {
        {"run/weight_v000002", "000001", "weight_v000001"}, /* not step-1 */
        {"run/step-2", "1", "step-1"},
        {"run/iter_2", "01", "step-1"},                     /* the first by name */
        {"run/weight_v000003", "000002", "weight_v000002"}, /* a delta */
        {"run/weight_v000004", "000099", "000099"},
        {"run/weight_v000005", NULL, NULL},
        {"run/weight_v000006", "other", "other"},
        {"run/weight_v000007", "weight_v000001", "weight_v000001"},
        {"run/weight_v000008", "000008", "000008"},                           /* itself */
        {"run/weight_v000009", "1000000000000000000", "1000000000000000000"}, /* more than 18 digits */
        {"run/named", "000001", "000001"},                                    /* beside versions, but none itself */
        {"v2", "1", "1"},                                                     /* the served directory is no family */
        {"deep/er/step_11", "10", "step_10"},
        {"deep/er/12", "10", "010"},
        {"deep/er/6", "5", "5"}, /* deep/5 is not beside it */
        {"two/v3", "1", "v001"}, /* two of its own form: the first by name */
        {"two/v4", "2", "2"},
    };
    for (size_t i = 0; i < COUNT_OF(fulls); i++)
        make_full(&place->tree, fulls[i]);
    for (size_t i = 0; i < COUNT_OF(deltas); i++)
        make_delta(&place->tree, deltas[i].id, deltas[i].base_version);
    (void)scanner_scan(&place->scanner);
    for (size_t i = 0; i < COUNT_OF(deltas); i++)
        check_base(place, deltas[i].id, deltas[i].base);
}

/* Versions of a Hugging Face cache are its snapshots, by the names of their refs. */
static void a_base_is_a_ref_of_a_cache(void **state)
{
    struct place *place = *state;
    make_full(&place->tree, "models--run--m/snapshots/aaa");
    make_delta(&place->tree, "models--run--m/snapshots/bbb", "000001");
    tree_text(&place->tree, "models--run--m/refs/weight_v000001", "aaa");
    tree_text(&place->tree, "models--run--m/refs/weight_v000002", "bbb");
    tree_text(&place->tree, "models--run--m/refs/main", "bbb");
    (void)scanner_scan(&place->scanner);
    check_base(place, "run/m", "weight_v000001");
}

static void a_base_comes_and_goes(void **state)
{
    struct place *place = *state;
    make_delta(&place->tree, "run/v2", "1");
    (void)scanner_scan(&place->scanner);
    check_base(place, "run/v2", "1");
    make_full(&place->tree, "run/v1");
    (void)scanner_scan(&place->scanner);
    check_base(place, "run/v2", "v1");
    tree_remove(&place->tree, "run/v1/model.safetensors");
    (void)scanner_scan(&place->scanner);
    check_base(place, "run/v2", "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, a_base_is_a_version_beside_the_delta),
        TEST_IN(revisions, a_base_is_a_ref_of_a_cache),
        TEST_IN(place, a_base_comes_and_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
