/* Buckets: the files of a snapshot as clients of S3 see them. Each file has a bucket and a key in that bucket. DIR is
 * the served directory; paths are relative to DIR. Hidden files are not listed, but can be found by their keys: those
 * of other revisions of a cache. After td_buckets_build nothing changes, so any thread may call the other functions.
 *  - The files below a directory DIR/x form the bucket x. A key is the path below x.
 *  - A repository of one segment (DIR/x holds files directly) and a model with files directly in DIR belong to the
 *    bucket `local`, with the whole path as key. So do all files when DIR itself is one model. Each such repository or
 *    model is also a bucket by its own name, which is not listed.
 *  - When DIR holds a directory called `local`, the directories in it belong to the bucket `local` too, with the path
 *    below `local` as key. If one of them has the name of a repository of one segment, that repository is not in
 *    `local`; it is a listed bucket by its own name. */
#ifndef TD_CATALOG_NAMES_BUCKET_H
#define TD_CATALOG_NAMES_BUCKET_H

#include "catalog/model/snapshot.h"
#include "core/text.h"

/* Entries that follow one another both in the snapshot and in a bucket. */
struct td_bucket_run {
    size_t first, count; /* of snapshot->entries */
    size_t before;       /* number of the bucket's keys that come before this run */
};

/* Owned by the snapshot, with its name and runs. */
struct td_bucket {
    const char *name;
    bool is_local;
    bool is_other_name; /* a further, unlisted name of a repository or model in `local` */
    size_t prefix_len;  /* length of the beginning of the paths that is not part of the keys */
    size_t local_len; /* of `local`, when DIR holds a directory called so: the same length for entries in it; else 0 */
    size_t first_entry, entry_count;  /* of snapshot->entries: all below the segment, unlisted ones too; of `local`:
                                         those in the directory called so; 0, 0 for another name */
    const struct td_bucket_run *runs; /* the listed entries, in the order of their keys */
    size_t run_count;
    size_t key_count;   /* number of listed keys */
    int64_t updated_ns; /* newest mtime of the listed files, ns since 1970; 0 without files */
};

/* The buckets of a snapshot. */
struct td_buckets {
    struct td_snapshot_part part;
    struct td_bucket *items; /* sorted by name */
    size_t count;
    struct td_bucket *others; /* unlisted: further names of what is in `local`; sorted by name */
    size_t other_count;
    struct td_bucket_run *runs[3]; /* what the buckets' `runs` point to: named ones, `local`, unlisted ones */
};

/* Returns the snapshot's buckets; none before td_buckets_build. Any thread. */
const struct td_buckets *td_buckets_of(const struct td_snapshot *snapshot);

/* Makes the buckets of the snapshot. Call once, when the snapshot has its entries, models and repositories, and before
 * other threads see it. Lists no files of other revisions of a Hugging Face cache than the chosen one. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_buckets_build(struct td_snapshot *snapshot, struct td_error *err);

/* Returns the bucket of this name, listed or not, or NULL. Like every pointer that a function here returns, it is valid
 * as long as the snapshot. */
const struct td_bucket *td_bucket_find(const struct td_snapshot *snapshot, struct td_text name);

/* Returns the index in the listed buckets of the first bucket whose name is greater than the given one (where a page
 * continues); their count when no bucket's is. */
size_t td_buckets_after(const struct td_snapshot *snapshot, struct td_text name);

/* Returns the listed bucket that a file at this path below DIR belongs to: that of the first segment, else `local`;
 * NULL when neither bucket exists. Does not check that the file exists. */
const struct td_bucket *td_bucket_of(const struct td_snapshot *snapshot, struct td_text path);

/* Returns the entry of the i-th listed key in byte order, i below key_count. */
const struct td_entry *td_bucket_entry(const struct td_snapshot *snapshot, const struct td_bucket *bucket, size_t i);

/* Returns the key of an entry that is in the bucket: the end of the entry's path. */
const char *td_bucket_key(const struct td_bucket *bucket, const struct td_entry *entry);

/* Returns the number of the first listed key that is equal to `key` or comes after it in byte order; key_count when no
 * key is. */
size_t td_bucket_lower(const struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key);

/* Returns the file with this key, listed or not; NULL when no file has it. */
const struct td_entry *td_bucket_find_entry(const struct td_snapshot *snapshot, const struct td_bucket *bucket,
                                            struct td_text key);

#endif
