/* Snapshots: what the served root held at one scan, or the part of that which one caller may see (catalog/scan/view.h).
 * A snapshot is immutable once it is published, and counts references, so a request sees one consistent state. Files
 * that did not change are shared with the snapshot before.
 *
 * Lifetimes: a snapshot owns its models, checkpoints and entries, and holds a reference on its root and on each file; a
 * file outlives every snapshot that shows it. Everything reached from a snapshot is valid while a reference on the
 * snapshot is held.
 *
 * Reading and taking references is thread-safe. The functions that change a snapshot are for the scan that builds it.
 */
#ifndef TD_CATALOG_MODEL_SNAPSHOT_H
#define TD_CATALOG_MODEL_SNAPSHOT_H

#include "catalog/model/facts.h"
#include "catalog/model/file_kind.h"
#include "catalog/model/unsettled.h"
#include "core/arena.h"
#include "core/budget.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/text.h"
#include "parser/format/format.h"
#include "parser/format/manifest.h"
#include "parser/rows/index/row_format.h"
#include "parser/rows/json_shape.h"
#include "parser/shard_index.h"
#include "parser/torch/torch_dcp.h"
#include "storage/file_source.h"
#include "storage/tiled.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The state of a file's SHA-256, which is written once, by the thread that sets TD_HASH_WRITTEN. */
enum td_hash_state { TD_HASH_UNKNOWN, TD_HASH_WRITTEN, TD_HASH_KNOWN };

/* One regular file; a checkpoint file has its parsed manifest here. */
struct td_file {
    _Atomic int refs;
    uint64_t number; /* unique in this process; one content under two names has two numbers */
    struct td_mapping_cache *maps;
    struct td_budget *memory;       /* that memory_bytes are taken from; borrowed; NULL: none */
    size_t memory_bytes;            /* memory that this file's content takes */
    size_t needed_bytes;            /* refused, because less than this was left; else 0 */
    struct td_file_source source;   /* path below the root, and identity */
    enum td_file_kind kind;         /* also plain when its bytes are not of the format that its name may stand for */
    const struct td_format *format; /* of TENSORS and DCP_PART; else NULL */
    bool readable;                  /* parsed without fault: the members for its kind are valid */
    bool is_lfs_pointer;            /* the file is only a Git LFS pointer; `error` says so */
    bool transient;                /* refused for a reason that may pass (I/O, memory): the next scan parses it again */
    struct td_manifest manifest;   /* of TENSORS and DCP_PART; else empty */
    struct td_shard_index index;   /* of SHARD_INDEX */
    struct td_dcp dcp;             /* of DCP_METADATA */
    struct td_dtype_count *counts; /* elements of its tensors by type, in the manifest's arena */
    size_t count_count;
    enum td_facts_kind facts_kind; /* of PLAIN: which facts of the model beside it the file may hold */
    struct td_facts *facts;        /* the facts, or NULL */
    enum td_json_shape json_shape; /* of PLAIN: the shape of a .json file without facts, whose lines may be rows */
    struct td_file_rows *rows;     /* of a file of a dataset; NULL: none */
    char *error;                   /* why it was refused or is damaged, one line; NULL: it is right, or was not read */
    char identity_tag[TD_TAG_BYTES];   /* strong validator of its bytes until their SHA-256 is known */
    char sha256[TD_SHA256_TEXT_BYTES]; /* SHA-256 of its bytes in hexadecimal; valid in the state TD_HASH_KNOWN */
    _Atomic(enum td_hash_state) hash_state;
    _Atomic bool hash_failed; /* hashing failed; only a caller that waits makes the hasher try again */
};

/* A file under the name that clients know: models--org--name/snapshots/<commit>/x is org/name/x. */
struct td_entry {
    const char *path;
    struct td_file *file;
};

/* Why a file or set is refused or damaged. */
struct td_problem {
    const char *path; /* path below the model; in a snapshot's own list, below the root */
    const char *message;
};

struct td_problems {
    struct td_problem *items;
    size_t count, capacity;
    bool incomplete; /* memory was too short to add a problem */
};

/* One tensor of a checkpoint, and the number of the part (file) that holds it. */
struct td_tensor_ref {
    const struct td_tensor *tensor;
    uint32_t part;
};

/* The joined tensors of a distributed checkpoint, or of a file with tensors in other files. They point into the source
 * files; snapshots with the same files share them. */
struct td_joined_tensors {
    _Atomic int refs;
    struct td_arena arena; /* owns the tensors, their pieces and all lists here */
    struct td_tensor_ref *tensors;
    struct td_grid **grids; /* for each tensor; NULL unless it has several pieces */
    size_t tensor_count;
};

/* One complete set of tensors. */
struct td_checkpoint {
    const char *id; /* "safetensors", "pytorch", "dcp" or a name */
    const char *format;
    const struct td_entry **parts; /* the files that hold it */
    size_t part_count;
    struct td_tensor_ref *refs;     /* sorted by name; NULL when the tensors are those of the first part's manifest */
    struct td_joined_tensors *join; /* owns the refs, for a distributed checkpoint and for external data; else NULL */
    size_t tensor_count;
    uint64_t total_bytes;  /* of the tensors that can be served (of a tensor that cannot, its parts may be served) */
    bool fits_safetensors; /* every tensor can be written to a safetensors file */
    /* The files belong to a model but cannot be loaded as a model: a variant of its weights, a projector, an
     * optimizer's state. Never the default checkpoint when another one has tensors. */
    bool is_secondary;
    /* One of `partials` that a request must name to get: it holds one rank's part of the tensors, or it is a file
     * beside such parts that holds no model. */
    bool is_rank_part;
    const struct td_metadata *metadata;
    size_t metadata_count;
    const struct td_lacks *lacks;  /* what an incomplete checkpoint lacks (partial_checkpoint.h); else NULL */
    char tag[TD_TAG_BYTES];        /* changes whenever anything in its manifest may change */
    char former_tag[TD_TAG_BYTES]; /* the tag until all its files are hashed */
};

struct td_model {
    const char *id;
    size_t directory_len;   /* length of its files' directory, which is then its id; 0: directly in the root */
    const char *revision;   /* commit of a Hugging Face cache, or NULL */
    bool is_other_revision; /* another revision of a cache than main, which has the plain id; not listed */
    bool is_kept_version;   /* a version that --upstream keeps (td_version_split_folder); then `revision` is the
                               version's name, and is_other_revision is true */
    bool is_of_subfolder;   /* this version is a subfolder at the upstream */
    size_t first_entry, entry_count;   /* its files, a run of the snapshot's entries */
    const struct td_entry *config;     /* config.json, or NULL */
    struct td_checkpoint *checkpoints; /* the default one first, the others by id */
    size_t checkpoint_count;
    struct td_checkpoint *partials; /* incomplete checkpoints */
    size_t partial_count, partial_capacity;
    /* The model is a delta: its files hold the changes to another version (td_shard_index). It has no checkpoints of
     * either kind. */
    bool is_delta;
    const char *base; /* the version that a delta changes, known here or not; NULL: its index names no version */
    struct td_problems problems;
    size_t damaged_count;   /* derived: how many of the problems are of damaged plain files, such as config.json; the
                               grouping counts them while it adds them */
    uint64_t total_bytes;   /* bytes of all checkpoints' tensors */
    uint64_t file_bytes;    /* at most 2^64-1 */
    int64_t updated_ns;     /* mtime of the newest file, ns since 1970 */
    char tag[TD_TAG_BYTES]; /* changes whenever any statement about the model may change, digests aside */
    /* The same hash with the files' digests in place of their identities, so that copies of a model have equal tags on
     * all machines. Empty until all of the model's files are hashed. */
    char content_tag[TD_TAG_BYTES];
};

/* The parts of a snapshot that other modules make. Each of these modules declares a struct of its own, which begins
 * with a td_snapshot_part, and has a function that returns it. */
enum td_snapshot_part_number {
    TD_PART_VIEWS,     /* catalog/scan/view.c */
    TD_PART_REPOS,     /* catalog/names/repo.h */
    TD_PART_FAMILIES,  /* catalog/names/family.h */
    TD_PART_BUCKETS,   /* catalog/names/bucket.h */
    TD_PART_OCI_NAMES, /* catalog/names/oci_name.h */
    TD_PART_DATASETS,  /* catalog/dataset/dataset.h */
    TD_PART_LISTS,     /* api/native/listing.c */
    TD_SNAPSHOT_PARTS
};

/* The beginning of a part: the snapshot's view of it. */
struct td_snapshot_part {
    void (*destroy)(struct td_snapshot_part *part); /* frees the part, while the snapshot still has all else */
};

struct td_snapshot;

/* A function that td_snapshot_unref calls instead of td_snapshot_free when the last reference is dropped. */
struct td_retirement {
    void (*retire)(void *context, struct td_snapshot *snapshot); /* NULL: none */
    void *context;
    struct td_snapshot *next; /* for a list of retired snapshots */
};

struct td_snapshot {
    _Atomic int refs;
    uint64_t generation; /* number of the snapshot, one more than that of the snapshot before */
    struct td_arena arena;
    struct td_root *root;
    struct td_entry *entries; /* sorted by path (byte order) */
    size_t entry_count;
    struct td_model *models; /* sorted by id */
    size_t model_count;
    bool root_is_model;          /* the files directly in the root are one model */
    struct td_problems problems; /* of files that could not be published at all */
    size_t hashed_count;         /* files whose SHA-256 was known when the snapshot was made */
    char tag[TD_TAG_BYTES];      /* a hash over all that models are made of, digests aside */
    struct td_unsettled_facts unsettled;
    struct td_retirement retirement;
    /* A view (catalog/scan/view.h) shares the files and checkpoints of this snapshot, and a reference on the view is
     * also one on this snapshot. NULL: the snapshot is no view. */
    struct td_snapshot *base;
    _Atomic(struct td_snapshot_part *) parts[TD_SNAPSHOT_PARTS]; /* NULL: not made */
};

/* Passes a part to the snapshot, which destroys it at its own end. If the snapshot has this part already, destroys the
 * new one. Returns the part that the snapshot has. Any thread. */
struct td_snapshot_part *td_snapshot_add_part(struct td_snapshot *snapshot, enum td_snapshot_part_number number,
                                              struct td_snapshot_part *part);

/* Returns the part, borrowed; NULL: it was not made. Any thread. */
struct td_snapshot_part *td_snapshot_get_part(const struct td_snapshot *snapshot, enum td_snapshot_part_number number);

/* Returns the part, borrowed, or `none` if it was not made. Any thread. */
const struct td_snapshot_part *td_snapshot_part_or(const struct td_snapshot *snapshot,
                                                   enum td_snapshot_part_number number,
                                                   const struct td_snapshot_part *none);

/* Takes a reference for the caller. Returns `snapshot`. */
struct td_snapshot *td_snapshot_ref(struct td_snapshot *snapshot);

/* Drops a reference; the last one frees or retires the snapshot. NULL: does nothing. */
void td_snapshot_unref(struct td_snapshot *snapshot);

/* Frees a snapshot without references, for retire functions and for builders that fail. NULL: does nothing. */
void td_snapshot_free(struct td_snapshot *snapshot);

/* td_file_ref takes a reference for the caller and returns `file`. td_file_unref drops a reference; the last one frees
 * the file. td_file_unref(NULL) does nothing. Any thread. */
struct td_file *td_file_ref(struct td_file *file);
void td_file_unref(struct td_file *file);

/* Returns the validator of the file's bytes: the SHA-256 once it is known (64 hexadecimal digits), else a tag made of
 * its identity (32 digits). Valid as long as the file. Any thread. */
const char *td_file_tag(const struct td_file *file);

/* Sets the SHA-256 of the file's bytes (TD_SHA256_BYTES in binary). Returns false and changes nothing when the SHA-256
 * was set before. Any thread. */
bool td_file_set_sha256(struct td_file *file, const uint8_t *sum);

/* Returns the SHA-256 in hexadecimal, valid as long as the file; NULL while it is not known. Any thread. */
const char *td_file_sha256(const struct td_file *file);

/* Frees the content that was read; the file is then not readable. Only for a file that no other thread can see yet. */
void td_file_forget_content(struct td_file *file);

/* Returns an empty list with one reference, or NULL (TD_RESOURCE_EXHAUSTED). */
struct td_joined_tensors *td_joined_tensors_create(struct td_error *err);

/* td_joined_tensors_ref takes a reference for the caller and returns `join`. td_joined_tensors_unref drops a reference;
 * the last one frees the list. td_joined_tensors_unref(NULL) does nothing. Any thread. */
struct td_joined_tensors *td_joined_tensors_ref(struct td_joined_tensors *join);
void td_joined_tensors_unref(struct td_joined_tensors *join);

/* Frees the checkpoint's refs, or drops its reference on the joined tensors that own them. */
void td_checkpoint_drop_refs(struct td_checkpoint *checkpoint);

/* Find a model by its id, and an entry by its path, by binary search. Return NULL when it does not exist. */
const struct td_model *td_snapshot_find_model(const struct td_snapshot *snapshot, struct td_text id);
const struct td_entry *td_snapshot_find_entry(const struct td_snapshot *snapshot, struct td_text path);

/* Finds the entries below a directory of the snapshot (without a '/' at its end). They are a run: *count entries from
 * number *first on. */
void td_snapshot_entries_below(const struct td_snapshot *snapshot, struct td_text directory, size_t *first,
                               size_t *count);

/* Returns whether files below a directory (empty: the root) are too young to be published. For a view, checks the
 * snapshot that it was made from. */
bool td_snapshot_lacks_below(const struct td_snapshot *snapshot, struct td_text directory);

/* Returns whether a run of entries has files below a folder. The folder's path counts from byte prefix_len of the
 * entries' paths on. */
bool td_snapshot_run_has_folder(const struct td_snapshot *snapshot, size_t first, size_t count, size_t prefix_len,
                                struct td_text folder);

/* Returns the entry at this path in a run of entries, or NULL. The path counts from byte prefix_len of the entries'
 * paths on. */
const struct td_entry *td_snapshot_find_in_run(const struct td_snapshot *snapshot, size_t first, size_t count,
                                               size_t prefix_len, struct td_text path);

/* Finds the models with ids below this one, as "org/name/unet" is below "org/name": *count models from number *first
 * on. */
void td_snapshot_models_below(const struct td_snapshot *snapshot, struct td_text id, size_t *first, size_t *count);

/* Returns the index of the first model whose id is greater than the given one (where a page continues). */
size_t td_snapshot_models_after(const struct td_snapshot *snapshot, struct td_text id);

/* Returns the model whose id is the longest beginning of the path that ends at a '/' or at its end, or NULL. Sets *rest
 * to the position after that '/', or to the path's length. */
const struct td_model *td_snapshot_route(const struct td_snapshot *snapshot, struct td_text path, size_t *rest);

/* Returns the path of an entry below its model. */
const char *td_model_relative(const struct td_model *model, const struct td_entry *entry);

/* Returns the model's file at this relative path, or NULL. */
const struct td_entry *td_model_find_file(const struct td_snapshot *snapshot, const struct td_model *model,
                                          struct td_text path);

/* Returns the checkpoint with this id, or the default one for an empty id; NULL when it does not exist. */
const struct td_checkpoint *td_model_find_checkpoint(const struct td_model *model, struct td_text id);

/* Returns whether the checkpoint, one of the model's, is the default one: the first of the whole ones, or of the
 * incomplete ones. A rank part is never the default one. */
bool td_model_is_default_checkpoint(const struct td_model *model, const struct td_checkpoint *checkpoint);

/* Returns the number of the model's rank parts, which are the last of `partials`. */
size_t td_model_rank_part_count(const struct td_model *model);

/* Returns the i-th tensor in the order of names, i below tensor_count. */
struct td_tensor_ref td_checkpoint_tensor(const struct td_checkpoint *checkpoint, size_t i);

/* Finds a tensor by its name and sets *out. Returns false when the checkpoint has no such tensor. */
bool td_checkpoint_find(const struct td_checkpoint *checkpoint, struct td_text name, struct td_tensor_ref *out);

/* Does the same and sets *out to the tensor's number, for td_checkpoint_tensor. */
bool td_checkpoint_find_number(const struct td_checkpoint *checkpoint, struct td_text name, size_t *out);

/* Returns the grid of a tensor with several pieces, borrowed; NULL for a tensor in one piece. */
struct td_grid *td_checkpoint_grid(const struct td_checkpoint *checkpoint, const struct td_tensor *tensor);

/* Returns the index of the first tensor whose name is greater than the given one (where a page continues). */
size_t td_checkpoint_after(const struct td_checkpoint *checkpoint, struct td_text name);

/* Appends a problem; copies both strings into the arena. Drops every problem after the first 1,000. Sets
 * problems->incomplete when memory is short. */
void td_problems_add(struct td_problems *problems, struct td_arena *arena, const char *path, const char *message);

/* Returns whether memory sufficed for every problem. If not, another scan of the same files may report more. */
bool td_snapshot_has_all_problems(const struct td_snapshot *snapshot);

/* ---- rows of datasets ---------------------------------------------------------------------------------- */

enum td_rows_state {
    TD_ROWS_PENDING, /* the index is not complete */
    TD_ROWS_READY,   /* `index` and `sample` are valid */
    TD_ROWS_FAILED   /* no index could be made, for the reason in `error` */
};

/* The index of the rows of one file, and the progress of making it. A file has a td_file_rows for each format that it
 * was read as, mostly one. The indexer (catalog/dataset/row_indexer.h) makes the index once for each identity of the
 * file, so snapshots that share the file share the index. */
struct td_file_rows {
    struct td_file_rows *next; /* of the same file, read as another format or with another table */
    const struct td_row_format *format;
    uint64_t table_number;             /* of the td_file with the positions of the rows; 0: no such file */
    _Atomic(enum td_rows_state) state; /* changes once; afterwards the members that are valid in it never change */
    _Atomic uint64_t done_bytes;       /* bytes of the file that the indexer has read */
    struct td_row_index index;
    char sample[TD_TAG_BYTES]; /* a hash over the size, the number of rows and up to 64 places of the file */
    char *error;               /* one line */
    struct td_budget *memory;  /* that memory_bytes are taken from; borrowed; NULL: none */
    size_t memory_bytes;
};

/* Returns the rows of a file, in this format and with this table, from the file's list; adds them to the list in the
 * state TD_ROWS_PENDING when they are new. td_file_unref frees the list. Returns NULL when memory is short. For the
 * thread that builds snapshots. */
struct td_file_rows *td_file_rows_get(struct td_file_rows **list, const struct td_row_format *format,
                                      uint64_t table_number);

/* Returns whether the index is there; `index` and `sample` may then be read. Any thread. */
static inline bool td_file_rows_are_ready(const struct td_file_rows *rows)
{
    return atomic_load_explicit(&rows->state, memory_order_acquire) == TD_ROWS_READY;
}

#endif
