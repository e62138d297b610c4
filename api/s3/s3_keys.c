/* Plan: split_key() takes a key apart into model, "shards", engine and size, wherever a bucket can hold a model. A
 * cursor on an ordinary prefix walks over the bucket's keys. A cursor on a directory of rank files merges two sorted
 * sequences: the files on disk of the model, and the names of the rank files.
 *
 * What is hard: names of rank files in byte order are not in the order of the ranks (0, 1, 10, 11, 2); next_rank()
 * computes the successor, so that no list of names is needed. */
#include "api/s3/s3_keys.h"

#include "parser/format/names.h"
#include "slicing/engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the directories of rank files --------------------------------------------------------------------- */

/* Returns the path that the key would have in a directory of DIR ("": in DIR itself), with a '/' at its end; NULL when
 * memory is short. */
static char *path_of(const char *directory, struct td_text key, struct td_arena *arena)
{
    size_t name_len = directory[0] == '\0' ? 0 : strlen(directory) + 1;
    char *path = td_arena_alloc(arena, name_len + key.len + 2);
    if (path == NULL)
        return NULL;
    if (name_len > 0) {
        memcpy(path, directory, name_len - 1);
        path[name_len - 1] = '/';
    }
    if (key.len > 0)
        memcpy(path + name_len, key.p, key.len);
    memcpy(path + name_len + key.len, "/", 2);
    return path;
}

/* The parts of a key, or prefix of keys, of rank files, whether or not such files exist. */
struct parts {
    char *path; /* path below DIR, with a '/' at its end */
    size_t len; /* without that '/' */
    const struct td_model *model;
    struct td_text engine, size;
};

/* Splits a key in this directory. Returns false when it is not a key of rank files there, or, with err set, when memory
 * is short. */
static bool split_below(struct td_snapshot *snapshot, const char *directory, struct td_text key, struct td_arena *arena,
                        struct parts *out, struct td_error *err)
{
    size_t at;
    out->path = path_of(directory, key, arena);
    if (out->path == NULL) {
        (void)td_error_no_memory(err);
        return false;
    }
    out->len = strlen(out->path) - 1;
    out->model = td_snapshot_route(snapshot, td_text_n(out->path, out->len), &at);
    if (out->model == NULL || out->model->checkpoint_count == 0 || strlen(out->model->id) < strlen(directory))
        return false;
    struct td_text rest = {.p = out->path + at, .len = out->len - at};
    struct td_text word = td_text_take_until(&rest, '/');
    out->engine = td_text_take_until(&rest, '/');
    out->size = td_text_take_until(&rest, '/');
    return td_text_equals(word, "shards");
}

/* Splits a key of the bucket. Returns false when it is no key of rank files, or, with err set, when memory is short. */
static bool split_key(struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key,
                      struct td_arena *arena, struct parts *out, struct td_error *err)
{
    bool in_local = bucket->is_local && bucket->entry_count > 0; /* files in the directory `local` own their names */
    if ((!bucket->is_local || in_local) &&
        split_below(snapshot, bucket->name, key, arena, out, err) && /* not below a file that is called local */
        (!in_local || out->model->directory_len > strlen(bucket->name)))
        return true;
    if (err->code != TD_OK || !bucket->is_local || !split_below(snapshot, "", key, arena, out, err))
        return false;
    return td_bucket_of(snapshot, td_text_of(out->model->id)) == bucket;
}

bool td_s3_rank_files_find(struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key,
                           struct td_arena *arena, struct td_s3_rank_files *out, struct td_error *err)
{
    struct parts parts;
    struct td_rank_name name;
    size_t first;
    size_t count;
    if (!split_key(snapshot, bucket, key, arena, &parts, err) || !td_rank_name_engine(parts.engine, 0, &name) ||
        !td_rank_name_read_size(parts.size, &name.tp_size))
        return false;
    size_t base_len = (size_t)(parts.size.p - parts.path) + parts.size.len;
    td_snapshot_entries_below(snapshot, td_text_n(parts.path, base_len), &first, &count);
    if (count > 0)
        return false;
    size_t name_len = parts.len - key.len;
    td_repo_view_ranks(snapshot, parts.model, &name, &out->view);
    out->base = td_text_n(parts.path + name_len, base_len + 1 - name_len);
    return true;
}

void td_s3_rank_files_advise(struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key,
                             char *out, size_t capacity)
{
    struct td_arena arena;
    struct parts parts;
    struct td_error err = TD_ERROR_INIT;
    char engines[256];
    td_arena_init(&arena, 0);
    out[0] = '\0';
    if (split_key(snapshot, bucket, key, &arena, &parts, &err)) {
        td_engine_list(engines, sizeof engines);
        (void)snprintf(out, capacity,
                       "; rank files are shards/{engine}/tp{n}/model-rank-{r}-part-0.safetensors below a model, with "
                       "n from 1 to %d, r from 0 to n-1, for the engines %s",
                       TD_MAX_TP_SIZE, engines);
    }
    td_arena_fini(&arena);
}

/* ---- places -------------------------------------------------------------------------------------------- */

static uint64_t tp_size(const struct td_s3_keys *keys)
{
    return keys->rank_files.view.name.tp_size;
}

/* Returns the rank of the next file name in byte order, which is the order of a dictionary: 0, 1, 10, 11, 2. */
static uint64_t next_rank(uint64_t rank, uint64_t count)
{
    if (rank == 0 || rank * 10 < count)
        return rank == 0 ? 1 : rank * 10;
    while (rank % 10 == 9 || rank + 1 >= count)
        rank /= 10;
    return rank == 0 ? count : rank + 1;
}

static const struct td_entry *run_entry(const struct td_s3_keys *keys, size_t i)
{
    return &keys->snapshot->entries[keys->rank_files.view.first_entry + i];
}

static const char *run_path(const struct td_s3_keys *keys, size_t i)
{
    return run_entry(keys, i)->path + keys->rank_files.view.prefix_len;
}

/* Skips files that the view does not show, such as checkpoints. */
static void skip_hidden(struct td_s3_keys *keys)
{
    while (keys->at < keys->rank_files.view.entry_count &&
           !td_repo_view_keeps(&keys->rank_files.view, run_entry(keys, keys->at)))
        keys->at++;
}

static struct td_text run_name(const void *context, size_t i)
{
    const char *path = run_path(context, i);
    return td_text_of(path);
}

/* Moves to the first path of the view that does not come before this one; "" comes before all. */
static void seek_rank_files(struct td_s3_keys *keys, struct td_text path)
{
    char name[64];
    struct td_names names = {.count = keys->rank_files.view.entry_count, .context = keys, .get = run_name};
    keys->at = td_names_search(&names, path, NULL);
    skip_hidden(keys);
    for (keys->rank = 0; keys->rank < tp_size(keys); keys->rank = next_rank(keys->rank, tp_size(keys))) {
        int n = td_rank_name_write_state(keys->rank, name, sizeof name);
        if (td_text_compare(td_text_n(name, (size_t)n), path) >= 0)
            break;
    }
}

void td_s3_keys_seek(struct td_s3_keys *keys, struct td_text key)
{
    if (!keys->is_rank_files) {
        keys->at = td_bucket_lower(keys->snapshot, keys->bucket, key);
        return;
    }
    struct td_text base = keys->rank_files.base;
    if (td_text_begins(key, base)) {
        seek_rank_files(keys, td_text_skip(key, base.len));
    } else if (td_text_compare(key, base) < 0) {
        seek_rank_files(keys, TD_TEXT(""));
    } else {
        keys->at = keys->rank_files.view.entry_count;
        keys->rank = tp_size(keys);
    }
}

bool td_s3_keys_open(struct td_s3_keys *keys, struct td_snapshot *snapshot, const struct td_bucket *bucket,
                     struct td_text prefix, struct td_arena *arena, struct td_error *err)
{
    memset(keys, 0, sizeof *keys);
    keys->snapshot = snapshot;
    keys->bucket = bucket;
    keys->is_rank_files = td_s3_rank_files_find(snapshot, bucket, prefix, arena, &keys->rank_files, err);
    if (err->code != TD_OK)
        return false;
    td_s3_keys_seek(keys, TD_TEXT(""));
    return true;
}

/* Returns whether the next rank file comes before the next file on disk. */
static bool rank_is_first(const struct td_s3_keys *keys)
{
    char name[64];
    (void)td_rank_name_write_state(keys->rank, name, sizeof name);
    return strcmp(name, run_path(keys, keys->at)) < 0;
}

/* Sets *is_rank to whether a rank file comes next. Returns false at the end. */
static bool next_rank_file(const struct td_s3_keys *keys, bool *is_rank)
{
    bool has_file = keys->at < keys->rank_files.view.entry_count;
    bool has_rank = keys->rank < tp_size(keys);
    *is_rank = has_rank && (!has_file || rank_is_first(keys));
    return has_file || has_rank;
}

bool td_s3_keys_get(const struct td_s3_keys *keys, struct td_arena *arena, struct td_buffer *text,
                    struct td_repo_item *item, struct td_error *err)
{
    bool is_rank = false;
    td_buffer_clear(text);
    if (keys->is_rank_files ? !next_rank_file(keys, &is_rank) : keys->at == keys->bucket->key_count)
        return false;
    memset(item, 0, sizeof *item);
    if (is_rank) {
        if (!td_repo_view_rank(&keys->rank_files.view, keys->rank, arena, item, err))
            return false;
    } else if (keys->is_rank_files) {
        item->entry = run_entry(keys, keys->at);
        item->path = run_path(keys, keys->at);
    } else {
        item->entry = td_bucket_entry(keys->snapshot, keys->bucket, keys->at);
        item->path = td_bucket_key(keys->bucket, item->entry);
    }
    if (keys->is_rank_files)
        td_buffer_append(text, keys->rank_files.base.p, keys->rank_files.base.len);
    td_buffer_puts(text, item->path);
    return !text->failed || td_error_no_memory(err);
}

void td_s3_keys_next(struct td_s3_keys *keys)
{
    bool is_rank = false;
    if (!keys->is_rank_files) {
        keys->at += keys->at < keys->bucket->key_count ? 1 : 0;
    } else if (next_rank_file(keys, &is_rank) && is_rank) {
        keys->rank = next_rank(keys->rank, tp_size(keys));
    } else {
        keys->at += keys->at < keys->rank_files.view.entry_count ? 1 : 0;
        skip_hidden(keys);
    }
}
