/* The keys of a bucket in byte order: the keys of its files. Below a prefix that names a model, an engine and a number
 * of ranks: the keys of the rank files for these. */
#ifndef TD_API_S3_S3_KEYS_H
#define TD_API_S3_S3_KEYS_H

#include "catalog/names/bucket.h"
#include "core/text.h"
#include "rank/repo_view.h"

/* A directory of rank files, which do not exist on disk: {model}/shards/{engine}/tp{n}/... */
struct td_s3_rank_files {
    struct td_repo_view view;
    struct td_text base; /* the beginning of its keys, the last '/' included; in the arena */
};

/* Returns whether a key, or prefix of keys, is inside a directory of rank files, and sets *out. The directory's last
 * '/' may be missing. A directory of that name on disk comes first: then false. Returns false and sets err when memory
 * is short: TD_RESOURCE_EXHAUSTED. err must not be NULL. */
bool td_s3_rank_files_find(struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key,
                           struct td_arena *arena, struct td_s3_rank_files *out, struct td_error *err);

/* Writes a hint for a missing key that resembles one of a rank file, to append to the error message; else an empty
 * text. TD_S3_ADVICE_BYTES are enough. */
enum { TD_S3_ADVICE_BYTES = 512 };
void td_s3_rank_files_advise(struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key,
                             char *out, size_t capacity);

/* A cursor over the keys. */
struct td_s3_keys {
    const struct td_snapshot *snapshot;
    const struct td_bucket *bucket;
    size_t at;          /* number of the next key of the bucket; of rank files: of the next entry of the view's run */
    bool is_rank_files; /* these are the keys of a directory of rank files */
    struct td_s3_rank_files rank_files;
    uint64_t rank; /* of rank files: the rank of the next one; name.tp_size: no more */
};

/* Sets the cursor to the first key that a listing with this prefix can show. The arena owns the memory of the keys.
 * Errors: TD_RESOURCE_EXHAUSTED. err must not be NULL. */
bool td_s3_keys_open(struct td_s3_keys *keys, struct td_snapshot *snapshot, const struct td_bucket *bucket,
                     struct td_text prefix, struct td_arena *arena, struct td_error *err);

/* Moves to the first key that does not come before this one in byte order. */
void td_s3_keys_seek(struct td_s3_keys *keys, struct td_text key);

/* Writes the current key to *text, which is emptied first, and sets *item, whose path lives in the arena or the
 * snapshot. Returns false at the end, and, with err set, when memory is short. */
bool td_s3_keys_get(const struct td_s3_keys *keys, struct td_arena *arena, struct td_buffer *text,
                    struct td_repo_item *item, struct td_error *err);

/* Moves to the next key; stays at the end. */
void td_s3_keys_next(struct td_s3_keys *keys);

#endif
