/* The view of a repository at a revision: its files on disk, or those of a virtual revision. A virtual revision does
 * not exist on disk; it has rank files, computed on request, in place of checkpoints. Shared by the facades for stock
 * clients. */
#ifndef TD_RANK_REPO_VIEW_H
#define TD_RANK_REPO_VIEW_H

#include "catalog/names/repo.h"
#include "core/text.h"
#include "http/response.h"
#include "rank/rank_store.h"
#include "rank/virtual_revision.h"

/* A view. Borrows the snapshot, on which the caller must hold a reference. */
struct td_repo_view {
    struct td_snapshot *snapshot;
    enum td_revision_kind kind;
    size_t first_entry, entry_count; /* the files, a run of the snapshot's entries */
    size_t prefix_len;        /* length of the beginning of their paths that is not part of their paths in the view */
    struct td_rank_name name; /* of all kinds but FILES: engine and number of ranks */
    uint64_t rank;            /* of RANK: the rank */
    const struct td_model *model; /* of RANKS: the model, which has a checkpoint */
    int64_t updated_ns;           /* time of the last change, ns since 1970 */
    char commit[TD_COMMIT_BYTES]; /* empty for RANKS */
};

/* A file of a view. Kept small, because a view may have a million. */
struct td_repo_item {
    const char *path;             /* path in the view; lives in the arena of the list, or in the entry */
    const struct td_entry *entry; /* the file on disk; NULL for a rank file, which has the next two members */
    const struct td_model *model;
    uint64_t rank;
};

/* The description of an item, for listings. */
struct td_repo_stat {
    uint64_t size_bytes;
    char tag[TD_SHA256_TEXT_BYTES]; /* strong validator: hexadecimal digits */
    bool is_sha256;                 /* the tag is the SHA-256 of the item's bytes */
    int64_t updated_ns;             /* ns since 1970; of a rank file, that of its model */
};

/* Opens the view of a repository at a revision: "main", "HEAD", a commit, a ref, or the name or commit of a virtual
 * revision. A view needs no closing. `repo` is a result of td_repo_find. Errors: TD_NOT_FOUND when there is no such
 * revision; TD_RESOURCE_EXHAUSTED. err must not be NULL. */
bool td_repo_view_open(struct td_snapshot *snapshot, const struct td_repo *repo, struct td_text revision,
                       struct td_repo_view *view, struct td_error *err);

/* Opens the view of one model in which the files of all ranks of an engine stand in place of its checkpoint, which it
 * must have. Models below it lose their checkpoints. */
void td_repo_view_ranks(struct td_snapshot *snapshot, const struct td_model *model, const struct td_rank_name *name,
                        struct td_repo_view *view);

/* Lists all items, sorted by path in byte order, in the arena. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_repo_view_list(const struct td_repo_view *view, struct td_arena *arena, struct td_repo_item **items,
                       size_t *count, struct td_error *err);

/* Does the same for the rank files alone, in the order of their models. */
bool td_repo_view_list_rank_files(const struct td_repo_view *view, struct td_arena *arena, struct td_repo_item **items,
                                  size_t *count, struct td_error *err);

/* Notes the view's folder as the subject of the response (td_response_note_subject), unless the revision is the one
 * that clients get without naming any. */
void td_repo_view_note(const struct td_repo_view *view, struct td_text revision, struct td_response *response);

/* Returns whether each checkpoint that the view replaces can be written to a safetensors file; true when the view
 * replaces none. */
bool td_repo_view_fits(const struct td_repo_view *view);

/* The models with files in a view: those in its directory or below. Borrowed from the snapshot. All members are
 * private. */
struct td_repo_models {
    const struct td_model
        *root;                 /* the model with files directly in the root, or the model of RANKS; then the only one */
    const struct td_model *at; /* the model in the directory itself, or NULL */
    const struct td_model *children; /* the first model in a directory below it */
    size_t child_count;
};

/* Returns the models of the view. Takes time in proportion to their number. */
struct td_repo_models td_repo_view_models(const struct td_repo_view *view);

/* Returns the i-th of the models; NULL past the last. */
const struct td_model *td_repo_models_get(const struct td_repo_models *models, size_t i);

/* Returns the model's directory in the view, without a '/' at its end; empty when the files are in the view's own. */
struct td_text td_repo_view_directory(const struct td_repo_view *view, const struct td_model *model);

/* Returns whether the view shows this entry of its run, with the content that is on disk. */
bool td_repo_view_keeps(const struct td_repo_view *view, const struct td_entry *entry);

/* Returns the format of the files that the view shows of a checkpoint (static): the checkpoint's own format if the view
 * shows the files on disk. Virtual revisions show safetensors alone. */
const char *td_repo_view_format(const struct td_repo_view *view, const struct td_checkpoint *checkpoint);

/* Sets *item to the file of a rank below name.tp_size, in a view of RANKS. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_repo_view_rank(const struct td_repo_view *view, uint64_t rank, struct td_arena *arena,
                       struct td_repo_item *item, struct td_error *err);

/* Finds the item at this path and sets *item; the path of a rank file is copied into the arena. In a view of RANK,
 * finds the rank file under two names: model.safetensors and the name of a sharded state
 * (model-rank-{r}-part-0.safetensors). td_repo_view_list lists only the name that the engine expects. Errors:
 * TD_NOT_FOUND, TD_RESOURCE_EXHAUSTED. */
bool td_repo_view_find(const struct td_repo_view *view, struct td_text path, struct td_arena *arena,
                       struct td_repo_item *item, struct td_error *err);

/* Copies the reason why a rank file of this model cannot be made. For TD_FAILED_PRECONDITION names the model's folder
 * before it, if that is not the view's own. Returns false. */
bool td_repo_view_refuse(const struct td_repo_view *view, const struct td_model *model, const struct td_error *why,
                         struct td_error *err);

/* Returns the set of rank files that the view makes of this model's checkpoint. Borrows the view. */
struct td_rank_set td_repo_view_rank_set(const struct td_repo_view *view, const struct td_model *model);

/* Describes many items of a view. An engine's rules are matched once for consecutive items of the same model. From the
 * first file that has to be made until td_repo_stats_fini, the series holds one of the TD_RANK_MAKERS places. During
 * that time the caller must not wait for anything. For one thread; store and view are borrowed; the struct must not be
 * moved. All members are private. */
struct td_repo_stats {
    struct td_rank_store *store;
    const struct td_repo_view *view;
    struct td_rank_set set; /* of the model of the latest rank file; model is NULL before the first one */
    struct td_rank_maker maker;
};

/* Starts and ends a series of descriptions. */
void td_repo_stats_init(struct td_repo_stats *stats, struct td_rank_store *store, const struct td_repo_view *view);
void td_repo_stats_fini(struct td_repo_stats *stats);

/* Describes one item. Makes the file of a rank, if the store does not have it, to learn its length. Errors as
 * td_rank_store_get. */
bool td_repo_stats_get(struct td_repo_stats *stats, const struct td_repo_item *item, struct td_repo_stat *out,
                       struct td_error *err);

/* Describes a single item, as a series of one. Errors as td_rank_store_get. */
bool td_repo_item_stat(struct td_rank_store *store, const struct td_repo_view *view, const struct td_repo_item *item,
                       struct td_repo_stat *stat, struct td_error *err);

/* Fills the response with a whole 200 answer of the item: body, type, validators, Last-Modified. Errors as
 * td_file_answer and td_rank_store_get; then the caller must fail the response. */
bool td_repo_item_answer(struct td_rank_store *store, const struct td_repo_view *view, const struct td_repo_item *item,
                         struct td_response *response, struct td_error *err);

#endif
