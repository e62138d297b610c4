/* Files that may belong to a checkpoint, by their names. */
#ifndef TD_CATALOG_MODEL_CANDIDATE_H
#define TD_CATALOG_MODEL_CANDIDATE_H

#include "catalog/model/snapshot.h"

/* Whether a file holds one rank's part of a model, judged by its name and the names of its siblings and directories. */
enum td_candidate_part {
    TD_CANDIDATE_WHOLE,
    TD_CANDIDATE_RANK,    /* one rank's part of the model's tensors (catalog/checkpoints/rank_part.h) */
    TD_CANDIDATE_NUMBERED /* a rank part, unless all such files are safetensors and share no tensor */
};

/* A file of one directory whose name says that it belongs to a checkpoint. */
struct td_candidate {
    const char *path;     /* path as clients know it; the snapshot's */
    size_t directory_len; /* length of the directory in the path; 0: the file is directly in the root */
    size_t model_len;     /* length of the beginning of the path that its model's files share: the directory; for a file
                             directly in the root, the stem of its group, or the whole path, or 0 (all are one model) */
    bool alone;           /* inspected by itself: even a shard counts as a whole checkpoint */
    enum td_file_kind kind;       /* what the file is, by its name */
    const struct td_entry *entry; /* NULL when the file could not even be opened */
    const char *error;            /* the reason for that; the snapshot's */
    enum td_candidate_part part;
    const char *index; /* path of an index in a parent directory that lists the file as a shard; NULL: none */
};

/* Return whether there is a file and it was read without a fault. `entry` may be NULL. */
static inline bool td_entry_is_readable(const struct td_entry *entry)
{
    return entry != NULL && entry->file->readable;
}
static inline bool td_candidate_is_usable(const struct td_candidate *candidate)
{
    return td_entry_is_readable(candidate->entry);
}

#endif
