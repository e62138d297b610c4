#include "catalog/bucket.h"

#include "catalog/repo.h"
#include "parser/names.h"

#include <stdlib.h>
#include <string.h>

/* ---- building ------------------------------------------------------------------------------------------ */

enum { IS_HIDDEN = 1, BEGINS_LOCAL = 2 };

struct run_list {
    struct td_bucket_run *items;
    size_t count, capacity;
};

struct builder {
    struct td_snapshot *snapshot;
    unsigned char *marks; /* per entry */
    struct run_list named, local;
    struct td_bucket *buckets;
    size_t bucket_count, bucket_capacity;
    bool has_local, all_local;
};

static size_t segment_len(const char *path, size_t len)
{
    const char *slash = len == 0 ? NULL : memchr(path, '/', len);
    return slash == NULL ? len : (size_t)(slash - path);
}

static bool in_root(const struct td_entry *entry)
{
    return strchr(entry->path, '/') == NULL;
}

/* Its files in the root are published; when all that there is belongs to it, directories are no buckets. */
static void mark_root_model(struct builder *b, const struct td_repo *repo)
{
    for (size_t i = repo->first_entry; i < repo->first_entry + repo->entry_count; i++)
        if (in_root(&b->snapshot->entries[i]))
            b->marks[i] = 0;
    b->all_local = b->all_local || repo->entry_count == b->snapshot->entry_count;
}

/* Which entries are not listed, and where a directory begins that is a repository of one segment. */
static void mark(struct builder *b)
{
    const struct td_snapshot *snapshot = b->snapshot;
    for (size_t i = 0; i < snapshot->entry_count; i++)
        b->marks[i] = in_root(&snapshot->entries[i]) ? IS_HIDDEN : 0;
    for (size_t r = 0; r < snapshot->repo_count; r++) {
        const struct td_repo *repo = &snapshot->repos[r];
        if (repo->entry_count == 0)
            continue;
        const char *path = snapshot->entries[repo->first_entry].path;
        if (repo->prefix_len == 0)
            mark_root_model(b, repo);
        else if (segment_len(path, repo->prefix_len) + 1 == repo->prefix_len)
            b->marks[repo->first_entry] |= BEGINS_LOCAL;
        if (repo->is_other_revision)
            for (size_t k = 0; k < repo->entry_count; k++)
                b->marks[repo->first_entry + k] |= IS_HIDDEN;
    }
}

/* Room for one more item. */
static bool grow(void **items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    size_t more = *capacity == 0 ? 16 : *capacity * 2;
    void *grown = realloc(*items, more * size);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = more;
    return true;
}

/* Adds an entry to the runs of a bucket that begin at `begin`. */
static bool add_entry(struct run_list *runs, size_t begin, size_t entry)
{
    struct td_bucket_run *last = runs->count > begin ? &runs->items[runs->count - 1] : NULL;
    if (last != NULL && last->first + last->count == entry) {
        last->count++;
        return true;
    }
    size_t before = last == NULL ? 0 : last->before + last->count;
    void *items = runs->items;
    if (!grow(&items, runs->count, &runs->capacity, sizeof *runs->items))
        return false;
    runs->items = items;
    runs->items[runs->count++] = (struct td_bucket_run){.first = entry, .count = 1, .before = before};
    return true;
}

static struct td_bucket *add_bucket(struct builder *b, const char *name, size_t len)
{
    void *buckets = b->buckets;
    if (!grow(&buckets, b->bucket_count, &b->bucket_capacity, sizeof *b->buckets))
        return NULL;
    b->buckets = buckets;
    struct td_bucket *bucket = &b->buckets[b->bucket_count];
    *bucket = (struct td_bucket){.name = td_arena_strndup(&b->snapshot->arena, name, len)};
    b->bucket_count += bucket->name != NULL ? 1 : 0;
    return bucket->name != NULL ? bucket : NULL;
}

/* The entries of one first segment. run_count is counted here, where they begin is known when all are there. */
static bool add_segment(struct builder *b, size_t first, size_t count, size_t len, bool is_local)
{
    struct run_list *runs = is_local ? &b->local : &b->named;
    size_t begin = is_local ? 0 : b->named.count;
    for (size_t i = first; i < first + count; i++)
        if ((b->marks[i] & IS_HIDDEN) == 0 && !add_entry(runs, begin, i))
            return false;
    if (is_local) {
        b->has_local = true;
        return true;
    }
    struct td_bucket *bucket = add_bucket(b, b->snapshot->entries[first].path, len);
    if (bucket == NULL)
        return false;
    bucket->prefix_len = len + 1;
    bucket->first_entry = first;
    bucket->entry_count = count;
    bucket->run_count = b->named.count - begin;
    return true;
}

static bool add_segments(struct builder *b)
{
    static const char local[] = TD_REPO_DEFAULT_NAMESPACE;
    const struct td_snapshot *snapshot = b->snapshot;
    for (size_t i = 0; i < snapshot->entry_count;) {
        const char *path = snapshot->entries[i].path;
        size_t len = segment_len(path, strlen(path));
        size_t first = i;
        bool alone = in_root(&snapshot->entries[i]);
        bool is_local = b->all_local || alone || (b->marks[i] & BEGINS_LOCAL) != 0 ||
                        (len == sizeof local - 1 && memcmp(path, local, len) == 0);
        for (i++; !alone && i < snapshot->entry_count; i++)
            if (strncmp(snapshot->entries[i].path, path, len + 1) != 0)
                break;
        if (alone && (b->marks[first] & IS_HIDDEN) != 0)
            continue;
        if (!add_segment(b, first, i - first, len, is_local))
            return false;
    }
    return true;
}

static int bucket_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_bucket *)a)->name, ((const struct td_bucket *)b)->name);
}

/* Where runs lie, counts and dates, once all is there. */
static void describe(struct builder *b)
{
    const struct td_bucket_run *runs = b->named.items;
    for (size_t i = 0; i < b->bucket_count; i++) {
        struct td_bucket *bucket = &b->buckets[i];
        bucket->runs = bucket->is_local ? b->local.items : runs;
        runs += bucket->is_local ? 0 : bucket->run_count;
        for (size_t r = 0; r < bucket->run_count; r++) {
            bucket->key_count += bucket->runs[r].count;
            for (size_t k = 0; k < bucket->runs[r].count; k++) {
                int64_t ns = b->snapshot->entries[bucket->runs[r].first + k].file->source.id.mtime_ns;
                bucket->updated_ns = ns > bucket->updated_ns ? ns : bucket->updated_ns;
            }
        }
    }
    if (b->bucket_count > 0)
        qsort(b->buckets, b->bucket_count, sizeof *b->buckets, bucket_compare);
}

bool td_buckets_build(struct td_snapshot *snapshot, struct td_error *err)
{
    struct builder b = {.snapshot = snapshot};
    b.marks = calloc(snapshot->entry_count + 1, sizeof *b.marks);
    bool ok = b.marks != NULL;
    if (ok) {
        mark(&b);
        ok = add_segments(&b);
    }
    if (ok && b.has_local) {
        struct td_bucket *bucket =
            add_bucket(&b, TD_REPO_DEFAULT_NAMESPACE, strlen(TD_REPO_DEFAULT_NAMESPACE));
        ok = bucket != NULL;
        if (ok) {
            bucket->is_local = true;
            bucket->run_count = b.local.count;
        }
    }
    if (ok)
        describe(&b);
    free(b.marks);
    snapshot->buckets = b.buckets;
    snapshot->bucket_count = ok ? b.bucket_count : 0;
    snapshot->bucket_runs[0] = b.named.items;
    snapshot->bucket_runs[1] = b.local.items;
    return ok || td_error_no_memory(err);
}

/* ---- finding ------------------------------------------------------------------------------------------- */

static struct td_name bucket_name(const void *context, size_t i)
{
    const char *name = ((const struct td_bucket *)context)[i].name;
    return (struct td_name){.text = name, .len = strlen(name)};
}

static size_t find_bucket(const struct td_snapshot *snapshot, const char *name, size_t len, bool *found)
{
    struct td_names names = {
        .count = snapshot->bucket_count, .context = snapshot->buckets, .get = bucket_name};
    return td_names_search(&names, name, len, found);
}

const struct td_bucket *td_bucket_find(const struct td_snapshot *snapshot, const char *name, size_t len)
{
    bool found;
    size_t at = find_bucket(snapshot, name, len, &found);
    return found ? &snapshot->buckets[at] : NULL;
}

size_t td_buckets_after(const struct td_snapshot *snapshot, const char *name, size_t len)
{
    bool found;
    size_t at = find_bucket(snapshot, name, len, &found);
    return at + found;
}

const struct td_bucket *td_bucket_of(const struct td_snapshot *snapshot, const char *path, size_t len)
{
    static const char local[] = TD_REPO_DEFAULT_NAMESPACE;
    size_t segment = segment_len(path, len);
    const struct td_bucket *bucket = segment == len ? NULL : td_bucket_find(snapshot, path, segment);
    return bucket != NULL ? bucket : td_bucket_find(snapshot, local, sizeof local - 1);
}

const struct td_entry *td_bucket_entry(const struct td_snapshot *snapshot, const struct td_bucket *bucket,
                                       size_t i)
{
    size_t low = 0;
    size_t high = bucket->run_count - 1;
    while (low < high) { /* the last run that does not begin behind it */
        size_t mid = high - (high - low) / 2;
        if (bucket->runs[mid].before <= i)
            low = mid;
        else
            high = mid - 1;
    }
    return &snapshot->entries[bucket->runs[low].first + (i - bucket->runs[low].before)];
}

const char *td_bucket_key(const struct td_bucket *bucket, const struct td_entry *entry)
{
    return entry->path + bucket->prefix_len;
}

struct bucket_keys {
    const struct td_snapshot *snapshot;
    const struct td_bucket *bucket;
};

static struct td_name key_at(const void *context, size_t i)
{
    const struct bucket_keys *keys = context;
    const char *key = td_bucket_key(keys->bucket, td_bucket_entry(keys->snapshot, keys->bucket, i));
    return (struct td_name){.text = key, .len = strlen(key)};
}

static size_t search(const struct td_snapshot *snapshot, const struct td_bucket *bucket, const char *key,
                     size_t len, bool *found)
{
    struct bucket_keys keys = {.snapshot = snapshot, .bucket = bucket};
    struct td_names names = {.count = bucket->key_count, .context = &keys, .get = key_at};
    return td_names_search(&names, key, len, found);
}

size_t td_bucket_lower(const struct td_snapshot *snapshot, const struct td_bucket *bucket, const char *key,
                       size_t len)
{
    return search(snapshot, bucket, key, len, NULL);
}

const struct td_entry *td_bucket_find_entry(const struct td_snapshot *snapshot,
                                            const struct td_bucket *bucket, const char *key, size_t len)
{
    bool found;
    if (!bucket->is_local)
        return td_snapshot_find_in_run(snapshot, bucket->first_entry, bucket->entry_count, bucket->prefix_len,
                                       key, len);
    if (segment_len(key, len) < len) /* in a directory, whose bucket its name tells */
        return td_bucket_of(snapshot, key, len) == bucket ? td_snapshot_find_entry(snapshot, key, len) : NULL;
    size_t at = search(snapshot, bucket, key, len, &found);
    return found ? td_bucket_entry(snapshot, bucket, at) : NULL;
}
