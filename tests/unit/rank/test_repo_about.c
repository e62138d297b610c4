/* The facts that are derived from a repository, as the Hub derives them: card before configuration, libraries by their
 * files (huggingface.js, packages/tasks/src/model-libraries.ts), tasks by architectures, formats as tags. */
#include "rank/repo_about.h"

#include "tests/kit/loopback.h"
#include "tests/unit/tree_fixture.h"

#include <inttypes.h>

struct place {
    struct tree tree;
    struct loopback loop;
    struct td_snapshot *snapshot;
    struct td_repo_view view; /* of the last description */
};

static void open_place(struct place *place)
{
    const struct tree *tree = &place->tree;
    tree_open(&place->tree);
    copy_pickle(tree, "ns/torch/pytorch_model.bin");
    tree_text(tree, "ns/torch/config.json", "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"}");
    tree_simple(tree, "ns/card/model.safetensors", "a");
    tree_text(tree, "ns/card/README.md", "---\npipeline_tag: summarization\nlibrary_name: setfit\n---\n");
    tree_text(tree, "ns/card/config.json", "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"}");
    tree_simple(tree, "ns/sentences/model.safetensors", "a");
    tree_text(tree, "ns/sentences/modules.json", "[]");
    tree_simple(tree, "ns/lora/adapter_model.safetensors", "a");
    tree_text(tree, "ns/lora/adapter_config.json", "{\"base_model_name_or_path\":\"org/base\",\"r\":8}");
    tree_simple(tree, "ns/bare/model.safetensors", "a");
    loopback_open(&place->loop, &place->tree);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
}

static void close_place(struct place *place)
{
    td_snapshot_unref(place->snapshot);
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

static struct td_repo_about about_of(struct place *place, const char *id, const char *revision, size_t error_count)
{
    struct td_repo_about about;
    struct td_error err = TD_ERROR_INIT;
    const struct td_repo *repo = td_repo_find(place->snapshot, false, td_text_of(id));
    assert_non_null(repo);
    CHECK(td_repo_view_open(place->snapshot, repo, td_text_of(revision), &place->view, &err), "%s", err.message);
    td_repo_about_init(&about, &place->view, false, error_count);
    return about;
}

static void check(const char *got, const char *wanted, const char *what)
{
    CHECK(wanted == NULL ? got == NULL : (got != NULL && strcmp(got, wanted) == 0), "%s: %s, wanted %s", what,
          got == NULL ? "nothing" : got, wanted == NULL ? "nothing" : wanted);
}

static void check_tags(const struct td_repo_about *about, const char *wanted, const char *what)
{
    char got[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < about->derived_count; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s", i > 0 ? " " : "", about->derived[i]);
    check(got, wanted, what);
}

static void what_is_derived_of_files(void **state)
{
    static const struct {
        const char *id, *library, *task, *tags;
    } cases[] = {
        {"ns/torch", "transformers", "text-generation", "transformers pytorch llama text-generation"},
        {"ns/card", "setfit", "summarization", "setfit safetensors llama summarization"},
        {"ns/sentences", "sentence-transformers", "sentence-similarity",
         "sentence-transformers safetensors sentence-similarity"},
        {"ns/lora", "peft", NULL, "peft safetensors"},
        {"ns/bare", NULL, NULL, "safetensors"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_repo_about about = about_of(place, cases[i].id, "main", 0);
        check(about.library, cases[i].library, cases[i].id);
        check(about.pipeline_tag, cases[i].task, cases[i].id);
        check_tags(&about, cases[i].tags, cases[i].id);
    }
    struct td_repo_about about = about_of(place, "ns/bare", "main", 2);
    check_tags(&about, TD_UNREADABLE_TAG " safetensors", "errors");
}

/* The files of a virtual revision are in safetensors, whatever the files on disk are. */
static void formats_are_those_that_are_served(void **state)
{
    static const char *const revisions[] = {"safetensors", "tp2-rank1-fsdp"};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(revisions); i++) {
        struct td_repo_about about = about_of(place, "ns/torch", revisions[i], 0);
        check_tags(&about, "transformers safetensors llama text-generation", revisions[i]);
        assert_null(td_repo_about_checkpoint(&about, "pytorch"));
        assert_null(td_repo_about_checkpoint(&about, "safetensors")); /* not as it is on disk */
    }
    struct td_repo_about about = about_of(place, "ns/torch", "main", 0);
    assert_non_null(td_repo_about_checkpoint(&about, "pytorch"));
    assert_null(td_repo_about_checkpoint(&about, "safetensors"));
}

/* Sums of a checkpoint in two files, by type in the order of the first file that has one. */
static void elements_are_summed_by_type(void **state)
{
    (void)state;
    const struct td_dtype f16 = {.name = "F16"};
    const struct td_dtype f32 = {.name = "F32"};
    struct td_dtype_count first[] = {{&f32, 7}};
    struct td_dtype_count second[] = {{&f16, UINT64_MAX - 2}, {&f32, 5}, {&f16, 1}};
    struct td_file files[] = {{.counts = first, .count_count = 1}, {.counts = second, .count_count = 3}};
    struct td_entry entries[] = {{.file = &files[0]}, {.file = &files[1]}};
    const struct td_entry *parts[] = {&entries[0], &entries[1]};
    const struct td_checkpoint checkpoint = {.parts = parts, .part_count = 2};
    struct td_dtype_count counts[TD_SUM_DTYPES];
    uint64_t total;
    assert_int_equal(td_checkpoint_sum_elements(&checkpoint, counts, &total), 2);
    assert_true(counts[0].dtype == &f32 && counts[0].elems == 12);
    assert_true(counts[1].dtype == &f16 && counts[1].elems == UINT64_MAX - 1);
    CHECK(total == UINT64_MAX, "%" PRIu64, total); /* it stops there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, what_is_derived_of_files),
        TEST_IN(place, formats_are_those_that_are_served),
        cmocka_unit_test(elements_are_summed_by_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
