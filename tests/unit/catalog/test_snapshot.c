#include "catalog/model/snapshot.h"

#include "tests/kit/scanner.h"
#include "tests/unit/tree_fixture.h"

struct place {
    struct tree tree;
    struct scanner scanner;
};

static void open_place(struct place *place)
{
    static const char *const models[] = {"a",        "a/b",        "a/b/c", "a/tensors/x", "ab", "b/c",
                                         "org/name", "org/name-2", "z"};
    char name[64];
    tree_open(&place->tree);
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        (void)snprintf(name, sizeof name, "%s/m.safetensors", models[i]);
        tree_simple(&place->tree, name, "t");
    }
    tree_text(&place->tree, "a/config.json", "{}");
    tree_text(&place->tree, "a/b.txt", "");
    tree_text(&place->tree, "org/readme", "");
    tree_simple(&place->tree, "root.safetensors", "t");
    scanner_open(&place->scanner, &place->tree);
    (void)scanner_scan(&place->scanner);
}

static void close_place(struct place *place)
{
    scanner_close(&place->scanner);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

static void models_are_found_by_id(void **state)
{
    struct place *place = *state;
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    assert_int_equal(snapshot->model_count, 10);
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const char *id = snapshot->models[i].id;
        assert_ptr_equal(td_snapshot_find_model(snapshot, td_text_of(id)), &snapshot->models[i]);
        assert_true(i == 0 || strcmp(snapshot->models[i - 1].id, id) < 0);
    }
    static const char *const absent[] = {"", "c", "a/", "/a", "A", "a/b/c/d", "org", "org/nam", "zz", "root", "~"};
    for (size_t i = 0; i < COUNT_OF(absent); i++)
        assert_null(td_snapshot_find_model(snapshot, td_text_of(absent[i])));
    assert_non_null(td_snapshot_find_model(snapshot, td_text_n("abc", 2))); /* the length decides, not the NUL */
}

static void entries_are_found_by_path(void **state)
{
    struct place *place = *state;
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    assert_int_equal(snapshot->entry_count, 13);
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const char *path = snapshot->entries[i].path;
        assert_ptr_equal(td_snapshot_find_entry(snapshot, td_text_of(path)), &snapshot->entries[i]);
        assert_true(i == 0 || strcmp(snapshot->entries[i - 1].path, path) < 0);
    }
    assert_null(td_snapshot_find_entry(snapshot, TD_TEXT("a")));
    assert_null(td_snapshot_find_entry(snapshot, TD_TEXT("")));
    assert_null(td_snapshot_find_entry(snapshot, TD_TEXT("zzz")));
}

/* /models/{id}/... goes to the longest known id. */
static void the_longest_id_is_routed_to(void **state)
{
    static const struct {
        const char *path, *id, *rest; /* id NULL: none */
    } cases[] = {
        {"a", "a", ""},
        {"a/", "a", ""},
        {"a/tensors", "a", "tensors"},
        {"a/tensors/t", "a", "tensors/t"},
        {"a/tensors/x", "a/tensors/x", ""},
        {"a/tensors/x/tensors", "a/tensors/x", "tensors"},
        {"a/tensors/xy", "a", "tensors/xy"},
        {"a/b", "a/b", ""},
        {"a/b/tensors/t", "a/b", "tensors/t"},
        {"a/b/c/files/x", "a/b/c", "files/x"},
        {"a/b/d", "a/b", "d"},
        {"ab/tensors", "ab", "tensors"},
        {"abc/tensors", NULL, NULL},
        {"b", NULL, NULL},
        {"b/tensors", NULL, NULL},
        {"b/c//tensors", "b/c", "/tensors"},
        {"org/name-2/tensors", "org/name-2", "tensors"},
        {"org/name", "org/name", ""},
        {"org", NULL, NULL},
        {"", NULL, NULL},
        {"/", NULL, NULL},
        {"/a", NULL, NULL},
        {"root.safetensors/files/root.safetensors", "root.safetensors", "files/root.safetensors"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *path = cases[i].path;
        size_t rest = 0;
        const struct td_model *model = td_snapshot_route(place->scanner.snapshot, td_text_of(path), &rest);
        CHECK((model != NULL) == (cases[i].id != NULL), "\"%s\"", path);
        if (model == NULL)
            continue;
        CHECK(strcmp(model->id, cases[i].id) == 0, "\"%s\": %s", path, model->id);
        CHECK(rest <= strlen(path) && strcmp(path + rest, cases[i].rest) == 0, "\"%s\": %zu", path, rest);
    }
}

static void models_own_what_lies_below(void **state)
{
    static const struct {
        const char *id, *files;
    } cases[] = {
        {"a", "b.txt b/c/m.safetensors b/m.safetensors config.json m.safetensors tensors/x/m.safetensors"},
        {"a/b", "c/m.safetensors m.safetensors"},
        {"a/b/c", "m.safetensors"},
        {"ab", "m.safetensors"},
        {"org/name", "m.safetensors"},
        {"root.safetensors", "root.safetensors"},
    };
    struct place *place = *state;
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct td_model *model = scanner_model(&place->scanner, cases[i].id);
        char got[512] = "";
        size_t used = 0;
        uint64_t bytes = 0;
        for (size_t k = 0; k < model->entry_count; k++) {
            const struct td_entry *entry = &snapshot->entries[model->first_entry + k];
            const char *path = td_model_relative(model, entry);
            used += (size_t)snprintf(got + used, sizeof got - used, "%s%s", k > 0 ? " " : "", path);
            CHECK(td_model_find_file(snapshot, model, td_text_of(path)) == entry, "%s: %s", cases[i].id, path);
            bytes += entry->file->source.id.size_bytes;
        }
        CHECK(strcmp(got, cases[i].files) == 0, "%s: %s", cases[i].id, got);
        CHECK(model->file_bytes == bytes, "%s", cases[i].id);
        CHECK(td_model_find_file(snapshot, model, TD_TEXT("nothing")) == NULL, "%s", cases[i].id);
        CHECK(td_model_find_file(snapshot, model, TD_TEXT("")) == NULL, "%s", cases[i].id);
        CHECK(td_model_find_file(snapshot, model, TD_TEXT("../z/m.safetensors")) == NULL, "%s", cases[i].id);
    }
    assert_string_equal(scanner_model(&place->scanner, "a")->config->path, "a/config.json");
    assert_null(scanner_model(&place->scanner, "a/b")->config);
}

static void checkpoints_are_found_by_id(void **state)
{
    struct tree *tree = *state;
    struct scanner scanner;
    tree_simple(tree, "m/model.safetensors", "t");
    tree_simple(tree, "m/x.safetensors", "t");
    tree_text(tree, "broken/x.safetensors", "");
    scanner_open(&scanner, tree);
    (void)scanner_scan(&scanner);
    const struct td_model *model = scanner_model(&scanner, "m");
    assert_ptr_equal(td_model_find_checkpoint(model, td_text_n(NULL, 0)), &model->checkpoints[0]);
    assert_ptr_equal(td_model_find_checkpoint(model, TD_TEXT("")), &model->checkpoints[0]);
    assert_ptr_equal(td_model_find_checkpoint(model, TD_TEXT("safetensors")), &model->checkpoints[0]);
    assert_ptr_equal(td_model_find_checkpoint(model, TD_TEXT("x.safetensors")), &model->checkpoints[1]);
    assert_null(td_model_find_checkpoint(model, TD_TEXT("x.safetensor")));
    assert_null(td_model_find_checkpoint(model, TD_TEXT("pytorch")));
    assert_null(td_model_find_checkpoint(scanner_model(&scanner, "broken"), td_text_n(NULL, 0)));
    scanner_close(&scanner);
}

/* Tests names at the borders of a list, in a checkpoint of one file and in one of two. */
static void pages_continue_after_a_name(void **state)
{
    struct tree *tree = *state;
    struct scanner scanner;
    tree_simple(tree, "one/x.safetensors", "b d d.1 f");
    tree_simple(tree, "two/x-00001-of-00002.safetensors", "f b");
    tree_simple(tree, "two/x-00002-of-00002.safetensors", "d.1 d");
    tree_simple(tree, "none/x.safetensors", "");
    scanner_open(&scanner, tree);
    (void)scanner_scan(&scanner);
    static const struct {
        const char *name;
        size_t after;
    } cases[] = {{"", 0},   {"a", 0},   {"b", 1},    {"b.0", 1}, {"c", 1}, {"d", 2},
                 {"d.", 2}, {"d.1", 3}, {"d.10", 3}, {"e", 3},   {"f", 4}, {"g", 4}};
    static const char *const ids[] = {"one", "two"};
    for (size_t m = 0; m < COUNT_OF(ids); m++) {
        const struct td_checkpoint *c = &scanner_model(&scanner, ids[m])->checkpoints[0];
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            const char *name = cases[i].name;
            struct td_tensor_ref ref;
            size_t after = td_checkpoint_after(c, td_text_of(name));
            CHECK(after == cases[i].after, "%s, \"%s\": %zu", ids[m], name, after);
            bool there = after > 0 && strcmp(td_checkpoint_tensor(c, after - 1).tensor->name, name) == 0;
            size_t number;
            CHECK(td_checkpoint_find(c, td_text_of(name), &ref) == there, "%s, \"%s\"", ids[m], name);
            CHECK(td_checkpoint_find_number(c, td_text_of(name), &number) == there, "\"%s\"", name);
            CHECK(!there || number == after - 1, "%s, \"%s\": %zu", ids[m], name, number);
        }
    }
    const struct td_checkpoint *none = &scanner_model(&scanner, "none")->checkpoints[0];
    struct td_tensor_ref ref;
    assert_int_equal(td_checkpoint_after(none, TD_TEXT("x")), 0);
    assert_false(td_checkpoint_find(none, TD_TEXT(""), &ref));
    scanner_close(&scanner);
}

static int retired;

static void count_retire(void *context, struct td_snapshot *snapshot)
{
    assert_ptr_equal(context, &retired);
    retired++;
    td_snapshot_free(snapshot);
}

static void last_reference_retires(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = place->scanner.snapshot;
    snapshot->retirement = (struct td_retirement){.retire = count_retire, .context = &retired};
    struct td_file *file = td_file_ref(snapshot->entries[0].file);
    assert_ptr_equal(td_snapshot_ref(snapshot), snapshot);
    td_snapshot_unref(snapshot);
    assert_int_equal(retired, 0);
    td_snapshot_unref(snapshot);
    assert_int_equal(retired, 1);
    place->scanner.snapshot = NULL;
    assert_string_equal(file->source.path, "a/b.txt"); /* a file outlives its snapshots */
    td_file_unref(file);
    td_file_unref(NULL);
    td_snapshot_unref(NULL);
    td_snapshot_free(NULL);
}

static void problems_are_copied_and_limited(void **state)
{
    (void)state;
    struct td_problems problems = {0};
    struct td_arena arena;
    char path[32];
    td_arena_init(&arena, 0);
    for (int i = 0; i < 1100; i++) {
        (void)snprintf(path, sizeof path, "path %d", i);
        td_problems_add(&problems, &arena, path, "message");
    }
    memset(path, '?', sizeof path - 1);
    assert_int_equal(problems.count, 1000);
    for (size_t i = 0; i < problems.count; i++) {
        (void)snprintf(path, sizeof path, "path %zu", i);
        assert_string_equal(problems.items[i].path, path);
        assert_string_equal(problems.items[i].message, "message");
    }
    free(problems.items);
    td_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, models_are_found_by_id),      TEST_IN(place, entries_are_found_by_path),
        TEST_IN(place, the_longest_id_is_routed_to), TEST_IN(place, models_own_what_lies_below),
        TEST_IN(tree, checkpoints_are_found_by_id),  TEST_IN(tree, pages_continue_after_a_name),
        TEST_IN(place, last_reference_retires),      cmocka_unit_test(problems_are_copied_and_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
