/* The page of models: how much work a row makes. */
#include "core/log.h"
#include "rank/repo_about.h"
#include "tests/unit/api/served_place.h"

enum { MODELS = 5 };

static int sum_count;

size_t __real_td_checkpoint_sum_elements(const struct td_checkpoint *checkpoint,
                                         struct td_dtype_count counts[TD_SUM_DTYPES], uint64_t *total);
size_t __wrap_td_checkpoint_sum_elements(const struct td_checkpoint *checkpoint,
                                         struct td_dtype_count counts[TD_SUM_DTYPES], uint64_t *total);

size_t __wrap_td_checkpoint_sum_elements(const struct td_checkpoint *checkpoint,
                                         struct td_dtype_count counts[TD_SUM_DTYPES], uint64_t *total)
{
    sum_count++;
    return __real_td_checkpoint_sum_elements(checkpoint, counts, total);
}

static void open_place(struct place *place)
{
    static const char *const tensors[MODELS] = {"a b c", "a", "a b c d e", "a b", "a b c d"};
    tree_open(&place->tree);
    for (size_t i = 0; i < MODELS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "m%zu/model.safetensors", i);
        tree_simple(&place->tree, name, tensors[i]);
    }
    loopback_open(&place->loop, &place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

/* A page shows a model's parameters twice, and is rendered twice; it may be sorted by them. */
static void parameters_are_summed_once(void **state)
{
    static const struct {
        const char *target, *first, *parameters; /* the id of the first row, and its parameters: two in each tensor */
    } cases[] = {
        {"/", "m0", "6"},
        {"/?sort=-bytes", "m2", "10"},
        {"/?sort=parameters", "m1", "2"},
        {"/models/?sort=-parameters", "m2", "10"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct answer answer;
        char wanted[64];
        sum_count = 0;
        loopback_ask(&place->loop, "GET", cases[i].target, "Accept: text/html", &answer);
        CHECK(answer.response.status == 200, "%s: %s", cases[i].target, answer.body);
        const char *row = strstr(answer.body, "data-model=\"");
        assert_non_null(row);
        CHECK(strncmp(row + strlen("data-model=\""), cases[i].first, 2) == 0, "%s: %s", cases[i].target, answer.body);
        (void)snprintf(wanted, sizeof wanted, "data-value=\"%s\"", cases[i].parameters);
        CHECK(strstr(row, wanted) != NULL, "%s: %s", cases[i].target, row);
        CHECK(sum_count == MODELS, "%s: %d sums", cases[i].target, sum_count);
        answer_fini(&answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, parameters_are_summed_once),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
