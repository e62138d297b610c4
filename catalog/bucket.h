/* Buckets: the files of a snapshot by two names, as clients of S3 know them. A bucket holds what is below one first
 * segment of the files' paths; a key is the rest of the path. Repositories of one segment, and models whose files are
 * directly in the root, are in the bucket `local` with their whole path as key, and so is everything when DIR is one
 * model. Each of them is also a bucket by its own name, which is not listed. In a directory that is itself called
 * `local`, the directories are in the bucket `local` too, with the rest of the path as key; a repository of one segment
 * that has the name of one of these is a bucket by its own name alone, which then is listed. */
#ifndef TD_CATALOG_BUCKET_H
#define TD_CATALOG_BUCKET_H

#include "catalog/snapshot.h"
#include "core/text.h"

/* Entries that follow each other both in the snapshot and in a bucket. */
struct td_bucket_run {
    size_t first, count;
    size_t before; /* keys of the bucket that come before it */
};

struct td_bucket {
    const char *name;
    bool is_local;
    bool is_other_name;               /* of what is in `local` */
    size_t prefix_len;                /* of its entries' paths that is not part of their keys */
    size_t local_len;                 /* of `local`: the same of entries in a directory called so; 0: as of others */
    size_t first_entry, entry_count;  /* all below the segment, unlisted keys too; of `local` in that directory */
    const struct td_bucket_run *runs; /* what is listed */
    size_t run_count;
    size_t key_count; /* listed ones */
    int64_t updated_ns;
};

/* Sets snapshot->buckets and other_buckets, sorted by name; entries, models and repositories are there. Files of other
 * revisions of a Hugging Face cache than the chosen one are not listed. */
bool td_buckets_build(struct td_snapshot *snapshot, struct td_error *err);

/* Listed or not. NULL when there is none. */
const struct td_bucket *td_bucket_find(const struct td_snapshot *snapshot, struct td_text name);

/* Index of the first bucket whose name is greater than the given one (where a page continues). */
size_t td_buckets_after(const struct td_snapshot *snapshot, struct td_text name);

/* The listed bucket that a path's files are in, by its first segment; NULL when there is none. */
const struct td_bucket *td_bucket_of(const struct td_snapshot *snapshot, struct td_text path);

/* The i-th listed key, i below key_count. */
const struct td_entry *td_bucket_entry(const struct td_snapshot *snapshot, const struct td_bucket *bucket, size_t i);

/* An entry's key in its bucket. */
const char *td_bucket_key(const struct td_bucket *bucket, const struct td_entry *entry);

/* The place of the first listed key that does not come before this one in byte order; key_count when all do. */
size_t td_bucket_lower(const struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key);

/* The file with this key, listed or not; NULL when there is none. */
const struct td_entry *td_bucket_find_entry(const struct td_snapshot *snapshot, const struct td_bucket *bucket,
                                            struct td_text key);

#endif
