/* Snapshots: what the served root held at one scan. Immutable once published and reference-counted, so a request
 * sees one consistent world; files that did not change are shared with the snapshot before.
 *
 * Lifetimes: a snapshot owns its models, checkpoints and entries and holds a reference on its root and on each
 * file; a file outlives every snapshot that shows it. Everything reached from a snapshot is valid while a
 * reference on the snapshot is held. */
#ifndef TD_CATALOG_SNAPSHOT_H
#define TD_CATALOG_SNAPSHOT_H

#include "catalog/facts.h"
#include "catalog/file_kind.h"
#include "core/arena.h"
#include "core/digest.h"
#include "core/text.h"
#include "parser/format.h"
#include "parser/manifest.h"
#include "parser/shard_index.h"
#include "parser/torch/torch_dcp.h"
#include "storage/file_source.h"
#include "storage/tiled.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory for what was read of files: what all that live take together, and how much that may be. A scan adds to it. */
struct td_memory {
    uint64_t max_bytes;
    _Atomic uint64_t used_bytes;
};

/* Whether the SHA-256 of a file is known. It is written once, by the thread that sets TD_HASH_WRITTEN. */
enum td_hash_state { TD_HASH_UNKNOWN, TD_HASH_WRITTEN, TD_HASH_KNOWN };

/* One regular file, with its parsed manifest when it is a checkpoint file. */
struct td_file {
    _Atomic int refs;
    uint64_t number; /* of no other file that this process has parsed, not of the same one under another name */
    struct td_mapping_cache *maps;
    struct td_memory *memory;       /* or NULL */
    uint64_t memory_bytes;          /* taken of it */
    uint64_t needed_bytes;          /* refused because so much was not left of it; else 0 */
    struct td_file_source source;   /* path below the root, identity */
    enum td_file_kind kind;         /* plain too when its bytes are not what its name says may be */
    const struct td_format *format; /* of TENSORS and DCP_PART; else NULL */
    bool readable;                  /* parsed without fault: what belongs to its kind is valid */
    bool is_lfs_pointer;            /* what lies there stands for the file; error says so */
    bool transient;                 /* refused for a reason that may pass (I/O, memory): parsed again next time */
    struct td_manifest manifest;    /* of TENSORS and DCP_PART; else empty */
    struct td_shard_index index;    /* of SHARD_INDEX */
    struct td_dcp dcp;              /* of DCP_METADATA */
    struct td_dtype_count *counts;  /* elements of its tensors by type, in the manifest's arena */
    size_t count_count;
    enum td_facts_kind facts_kind; /* of PLAIN: what it may tell of the model beside it */
    struct td_facts *facts;        /* what it does tell, or NULL */
    char *error; /* why it was refused, or is damaged, one line; NULL: it is right, or nobody looked */
    char identity_tag[TD_TAG_BYTES];   /* strong validator of its bytes until these are hashed */
    char sha256[TD_SHA256_TEXT_BYTES]; /* of its bytes; valid in the state TD_HASH_KNOWN */
    _Atomic(enum td_hash_state) hash_state;
    _Atomic bool hash_failed; /* it could not be read for that; tried again only for somebody who waits */
};

/* A file under the name by which clients know it: models--org--name/snapshots/<commit>/x is org/name/x. */
struct td_entry {
    const char *path;
    struct td_file *file;
};

struct td_problem {
    const char *path; /* below the model, or below the root in a snapshot's own list */
    const char *message;
};

struct td_problems {
    struct td_problem *items;
    size_t count, capacity;
    bool incomplete; /* memory was short for one */
};

/* One tensor of a checkpoint and the part (file) that holds it. */
struct td_tensor_ref {
    const struct td_tensor *tensor;
    uint32_t part;
};

/* The tensors of a distributed checkpoint, or of a file with tensors in others. It needs the files that it was made of,
 * so it is shared by those snapshots that hold the same. */
struct td_joined_tensors {
    _Atomic int refs;
    struct td_arena arena; /* owns the tensors, their pieces and all lists here */
    struct td_tensor_ref *tensors;
    struct td_grid **grids; /* per tensor; NULL unless it lies in several pieces */
    size_t tensor_count;
};

/* One complete set of tensors. */
struct td_checkpoint {
    const char *id; /* "safetensors", or a file name */
    const char *format;
    const struct td_entry **parts; /* the files that hold it */
    size_t part_count;
    struct td_tensor_ref *refs;     /* sorted by name; NULL when it is exactly the first part's manifest */
    struct td_joined_tensors *join; /* of which refs are then part; NULL where the files say all */
    size_t tensor_count;
    uint64_t total_bytes;  /* of the tensors that can be served: the parts of one that cannot are tensors themselves */
    bool fits_safetensors; /* each of its tensors can be written to a safetensors file */
    const struct td_metadata *metadata;
    size_t metadata_count;
    const struct td_lacks *lacks;  /* of an incomplete one (catalog/partial_checkpoint.h); NULL of a complete one */
    char tag[TD_TAG_BYTES];        /* changes whenever anything in its manifest may */
    char former_tag[TD_TAG_BYTES]; /* what it was before its files were hashed */
};

struct td_model {
    const char *id;
    size_t directory_len;   /* of its files' directory, which is then its id; 0: they lie directly in the root */
    const char *revision;   /* commit of a Hugging Face cache, or NULL */
    bool is_other_revision; /* of the cache than the one that has the plain id; not listed */
    size_t first_entry, entry_count;   /* its files, a run of the snapshot's entries */
    const struct td_entry *config;     /* config.json, or NULL */
    struct td_checkpoint *checkpoints; /* the default one first, the others by id */
    size_t checkpoint_count;
    struct td_checkpoint *partials; /* incomplete ones */
    size_t partial_count, partial_capacity;
    struct td_problems problems;
    size_t damaged_count; /* how many of these are of files that tell of the model, such as config.json */
    uint64_t total_bytes; /* tensor bytes of all checkpoints */
    uint64_t file_bytes;  /* 2^64-1 for more */
    int64_t updated_ns;   /* mtime of the newest file */
};

struct td_snapshot {
    _Atomic int refs;
    uint64_t generation; /* counts up */
    struct td_arena arena;
    struct td_root *root;
    struct td_entry *entries; /* sorted by path (byte order) */
    size_t entry_count;
    struct td_model *models; /* sorted by id */
    size_t model_count;
    struct td_repo *repos; /* catalog/repo.h */
    size_t repo_count;
    struct td_bucket *buckets; /* catalog/bucket.h; sorted by name */
    size_t bucket_count;
    struct td_bucket *other_buckets; /* not listed: other names of what is in `local`; sorted by name */
    size_t other_bucket_count;
    struct td_bucket_run *bucket_runs[3]; /* which they point to: of the named ones, `local`, the unlisted ones */
    struct td_problems problems;          /* what could not be published at all */
    size_t unsettled_count;               /* files seen but still too young to trust */
    size_t pending_count;                 /* of those: nobody is known to write to them, so time alone publishes them */
    size_t racy_count;                    /* of the latter: finished, but the clock has to move on */
    uint64_t next_due_ns;                 /* monotonic time by which the first of them settles; 0 = none */
    size_t hashed_count;                  /* files whose content was known when it was made */
    char tag[TD_TAG_BYTES];
    void (*retire)(void *context, struct td_snapshot *snapshot); /* called when the last reference goes */
    void *retire_context;
    struct td_snapshot *next_retired;
};

struct td_snapshot *td_snapshot_ref(struct td_snapshot *snapshot);
void td_snapshot_unref(struct td_snapshot *snapshot); /* NULL is fine */
void td_snapshot_free(struct td_snapshot *snapshot);  /* for retire functions only */

struct td_file *td_file_ref(struct td_file *file);
void td_file_unref(struct td_file *file);

/* The validator of its bytes: the SHA-256 once it is known (64 hexadecimal digits), else made of its identity (32).
 * Valid as long as the file. */
const char *td_file_tag(const struct td_file *file);

/* Says what its bytes hash to; TD_SHA256_BYTES in binary. Any thread. False when it had been said before. */
bool td_file_set_sha256(struct td_file *file, const uint8_t *sum);

/* The SHA-256 in hexadecimal; NULL while it is not known. */
const char *td_file_sha256(const struct td_file *file);

/* Frees what was read of it, which is then not readable; before others see it. */
void td_file_forget_content(struct td_file *file);

/* Returns an empty join with one reference, or NULL for want of memory. */
struct td_joined_tensors *td_joined_tensors_create(struct td_error *err);
struct td_joined_tensors *td_joined_tensors_ref(struct td_joined_tensors *join);
void td_joined_tensors_unref(struct td_joined_tensors *join); /* NULL is fine */

/* Frees refs, or lets go of the join that has them. */
void td_checkpoint_drop_refs(struct td_checkpoint *checkpoint);

/* Binary searches; NULL when there is none. Lengths in bytes. */
const struct td_model *td_snapshot_find_model(const struct td_snapshot *snapshot, struct td_text id);
const struct td_entry *td_snapshot_find_entry(const struct td_snapshot *snapshot, struct td_text path);

/* The entries below a directory of the snapshot (no '/' at its end): a run. */
void td_snapshot_entries_below(const struct td_snapshot *snapshot, struct td_text directory, size_t *first,
                               size_t *count);

/* Whether files are below a folder of a run of entries, whose paths count from byte prefix_len on. */
bool td_snapshot_run_has_folder(const struct td_snapshot *snapshot, size_t first, size_t count, size_t prefix_len,
                                struct td_text folder);

/* In a run of entries, whose paths count from byte prefix_len on: the one at this path, or NULL. */
const struct td_entry *td_snapshot_find_in_run(const struct td_snapshot *snapshot, size_t first, size_t count,
                                               size_t prefix_len, struct td_text path);

/* The models whose ids are below this one, as "org/name/unet" is below "org/name": a run. */
void td_snapshot_models_below(const struct td_snapshot *snapshot, struct td_text id, size_t *first, size_t *count);

/* Index of the first model whose id is greater than the given one (where a page continues). */
size_t td_snapshot_models_after(const struct td_snapshot *snapshot, struct td_text id);

/* The model whose id is the longest prefix of path at a '/' border; *rest is what follows that '/', or the end. */
const struct td_model *td_snapshot_route(const struct td_snapshot *snapshot, struct td_text path, size_t *rest);

/* The path of an entry below its model. */
const char *td_model_relative(const struct td_model *model, const struct td_entry *entry);

/* The file of the model at this relative path, or NULL. */
const struct td_entry *td_model_find_file(const struct td_snapshot *snapshot, const struct td_model *model,
                                          struct td_text path);

/* id NULL or empty: the default one. NULL when there is none. */
const struct td_checkpoint *td_model_find_checkpoint(const struct td_model *model, struct td_text id);

/* The i-th tensor in name order. */
struct td_tensor_ref td_checkpoint_tensor(const struct td_checkpoint *checkpoint, size_t i);
bool td_checkpoint_find(const struct td_checkpoint *checkpoint, struct td_text name, struct td_tensor_ref *out);

/* The same, by its number. */
bool td_checkpoint_find_number(const struct td_checkpoint *checkpoint, struct td_text name, size_t *out);

/* How a tensor of the checkpoint that lies in several pieces is put together; NULL for all others. Borrowed. */
struct td_grid *td_checkpoint_grid(const struct td_checkpoint *checkpoint, const struct td_tensor *tensor);

/* Index of the first tensor whose name is greater than the given one (where a page continues). */
size_t td_checkpoint_after(const struct td_checkpoint *checkpoint, struct td_text name);

/* Appends a problem; strings are copied into the arena. Past 1,000 they are dropped: a list that long helps nobody. */
void td_problems_add(struct td_problems *problems, struct td_arena *arena, const char *path, const char *message);

/* False when memory was short for some: another scan of the same files may tell more. */
bool td_snapshot_has_all_problems(const struct td_snapshot *snapshot);

#endif
