/* A chain of versions of a model: a directory with all tensors, the base, and directories with deltas, each for the
 * version before it. A delta has the form that slime and ModelExpress write: model.safetensors.index.json with
 * `delta_encoding` in its metadata, and files of safetensors in which each changed tensor is one U8 tensor, a frame of
 * Zstandard; `__metadata__` of these files has the checksum of each tensor's new bytes. Or it has the form of SkyRL's
 * trainer, with manifest.json in place of the index (delta_manifest.h). */
#ifndef TD_CATALOG_DELTA_DELTA_CHAIN_H
#define TD_CATALOG_DELTA_DELTA_CHAIN_H

#include "catalog/delta/delta_index.h"
#include "catalog/delta/delta_manifest.h"
#include "catalog/delta/delta_patch.h"
#include "core/cancel.h"
#include "core/error.h"
#include "parser/format/manifest.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A directory with a version. All are borrowed. */
struct td_delta_place {
    const struct td_root *root; /* symlinks in the directory may lead to anything below it */
    const char *below;          /* path of the directory below the root; "": the root itself */
    const char *shown;          /* the directory, for messages */
    const char *name;           /* of the directory; that of a version says its number */
};

/* A file of safetensors of a version. */
struct td_delta_file {
    const char *path; /* below the directory */
    struct td_file_id id;
    struct td_manifest manifest; /* its metadata is sorted by key */
};

/* A version of the chain. */
struct td_delta_version {
    struct td_delta_place place;
    char *text; /* of the index, text_len bytes; owned; NULL: a base without an index, a delta with a manifest */
    size_t text_len;
    struct td_delta_index index;
    struct td_delta_sums sums; /* of a delta with a manifest: its checksums */
    bool has_manifest;
    struct td_delta_file *files; /* those that the index names, by its numbers; owned */
    size_t file_count;
    enum td_delta_encoding encoding; /* of a delta, as is sum_kind */
    enum td_delta_sum_kind sum_kind;
};

/* A tensor of the base, and the number of its file. Both are borrowed from the base. */
struct td_delta_named {
    const struct td_tensor *tensor;
    uint32_t file;
};

/* The change of one tensor by one delta. All are borrowed from the versions. */
struct td_delta_change {
    uint32_t file; /* of the base */
    uint32_t delta;
    const struct td_tensor *tensor; /* of the base */
    const struct td_delta_file *shard;
    const struct td_tensor *stored; /* the frame, in the shard */
    struct td_text sum;
};

struct td_delta_chain {
    struct td_arena arena; /* paths of a base without an index */
    struct td_delta_version base;
    struct td_delta_version *deltas; /* owned */
    size_t delta_count;
    char base_version[TD_ERROR_MESSAGE_BYTES / 4]; /* the version of the base, for people; cut if it is long */
    const char *version;                           /* the version of the last delta, borrowed */
    struct td_delta_named *tensors;                /* of the base, by name; owned */
    size_t tensor_count;
    struct td_delta_change *changes; /* by file, by the tensor's offset in it, and by delta; owned */
    size_t change_count;
    size_t changed_count;   /* number of tensors that change */
    uint64_t total_bytes;   /* of the base's tensors */
    uint64_t changed_bytes; /* of the tensors that change */
};

/* Reads the chain and checks all of it that can be known without decoding: that each delta is for the version before
 * it, known formats, that all tensors are there, the headers of the frames. base_version: the version of the base;
 * NULL: the one that its index says, else the number in the name of its directory. Two versions that are decimal
 * numbers are the same if the numbers are. `cancel` may be NULL. Zeroes *chain first; the caller calls
 * td_delta_chain_fini in any case. Errors, which name the file: TD_INVALID_ARGUMENT and TD_FAILED_PRECONDITION for what
 * a version is not allowed to be; TD_CONFLICT when cancelled; those of td_root_open_file, td_shard_index_parse, the
 * parser of safetensors and td_delta_patch_check. */
bool td_delta_chain_open(struct td_delta_chain *chain, const struct td_delta_place *base, const char *base_version,
                         const struct td_delta_place *deltas, size_t delta_count, const struct td_cancel *cancel,
                         struct td_error *err);
void td_delta_chain_fini(struct td_delta_chain *chain);

/* Opens a file of the directory, and sets *fd, which the caller closes, and *id. Errors: as td_root_open_file, with the
 * path. */
bool td_delta_place_open(const struct td_delta_place *place, const char *path, int *fd, struct td_file_id *id,
                         struct td_error *err);

/* Opens a file again, and checks that it is still the one that was read. Errors: as above; TD_UNAVAILABLE. */
bool td_delta_file_open(const struct td_delta_version *version, const struct td_delta_file *file, int *fd,
                        struct td_error *err);

/* Sets *err to an error about a file of the directory, for the reason `why`. Returns false. */
bool td_delta_place_fail(const struct td_delta_place *place, const char *path, const struct td_error *why,
                         struct td_error *err);

#endif
