/* The items of repositories at their revisions, by the rules of rank/repo_view.h. */
#include "rank/repo_view.h"

#include "core/log.h"
#include "rank/rank_digest.h"
#include "slicing/plan/plan_match.h"
#include "tests/kit/loopback.h"
#include "tests/unit/tree_fixture.h"

#include <strings.h>

struct place {
    struct tree tree;
    struct loopback loop;
    struct td_snapshot *snapshot;
    struct td_arena arena;
};

static void fill(const struct tree *tree)
{
    static const struct tree_tensor tensors[] = {{"w", "F32", "[4,2]", 32}, {"v", "U8", "[4]", 4}};
    (void)tree_tensors(tree, "ns/plain/model.safetensors", tensors, 2, NULL, 0);
    tree_text(tree, "ns/plain/a-b/c.txt", "1");
    tree_text(tree, "ns/plain/a.b", "2");
    tree_text(tree, "ns/plain/a/x", "3");
    tree_text(tree, "ns/plain/config.json", "{}");
    copy_pickle(tree, "ns/torch/pytorch_model.bin");
    copy_pickle(tree, "ns/torch/TRAINING_ARGS.BIN");
    copy_pickle(tree, "ns/torch/optimizer.pkl");
    tree_text(tree, "ns/torch/config.json", "{}");
    tree_text(tree, "ns/torch/pytorch_model.bin.index.json", "{}");
    tree_text(tree, "ns/parts/index.json", "{}");
    copy_pickle(tree, "ns/parts/adapter_model.bin");
    copy_pickle(tree, "ns/parts/unet/diffusion_pytorch_model.bin");
    tree_simple(tree, "ns/parts/vae/diffusion_pytorch_model.safetensors", "t");
    tree_text(tree, "ns/shards/index.json", "{}");
    tree_copy(tree, TD_TEST_DATA "/torch/bare.pt", "ns/shards/vae/diffusion_model-00001-of-00001.bin");
    tree_text(tree, "ns/shards/vae/diffusion_model.bin.index.json",
              "{\"weight_map\":{\"diffusion_model-00001-of-00001\":\"diffusion_model-00001-of-00001.bin\"}}");
    tree_simple(tree, "ns/exports/model.safetensors", "t");
    tree_text(tree, "ns/exports/config.json", "{\"architectures\":[\"LlamaForCausalLM\"]}");
    tree_simple(tree, "ns/exports/onnx/model.safetensors", "t");
    copy_pickle(tree, "ns/exports/original/consolidated.00.pth");
    tree_text(tree, "ns/exports/original/params.json", "{}");
    tree_simple(tree, "ns/exports/text/model.safetensors", "t");
    tree_text(tree, "ns/exports/text/config.json", "{}");
    tree_simple(tree, "ns/folders/unet/model.safetensors", "t");
    tree_simple(tree, "ns/folders/vae/model.safetensors", "t");
    tree_text(tree, "ns/folders/vae/config.json", "{\"architectures\":[\"AutoencoderKL\"]}");
    tree_text(tree, "ns/folders/index.json", "{}");
    tree_text(tree, "ns/notes/readme.md", "");
    tree_simple(tree, "models--org--hub/snapshots/" C1 "/model.safetensors", "a");
    tree_simple(tree, "models--org--hub/snapshots/" C0 "/model.safetensors", "a b");
    tree_text(tree, "models--org--hub/refs/main", C1);
    tree_text(tree, "models--org--hub/refs/refs/pr/1", C0);
    tree_text(tree, "models--odd--names/snapshots/old/a.txt", "");
    tree_text(tree, "models--odd--names/snapshots/new/b.txt", "");
    tree_text(tree, "models--odd--names/refs/main", "new");
    tree_simple(tree, "bert.safetensors", "t");
}

static void open_place(struct place *place)
{
    tree_open(&place->tree);
    fill(&place->tree);
    loopback_open(&place->loop, &place->tree);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
    td_arena_init(&place->arena, 0);
}

static void close_place(struct place *place)
{
    td_arena_fini(&place->arena);
    td_snapshot_unref(place->snapshot);
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

/* Sets a SHA-256 for every file, as the hasher would, and scans. */
static void hash_all(struct place *place)
{
    for (size_t i = 0; i < place->snapshot->entry_count; i++) {
        uint8_t sum[TD_SHA256_BYTES] = {(uint8_t)i, 1};
        (void)td_file_set_sha256(place->snapshot->entries[i].file, sum);
    }
    loopback_rescan(&place->loop);
    td_snapshot_unref(place->snapshot);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
}

static bool try_open(const struct place *place, const char *id, const char *revision, struct td_repo_view *view)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_repo *repo = td_repo_find(place->snapshot, false, td_text_of(id));
    CHECK(repo != NULL, "%s", id);
    bool ok = td_repo_view_open(place->snapshot, repo, td_text_of(revision), view, &err);
    CHECK(ok || err.code == TD_NOT_FOUND, "%s: %s", revision, err.message);
    return ok;
}

static struct td_repo_view open_view(const struct place *place, const char *id, const char *revision)
{
    struct td_repo_view view;
    CHECK(try_open(place, id, revision, &view), "%s at %s", id, revision);
    return view;
}

static void names_of_revisions(void **state)
{
    static const struct {
        const char *id, *revision;
        bool there;
    } cases[] = {
        {"ns/plain", "main", true},
        {"ns/plain", "HEAD", true},
        {"ns/plain", "safetensors", true},
        {"ns/plain", "tp1-rank0-none", true},
        {"ns/plain", "tp4096-rank4095-fsdp", true},
        {"ns/plain", "tp2-rank1-nano-vllm", true},
        {"ns/torch", "safetensors", true},
        {"bert.safetensors", "tp1-rank0-none", true},
        {"org/hub", C0, true},
        {"org/hub", "refs/pr/1", true},
        {"org/hub", "safetensors", true},
        {"ns/plain", "", false},
        {"ns/plain", "Main", false},
        {"ns/plain", "main ", false},
        {"ns/plain", "refs/pr/1", false},
        {"ns/plain", C0, false},
        {"ns/plain", "Safetensors", false},
        {"ns/plain", "safetensors/", false},
        {"ns/plain", "tp0-rank0-none", false},
        {"ns/plain", "tp1-rank1-none", false},
        {"ns/plain", "tp01-rank0-none", false},
        {"ns/plain", "tp2-rank01-none", false},
        {"ns/plain", "tp4097-rank0-none", false},
        {"ns/plain", "tp1000000000-rank0-none", false},
        {"ns/plain", "tp18446744073709551617-rank0-none", false},
        {"ns/plain", "tp1-rank-none", false},
        {"ns/plain", "tp1-rank0", false},
        {"ns/plain", "tp1-rank0-", false},
        {"ns/plain", "tp1-rank0-other", false},
        {"ns/plain", "tp1-rank0-none ", false},
        {"ns/plain", "tp-rank0-none", false},
        {"ns/plain", "tp+1-rank0-none", false},
        {"ns/notes", "main", true},
        {"ns/notes", "safetensors", false} /* it has no tensors */,
        {"ns/notes", "tp1-rank0-none", false},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_repo_view view;
        CHECK(try_open(place, cases[i].id, cases[i].revision, &view) == cases[i].there, "%s at \"%s\"", cases[i].id,
              cases[i].revision);
    }
}

static const char *const made[] = {"safetensors",    "tp1-rank0-none",   "tp1-rank0-fsdp",  "tp2-rank0-none",
                                   "tp2-rank1-none", "tp16-rank15-vllm", "tp17-rank0-none", "tp4096-rank0-none"};

/* Clients resolve a name to its commit and use only the commit afterwards. */
static void commits_lead_back(void **state)
{
    struct place *place = *state;
    char commits[COUNT_OF(made)][TD_COMMIT_BYTES];
    for (size_t i = 0; i < COUNT_OF(made); i++) {
        struct td_repo_view named = open_view(place, "ns/plain", made[i]);
        struct td_repo_view found = open_view(place, "ns/plain", named.commit);
        assert_int_equal(strspn(named.commit, "0123456789abcdef"), 40);
        assert_int_equal(strlen(named.commit), 40);
        assert_string_equal(found.commit, named.commit);
        assert_int_equal(found.kind, named.kind);
        assert_int_equal(found.rank, named.rank);
        assert_int_equal(found.name.tp_size, named.name.tp_size);
        assert_int_equal(found.name.engine.len, named.name.engine.len);
        assert_memory_equal(found.name.engine.p, named.name.engine.p, named.name.engine.len);
        assert_string_not_equal(named.commit, open_view(place, "ns/plain", "main").commit);
        memcpy(commits[i], named.commit, TD_COMMIT_BYTES);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(commits[i], commits[k]);
        struct td_repo_view other;
        assert_false(try_open(place, "ns/torch", named.commit, &other)); /* the commit of other files */
    }
}

/* A commit with one digit changed is not found. */
static void commits_are_not_guessed(void **state)
{
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(made); i++) {
        struct td_repo_view view = open_view(place, "ns/plain", made[i]);
        for (size_t at = 0; at < 40; at++) {
            for (const char *digit = "0123456789abcdefABCDEFg/"; *digit != '\0'; digit++) {
                char text[TD_COMMIT_BYTES];
                struct td_repo_view other;
                memcpy(text, view.commit, sizeof text);
                text[at] = *digit;
                CHECK(try_open(place, "ns/plain", text, &other) == (*digit == view.commit[at]), "%s", text);
            }
        }
    }
}

/* The view's engine name does not point into the request. */
static void the_name_outlives_the_request(void **state)
{
    struct place *place = *state;
    char revision[] = "tp2-rank1-nano-vllm";
    struct td_repo_view view = open_view(place, "ns/plain", revision);
    memset(revision, 'x', sizeof revision - 1);
    assert_int_equal(view.name.engine.len, strlen("nano-vllm"));
    assert_memory_equal(view.name.engine.p, "nano-vllm", strlen("nano-vllm"));
}

/* A download that began before the files were hashed continues with the former commit. */
static void commits_stay_when_files_are_hashed(void **state)
{
    static const char *const names[] = {"main", "safetensors", "tp2-rank1-none"};
    struct place *place = *state;
    struct td_repo_view before[COUNT_OF(names)];
    for (size_t i = 0; i < COUNT_OF(names); i++)
        before[i] = open_view(place, "ns/plain", names[i]);
    hash_all(place);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct td_repo_view now = open_view(place, "ns/plain", names[i]);
        assert_string_not_equal(now.commit, before[i].commit);
        assert_string_equal(open_view(place, "ns/plain", now.commit).commit, now.commit);
        struct td_repo_view old = open_view(place, "ns/plain", before[i].commit);
        assert_string_equal(old.commit, before[i].commit);
        assert_int_equal(old.kind, now.kind);
        assert_int_equal(old.rank, now.rank);
        assert_int_equal(old.entry_count, now.entry_count);
    }
    tree_text(&place->tree, "ns/plain/a.b", "other");
    loopback_rescan(&place->loop);
    td_snapshot_unref(place->snapshot);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct td_repo_view view;
        assert_false(try_open(place, "ns/plain", before[i].commit, &view));
    }
}

static void other_revisions_of_caches(void **state)
{
    struct place *place = *state;
    assert_string_equal(open_view(place, "org/hub", "main").commit, C1);
    assert_string_equal(open_view(place, "org/hub", "HEAD").commit, C1);
    assert_string_equal(open_view(place, "org/hub", C1).commit, C1);
    assert_string_equal(open_view(place, "org/hub", C0).commit, C0);
    struct td_repo_view pull = open_view(place, "org/hub", "refs/pr/1");
    assert_string_equal(pull.commit, C0);
    assert_string_equal(place->snapshot->entries[pull.first_entry].path, "org/hub@" C0 "/model.safetensors");
    /* a revision whose name is not a Git commit has a commit, by which it is found */
    static const char *const odd[] = {"old", "new"};
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        struct td_repo_view named = open_view(place, "odd/names", odd[i]);
        assert_int_equal(strlen(named.commit), 40);
        struct td_repo_view found = open_view(place, "odd/names", named.commit);
        assert_int_equal(found.first_entry, named.first_entry);
        assert_string_equal(found.commit, named.commit);
    }
}

/* ---- items --------------------------------------------------------------------------------------------- */

/* Checks that the rank files of the view are those in the list of all items. */
static void expect_rank_files(struct place *place, const struct td_repo_view *view, const struct td_repo_item *all,
                              size_t all_count)
{
    struct td_repo_item *files;
    size_t count;
    size_t listed = 0;
    assert_true(td_repo_view_list_rank_files(view, &place->arena, &files, &count, NULL));
    for (size_t i = 0; i < all_count; i++)
        listed += all[i].entry == NULL ? 1 : 0;
    assert_int_equal(count, listed);
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < all_count && strcmp(all[k].path, files[i].path) != 0)
            k++;
        assert_true(k < all_count && all[k].entry == NULL && all[k].model == files[i].model);
        assert_int_equal(all[k].rank, files[i].rank);
    }
}

static void expect_items(struct place *place, const char *id, const char *revision, const char *wanted)
{
    struct td_repo_view view = open_view(place, id, revision);
    struct td_repo_item *items;
    size_t count;
    struct td_error err = TD_ERROR_INIT;
    char got[1024] = "";
    size_t used = 0;
    assert_true(td_repo_view_list(&view, &place->arena, &items, &count, &err));
    for (size_t i = 0; i < count; i++) {
        struct td_repo_item found;
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s%s", i > 0 ? " " : "",
                                 items[i].entry == NULL ? "+" : "", items[i].path);
        CHECK(td_repo_view_find(&view, td_text_of(items[i].path), &place->arena, &found, &err), "%s: %s", items[i].path,
              err.message);
        assert_string_equal(found.path, items[i].path);
        assert_ptr_equal(found.entry, items[i].entry);
        assert_int_equal(found.rank, items[i].rank);
        CHECK(i == 0 || strcmp(items[i - 1].path, items[i].path) < 0, "%s", items[i].path);
    }
    CHECK(strcmp(got, wanted) == 0, "%s at %s: %s, wanted %s", id, revision, got, wanted);
    expect_rank_files(place, &view, items, count);
}

/* '+' marks files that the server makes. */
/* shows: security.md content-no-pickles */
static void items_of_views(void **state)
{
    struct place *place = *state;
    expect_items(place, "ns/plain", "main", "a-b/c.txt a.b a/x config.json model.safetensors");
    expect_items(place, "ns/plain", "safetensors", "a-b/c.txt a.b a/x config.json model.safetensors");
    expect_items(place, "ns/plain", "tp2-rank1-none", "a-b/c.txt a.b a/x config.json +model.safetensors");
    expect_items(place, "ns/torch", "main",
                 "TRAINING_ARGS.BIN config.json optimizer.pkl pytorch_model.bin pytorch_model.bin.index.json");
    expect_items(place, "ns/torch", "safetensors", "config.json +model.safetensors");
    expect_items(place, "ns/torch", "tp1-rank0-none", "config.json +model.safetensors");
    expect_items(place, "ns/parts", "safetensors",
                 "+adapter_model.safetensors index.json +unet/diffusion_pytorch_model.safetensors "
                 "vae/diffusion_pytorch_model.safetensors");
    expect_items(place, "ns/shards", "safetensors", "index.json +vae/diffusion_model.safetensors");
    expect_items(place, "ns/parts", "tp1-rank0-none",
                 "index.json +model.safetensors +unet/model.safetensors +vae/model.safetensors");
    static const char others[] = "config.json +model.safetensors +onnx/model.safetensors +original/model.safetensors "
                                 "original/params.json text/config.json +text/model.safetensors";
    expect_items(place, "ns/exports", "tp2-rank1-none", others);
    expect_items(place, "ns/exports", "tp2-rank1-fsdp", others);
    expect_items(place, "ns/exports", "safetensors",
                 "config.json model.safetensors onnx/model.safetensors +original/model.safetensors "
                 "original/params.json text/config.json text/model.safetensors");
    expect_items(place, "bert.safetensors", "main", "bert.safetensors");
    expect_items(place, "bert.safetensors", "tp1-rank0-none", "+model.safetensors");
    expect_items(place, "org/hub", "refs/pr/1", "model.safetensors");
}

/* An engine that reads config.json could make no rank file of a folder without one. Beside a checkpoint in the
 * repository's own directory such a folder has none; otherwise every model has one. */
static void folders_without_a_config_beside_a_model(void **state)
{
    /* the engine, and the name by which it reads a rank's file */
    static const char *const engines[][2] = {{"vllm", "model-rank-1-part-0.safetensors"},
                                             {"vllm-0.13", "model-rank-1-part-0.safetensors"},
                                             {"nano-vllm", "model.safetensors"}};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(engines); i++) {
        char revision[64];
        char wanted[256];
        const char *file = engines[i][1];
        (void)snprintf(revision, sizeof revision, "tp2-rank1-%s", engines[i][0]);
        (void)snprintf(wanted, sizeof wanted, "config.json +%s original/params.json text/config.json +text/%s", file,
                       file);
        expect_items(place, "ns/exports", revision, wanted);
        struct td_repo_view view = open_view(place, "ns/exports", revision);
        expect_items(place, "ns/exports", view.commit, wanted);
        (void)snprintf(wanted, sizeof wanted, "index.json +unet/%s vae/config.json +vae/%s", file, file);
        expect_items(place, "ns/folders", revision, wanted);
        (void)snprintf(wanted, sizeof wanted, "index.json +%s", file);
        expect_items(place, "ns/parts", revision, wanted);
    }
}

/* The reason why a rank file cannot be made names the folder of its model, but not the repository's own. */
static void reasons_name_the_folder(void **state)
{
    static const struct {
        const char *id, *path, *wanted;
    } cases[] = {
        {"ns/folders", "unet/model.safetensors",
         "in \"unet\": the model has no config.json, from which engine vllm@0.33 learns the architecture"},
        {"ns/folders", "vae/model.safetensors", "in \"vae\": engine vllm@0.33 has no table for AutoencoderKL"},
        {"ns/parts", "model.safetensors", "the model has no config.json"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_repo_view view = open_view(place, cases[i].id, "tp1-rank0-vllm");
        struct td_repo_item item;
        struct td_repo_stat stat;
        struct td_response response;
        struct td_virtual_key key = {{0}};
        struct td_error errs[3] = {TD_ERROR_INIT, TD_ERROR_INIT, TD_ERROR_INIT};
        td_response_init(&response);
        assert_true(td_repo_view_find(&view, td_text_of(cases[i].path), &place->arena, &item, &errs[0]));
        assert_false(td_repo_item_stat(&place->loop.api.ranks, &view, &item, &stat, &errs[0]));
        assert_false(td_repo_item_answer(&place->loop.api.ranks, &view, &item, &response, &errs[1]));
        assert_false(td_rank_digest_begin(place->loop.api.virtual_hasher, &place->loop.api.ranks, &view, &item, &key, 0,
                                          &errs[2]));
        for (size_t k = 0; k < COUNT_OF(errs); k++) {
            CHECK(errs[k].code == TD_FAILED_PRECONDITION &&
                      strncmp(errs[k].message, cases[i].wanted, strlen(cases[i].wanted)) == 0,
                  "%s of %s: %s", cases[i].path, cases[i].id, errs[k].message);
        }
        td_response_fini(&response);
    }
}

/* shows: security.md content-no-pickles */
static void what_is_not_there_is_not_found(void **state)
{
    static const struct {
        const char *id, *revision, *path;
        bool there;
    } cases[] = {
        {"ns/plain", "main", "a", false},
        {"ns/plain", "main", "", false},
        {"ns/plain", "main", "/config.json", false},
        {"ns/plain", "main", "a/../config.json", false},
        {"ns/plain", "main", "../torch/config.json", false},
        {"ns/plain", "main", "config.jso", false},
        {"ns/torch", "safetensors", "pytorch_model.bin", false},
        {"ns/torch", "safetensors", "optimizer.pkl", false},
        {"ns/torch", "safetensors", "TRAINING_ARGS.BIN", false},
        {"ns/torch", "safetensors", "pytorch_model.bin.index.json", false},
        {"ns/torch", "tp1-rank0-none", "optimizer.pkl", false},
        {"ns/torch", "main", "model.safetensors", false},
        {"ns/parts", "safetensors", "model.safetensors", false},
        {"ns/parts", "safetensors", "unet/adapter_model.safetensors", false},
        {"ns/parts", "safetensors", "x/unet/diffusion_pytorch_model.safetensors", false},
        {"ns/plain", "tp2-rank1-none", "model-rank-1-part-0.safetensors", true} /* found, but not listed */,
        {"ns/plain", "tp2-rank1-none", "model-rank-0-part-0.safetensors", false},
        {"ns/plain", "tp2-rank1-none", "model-rank-2-part-0.safetensors", false},
        {"ns/plain", "tp2-rank1-none", "sub/model-rank-1-part-0.safetensors", false},
        {"ns/plain", "tp2-rank1-none", "rank-1.safetensors", false},
        {"ns/parts", "tp2-rank1-none", "vae/model-rank-1-part-0.safetensors", true},
        {"ns/parts", "tp2-rank1-none", "vae-model.safetensors", false},
        {"ns/parts", "tp2-rank1-none", "vae", false},
        {"ns/parts", "tp2-rank1-none", "vae/", false},
        {"ns/plain", "safetensors", "model-rank-0-part-0.safetensors", false},
        {"ns/exports", "tp2-rank1-vllm", "onnx/model.safetensors", false},
        {"ns/exports", "tp2-rank1-vllm", "onnx/model-rank-1-part-0.safetensors", false},
        {"ns/exports", "tp2-rank1-vllm", "original/model.safetensors", false},
        {"ns/exports", "tp2-rank1-vllm", "original/consolidated.00.pth", false},
        {"ns/exports", "tp2-rank1-vllm", "text/model-rank-1-part-0.safetensors", true},
        {"ns/exports", "tp2-rank1-vllm", "text/model.safetensors", true} /* found, but not listed */,
        {"ns/exports", "tp2-rank1-vllm", "text/model-rank-0-part-0.safetensors", false},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_repo_view view = open_view(place, cases[i].id, cases[i].revision);
        struct td_repo_item item;
        struct td_error err = TD_ERROR_INIT;
        bool found = td_repo_view_find(&view, td_text_of(cases[i].path), &place->arena, &item, &err);
        CHECK(found == cases[i].there, "%s at %s: \"%s\"", cases[i].id, cases[i].revision, cases[i].path);
        CHECK(found || err.code == TD_NOT_FOUND, "%s", cases[i].path);
    }
}

/* The view of one model's rank files for all ranks. */
static void all_ranks_of_a_model(void **state)
{
    struct place *place = *state;
    struct td_rank_name name;
    struct td_repo_view view;
    struct td_repo_item *items;
    struct td_error err = TD_ERROR_INIT;
    size_t count;
    const struct td_model *model = td_snapshot_find_model(place->snapshot, td_text_of("ns/plain"));
    assert_non_null(model);
    assert_true(td_rank_name_engine(TD_TEXT("none"), 12, &name));
    td_repo_view_ranks(place->snapshot, model, &name, &view);
    assert_true(td_repo_view_list(&view, &place->arena, &items, &count, &err));
    assert_int_equal(count, 4 + 12);
    bool seen[12] = {false};
    for (size_t i = 0; i < count; i++) {
        unsigned long long rank;
        struct td_repo_item item;
        if (items[i].entry != NULL)
            continue;
        assert_int_equal(sscanf(items[i].path, "model-rank-%llu-part-0.safetensors", &rank), 1);
        assert_true(rank == items[i].rank && rank < 12 && !seen[rank]);
        seen[rank] = true;
        assert_true(td_repo_view_find(&view, td_text_of(items[i].path), &place->arena, &item, &err));
        assert_int_equal(item.rank, rank);
    }
    struct td_repo_item item;
    static const char beyond[] = "model-rank-12-part-0.safetensors";
    assert_false(td_repo_view_find(&view, td_text_of(beyond), &place->arena, &item, &err));
}

/* An item's stat agrees with the answer that sends the item. */
static void sizes_and_tags_are_those_of_the_answers(void **state)
{
    static const char *const cases[][3] = {
        {"ns/plain", "main", "model.safetensors"},
        {"ns/plain", "tp2-rank1-fsdp", "model.safetensors"},
        {"ns/torch", "safetensors", "model.safetensors"},
        {"ns/torch", "safetensors", "config.json"},
    };
    struct place *place = *state;
    for (int hashed = 0; hashed < 2; hashed++) {
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            struct td_repo_view view = open_view(place, cases[i][0], cases[i][1]);
            struct td_repo_item item;
            struct td_repo_stat stat;
            struct td_response response;
            struct td_error err = TD_ERROR_INIT;
            char quoted[TD_ETAG_BYTES];
            td_response_init(&response);
            assert_true(td_repo_view_find(&view, td_text_of(cases[i][2]), &place->arena, &item, &err));
            CHECK(td_repo_item_stat(&place->loop.api.ranks, &view, &item, &stat, &err), "%s", err.message);
            CHECK(td_repo_item_answer(&place->loop.api.ranks, &view, &item, &response, &err), "%s", err.message);
            (void)snprintf(quoted, sizeof quoted, "\"%s\"", stat.tag);
            assert_string_equal(response.etag, quoted);
            assert_int_equal(response.body.total_bytes, stat.size_bytes);
            assert_int_equal(stat.is_sha256, hashed == 1 && item.entry != NULL);
            assert_true(response.accept_ranges && response.last_modified_s == stat.updated_ns / 1000000000);
            td_response_fini(&response);
        }
        hash_all(place);
    }
}

/* Counts matches of tensors with rules. */
static size_t match_count;

bool __real_td_plan_match(const struct td_rule_list *rules, const struct td_tensor_list *tensors,
                          struct td_budget *budget, struct td_plan_match *out, struct td_error *err);
bool __wrap_td_plan_match(const struct td_rule_list *rules, const struct td_tensor_list *tensors,
                          struct td_budget *budget, struct td_plan_match *out, struct td_error *err);

bool __wrap_td_plan_match(const struct td_rule_list *rules, const struct td_tensor_list *tensors,
                          struct td_budget *budget, struct td_plan_match *out, struct td_error *err)
{
    match_count++;
    return __real_td_plan_match(rules, tensors, budget, out, err);
}

/* Checks that the stats of all items together equal those of single items, and the numbers of matches for both. */
static void expect_same_stats(struct place *place, const struct td_repo_view *view, size_t together, size_t one_by_one)
{
    struct td_rank_store *store = &place->loop.api.ranks;
    struct td_repo_stats stats;
    struct td_repo_item *items;
    struct td_error err = TD_ERROR_INIT;
    size_t count;
    assert_true(td_repo_view_list(view, &place->arena, &items, &count, &err));
    struct td_repo_stat *found = calloc(count, sizeof *found);
    assert_non_null(found);
    td_repo_stats_init(&stats, store, view);
    match_count = 0;
    for (size_t i = 0; i < count; i++)
        CHECK(td_repo_stats_get(&stats, &items[i], &found[i], &err), "%s", err.message);
    td_repo_stats_fini(&stats);
    assert_int_equal(match_count, together);
    while (td_lru_drop_idle(&store->files)) /* so that each file is made again */
        ;
    match_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct td_repo_stat alone;
        assert_true(td_repo_item_stat(store, view, &items[i], &alone, &err));
        CHECK(alone.size_bytes == found[i].size_bytes && alone.updated_ns == found[i].updated_ns &&
                  alone.is_sha256 == found[i].is_sha256 && strcmp(alone.tag, found[i].tag) == 0,
              "%s", items[i].path);
    }
    assert_int_equal(match_count, one_by_one);
    assert_int_equal(store->makers, 0);
    while (td_lru_drop_idle(&store->files))
        ;
    free(found);
}

static void names_are_matched_once_for_all_ranks(void **state)
{
    struct place *place = *state;
    struct td_rank_name name;
    struct td_repo_view view;
    const struct td_model *model = td_snapshot_find_model(place->snapshot, td_text_of("ns/plain"));
    assert_true(td_rank_name_engine(TD_TEXT("fsdp"), 12, &name));
    td_repo_view_ranks(place->snapshot, model, &name, &view);
    expect_same_stats(place, &view, 1, 12);
    view = open_view(place, "ns/parts", "tp2-rank1-none"); /* three models */
    expect_same_stats(place, &view, 3, 3);
    view = open_view(place, "ns/plain", "main");
    expect_same_stats(place, &view, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, names_of_revisions),
        TEST_IN(place, commits_lead_back),
        TEST_IN(place, commits_are_not_guessed),
        TEST_IN(place, the_name_outlives_the_request),
        TEST_IN(place, commits_stay_when_files_are_hashed),
        TEST_IN(place, other_revisions_of_caches),
        TEST_IN(place, items_of_views),
        TEST_IN(place, folders_without_a_config_beside_a_model),
        TEST_IN(place, reasons_name_the_folder),
        TEST_IN(place, what_is_not_there_is_not_found),
        TEST_IN(place, all_ranks_of_a_model),
        TEST_IN(place, sizes_and_tags_are_those_of_the_answers),
        TEST_IN(place, names_are_matched_once_for_all_ranks),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
