/* Tests the content of views. The oracle is a scan of a second tree, in which the hidden files are missing: both must
 * have the same files, models, problems, repositories, datasets and buckets. */
#include "catalog/scan/view.h"

#include "catalog/dataset/dataset.h"
#include "catalog/names/bucket.h"
#include "catalog/names/repo.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/glob.h"
#include "core/waiting.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/catalog/scan_place.h"

#include <pthread.h>
#include <stdatomic.h>

/* Globs, separated by blanks. A name of one segment is also that in the default namespace, as tokens have it. */
static bool accepts(const void *context, struct td_text id)
{
    struct td_text globs = td_text_of(context);
    char spelled[300];
    bool is_dataset = td_text_begins(id, TD_TEXT("datasets/"));
    struct td_text name = is_dataset ? td_text_skip(id, strlen("datasets/")) : id;
    (void)snprintf(spelled, sizeof spelled, "%slocal/%.*s", is_dataset ? "datasets/" : "", (int)name.len, name.p);
    bool is_short = name.len > 0 && memchr(name.p, '/', name.len) == NULL;
    while (globs.len > 0) {
        struct td_text glob = td_text_take_until(&globs, ' ');
        if (td_glob_match(glob, id) || (is_short && td_glob_match(glob, td_text_of(spelled))))
            return true;
    }
    return false;
}

static struct td_snapshot *view_of(const struct place *place, const char *globs)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_view_filter filter = {.key = globs, .may_see = accepts, .context = globs};
    struct td_snapshot *view = td_view_get(place->scanner.snapshot, &filter, &err);
    CHECK(view != NULL, "%s", err.message);
    return view;
}

static void add_line(struct td_buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add_line(struct td_buffer *out, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    td_buffer_puts(out, line);
    td_buffer_putc(out, '\n');
}

static void describe_bucket(const struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_buffer *out)
{
    add_line(out, "bucket %s local=%d other=%d entries=%zu keys=%zu", bucket->name, bucket->is_local,
             bucket->is_other_name, bucket->entry_count, bucket->key_count);
    for (size_t i = 0; i < bucket->key_count; i++)
        add_line(out, "  %s", td_bucket_key(bucket, td_bucket_entry(snapshot, bucket, i)));
}

/* Describes everything but times and identities, which two trees do not share. */
static void describe(const struct td_snapshot *snapshot, struct td_buffer *out)
{
    td_buffer_init(out);
    for (size_t i = 0; i < snapshot->entry_count; i++)
        add_line(out, "entry %s", snapshot->entries[i].path);
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        add_line(out, "model %s first=%zu files=%zu bytes=%llu config=%s checkpoints=%zu other=%d", model->id,
                 model->first_entry, model->entry_count, (unsigned long long)model->file_bytes,
                 model->config == NULL ? "-" : model->config->path, model->checkpoint_count, model->is_other_revision);
        for (size_t k = 0; k < model->problems.count; k++)
            add_line(out, "  problem %s: %s", model->problems.items[k].path, model->problems.items[k].message);
    }
    for (size_t i = 0; i < td_repos_of(snapshot)->count; i++) {
        const struct td_repo *repo = &td_repos_of(snapshot)->items[i];
        add_line(out, "repo %s hub=%s dataset=%d first=%zu files=%zu bytes=%llu errors=%zu others=%zu refs=%zu %s",
                 repo->id, repo->hub_id, repo->is_dataset_folder, repo->first_entry, repo->entry_count,
                 (unsigned long long)repo->file_bytes, repo->error_count, repo->other_count, repo->ref_count,
                 repo->revision == NULL ? "" : repo->revision);
    }
    for (size_t i = 0; i < td_datasets_of(snapshot)->count; i++) {
        const struct td_dataset *dataset = &td_datasets_of(snapshot)->items[i];
        add_line(out, "dataset %s repo=%s splits=%zu", dataset->id, dataset->repo->folder, dataset->split_count);
        for (size_t k = 0; k < dataset->split_count; k++)
            add_line(out, "  %s files=%zu", dataset->splits[k].name, dataset->splits[k].file_count);
    }
    for (size_t i = 0; i < td_buckets_of(snapshot)->count; i++)
        describe_bucket(snapshot, &td_buckets_of(snapshot)->items[i], out);
    for (size_t i = 0; i < td_buckets_of(snapshot)->other_count; i++)
        describe_bucket(snapshot, &td_buckets_of(snapshot)->others[i], out);
    for (size_t i = 0; i < snapshot->problems.count; i++)
        add_line(out, "problem %s: %s", snapshot->problems.items[i].path, snapshot->problems.items[i].message);
    assert_non_null(td_buffer_terminate(out));
}

/* A file of the tree. Content NULL: a safetensors file. */
struct file {
    const char *path, *content;
};

static const struct file files[] = {
    {"alone.safetensors", NULL},
    {"stem-00001-of-00002.safetensors", NULL},
    {"stem-00002-of-00002.safetensors", NULL},
    {"notes.txt", "x"},
    {"demo/model.safetensors", NULL},
    {"demo/config.json", "{}"},
    {"demo2/model.safetensors", NULL},
    {"demo2/tokenizer.json", "{}"},
    {"org/a/model.safetensors", NULL},
    {"org/a/sub/model.safetensors", NULL},
    {"org/a/sub/config.json", "{}"},
    {"org/a/sub/deeper/x.txt", "12345"},
    {"org/a/docs/readme.md", "12345"},
    {"org/b/model.safetensors", "no safetensors"},
    {"org/b/version.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:"
                          "0000000000000000000000000000000000000000000000000000000000000000\nsize 1\n"},
    {"org/tok/tokenizer.json", "{}"},
    {"org/tok/more/vocab.txt", "x"},
    {"org/rows/train.jsonl", "{\"a\": 1}\n"},
    {"org/rows/test.jsonl", "{\"a\": 1}\n"},
    {"datasets/org/d/train.jsonl", "{\"a\": 1}\n"},
    {"datasets/short/data/train.jsonl", "{\"a\": 1}\n"},
    {"local/demo2/model.safetensors", NULL},
    {"local/other/model.safetensors", NULL},
    {"sd/unet/model.safetensors", NULL},
    {"sd/vae/model.safetensors", NULL},
    {"sd/model_index.json", "{}"},
    {"x/tensors/model.safetensors", NULL}, /* its name cannot end an id: a problem */
    {"models--org--cached/snapshots/" C0 "/model.safetensors", NULL},
    {"models--org--cached/snapshots/" C0 "/unet/model.safetensors", NULL},
    {"models--org--cached/snapshots/" C1 "/model.safetensors", NULL},
    {"models--org--cached/refs/main", C0},
    {"models--org--other/snapshots/" C0 "/model.safetensors", NULL},
    {"models--org--other/refs/main", C0},
};

static void write_file(const struct place *place, const struct file *file)
{
    if (file->content == NULL)
        tree_simple(&place->tree, file->path, "t");
    else
        tree_text(&place->tree, file->path, file->content);
}

/* Writes all files, or those whose paths do not begin with a word of `hidden` (separated by blanks). */
static void write_tree(const struct place *place, const char *hidden)
{
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct td_text words = td_text_of(hidden);
        bool is_hidden = false;
        while (words.len > 0) {
            struct td_text word = td_text_take_until(&words, ' ');
            is_hidden = is_hidden || td_text_begins(td_text_of(files[i].path), word);
        }
        if (!is_hidden)
            write_file(place, &files[i]);
    }
}

#define ALL_BUT_CACHES \
    "alone stem notes demo/ demo2/ org/a/ org/b/ org/tok/ org/rows/ datasets/org datasets/short local/ sd/ x/"

static const struct {
    const char *globs, *hidden;
} cases[] = {
    {"*", ""},
    {"nothing", ALL_BUT_CACHES " models--"},
    {"demo", "alone stem notes demo2/ org/ datasets/ local/ sd/ x/ models--"},
    {"local/demo", "alone stem notes demo2/ org/ datasets/ local/ sd/ x/ models--"},
    {"demo2", "alone stem notes demo/ org/ datasets/ local/ sd/ x/ models--"},
    {"alone.safetensors", "stem notes demo/ demo2/ org/ datasets/ local/ sd/ x/ models--"},
    {"stem", "alone notes demo/ demo2/ org/ datasets/ local/ sd/ x/ models--"},
    {"org/a", "alone stem notes demo/ demo2/ org/a/sub org/b org/tok org/rows datasets/ local/ sd/ x/ models--"},
    {"org/a/sub", "alone stem notes demo/ demo2/ org/a/model org/a/docs org/b org/tok org/rows datasets/ local/ sd/ x/ "
                  "models--"},
    {"org/a*", "alone stem notes demo/ demo2/ org/b org/tok org/rows datasets/ local/ sd/ x/ models--"},
    {"org/b", "alone stem notes demo/ demo2/ org/a org/tok org/rows datasets/ local/ sd/ x/ models--"},
    {"org/tok", "alone stem notes demo/ demo2/ org/a org/b org/rows datasets/ local/ sd/ x/ models--"},
    {"org/tok/more", "alone stem notes demo/ demo2/ org/a org/b org/tok/tokenizer org/rows datasets/ local/ sd/ x/ "
                     "models--"},
    {"org/tok/tokenizer.json", "alone stem notes demo/ demo2/ org/a org/b org/tok/more org/rows datasets/ local/ sd/ "
                               "x/ models--"},
    {"org/rows", ALL_BUT_CACHES " models--"}, /* it is a dataset: only its id as one shows it */
    {"datasets/org/rows", "alone stem notes demo/ demo2/ org/a org/b org/tok datasets/ local/ sd/ x/ models--"},
    {"datasets/org/d", "alone stem notes demo/ demo2/ org/ datasets/short local/ sd/ x/ models--"},
    {"datasets/short", "alone stem notes demo/ demo2/ org/ datasets/org local/ sd/ x/ models--"},
    {"datasets/local/short", "alone stem notes demo/ demo2/ org/ datasets/org local/ sd/ x/ models--"},
    {"sd/unet", "alone stem notes demo/ demo2/ org/ datasets/ local/ sd/vae sd/model_index x/ models--"},
    {"sd sd/vae", "alone stem notes demo/ demo2/ org/ datasets/ local/ sd/unet x/ models--"},
    {"x/tensors", "alone stem notes demo/ demo2/ org/ datasets/ local/ sd/ models--"},
    {"org/cached", ALL_BUT_CACHES " models--org--other models--org--cached/snapshots/" C0 "/unet"},
    {"org/cached/unet", ALL_BUT_CACHES " models--org--other models--org--cached/snapshots/" C0 "/model "
                                       "models--org--cached/snapshots/" C1},
    {"org/other demo", "alone stem notes demo2/ org/ datasets/ local/ sd/ x/ models--org--cached"},
};

/* shows: security.md token-hidden */
static void a_view_is_what_a_server_of_the_visible_files_has(void **state)
{
    struct place *place = *state;
    write_tree(place, "");
    (void)scanner_scan(&place->scanner);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct place other;
        struct td_buffer got, wanted;

        open_place_of_revisions(&other);
        write_tree(&other, cases[i].hidden);
        (void)scanner_scan(&other.scanner);
        struct td_snapshot *view = view_of(place, cases[i].globs);
        describe(view, &got);
        describe(other.scanner.snapshot, &wanted);
        CHECK(strcmp(got.data, wanted.data) == 0, "%s\n--- got\n%s--- wanted\n%s", cases[i].globs, got.data,
              wanted.data);
        td_buffer_fini(&got);
        td_buffer_fini(&wanted);
        td_snapshot_unref(view);
        close_place(&other);
    }
}

/* A delta whose base is hidden names it as its index does. */
/* shows: security.md token-hidden */
static void a_view_does_not_name_a_hidden_base(void **state)
{
    struct place *place = *state;
    static const struct {
        const char *globs, *base;
    } views[] = {{"run/*", "weight_v000001"}, {"run/weight_v000002", "1"}, {"run/weight_v000002 other", "1"}};
    tree_simple(&place->tree, "run/weight_v000001/model.safetensors", "t");
    tree_text(&place->tree, "run/weight_v000002/model.safetensors.index.json",
              "{\"metadata\":{\"delta_encoding\":\"xor\",\"base_version\":\"1\"},\"weight_map\":{}}");
    (void)scanner_scan(&place->scanner);
    for (size_t i = 0; i < COUNT_OF(views); i++) {
        struct td_snapshot *view = view_of(place, views[i].globs);
        const struct td_model *model = td_snapshot_find_model(view, TD_TEXT("run/weight_v000002"));
        assert_true(model != NULL && model->is_delta);
        CHECK(strcmp(model->base, views[i].base) == 0, "%s: %s", views[i].globs, model->base);
        td_snapshot_unref(view);
    }
}

static bool has_model(const struct td_snapshot *view, const char *id)
{
    return td_snapshot_find_model(view, td_text_of(id)) != NULL;
}

/* A glob of the default namespace covers ids of one segment, and files in a directory called `local`. */
static void the_default_namespace_is_a_namespace(void **state)
{
    struct place *place = *state;
    write_tree(place, "");
    (void)scanner_scan(&place->scanner);
    struct td_snapshot *view = view_of(place, "local/*");
    static const char *const seen[] = {"demo", "demo2", "local/demo2", "local/other", "alone.safetensors", "stem"};
    for (size_t i = 0; i < COUNT_OF(seen); i++)
        CHECK(has_model(view, seen[i]), "%s", seen[i]);
    assert_int_equal(view->model_count, COUNT_OF(seen));
    td_snapshot_unref(view);
}

/* The tag of a model is what wait= and conditional requests see. */
/* shows: security.md token-hidden */
static void hidden_files_do_not_change_tags(void **state)
{
    struct place *place = *state;
    char before[TD_TAG_BYTES];
    write_tree(place, "");
    (void)scanner_scan(&place->scanner);
    struct td_snapshot *view = view_of(place, "org/a");
    const struct td_model *model = td_snapshot_find_model(view, TD_TEXT("org/a"));
    memcpy(before, model->tag, sizeof before);
    assert_string_not_equal(before, scanner_model(&place->scanner, "org/a")->tag);
    td_snapshot_unref(view);

    tree_text(&place->tree, "org/a/sub/deeper/x.txt", "other");
    (void)scanner_scan(&place->scanner);
    view = view_of(place, "org/a");
    model = td_snapshot_find_model(view, TD_TEXT("org/a"));
    assert_string_equal(before, model->tag);
    td_snapshot_unref(view);

    tree_text(&place->tree, "org/a/docs/readme.md", "other");
    (void)scanner_scan(&place->scanner);
    view = view_of(place, "org/a");
    model = td_snapshot_find_model(view, TD_TEXT("org/a"));
    assert_string_not_equal(before, model->tag);
    td_snapshot_unref(view);
}

static void views_are_kept_and_end_with_their_snapshot(void **state)
{
    (void)state;
    struct place place;
    open_place(&place);
    write_tree(&place, "");
    (void)scanner_scan(&place.scanner);
    struct td_snapshot *view = view_of(&place, "demo");
    struct td_snapshot *again = view_of(&place, "demo");
    struct td_snapshot *other = view_of(&place, "demo2");
    assert_ptr_equal(view, again);
    assert_ptr_not_equal(view, other);
    td_snapshot_unref(again);
    td_snapshot_unref(other);
    tree_text(&place.tree, "demo/new.txt", "x");
    (void)scanner_scan(&place.scanner); /* the scanner drops its reference on the first snapshot */
    assert_true(has_model(view, "demo") && !has_model(view, "demo2"));
    assert_int_equal(td_snapshot_find_model(view, TD_TEXT("demo"))->checkpoints[0].tensor_count, 1);
    struct td_snapshot *newer = view_of(&place, "demo");
    assert_ptr_not_equal(view, newer);
    assert_int_equal(newer->entry_count, view->entry_count + 1);
    td_snapshot_unref(newer);
    td_snapshot_unref(view);
    close_place(&place); /* AddressSanitizer finds what was not freed, or freed too early */
}

/* shows: security.md token-many-views */
static void the_oldest_views_go(void **state)
{
    struct place *place = *state;
    static char globs[TD_VIEWS_MAX + 1][TD_VIEW_KEY_BYTES];
    tree_simple(&place->tree, "demo/model.safetensors", "t");
    (void)scanner_scan(&place->scanner);
    struct td_snapshot *held = view_of(place, "first");
    for (size_t i = 0; i <= TD_VIEWS_MAX; i++) {
        (void)snprintf(globs[i], sizeof globs[i], "glob-%zu", i);
        td_snapshot_unref(view_of(place, globs[i]));
    }
    struct td_snapshot *again = view_of(place, "first");
    assert_ptr_not_equal(held, again); /* it was dropped; its holder may continue to use it */
    assert_int_equal(held->entry_count, 0);
    td_snapshot_unref(held);
    td_snapshot_unref(again);
}

/* A host with a token for each of some hundred users, in turns. */
/* shows: security.md token-many-views */
static void some_hundred_views_are_kept(void **state)
{
    enum { VIEWS = 300 };
    struct place *place = *state;
    static char globs[VIEWS][TD_VIEW_KEY_BYTES];
    struct td_snapshot *first[VIEWS];
    tree_simple(&place->tree, "demo/model.safetensors", "t");
    (void)scanner_scan(&place->scanner);
    for (size_t i = 0; i < VIEWS; i++) {
        (void)snprintf(globs[i], sizeof globs[i], "glob-%zu", i);
        first[i] = view_of(place, globs[i]);
    }
    for (size_t i = 0; i < VIEWS; i++) {
        struct td_snapshot *again = view_of(place, globs[i]);
        CHECK(again == first[i], "view %zu was made again", i);
        td_snapshot_unref(again);
        td_snapshot_unref(first[i]);
    }
}

/* A filter that takes long: it holds the first thread that calls it until the test releases it. */
struct slow {
    struct place *place;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_asked, may_go_on;
    _Atomic bool is_cancelled;
    _Atomic size_t calls;
};

static bool answers_slowly(const void *context, struct td_text id)
{
    struct slow *slow = *(struct slow *const *)context;
    (void)id;
    atomic_fetch_add(&slow->calls, 1);
    pthread_mutex_lock(&slow->lock);
    slow->is_asked = true;
    pthread_cond_broadcast(&slow->changed);
    while (!slow->may_go_on)
        pthread_cond_wait(&slow->changed, &slow->lock);
    pthread_mutex_unlock(&slow->lock);
    return true;
}

static bool was_cancelled(void *context)
{
    struct slow *slow = context;
    return slow->is_cancelled;
}

static void *make_slowly(void *context)
{
    struct slow *slow = context;
    struct td_error err = TD_ERROR_INIT;
    const struct td_cancel cancel = {.is_asked = was_cancelled, .context = slow};
    const struct td_view_filter filter = {
        .key = "slow", .may_see = answers_slowly, .context = &slow, .cancel = &cancel};
    struct td_snapshot *view = td_view_get(slow->place->scanner.snapshot, &filter, &err);
    assert_true(view != NULL || err.code == TD_UNAVAILABLE);
    return view;
}

static bool always(void *context)
{
    (void)context;
    return true;
}

/* One whose request is cancelled does not wait for another thread, and its maker stops, when it is cancelled, before
 * it asks about all models. The next one makes the view. */
/* shows: security.md token-slow-patterns */
static void views_are_cancelled(void **state)
{
    (void)state;
    struct place place;
    pthread_t maker;
    void *made;
    struct td_error err = TD_ERROR_INIT;
    struct slow slow = {.place = &place, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    const struct td_cancel cancelled = {.is_asked = always};
    struct slow *context = &slow;
    const struct td_view_filter waiting = {
        .key = "slow", .may_see = answers_slowly, .context = &context, .cancel = &cancelled};
    open_place(&place);
    write_tree(&place, "");
    (void)scanner_scan(&place.scanner);
    assert_int_equal(pthread_create(&maker, NULL, make_slowly, &slow), 0);
    pthread_mutex_lock(&slow.lock);
    while (!slow.is_asked)
        pthread_cond_wait(&slow.changed, &slow.lock);
    pthread_mutex_unlock(&slow.lock);
    assert_null(td_view_get(place.scanner.snapshot, &waiting, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);

    slow.is_cancelled = true;
    uint64_t due_ns = td_clock_ns() + UINT64_C(60000000); /* past the time for which an answer holds */
    while (td_clock_ns() < due_ns)
        ;
    pthread_mutex_lock(&slow.lock);
    slow.may_go_on = true;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.lock);
    assert_int_equal(pthread_join(maker, &made), 0);
    assert_null(made);
    assert_int_equal(slow.calls, 1);

    slow.is_cancelled = false;
    struct td_snapshot *view = make_slowly(&slow);
    assert_non_null(view);
    assert_int_equal(view->model_count, place.scanner.snapshot->model_count);
    td_snapshot_unref(view);
    close_place(&place);
}

static void a_thread_that_may_not_wait_gets_what_is_there(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    const struct td_view_filter filter = {.key = "demo", .may_see = accepts, .context = "demo"};
    write_tree(place, "");
    (void)scanner_scan(&place->scanner);
    td_waiting_forbid();
    assert_null(td_view_get(place->scanner.snapshot, &filter, &err));
    assert_true(td_waiting_allow());
    td_snapshot_unref(view_of(place, "demo"));
    td_waiting_forbid();
    struct td_snapshot *view = td_view_get(place->scanner.snapshot, &filter, &err);
    assert_false(td_waiting_allow());
    assert_non_null(view);
    td_snapshot_unref(view);
}

enum { THREADS = 8 };

static void *ask(void *context)
{
    struct place *place = context;
    struct td_snapshot *view = view_of(place, "demo");
    CHECK(has_model(view, "demo"), "no model");
    return view;
}

/* shows: security.md token-many-views */
static void one_thread_makes_what_many_ask_for(void **state)
{
    struct place *place = *state;
    pthread_t threads[THREADS];
    void *views[THREADS];
    write_tree(place, "");
    (void)scanner_scan(&place->scanner);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, place), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], &views[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        assert_ptr_equal(views[i], views[0]);
        td_snapshot_unref(views[i]);
    }
}

static void want_of_memory_is_an_error(void **state)
{
    struct place *place = *state;
    struct td_snapshot *view = NULL;
    write_tree(place, "");
    (void)scanner_scan(&place->scanner);
    for (size_t k = 1; view == NULL; k++) {
        struct td_error err = TD_ERROR_INIT;
        const struct td_view_filter filter = {.key = "o", .may_see = accepts, .context = "org/* datasets/*"};
        alloc_fail_at(k);
        view = td_view_get(place->scanner.snapshot, &filter, &err);
        alloc_fail_at(0);
        assert_true(view != NULL || err.code == TD_RESOURCE_EXHAUSTED);
    }
    assert_true(has_model(view, "org/a") && view->problems.count == 0);
    td_snapshot_unref(view);
}

/* A view of 10,000 models takes as long as sorting and hashing their names: it is made once for each scan. */
static void large_views_are_made_quickly(void **state)
{
    enum { MODELS = SANITIZED ? 300 : 10000 };
    struct place *place = *state;
    for (size_t i = 0; i < MODELS; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "org-%zu/model-%zu/model.safetensors", i % 100, i);
        tree_simple(&place->tree, path, "t");
        (void)snprintf(path, sizeof path, "org-%zu/model-%zu/config.json", i % 100, i);
        tree_text(&place->tree, path, "{}");
    }
    (void)scanner_scan(&place->scanner);
    double began = cpu_seconds();
    struct td_snapshot *view = view_of(place, "org-*");
    double took = cpu_seconds() - began;
    print_message("a view of %zu of %d models: %.1f ms\n", view->model_count, MODELS, took * 1e3);
    CHECK(took < 1.0, "%.3f s", took);
    td_snapshot_unref(view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(revisions, a_view_is_what_a_server_of_the_visible_files_has),
        TEST_IN(place, a_view_does_not_name_a_hidden_base),
        TEST_IN(revisions, the_default_namespace_is_a_namespace),
        TEST_IN(place, hidden_files_do_not_change_tags),
        cmocka_unit_test(views_are_kept_and_end_with_their_snapshot),
        TEST_IN(place, the_oldest_views_go),
        TEST_IN(place, some_hundred_views_are_kept),
        cmocka_unit_test(views_are_cancelled),
        TEST_IN(place, a_thread_that_may_not_wait_gets_what_is_there),
        TEST_IN(place, one_thread_makes_what_many_ask_for),
        TEST_IN(revisions, want_of_memory_is_an_error),
        TEST_IN(place, large_views_are_made_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
