#include "api/repo_view.h"

#include "api/file_answer.h"
#include "api/tensor_source.h"
#include "catalog/digest.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- revisions ----------------------------------------------------------------------------------------- */

/* The commit of a revision that lies nowhere says what it is, so that none has to be remembered: 24 digits made of the
 * files' commit and of all that follows, 2 for the engine (none: ff), 7 for the number of ranks, 7 for the rank. */
enum { MADE_OF_DIGITS = 24, NO_ENGINE = 0xff, COUNT_MAX = 0xfffffff };

static unsigned engine_number(struct td_text engine)
{
    for (unsigned i = 0; td_engine_name(i) != NULL; i++)
        if (td_text_equals(engine, td_engine_name(i)))
            return i;
    return NO_ENGINE;
}

static bool write_commit(const char *base, unsigned engine, uint64_t tp_size, uint64_t rank,
                         char commit[TD_COMMIT_BYTES])
{
    char rest[TD_COMMIT_BYTES];
    int len = snprintf(rest, sizeof rest, "%02x%07" PRIx64 "%07" PRIx64, engine, tp_size & COUNT_MAX,
                       rank & COUNT_MAX);
    uint64_t engines = TD_ENGINE_REVISION;
    const char *name = td_engine_name(engine);
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "revision");
    td_digest_add_cstring(digest, base);
    td_digest_add(digest, &engines, sizeof engines);
    td_digest_add_cstring(digest, name == NULL ? "" : name); /* numbers move when engines are added */
    td_digest_add_cstring(digest, rest);
    if (!td_digest_finish_text(digest, commit, MADE_OF_DIGITS + 1))
        return false;
    memcpy(commit + MADE_OF_DIGITS, rest, (size_t)len + 1);
    return true;
}

/* Makes the view one of a revision that lies nowhere. */
static bool set_made(struct td_repo_view *view, const char *base, enum td_view_kind kind,
                     struct td_text engine, uint64_t tp_size, uint64_t rank)
{
    unsigned number = kind == TD_VIEW_RANK ? engine_number(engine) : NO_ENGINE;
    const char *name = kind == TD_VIEW_RANK ? td_engine_name(number) : "none"; /* outlives the request */
    view->kind = kind;
    view->rank = rank;
    return td_shard_name_engine((struct td_text){.p = name, .len = strlen(name)}, tp_size, &view->name) &&
           write_commit(base, number, kind == TD_VIEW_RANK ? tp_size : 0, rank, view->commit);
}

/* A number at the beginning of the text, taken off it: no sign, no leading zeros, below 10^9. */
static bool take_number(struct td_text *text, uint64_t *out)
{
    size_t n = 0;
    *out = 0;
    while (n < text->len && n < 9 && text->p[n] >= '0' && text->p[n] <= '9')
        *out = *out * 10 + (uint64_t)(text->p[n++] - '0');
    bool ok = n > 0 && (n == 1 || text->p[0] != '0');
    text->p += n;
    text->len -= n;
    return ok;
}

static bool take_word(struct td_text *text, const char *word)
{
    size_t n = strlen(word);
    if (text->len < n || memcmp(text->p, word, n) != 0)
        return false;
    text->p += n;
    text->len -= n;
    return true;
}

/* tp{n}-rank{r}-{engine} */
static bool read_rank_name(struct td_text text, uint64_t *tp_size, uint64_t *rank, struct td_text *engine)
{
    bool ok = take_word(&text, "tp") && take_number(&text, tp_size) && take_word(&text, "-rank") &&
              take_number(&text, rank) && take_word(&text, "-");
    *engine = text;
    return ok && *tp_size >= 1 && *tp_size <= TD_MAX_TP_SIZE && *rank < *tp_size &&
           engine_number(text) != NO_ENGINE;
}

static bool read_hex(const char *text, size_t len, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < len; i++) {
        const char *digits = "0123456789abcdef";
        const char *digit = text[i] == '\0' ? NULL : strchr(digits, text[i]);
        if (digit == NULL)
            return false;
        *out = *out * 16 + (uint64_t)(digit - digits);
    }
    return true;
}

/* Whether the text is the commit of a revision that is made of `base`. */
static bool read_made(struct td_repo_view *view, const char *base, const char *text)
{
    uint64_t engine;
    uint64_t tp_size;
    uint64_t rank;
    if (!read_hex(text + MADE_OF_DIGITS, 2, &engine) || !read_hex(text + MADE_OF_DIGITS + 2, 7, &tp_size) ||
        !read_hex(text + MADE_OF_DIGITS + 9, 7, &rank))
        return false;
    bool ranks = engine != NO_ENGINE;
    const char *name = ranks ? td_engine_name((size_t)engine) : "";
    if (name == NULL || (ranks && (tp_size < 1 || tp_size > TD_MAX_TP_SIZE || rank >= tp_size)))
        return false;
    return set_made(view, base, ranks ? TD_VIEW_RANK : TD_VIEW_SAFETENSORS,
                    (struct td_text){.p = name, .len = strlen(name)}, ranks ? tp_size : 1,
                    ranks ? rank : 0) &&
           memcmp(view->commit, text, TD_COMMIT_BYTES - 1) == 0;
}

static void set_files(struct td_repo_view *view, const struct td_repo *repo)
{
    view->kind = TD_VIEW_FILES;
    view->first_entry = repo->first_entry;
    view->entry_count = repo->entry_count;
    view->prefix_len = repo->prefix_len;
    view->updated_ns = repo->updated_ns;
    memcpy(view->commit, repo->commit, TD_COMMIT_BYTES);
}

/* By the commit of a revision that lies nowhere, made of any revision of the repository. */
static bool open_made(struct td_repo_view *view, const struct td_repo *repo, const char *text)
{
    for (const struct td_repo *base = repo; base <= repo + repo->other_count; base++) {
        set_files(view, base);
        if (read_made(view, base->commit, text) || read_made(view, base->identity_commit, text))
            return true;
    }
    return false;
}

/* ---- the models in a view ------------------------------------------------------------------------------ */

/* Those whose checkpoints may be replaced: in the view's directory or below. */
struct model_run {
    const struct td_model *root;  /* whose files lie directly in the root, or of RANKS: the only one then */
    const struct td_model *at;    /* the one in the directory itself, or NULL */
    const struct td_model *below; /* the first below it */
    size_t below_count;
};

static struct model_run models_of(const struct td_repo_view *view)
{
    const struct td_snapshot *snapshot = view->snapshot;
    struct model_run run = {0};
    if (view->kind == TD_VIEW_RANKS)
        run.root = view->model;
    if (view->entry_count == 0 || run.root != NULL)
        return run;
    if (view->prefix_len == 0) {
        for (size_t i = 0; i < snapshot->model_count && run.root == NULL; i++)
            if (snapshot->models[i].directory_len == 0 &&
                snapshot->models[i].first_entry == view->first_entry &&
                snapshot->models[i].entry_count == view->entry_count)
                run.root = &snapshot->models[i];
        return run;
    }
    const char *base = snapshot->entries[view->first_entry].path; /* with its '/' */
    run.at = td_snapshot_find_model(snapshot, base, view->prefix_len - 1);
    size_t first = td_snapshot_models_after(snapshot, base, view->prefix_len);
    run.below = &snapshot->models[first];
    while (first + run.below_count < snapshot->model_count &&
           strncmp(run.below[run.below_count].id, base, view->prefix_len) == 0)
        run.below_count++;
    return run;
}

static size_t model_run_count(const struct model_run *run)
{
    return run->below_count + (run->at != NULL ? 1 : 0) + (run->root != NULL ? 1 : 0);
}

static const struct td_model *model_run_get(const struct model_run *run, size_t i)
{
    if (run->root != NULL)
        return run->root;
    if (run->at != NULL)
        return i == 0 ? run->at : &run->below[i - 1];
    return &run->below[i];
}

/* Whether the view has something in place of this model's checkpoint. */
static bool is_replaced(const struct td_repo_view *view, const struct td_model *model)
{
    if (model->checkpoint_count == 0 || view->kind == TD_VIEW_FILES)
        return false;
    return view->kind != TD_VIEW_SAFETENSORS || strcmp(model->checkpoints[0].format, "safetensors") != 0;
}

static bool ends_with(const char *text, const char *ending)
{
    size_t len = strlen(text);
    size_t n = strlen(ending);
    return len >= n && strcmp(text + len - n, ending) == 0;
}

/* Names of pickles, of those too that are no checkpoints of ours. */
static bool is_pickles_name(const char *name)
{
    static const char *const endings[] = {".pkl", ".pickle", ".pk",  ".joblib", ".dill", ".pt",  ".pt2",
                                          ".pth", ".ckpt",   ".bin", ".distcp", ".npy",  ".npz", ".nemo"};
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (len >= n && strcasecmp(name + len - n, endings[i]) == 0)
            return true;
    }
    return false;
}

/* Whether the view shows this file as it lies. What a checkpoint's name has, whatever is in it, may be a pickle. */
static bool is_kept(const struct td_repo_view *view, const struct model_run *run,
                    const struct td_entry *entry)
{
    const char *name = td_base_name(entry->path);
    if (view->kind == TD_VIEW_FILES)
        return true;
    if (td_file_kind_of(entry->path) == TD_FILE_PLAIN)
        return !is_pickles_name(name);
    if (view->kind != TD_VIEW_SAFETENSORS ||
        (!ends_with(name, ".safetensors") && strstr(name, ".safetensors.index.") == NULL))
        return false;
    size_t rest;
    const struct td_model *model =
        run->root != NULL ? run->root
                          : td_snapshot_route(view->snapshot, entry->path, strlen(entry->path), &rest);
    return model == NULL || !is_replaced(view, model);
}

/* A file's name without .bin and without -00001-of-00002. */
static size_t stem_len(const char *part)
{
    size_t len = strlen(part) - strlen(".bin");
    const size_t numbers = strlen("-00001-of-00002");
    bool numbered = len > numbers && part[len - numbers] == '-' && memcmp(part + len - 9, "-of-", 4) == 0;
    return numbered ? len - numbers : len;
}

/* What the file in place of a checkpoint is called: as the libraries that load it would look for it. */
static void write_made_name(const struct td_repo_view *view, const struct td_model *model, uint64_t rank,
                            char *out, size_t capacity)
{
    const char *part = td_base_name(model->checkpoints[0].parts[0]->path);
    if (view->kind == TD_VIEW_RANKS)
        (void)td_shard_name_write_state(rank, out, capacity);
    else if (view->kind == TD_VIEW_SAFETENSORS && ends_with(part, ".bin") &&
             strncmp(part, "pytorch_model", 13) != 0)
        (void)snprintf(out, capacity, "%.*s.safetensors", (int)stem_len(part), part); /* adapter_model */
    else
        (void)snprintf(out, capacity, "model.safetensors");
}

/* Fills an item of a file that is made. */
static bool set_made_item(const struct td_repo_view *view, const struct td_model *model, uint64_t rank,
                          struct td_arena *arena, struct td_view_item *item)
{
    char name[NAME_MAX + 32];
    size_t directory_len =
        model->directory_len > view->prefix_len ? model->directory_len - view->prefix_len : 0;
    write_made_name(view, model, rank, name, sizeof name);
    size_t len = directory_len + (directory_len > 0 ? 1 : 0) + strlen(name);
    char *path = td_arena_alloc(arena, len + 1);
    if (path == NULL)
        return false;
    memcpy(path, model->id + (directory_len > 0 ? view->prefix_len : 0), directory_len);
    if (directory_len > 0)
        path[directory_len] = '/';
    memcpy(path + len - strlen(name), name, strlen(name) + 1);
    *item = (struct td_view_item){.path = path, .model = model, .rank = rank};
    return true;
}

static uint64_t made_per_model(const struct td_repo_view *view)
{
    return view->kind == TD_VIEW_RANKS ? view->name.tp_size : 1;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static bool no_revision(const char *revision, size_t len, struct td_error *err)
{
    return td_error_set(err, TD_NOT_FOUND, "no revision \"%.*s\"", (int)(len > 100 ? 100 : len), revision);
}

bool td_repo_view_open(struct td_snapshot *snapshot, const struct td_repo *repo, const char *revision,
                       size_t len, struct td_repo_view *view, struct td_error *err)
{
    const struct td_repo *there = td_repo_at(repo, revision, len);
    struct td_text text = {.p = revision, .len = len};
    struct td_text engine;
    uint64_t tp_size;
    uint64_t rank;
    bool ok = true;
    memset(view, 0, sizeof *view);
    view->snapshot = snapshot;
    set_files(view, there == NULL ? repo : there);
    if (there != NULL) {
        if (len == TD_COMMIT_BYTES - 1 && strncmp(there->identity_commit, revision, len) == 0)
            memcpy(view->commit, there->identity_commit, TD_COMMIT_BYTES); /* the one that was asked for */
        return true;
    }
    if (td_text_equals(text, "safetensors"))
        ok = set_made(view, repo->commit, TD_VIEW_SAFETENSORS, text, 1, 0) || td_error_no_memory(err);
    else if (read_rank_name(text, &tp_size, &rank, &engine))
        ok = set_made(view, repo->commit, TD_VIEW_RANK, engine, tp_size, rank) || td_error_no_memory(err);
    else if (len != TD_COMMIT_BYTES - 1 || !open_made(view, repo, revision))
        return no_revision(revision, len, err);
    struct model_run run = models_of(view);
    for (size_t i = 0; ok && i < model_run_count(&run); i++)
        if (model_run_get(&run, i)->checkpoint_count > 0)
            return true;
    return ok ? no_revision(revision, len, err) : false; /* nothing that could be made safetensors of */
}

void td_repo_view_ranks(struct td_snapshot *snapshot, const struct td_model *model,
                        const struct td_shard_name *name, struct td_repo_view *view)
{
    *view = (struct td_repo_view){.snapshot = snapshot,
                                  .kind = TD_VIEW_RANKS,
                                  .first_entry = model->first_entry,
                                  .entry_count = model->entry_count,
                                  .prefix_len = model->directory_len > 0 ? model->directory_len + 1 : 0,
                                  .name = *name,
                                  .model = model,
                                  .updated_ns = model->updated_ns};
}

/* ---- items --------------------------------------------------------------------------------------------- */

static int item_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_view_item *)a)->path, ((const struct td_view_item *)b)->path);
}

bool td_repo_view_list(const struct td_repo_view *view, struct td_arena *arena, struct td_view_item **items,
                       size_t *count, struct td_error *err)
{
    struct model_run run = models_of(view);
    size_t most = view->entry_count;
    if (view->kind != TD_VIEW_FILES)
        most += model_run_count(&run) * made_per_model(view);
    struct td_view_item *list = td_arena_array(arena, most, sizeof *list);
    if (list == NULL)
        return td_error_no_memory(err);
    *count = 0;
    *items = list;
    for (size_t i = 0; i < view->entry_count; i++) {
        const struct td_entry *entry = &view->snapshot->entries[view->first_entry + i];
        if (is_kept(view, &run, entry))
            list[(*count)++] = (struct td_view_item){.path = entry->path + view->prefix_len, .entry = entry};
    }
    size_t kept = *count;
    for (size_t i = 0; i < model_run_count(&run); i++) {
        const struct td_model *model = model_run_get(&run, i);
        uint64_t made = is_replaced(view, model) ? made_per_model(view) : 0;
        for (uint64_t k = 0; k < made; k++)
            if (!set_made_item(view, model, view->kind == TD_VIEW_RANK ? view->rank : k, arena,
                               &list[(*count)++]))
                return td_error_no_memory(err);
    }
    if (*count > kept)
        qsort(list, *count, sizeof *list, item_compare);
    return true;
}

bool td_repo_view_keeps(const struct td_repo_view *view, const struct td_entry *entry)
{
    struct model_run run = models_of(view);
    return is_kept(view, &run, entry);
}

bool td_repo_view_rank(const struct td_repo_view *view, uint64_t rank, struct td_arena *arena,
                       struct td_view_item *item, struct td_error *err)
{
    return set_made_item(view, view->model, rank, arena, item) || td_error_no_memory(err);
}

/* One of the files that are made, at this path. */
static bool find_made(const struct td_repo_view *view, const struct td_model *model, struct td_text path,
                      struct td_arena *arena, struct td_view_item *item, struct td_error *err)
{
    uint64_t rank = view->rank;
    bool as_json = false;
    struct td_text name = path;
    for (size_t i = 0; i < path.len; i++)
        if (path.p[i] == '/')
            name = (struct td_text){.p = path.p + i + 1, .len = path.len - i - 1};
    size_t above = path.len - name.len; /* with its '/' */
    if (above != (model->directory_len > view->prefix_len ? model->directory_len - view->prefix_len + 1 : 0))
        return false;
    struct td_repo_view shown = *view;
    bool by_state = name.len > 6 && memcmp(name.p, "model-", 6) == 0 && view->kind != TD_VIEW_SAFETENSORS &&
                    td_shard_name_read_file(name, &rank, &as_json) && !as_json;
    if (by_state)
        shown.kind = TD_VIEW_RANKS; /* for its name */
    if (by_state && (rank >= view->name.tp_size || (view->kind == TD_VIEW_RANK && rank != view->rank)))
        return false;
    if (!set_made_item(&shown, model, rank, arena, item))
        return td_error_no_memory(err);
    return strlen(item->path) == path.len && memcmp(item->path, path.p, path.len) == 0;
}

bool td_repo_view_find(const struct td_repo_view *view, const char *path, size_t len, struct td_arena *arena,
                       struct td_view_item *item, struct td_error *err)
{
    struct model_run run = {0};
    if (view->kind != TD_VIEW_FILES)
        run = models_of(view);
    const struct td_entry *entry = td_snapshot_find_in_run(view->snapshot, view->first_entry,
                                                           view->entry_count, view->prefix_len, path, len);
    if (entry != NULL && is_kept(view, &run, entry)) {
        *item = (struct td_view_item){.path = entry->path + view->prefix_len, .entry = entry};
        return true;
    }
    for (size_t i = 0; i < model_run_count(&run); i++) {
        const struct td_model *model = model_run_get(&run, i);
        if (is_replaced(view, model) &&
            find_made(view, model, (struct td_text){.p = path, .len = len}, arena, item, err))
            return true;
        if (err->code != TD_OK)
            return false;
    }
    return td_error_set(err, TD_NOT_FOUND, "no file \"%.*s\"", (int)(len > 200 ? 200 : len), path);
}

static struct td_shard_want want_of(const struct td_repo_view *view, const struct td_view_item *item)
{
    return (struct td_shard_want){.snapshot = view->snapshot,
                                  .model = item->model,
                                  .checkpoint = &item->model->checkpoints[0],
                                  .name = view->name};
}

bool td_view_item_stat(struct td_shard_store *store, const struct td_repo_view *view,
                       const struct td_view_item *item, struct td_view_stat *stat, struct td_error *err)
{
    memset(stat, 0, sizeof *stat);
    if (item->entry != NULL) {
        const struct td_file *file = item->entry->file;
        const char *sha256 = td_file_sha256(file);
        stat->size_bytes = file->source.id.size_bytes;
        stat->updated_ns = file->source.id.mtime_ns;
        stat->is_sha256 = sha256 != NULL;
        (void)snprintf(stat->tag, sizeof stat->tag, "%s", sha256 != NULL ? sha256 : file->identity_tag);
        return true;
    }
    struct td_shard_want want = want_of(view, item);
    struct td_shard_file *file = NULL;
    if (!td_shard_store_get(store, &want, item->rank, &file, stat->tag, err))
        return false;
    stat->size_bytes = file->nbytes;
    stat->updated_ns = item->model->updated_ns;
    td_shard_file_unref(file);
    return true;
}

bool td_view_item_answer(struct td_shard_store *store, const struct td_repo_view *view,
                         const struct td_view_item *item, struct td_response *response, struct td_error *err)
{
    if (item->entry != NULL)
        return td_file_answer(store->catalog, view->snapshot, item->entry, response, err);
    struct td_shard_want want = want_of(view, item);
    struct td_shard_file *file = NULL;
    char tag[TD_TAG_BYTES];
    bool ok = td_shard_store_get(store, &want, item->rank, &file, tag, err) &&
              td_shard_file_answer(store, &want, item->rank, file, tag, response, err);
    td_shard_file_unref(file);
    response->last_modified_s = item->model->updated_ns >= 0 ? item->model->updated_ns / 1000000000 : 0;
    return ok;
}
