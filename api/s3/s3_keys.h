/* The keys of a bucket in byte order: those of its files, or, below a prefix that names a model, an engine and a number
 * of ranks, those of the files that are made for these. */
#ifndef TD_API_S3_S3_KEYS_H
#define TD_API_S3_S3_KEYS_H

#include "catalog/bucket.h"
#include "core/text.h"
#include "rank/repo_view.h"

/* Keys of made files, which do not exist on disk: {model}/shards/{engine}/tp{n}/... */
struct td_s3_shards {
    struct td_repo_view view;
    struct td_text base; /* what they begin with, the last '/' included; in the arena */
};

/* Whether this key, or prefix of keys, names such a directory; its last '/' may be missing. Files that lie in a
 * directory of that name are there instead. False with err: TD_RESOURCE_EXHAUSTED. */
bool td_s3_rank_files_find(struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key,
                           struct td_arena *arena, struct td_s3_shards *out, struct td_error *err);

/* Of a key that is not there but looks like one of those: what would be right, to be put behind what is wrong. Else
 * empty. TD_S3_ADVICE_BYTES suffice. */
enum { TD_S3_ADVICE_BYTES = 512 };
void td_s3_rank_files_advise(struct td_snapshot *snapshot, const struct td_bucket *bucket, struct td_text key,
                             char *out, size_t capacity);

/* A place among the keys. */
struct td_s3_keys {
    const struct td_snapshot *snapshot;
    const struct td_bucket *bucket;
    size_t at; /* the next key of the bucket; of shards: the next entry of the view's run */
    bool is_shards;
    struct td_s3_shards shards;
    uint64_t rank; /* of shards: the next one's file; name.tp_size: no more */
};

/* Those that a listing with this prefix can show; at the first. The arena holds what they need. */
bool td_s3_keys_open(struct td_s3_keys *keys, struct td_snapshot *snapshot, const struct td_bucket *bucket,
                     struct td_text prefix, struct td_arena *arena, struct td_error *err);

/* Goes to the first that does not come before this one. */
void td_s3_keys_seek(struct td_s3_keys *keys, struct td_text key);

/* The one that this place is at: its text to *text (emptied first) and its item, whose path is in the arena or a
 * file's. False at the end, or, with err, for want of memory. */
bool td_s3_keys_get(const struct td_s3_keys *keys, struct td_arena *arena, struct td_buffer *text,
                    struct td_repo_item *item, struct td_error *err);

void td_s3_keys_next(struct td_s3_keys *keys);

#endif
