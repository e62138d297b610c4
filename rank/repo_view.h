/* The view of a repository at a revision: its files on disk, or the files of a made revision. A made revision does not
 * exist on disk; it has safetensors files, made on request, in the place of checkpoints. Shared by the facades for
 * stock clients. */
#ifndef TD_RANK_REPO_VIEW_H
#define TD_RANK_REPO_VIEW_H

#include "catalog/repo.h"
#include "core/text.h"
#include "http/response.h"
#include "rank/rank_store.h"
#include "rank/virtual_revision.h"

/* Points to the snapshot, of which a reference must be held. */
struct td_repo_view {
    struct td_snapshot *snapshot;
    enum td_revision_kind kind;
    size_t first_entry, entry_count; /* the files, a run of the snapshot's entries */
    size_t prefix_len;               /* of their paths that is not part of their paths in the view */
    struct td_rank_name name;        /* of RANK and RANKS */
    uint64_t rank;                   /* of RANK */
    const struct td_model *model;    /* of RANKS; it has a checkpoint */
    int64_t updated_ns;
    char commit[TD_COMMIT_BYTES];
};

/* A file of a view. Small, since a view may have a million. */
struct td_repo_item {
    const char *path;             /* in the view; in the arena of the list, or the entry's */
    const struct td_entry *entry; /* NULL: one that is made: */
    const struct td_model *model;
    uint64_t rank;
};

/* What is known of an item without sending it. */
struct td_repo_stat {
    uint64_t size_bytes;
    char tag[TD_SHA256_TEXT_BYTES]; /* strong validator: hexadecimal digits */
    bool is_sha256;                 /* the tag is the SHA-256 of its bytes */
    int64_t updated_ns;
};

/* The repository at a revision: "main", "HEAD", a commit, a ref, or the name or the commit of a revision that lies
 * nowhere. repo is as td_repo_find gave it. False: no such revision (err TD_NOT_FOUND), or memory is short. */
bool td_repo_view_open(struct td_snapshot *snapshot, const struct td_repo *repo, struct td_text revision,
                       struct td_repo_view *view, struct td_error *err);

/* A model's files, with the files of all ranks of this engine in place of its checkpoint, which it must have; models
 * below it lose theirs. */
void td_repo_view_ranks(struct td_snapshot *snapshot, const struct td_model *model, const struct td_rank_name *name,
                        struct td_repo_view *view);

/* All items by path, in the arena. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_repo_view_list(const struct td_repo_view *view, struct td_arena *arena, struct td_repo_item **items,
                       size_t *count, struct td_error *err);

/* Returns whether each checkpoint that the view has a safetensors file for can be written as one. */
bool td_repo_view_fits(const struct td_repo_view *view);

/* The i-th of the models whose files are among the view's; NULL past the last. */
const struct td_model *td_repo_view_model(const struct td_repo_view *view, size_t i);

/* The model's directory in the view, without a '/' behind it; empty for the view's own. */
struct td_text td_repo_view_directory(const struct td_repo_view *view, const struct td_model *model);

/* Whether the view shows this file of its run as it lies. */
bool td_repo_view_keeps(const struct td_repo_view *view, const struct td_entry *entry);

/* Of RANKS: the file of a rank below name.tp_size. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_repo_view_rank(const struct td_repo_view *view, uint64_t rank, struct td_arena *arena,
                       struct td_repo_item *item, struct td_error *err);

/* The item at this path, which is copied into the arena; TD_NOT_FOUND when there is none. The view of one rank has that
 * rank's file by the name of a sharded state as well, unlisted. */
bool td_repo_view_find(const struct td_repo_view *view, struct td_text path, struct td_arena *arena,
                       struct td_repo_item *item, struct td_error *err);

/* Tells it of many items of a view: an engine's rules are matched once for all ranks of a model, when these follow each
 * other. From the first file that is not there already it is one of the TD_RANK_MAKERS until its end, so wait for
 * nothing meanwhile. One thread's; store and view are borrowed; not to be moved. */
struct td_repo_stats {
    struct td_rank_store *store;
    const struct td_repo_view *view;
    struct td_rank_set want; /* of the model whose file was the last that is made; NULL: none was */
    struct td_rank_maker maker;
};

void td_repo_stats_init(struct td_repo_stats *stats, struct td_rank_store *store, const struct td_repo_view *view);
void td_repo_stats_fini(struct td_repo_stats *stats);

/* Errors as td_rank_store_get. */
bool td_repo_stats_get(struct td_repo_stats *stats, const struct td_repo_item *item, struct td_repo_stat *out,
                       struct td_error *err);

/* The same of one item alone. */
bool td_repo_item_stat(struct td_rank_store *store, const struct td_repo_view *view, const struct td_repo_item *item,
                       struct td_repo_stat *stat, struct td_error *err);

/* Makes the item a whole 200 answer: body, type, validators, Last-Modified. False: as td_file_source_map and
 * td_rank_store_get; the response is as it was or to be failed. */
bool td_repo_item_answer(struct td_rank_store *store, const struct td_repo_view *view, const struct td_repo_item *item,
                         struct td_response *response, struct td_error *err);

#endif
