/* Plan: one pass over the repositories marks entries (hidden, or begin of a repository that is in `local`). One pass
 * over the sorted entries, first segment by first segment, gives each segment to a bucket of its own or to `local`. A
 * bucket stores runs of entries, not keys, so a snapshot of a million files needs few bytes for its buckets;
 * td_bucket_entry finds the i-th key by binary search over the runs.
 *
 * What is hard: the keys of `local` are whole paths, except for entries of a directory that is itself called `local`,
 * whose keys lack the "local/". Such keys sort between the others, so the runs of `local` are cut wherever the
 * directory below `local` changes, and sorted by their first keys at the end. */
#include "catalog/names/bucket.h"

#include "catalog/names/repo.h"
#include "core/array.h"
#include "parser/format/names.h"

#include <stdlib.h>
#include <string.h>

/* ---- building ------------------------------------------------------------------------------------------ */

enum { IS_HIDDEN = 1, BEGINS_LOCAL = 2 };

struct run_list {
    struct td_bucket_run *items;
    size_t count, capacity;
};

struct bucket_list {
    struct td_bucket *items;
    size_t count, capacity;
};

struct builder {
    struct td_snapshot *snapshot;
    unsigned char *marks; /* IS_HIDDEN, BEGINS_LOCAL of each entry */
    struct run_list named, local, other;
    struct bucket_list buckets, other_buckets;
    bool has_local, all_local;
    size_t local_first, local_count; /* the directory called `local`; none when DIR is one model */
    bool has_local_keys;             /* the keys of its files lack its name: it is no repository itself */
};

static const char local_name[] = TD_REPO_DEFAULT_NAMESPACE;
static const char local_prefix[] = TD_REPO_DEFAULT_NAMESPACE "/";

static size_t segment_len(struct td_text path)
{
    const char *slash = path.len == 0 ? NULL : memchr(path.p, '/', path.len);
    return slash == NULL ? path.len : (size_t)(slash - path.p);
}

static bool in_root(const struct td_entry *entry)
{
    return strchr(entry->path, '/') == NULL;
}

/* Marks the files of a root model that are directly in the root. When every entry belongs to the model, directories are
 * not buckets. */
static void mark_root_model(struct builder *b, const struct td_repo *repo)
{
    for (size_t i = repo->first_entry; i < repo->first_entry + repo->entry_count; i++)
        if (in_root(&b->snapshot->entries[i]))
            b->marks[i] = 0;
    b->all_local = b->all_local || repo->entry_count == b->snapshot->entry_count;
}

/* Returns whether the repository's path has one segment. */
static bool is_of_one_segment(const struct td_snapshot *snapshot, const struct td_repo *repo)
{
    const char *path = snapshot->entries[repo->first_entry].path;
    return repo->prefix_len > 0 && segment_len(td_text_n(path, repo->prefix_len)) + 1 == repo->prefix_len;
}

/* Returns whether a repository of one segment is in `local`: "local/name" is another name of "name", or the repository
 * is `local` itself. */
static bool has_local_name(const struct td_repo *repo)
{
    return repo->hub_id != repo->id || strcmp(repo->id, local_name) == 0;
}

/* Marks the entries that are not listed, and the entry where each repository of one segment begins. */
static void mark_entries(struct builder *b)
{
    const struct td_snapshot *snapshot = b->snapshot;
    for (size_t i = 0; i < snapshot->entry_count; i++)
        b->marks[i] = in_root(&snapshot->entries[i]) ? IS_HIDDEN : 0;
    const struct td_repos *repos = td_repos_of(snapshot);
    for (size_t r = 0; r < repos->count; r++) {
        const struct td_repo *repo = &repos->items[r];
        if (repo->entry_count == 0)
            continue;
        if (repo->prefix_len == 0)
            mark_root_model(b, repo);
        else if (is_of_one_segment(snapshot, repo) && (has_local_name(repo) || repo->is_other_revision))
            b->marks[repo->first_entry] |= BEGINS_LOCAL;
        if (repo->is_other_revision)
            for (size_t k = 0; k < repo->entry_count; k++)
                b->marks[repo->first_entry + k] |= IS_HIDDEN;
    }
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        for (size_t k = 0; model->is_kept_version && k < model->entry_count; k++)
            b->marks[model->first_entry + k] |= IS_HIDDEN;
    }
    td_snapshot_entries_below(snapshot, TD_TEXT(local_name), &b->local_first, &b->local_count);
    if (b->all_local)
        b->local_count = 0;
    b->has_local_keys = b->local_count > 0 && (b->marks[b->local_first] & BEGINS_LOCAL) == 0;
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
    if (!TD_ARRAY_GROW(runs->items, runs->count, runs->capacity, NULL))
        return false;
    runs->items[runs->count++] = (struct td_bucket_run){.first = entry, .count = 1, .before = before};
    return true;
}

static struct td_bucket *add_bucket(struct builder *b, struct bucket_list *list, struct td_text name)
{
    if (!TD_ARRAY_GROW(list->items, list->count, list->capacity, NULL))
        return NULL;
    struct td_bucket *bucket = &list->items[list->count];
    *bucket = (struct td_bucket){.name = td_arena_strndup(&b->snapshot->arena, name)};
    list->count += bucket->name != NULL ? 1 : 0;
    return bucket->name != NULL ? bucket : NULL;
}

/* Returns whether two entries are below the same directory of the one called `local`. */
static bool is_same_directory(const struct td_entry *x, const struct td_entry *y)
{
    size_t local_len = sizeof local_prefix - 1;
    const char *key = y->path + local_len;
    size_t directory_len = segment_len(td_text_of(key)) + 1;
    return strncmp(x->path + local_len, key, directory_len) == 0;
}

/* Adds entries to `local`. The keys of the directory called `local` come between the others, so the runs of its
 * directories are kept apart. */
static bool add_to_local(struct builder *b, size_t first, size_t count)
{
    size_t begin = b->has_local_keys ? b->local.count : 0;
    bool is_below = b->has_local_keys && first == b->local_first;
    b->has_local = true;
    for (size_t i = first; i < first + count; i++) {
        const struct td_entry *entry = &b->snapshot->entries[i];
        if (is_below && i > first && !is_same_directory(entry - 1, entry))
            begin = b->local.count;
        if ((b->marks[i] & IS_HIDDEN) == 0 && !add_entry(&b->local, begin, i))
            return false;
    }
    return true;
}

/* Makes the entries of one first segment a bucket. Sets run_count; describe_buckets() sets the runs, since their array
 * may still move. */
static bool add_named(struct builder *b, size_t first, size_t count, size_t len)
{
    size_t begin = b->named.count;
    for (size_t i = first; i < first + count; i++)
        if ((b->marks[i] & IS_HIDDEN) == 0 && !add_entry(&b->named, begin, i))
            return false;
    struct td_bucket *bucket = add_bucket(b, &b->buckets, td_text_n(b->snapshot->entries[first].path, len));
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
    const struct td_snapshot *snapshot = b->snapshot;
    for (size_t i = 0; i < snapshot->entry_count;) {
        const char *path = snapshot->entries[i].path;
        size_t len = segment_len(td_text_of(path));
        size_t first = i;
        bool alone = in_root(&snapshot->entries[i]);
        bool is_local = b->all_local || alone || (b->marks[i] & BEGINS_LOCAL) != 0 ||
                        (len == sizeof local_name - 1 && memcmp(path, local_name, len) == 0);
        for (i++; !alone && i < snapshot->entry_count; i++)
            if (strncmp(snapshot->entries[i].path, path, len + 1) != 0)
                break;
        if (alone && (b->marks[first] & IS_HIDDEN) != 0)
            continue;
        if (is_local ? !add_to_local(b, first, i - first) : !add_named(b, first, i - first, len))
            return false;
    }
    return true;
}

/* A run with its first key, to sort by. */
struct keyed_run {
    const char *key;
    struct td_bucket_run run;
};

static int keyed_compare(const void *a, const void *b)
{
    return strcmp(((const struct keyed_run *)a)->key, ((const struct keyed_run *)b)->key);
}

/* Adds the bucket `local`, and sorts its runs by their keys. */
static bool add_local(struct builder *b)
{
    struct td_bucket *bucket = add_bucket(b, &b->buckets, TD_TEXT(local_name));
    if (bucket == NULL)
        return false;
    bucket->is_local = true;
    bucket->run_count = b->local.count;
    bucket->first_entry = b->local_first;
    bucket->entry_count = b->local_count;
    if (!b->has_local_keys || b->local.count == 0)
        return true;
    bucket->local_len = sizeof local_prefix - 1;
    struct keyed_run *runs = calloc(b->local.count, sizeof *runs);
    if (runs == NULL)
        return false;
    for (size_t i = 0; i < b->local.count; i++) {
        const struct td_entry *entry = &b->snapshot->entries[b->local.items[i].first];
        runs[i] = (struct keyed_run){.key = td_bucket_key(bucket, entry), .run = b->local.items[i]};
    }
    qsort(runs, b->local.count, sizeof *runs, keyed_compare);
    for (size_t i = 0, before = 0; i < b->local.count; i++) {
        b->local.items[i] = runs[i].run;
        b->local.items[i].before = before;
        before += runs[i].run.count;
    }
    free(runs);
    return true;
}

/* Adds the unlisted bucket with the own name of a repository that is in `local`. */
static bool add_other_name(struct builder *b, const struct td_repo *repo)
{
    size_t begin = b->other.count;
    bool only_root = repo->prefix_len == 0 && !b->all_local; /* entries between its files belong to others */
    for (size_t i = repo->first_entry; i < repo->first_entry + repo->entry_count; i++) {
        bool is_own = !only_root || in_root(&b->snapshot->entries[i]);
        if (is_own && (b->marks[i] & IS_HIDDEN) == 0 && !add_entry(&b->other, begin, i))
            return false;
    }
    struct td_bucket *bucket = add_bucket(b, &b->other_buckets, td_text_of(repo->id));
    if (bucket == NULL)
        return false;
    bucket->is_other_name = true;
    bucket->prefix_len = repo->prefix_len;
    bucket->run_count = b->other.count - begin;
    return true;
}

static bool add_other_names(struct builder *b)
{
    const struct td_repos *repos = td_repos_of(b->snapshot);
    for (size_t i = 0; i < repos->count; i++) {
        const struct td_repo *repo = &repos->items[i];
        bool is_in_local = strchr(repo->id, '/') == NULL && !repo->is_dataset_folder && !repo->is_other_revision &&
                           repo->entry_count > 0 && (repo->prefix_len == 0 || has_local_name(repo)) &&
                           strcmp(repo->id, local_name) != 0;
        if (is_in_local && !add_other_name(b, repo))
            return false;
    }
    return true;
}

static int bucket_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_bucket *)a)->name, ((const struct td_bucket *)b)->name);
}

/* Sets the buckets' runs, counts and dates, and sorts the buckets. All runs must be there. */
static void describe_buckets(const struct builder *b, struct bucket_list *list, const struct td_bucket_run *runs)
{
    for (size_t i = 0; i < list->count; i++) {
        struct td_bucket *bucket = &list->items[i];
        bucket->runs = bucket->is_local ? b->local.items : runs;
        if (!bucket->is_local && bucket->run_count > 0) /* else runs may be NULL */
            runs += bucket->run_count;
        for (size_t r = 0; r < bucket->run_count; r++) {
            bucket->key_count += bucket->runs[r].count;
            for (size_t k = 0; k < bucket->runs[r].count; k++) {
                int64_t ns = b->snapshot->entries[bucket->runs[r].first + k].file->source.id.mtime_ns;
                bucket->updated_ns = ns > bucket->updated_ns ? ns : bucket->updated_ns;
            }
        }
    }
    if (list->count > 0)
        qsort(list->items, list->count, sizeof *list->items, bucket_compare);
}

static void destroy_buckets(struct td_snapshot_part *part)
{
    struct td_buckets *buckets = (struct td_buckets *)(void *)part;
    free(buckets->items);
    free(buckets->others);
    for (size_t i = 0; i < sizeof buckets->runs / sizeof *buckets->runs; i++)
        free(buckets->runs[i]);
    free(buckets);
}

const struct td_buckets *td_buckets_of(const struct td_snapshot *snapshot)
{
    static const struct td_buckets none = {.count = 0};
    return (const struct td_buckets *)(const void *)td_snapshot_part_or(snapshot, TD_PART_BUCKETS, &none.part);
}

bool td_buckets_build(struct td_snapshot *snapshot, struct td_error *err)
{
    struct builder b = {.snapshot = snapshot};
    struct td_buckets *buckets = calloc(1, sizeof *buckets);
    if (buckets == NULL)
        return td_error_no_memory(err);
    b.marks = calloc(snapshot->entry_count + 1, sizeof *b.marks);
    bool ok = b.marks != NULL;
    if (ok) {
        mark_entries(&b);
        ok = add_segments(&b) && (!b.has_local || add_local(&b)) && add_other_names(&b);
    }
    if (ok) {
        describe_buckets(&b, &b.buckets, b.named.items);
        describe_buckets(&b, &b.other_buckets, b.other.items);
    }
    free(b.marks);
    *buckets = (struct td_buckets){.part.destroy = destroy_buckets,
                                   .items = b.buckets.items,
                                   .count = ok ? b.buckets.count : 0,
                                   .others = b.other_buckets.items,
                                   .other_count = ok ? b.other_buckets.count : 0,
                                   .runs = {b.named.items, b.local.items, b.other.items}};
    (void)td_snapshot_add_part(snapshot, TD_PART_BUCKETS, &buckets->part);
    return ok || td_error_no_memory(err);
}

/* ---- finding ------------------------------------------------------------------------------------------- */

static struct td_text bucket_name(const void *context, size_t i)
{
    const char *name = ((const struct td_bucket *)context)[i].name;
    return td_text_of(name);
}

static size_t find_bucket(const struct td_bucket *buckets, size_t count, struct td_text name, bool *found)
{
    struct td_names names = {.count = count, .context = buckets, .get = bucket_name};
    return td_names_search(&names, name, found);
}

static const struct td_bucket *find_listed(const struct td_snapshot *snapshot, struct td_text name)
{
    bool found;
    const struct td_buckets *buckets = td_buckets_of(snapshot);
    size_t at = find_bucket(buckets->items, buckets->count, name, &found);
    return found ? &buckets->items[at] : NULL;
}

const struct td_bucket *td_bucket_find(const struct td_snapshot *snapshot, struct td_text name)
{
    bool found;
    const struct td_bucket *bucket = find_listed(snapshot, name);
    if (bucket != NULL)
        return bucket;
    const struct td_buckets *buckets = td_buckets_of(snapshot);
    size_t at = find_bucket(buckets->others, buckets->other_count, name, &found);
    return found ? &buckets->others[at] : NULL;
}

size_t td_buckets_after(const struct td_snapshot *snapshot, struct td_text name)
{
    bool found;
    const struct td_buckets *buckets = td_buckets_of(snapshot);
    size_t at = find_bucket(buckets->items, buckets->count, name, &found);
    return at + found;
}

const struct td_bucket *td_bucket_of(const struct td_snapshot *snapshot, struct td_text path)
{
    size_t segment = segment_len(path);
    const struct td_bucket *bucket = segment == path.len ? NULL : find_listed(snapshot, td_text_n(path.p, segment));
    return bucket != NULL ? bucket : find_listed(snapshot, TD_TEXT(local_name));
}

const struct td_entry *td_bucket_entry(const struct td_snapshot *snapshot, const struct td_bucket *bucket, size_t i)
{
    size_t low = 0;
    size_t high = bucket->run_count - 1;
    while (low < high) { /* finds the last run that does not begin after key i */
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
    bool is_below = bucket->local_len > 0 && strncmp(entry->path, local_prefix, bucket->local_len) == 0;
    return entry->path + (is_below ? bucket->local_len : bucket->prefix_len);
}

struct bucket_keys {
    const struct td_snapshot *snapshot;
    const struct td_bucket *bucket;
};

static struct td_text key_at(const void *context, size_t i)
{
    const struct bucket_keys *keys = context;
    const char *key = td_bucket_key(keys->bucket, td_bucket_entry(keys->snapshot, keys->bucket, i));
    return td_text_of(key);
}

static size_t search_key(const struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key,
                         bool *found)
{
    struct bucket_keys keys = {.snapshot = snapshot, .bucket = bucket};
    struct td_names names = {.count = bucket->key_count, .context = &keys, .get = key_at};
    return td_names_search(&names, key, found);
}

size_t td_bucket_lower(const struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key)
{
    return search_key(snapshot, bucket, key, NULL);
}

/* Finds an unlisted key of `local`: that of another revision, or a whole path below DIR. */
static const struct td_entry *find_unlisted(const struct td_snapshot *snapshot, const struct td_bucket *bucket,
                                            struct td_text key)
{
    const struct td_entry *entry = NULL;
    if (bucket->entry_count > 0)
        entry =
            td_snapshot_find_in_run(snapshot, bucket->first_entry, bucket->entry_count, sizeof local_prefix - 1, key);
    bool is_in_directory = segment_len(key) < key.len; /* some files directly in DIR are not published */
    if (entry == NULL && is_in_directory && td_bucket_of(snapshot, key) == bucket)
        entry = td_snapshot_find_entry(snapshot, key);
    return entry;
}

const struct td_entry *td_bucket_find_entry(const struct td_snapshot *snapshot, const struct td_bucket *bucket,
                                            struct td_text key)
{
    bool found;
    if (!bucket->is_local && !bucket->is_other_name)
        return td_snapshot_find_in_run(snapshot, bucket->first_entry, bucket->entry_count, bucket->prefix_len, key);
    size_t at = search_key(snapshot, bucket, key, &found);
    if (found)
        return td_bucket_entry(snapshot, bucket, at);
    return bucket->is_local ? find_unlisted(snapshot, bucket, key) : NULL;
}
