/* Results of a scan: models and their files, problems, and what is kept from the scan before. */
#include "catalog/scan/scan.h"

#include "tests/unit/catalog/scan_place.h"

#include <sys/stat.h>

/* Checks all model ids, separated by blanks. */
static void expect_models(const struct place *place, const char *wanted)
{
    char got[1024] = "";
    size_t used = 0;
    for (size_t i = 0; i < place->scanner.snapshot->model_count; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s", i > 0 ? " " : "",
                                 place->scanner.snapshot->models[i].id);
    assert_string_equal(got, wanted);
}

static void empty_root_is_an_empty_snapshot(void **state)
{
    struct place *place = *state;
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->entry_count == 0 && snapshot->model_count == 0 && snapshot->problems.count == 0);
    assert_true(snapshot->generation == 1 && strlen(snapshot->tag) == TD_TAG_BYTES - 1);
}

static void directories_and_root_files_are_models(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "qwen3/model.safetensors", "a b");
    tree_simple(&place->tree, "Qwen/Qwen3-0.6B/model.safetensors", "a");
    tree_simple(&place->tree, "sdxl/unet/x.safetensors", "a");
    tree_simple(&place->tree, "bert.safetensors", "a");
    tree_text(&place->tree, "broken.safetensors", "x");
    tree_text(&place->tree, "notes/readme.md", "no checkpoint here");
    tree_text(&place->tree, "all-broken/x.safetensors", "x");
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    expect_models(place, "Qwen/Qwen3-0.6B all-broken bert.safetensors broken.safetensors qwen3 sdxl/unet");
    const struct td_model *model = scanner_model(&place->scanner, "bert.safetensors");
    assert_true(model->entry_count == 1 && model->checkpoint_count == 1 && model->directory_len == 0);
    assert_null(model->config);
    model = scanner_model(&place->scanner, "broken.safetensors");
    assert_true(model->checkpoint_count == 0 && model->problems.count == 1);
    model = scanner_model(&place->scanner, "all-broken");
    assert_true(model->checkpoint_count == 0 && model->problems.count == 1);
    assert_int_equal(snapshot->problems.count, 0);
}

/* Opens a place whose served directory has this name. */
static void open_named_place(struct place *place, const char *name)
{
    struct tree served;
    td_error_init(&place->err);
    tree_open(&place->tree);
    tree_directory(&place->tree, name);
    (void)snprintf(served.path, sizeof served.path, "%.200s/%.50s", place->tree.path, name);
    scanner_open(&place->scanner, &served);
}

/* docs/models.md, "Models": an index directly in the served directory makes its files one model. */
static void a_root_with_an_index_is_a_model(void **state)
{
    (void)state;
    struct place place;
    open_named_place(&place, "llama");
    tree_simple(&place.tree, "llama/model-00001-of-00002.safetensors", "a");
    tree_simple(&place.tree, "llama/model-00002-of-00002.safetensors", "b");
    tree_index(&place.tree, "llama/model.safetensors.index.json",
               "a model-00001-of-00002.safetensors b model-00002-of-00002.safetensors");
    tree_simple(&place.tree, "llama/model-0.safetensors", "z"); /* sorts differently by name and by stem */
    tree_text(&place.tree, "llama/config.json", "{}");
    tree_simple(&place.tree, "llama/original/x.safetensors", "a");
    tree_simple(&place.tree, "llama/models--a--b/snapshots/c1/x.safetensors", "t");
    const struct td_snapshot *snapshot = scanner_scan(&place.scanner);
    expect_models(&place, "a/b llama original");
    const struct td_model *model = scanner_model(&place.scanner, "llama");
    assert_true(snapshot->problems.count == 0 && model->problems.count == 0);
    assert_int_equal(model->checkpoint_count, 2);
    assert_string_equal(model->checkpoints[0].id, "safetensors");
    assert_true(model->checkpoints[0].part_count == 2 && model->checkpoints[0].tensor_count == 2);
    assert_string_equal(model->config->path, "config.json");
    assert_null(model->revision); /* its first file by name is a/b/x.safetensors, which has one */
    assert_string_equal(scanner_model(&place.scanner, "a/b")->revision, "c1");
    assert_true(model->entry_count == snapshot->entry_count); /* all files below it, as for every directory */
    tree_remove(&place.tree, "llama/model-00002-of-00002.safetensors");
    (void)scanner_scan(&place.scanner);
    model = scanner_model(&place.scanner, "llama");
    assert_non_null(strstr(scanner_problem(&place.scanner, model, "model.safetensors.index.json"),
                           "\"model-00002-of-00002.safetensors\" is not there"));
    tree_text(&place.tree, "llama/model.safetensors.index.json", "{");
    (void)scanner_scan(&place.scanner);
    model = scanner_model(&place.scanner, "llama");
    assert_non_null(scanner_problem(&place.scanner, model, "model.safetensors.index.json"));
    assert_int_equal(model->checkpoint_count, 0);
    tree_remove(&place.tree, "llama/model.safetensors.index.json"); /* now each file is a model again */
    tree_remove(&place.tree, "llama/config.json");
    (void)scanner_scan(&place.scanner);
    expect_models(&place, "a/b model model-0.safetensors original");
    close_place(&place);
}

/* The layout that save_pretrained writes. */
static void a_root_with_a_config_is_a_model(void **state)
{
    (void)state;
    struct place place;
    open_named_place(&place, "llama");
    tree_simple(&place.tree, "llama/model.safetensors", "a b");
    tree_text(&place.tree, "llama/config.json", "{}");
    tree_text(&place.tree, "llama/tokenizer.json", "{}");
    (void)scanner_scan(&place.scanner);
    expect_models(&place, "llama");
    const struct td_model *model = scanner_model(&place.scanner, "llama");
    assert_true(model->entry_count == 3 && model->checkpoint_count == 1);
    assert_string_equal(model->config->path, "config.json");
    tree_simple(&place.tree, "llama/sub/x.safetensors", "a");
    tree_remove(&place.tree, "llama/model.safetensors"); /* now config.json describes no file beside it */
    (void)scanner_scan(&place.scanner);
    expect_models(&place, "sub");
    tree_remove(&place.tree, "llama/config.json");
    tree_simple(&place.tree, "llama/model.safetensors", "a b");
    (void)scanner_scan(&place.scanner);
    expect_models(&place, "model.safetensors sub");
    close_place(&place);
}

static void a_root_of_a_distributed_checkpoint_is_a_model(void **state)
{
    (void)state;
    struct place place;
    open_named_place(&place, "dcp");
    tree_text(&place.tree, "dcp/__0_0.distcp", "");
    tree_text(&place.tree, "dcp/__1_0.distcp", "");
    (void)scanner_scan(&place.scanner);
    expect_models(&place, "dcp");
    const struct td_model *model = scanner_model(&place.scanner, "dcp");
    assert_non_null(strstr(scanner_problem(&place.scanner, model, "__0_0.distcp"), "no .metadata beside it"));
    tree_text(&place.tree, "dcp/.metadata", "rubbish");
    (void)scanner_scan(&place.scanner);
    expect_models(&place, "dcp");
    model = scanner_model(&place.scanner, "dcp");
    assert_non_null(scanner_problem(&place.scanner, model, ".metadata"));
    close_place(&place);
}

/* The root's own model has the directory's name, if that is a valid id and no other model's. */
static void names_of_the_root(void **state)
{
    (void)state;
    static const struct {
        const char *directory, *wanted;
    } cases[] = {{"plain", "plain"}, {"shards", "root"}, {"\xff\xfe", "root"}};
    struct place place;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char path[64];
        open_named_place(&place, cases[i].directory);
        (void)snprintf(path, sizeof path, "%s/x.safetensors.index.json", cases[i].directory);
        tree_index(&place.tree, path, "");
        (void)scanner_scan(&place.scanner);
        expect_models(&place, cases[i].wanted);
        close_place(&place);
    }
    open_named_place(&place, "twice");
    tree_index(&place.tree, "twice/x.safetensors.index.json", "");
    tree_simple(&place.tree, "twice/twice/x.safetensors", "inner");
    (void)scanner_scan(&place.scanner);
    expect_models(&place, "twice");
    assert_int_equal(scanner_model(&place.scanner, "twice")->directory_len, strlen("twice"));
    assert_non_null(strstr(scanner_problem(&place.scanner, NULL, "twice"), "rename one"));
    close_place(&place);
}

/* A group of shards directly in the root is a model named by its stem; other files in the root are models of their
 * own. */
static void groups_in_the_root_are_models(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "q-00001-of-00002.safetensors", "a");
    tree_simple(&place->tree, "q-00002-of-00002.safetensors", "b");
    tree_simple(&place->tree, "q-00002-of-00002-old.safetensors", "a"); /* sorts between the two */
    tree_simple(&place->tree, "one.safetensors", "a");
    tree_text(&place->tree, "generation_config.json", "{}");
    tree_simple(&place->tree, "half-00001-of-00002.safetensors", "a");
    tree_simple(&place->tree, "taken-00001-of-00001.safetensors", "a");
    tree_simple(&place->tree, "taken/x.safetensors", "b");
    tree_simple(&place->tree, "files-00001-of-00001.safetensors", "a");
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    expect_models(place, "files-00001-of-00001.safetensors half one.safetensors q q-00002-of-00002-old.safetensors "
                         "taken taken-00001-of-00001.safetensors");
    assert_int_equal(snapshot->problems.count, 0);
    const struct td_model *model = scanner_model(&place->scanner, "q");
    assert_true(model->checkpoint_count == 1 && model->directory_len == 0 && model->config == NULL);
    assert_true(model->checkpoints[0].part_count == 2 && model->checkpoints[0].tensor_count == 2);
    assert_non_null(td_model_find_file(snapshot, model, TD_TEXT("q-00002-of-00002.safetensors")));
    assert_null(td_model_find_file(snapshot, model, TD_TEXT("one.safetensors")));
    model = scanner_model(&place->scanner, "half");
    assert_int_equal(model->checkpoint_count, 0);
    assert_non_null(strstr(scanner_problem(&place->scanner, model, "half-00001-of-00002.safetensors"), "shard 2 of 2"));
    assert_string_equal(td_checkpoint_tensor(&scanner_model(&place->scanner, "taken")->checkpoints[0], 0).tensor->name,
                        "b");
}

static void numbers_of_a_model(void **state)
{
    struct place *place = *state;
    struct stat st;
    char path[TREE_PATH_BYTES];
    tree_simple(&place->tree, "m/model.safetensors", "a b c");
    tree_simple(&place->tree, "m/variant.safetensors", "a");
    tree_text(&place->tree, "m/config.json", "{}");
    tree_text(&place->tree, "m/sub/tokenizer.json", "12345");
    tree_set_age(&place->tree, "m/sub/tokenizer.json", INT64_C(30) * SECOND); /* the newest */
    (void)scanner_scan(&place->scanner);
    const struct td_model *model = scanner_model(&place->scanner, "m");
    assert_true(model->total_bytes == 32 && model->entry_count == 4);
    uint64_t sizes = file_at(place, "m/model.safetensors")->source.id.size_bytes +
                     file_at(place, "m/variant.safetensors")->source.id.size_bytes + 2 + 5;
    assert_true(model->file_bytes == sizes);
    tree_at(&place->tree, "m/sub/tokenizer.json", path);
    assert_int_equal(stat(path, &st), 0);
    assert_true(model->updated_ns == td_file_id_of(&st).mtime_ns);
    assert_string_equal(model->config->path, "m/config.json");
}

static void method_names_end_no_id(void **state)
{
    static const char *const names[] = {"tensors", "files", "plans", "shards", "model.safetensors"};
    struct place *place = *state;
    char path[64];
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        (void)snprintf(path, sizeof path, "m/%s/x.safetensors", names[i]);
        tree_simple(&place->tree, path, "a");
        (void)snprintf(path, sizeof path, "m/%s/inner/x.safetensors", names[i]);
        tree_simple(&place->tree, path, "a");
    }
    tree_simple(&place->tree, "tensors/x.safetensors", "a");
    tree_simple(&place->tree, "m/tensorsx/x.safetensors", "a");
    (void)scanner_scan(&place->scanner);
    expect_models(place,
                  "m/files/inner m/model.safetensors/inner m/plans/inner m/shards/inner m/tensors/inner m/tensorsx");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        (void)snprintf(path, sizeof path, "m/%s", names[i]);
        const char *message = scanner_problem(&place->scanner, NULL, path);
        CHECK(message != NULL && strstr(message, names[i]) != NULL, "%s", path);
        CHECK(strstr(message, "kept for the HTTP interface; rename") != NULL, "%s: %s", path, message);
    }
    assert_non_null(scanner_problem(&place->scanner, NULL, "tensors"));
}

static void cache_folders_are_models(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "models--org--name/blobs/aaa", "t");
    tree_symlink(&place->tree, "models--org--name/snapshots/c1/model.safetensors", "../../blobs/aaa");
    tree_text(&place->tree, "models--org--name/snapshots/c1/config.json", "{\"a\":1}");
    tree_simple(&place->tree, "models--org--name/snapshots/c0/model.safetensors", "old");
    tree_text(&place->tree, "models--org--name/refs/main", "c1");
    tree_simple(&place->tree, "models--org--tensors/snapshots/c2/model.safetensors", "t");
    tree_simple(&place->tree, "plain/model.safetensors", "t");
    tree_text(&place->tree, "CACHEDIR.TAG", "");
    (void)scanner_scan(&place->scanner);
    expect_models(place, "org/name plain");
    const struct td_model *model = scanner_model(&place->scanner, "org/name");
    assert_string_equal(model->revision, "c1");
    assert_true(model->checkpoint_count == 1 && model->entry_count == 2);
    assert_string_equal(td_checkpoint_tensor(&model->checkpoints[0], 0).tensor->name, "t");
    assert_string_equal(model->config->path, "org/name/config.json");
    assert_null(scanner_model(&place->scanner, "plain")->revision);
    assert_non_null(scanner_problem(&place->scanner, NULL, "org/tensors"));
    /* another commit becomes main: other files under the same names */
    tree_text(&place->tree, "models--org--name/refs/main", "c0");
    (void)scanner_scan(&place->scanner);
    model = scanner_model(&place->scanner, "org/name");
    assert_string_equal(model->revision, "c0");
    assert_string_equal(td_checkpoint_tensor(&model->checkpoints[0], 0).tensor->name, "old");
}

/* td_hub_place finds the id and revision of a served snapshot directory, as a server on the whole cache would show
 * them. */
static void a_place_in_a_snapshot(void **state)
{
    (void)state;
    struct place place;
    struct td_hub_place hub;
    char path[TREE_PATH_BYTES];
    open_named_place(&place, "models--org--name");
    tree_simple(&place.tree, "models--org--name/blobs/aaa", "t");
    tree_simple(&place.tree, "models--org--name/blobs/bbb.safetensors", "t");
    tree_symlink(&place.tree, "models--org--name/snapshots/c1/model.safetensors", "../../blobs/aaa");
    tree_symlink(&place.tree, "models--org--name/snapshots/c1/unet/x.safetensors", "../../../blobs/aaa");
    tree_simple(&place.tree, "models--org--name/snapshots/c0/model.safetensors", "old");
    tree_at(&place.tree, "models--org--name/snapshots/c1", path);
    assert_true(td_hub_cache_place(path, &hub));
    place.scanner.config.place = &hub;
    const struct td_snapshot *snapshot = scanner_scan(&place.scanner);
    expect_models(&place, "org/name org/name/unet");
    assert_true(snapshot->problems.count == 0 && snapshot->entry_count == 2);
    const struct td_model *model = scanner_model(&place.scanner, "org/name");
    assert_true(model->checkpoint_count == 1 && model->problems.count == 0);
    assert_string_equal(model->revision, "c1");
    tree_at(&place.tree, "models--org--name/snapshots/c1/unet", path);
    assert_true(td_hub_cache_place(path, &hub));
    (void)scanner_scan(&place.scanner);
    expect_models(&place, "org/name/unet");
    close_place(&place);
}

static void problems_stand_where_they_belong(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "m/bad.safetensors", "not one");
    tree_simple(&place->tree, "m/good.safetensors", "a");
    tree_fifo(&place->tree, "m/pipe.safetensors");
    tree_symlink(&place->tree, "m/out.safetensors", "/etc/passwd");
    tree_symlink(&place->tree, "m/out.txt", "/etc/passwd");
    tree_text(&place->tree, "m/\xff.safetensors", "");
    (void)scanner_scan(&place->scanner);
    const struct td_model *model = scanner_model(&place->scanner, "m");
    assert_int_equal(model->problems.count, 3);
    assert_non_null(scanner_problem(&place->scanner, model, "bad.safetensors"));
    assert_non_null(strstr(scanner_problem(&place->scanner, model, "pipe.safetensors"), "regular"));
    assert_non_null(strstr(scanner_problem(&place->scanner, model, "out.safetensors"), "outside DIR"));
    assert_non_null(strstr(scanner_problem(&place->scanner, model, "out.safetensors"), "models--org--name"));
    assert_non_null(scanner_problem(&place->scanner, NULL, "m/out.txt"));
    assert_int_equal(place->scanner.snapshot->problems.count, 2);
    assert_true(model->entry_count == 2); /* a refused file is still an entry */
}

/* An unchanged file is the same object in the next snapshot, parsed once. */
/* shows: security.md content-many-groups */
static void unchanged_files_are_shared(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "m/a.safetensors", "a");
    tree_simple(&place->tree, "m/b.safetensors", "b");
    tree_text(&place->tree, "m/config.json", "{}");
    tree_text(&place->tree, "bad/x.safetensors", "x");
    struct td_snapshot *first = td_snapshot_ref((struct td_snapshot *)(uintptr_t)scanner_scan(&place->scanner));
    assert_true(place->scanner.progress.files_found == 4 && place->scanner.progress.files_to_read == 3);
    struct td_file *a = file_at(place, "m/a.safetensors");
    struct td_file *config = file_at(place, "m/config.json");
    struct td_file *bad = file_at(place, "bad/x.safetensors");
    (void)scanner_scan(&place->scanner);
    assert_ptr_equal(file_at(place, "m/a.safetensors"), a);
    assert_ptr_equal(file_at(place, "m/config.json"), config);
    assert_ptr_equal(file_at(place, "bad/x.safetensors"), bad); /* refused for its contents, so not read again */
    assert_true(place->scanner.progress.files_to_read == 0);
    assert_ptr_equal(place->scanner.snapshot, first); /* nothing is new, so the snapshot stays */
    assert_int_equal(first->refs, 2);
    tree_simple(&place->tree, "m/b.safetensors", "c");
    (void)scanner_scan(&place->scanner);
    assert_ptr_equal(file_at(place, "m/a.safetensors"), a);
    assert_true(place->scanner.progress.files_to_read == 1 && place->scanner.progress.files_read == 1);
    assert_string_not_equal(first->tag, place->scanner.snapshot->tag);
    const struct td_model *old = td_snapshot_find_model(first, TD_TEXT("m"));
    assert_string_equal(td_checkpoint_tensor(&old->checkpoints[0], 1).tensor->name, "b");
    assert_string_equal(td_checkpoint_tensor(&scanner_model(&place->scanner, "m")->checkpoints[0], 1).tensor->name,
                        "c");
    td_snapshot_unref(first);
}

/* Known digests are part of a snapshot: each scan after new digests makes a new snapshot, and no other scan does. */
static void digests_make_a_new_snapshot(void **state)
{
    static const uint8_t sum[TD_SHA256_BYTES] = {0xab};
    struct place *place = *state;
    char identity[TD_TAG_BYTES];
    char by_identity[TD_TAG_BYTES];
    tree_simple(&place->tree, "m/a.safetensors", "a");
    tree_simple(&place->tree, "n/b.safetensors", "b");
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    struct td_file *file = file_at(place, "m/a.safetensors");
    memcpy(identity, td_file_tag(file), sizeof identity);
    memcpy(by_identity, scanner_model(&place->scanner, "m")->checkpoints[0].tag, sizeof by_identity);
    assert_int_equal(snapshot->hashed_count, 0);
    assert_ptr_equal(scanner_scan(&place->scanner), snapshot);
    uint64_t generation = snapshot->generation;
    char tag[TD_TAG_BYTES];
    memcpy(tag, snapshot->tag, sizeof tag);
    assert_true(td_file_set_sha256(file, sum));
    assert_false(td_file_set_sha256(file, sum)); /* a digest is set only once */
    assert_int_equal(strlen(td_file_tag(file)), TD_SHA256_TEXT_BYTES - 1);
    assert_string_equal(file->identity_tag, identity); /* for downloads that began under it */
    snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->hashed_count == 1 && snapshot->generation == generation + 1);
    assert_string_equal(snapshot->tag, tag); /* the same files */
    assert_ptr_equal(file_at(place, "m/a.safetensors"), file);
    assert_string_not_equal(scanner_model(&place->scanner, "m")->checkpoints[0].tag, by_identity);
    assert_ptr_equal(scanner_scan(&place->scanner), snapshot);
    tree_poke(&place->tree, "m/a.safetensors", 100, "!", 1);
    snapshot = scanner_scan(&place->scanner);
    assert_true(snapshot->hashed_count == 0 && td_file_sha256(file_at(place, "m/a.safetensors")) == NULL);
}

static void changes_of_every_kind_are_seen(void **state)
{
    struct place *place = *state;
    char path[TREE_PATH_BYTES];
    tree_simple(&place->tree, "m/a.safetensors", "a");
    char tag[TD_TAG_BYTES];
    memcpy(tag, scanner_scan(&place->scanner)->tag, sizeof tag);
    for (int kind = 0; kind < 6; kind++) {
        struct td_file *before = td_file_ref(file_at(place, "m/a.safetensors"));
        nap_ms(20);
        switch (kind) {
        case 0: /* in place, same size, even the same bytes */
            tree_poke(&place->tree, "m/a.safetensors", 8, "{", 1);
            break;
        case 1: /* replaced by rename */
            tree_simple(&place->tree, "new", "b");
            tree_rename(&place->tree, "new", "m/a.safetensors");
            break;
        case 2: /* a new mtime */
            tree_set_age(&place->tree, "m/a.safetensors", INT64_C(1000) * SECOND);
            break;
        case 3: /* mode */
            tree_at(&place->tree, "m/a.safetensors", path);
            assert_int_equal(chmod(path, 0600), 0);
            break;
        case 4: /* longer, and thus broken */
            tree_truncate(&place->tree, "m/a.safetensors", 5000);
            break;
        default: /* a symlink to another */
            tree_simple(&place->tree, "m/.real", "c");
            tree_remove(&place->tree, "m/a.safetensors");
            tree_symlink(&place->tree, "m/a.safetensors", ".real");
            break;
        }
        (void)scanner_scan(&place->scanner);
        const struct td_file *now = file_at(place, "m/a.safetensors");
        CHECK(now != NULL && now != before, "kind %d", kind);
        CHECK(strcmp(tag, place->scanner.snapshot->tag) != 0, "kind %d", kind);
        assert_string_not_equal(before->identity_tag, now->identity_tag);
        memcpy(tag, place->scanner.snapshot->tag, sizeof tag);
        td_file_unref(before);
    }
    tree_remove(&place->tree, "m");
    (void)scanner_scan(&place->scanner);
    expect_models(place, "");
}

/* A renamed file is parsed again, because its name decides its format. */
static void renamed_files_are_other_entries(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "m/a.safetensors", "a");
    (void)scanner_scan(&place->scanner);
    tree_rename(&place->tree, "m/a.safetensors", "m/a.bin");
    (void)scanner_scan(&place->scanner);
    expect_models(place, "");
    assert_null(file_at(place, "m/a.bin")->format);
    tree_rename(&place->tree, "m/a.bin", "n/b.safetensors");
    (void)scanner_scan(&place->scanner);
    expect_models(place, "n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, empty_root_is_an_empty_snapshot),
        TEST_IN(place, directories_and_root_files_are_models),
        cmocka_unit_test(a_root_with_an_index_is_a_model),
        cmocka_unit_test(a_root_with_a_config_is_a_model),
        cmocka_unit_test(a_root_of_a_distributed_checkpoint_is_a_model),
        cmocka_unit_test(names_of_the_root),
        TEST_IN(place, groups_in_the_root_are_models),
        TEST_IN(place, numbers_of_a_model),
        TEST_IN(place, method_names_end_no_id),
        TEST_IN(place, cache_folders_are_models),
        cmocka_unit_test(a_place_in_a_snapshot),
        TEST_IN(place, problems_stand_where_they_belong),
        TEST_IN(place, unchanged_files_are_shared),
        TEST_IN(place, digests_make_a_new_snapshot),
        TEST_IN(place, changes_of_every_kind_are_seen),
        TEST_IN(place, renamed_files_are_other_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
