/* The digests of contents that are no files on disk: of virtual files (rank files and the layers of images), and of
 * tensors and parts of them. A table from a content key to the SHA-256 and the size of the content, so that no content
 * is hashed twice. With a state
 * directory, a log on disk remembers them (catalog/digests/record_log.h): only a cache. Thread-safe.
 *
 * The file "virtual-digests" is a log of records with the magic "tvirtual", version and type 1. A payload is the key,
 * the SHA-256, the size (8 bytes), and the origin: kind (of a document 256 more, of a tensor 512 more) and engine (4
 * bytes each), number of ranks and rank (8 bytes each). */
#ifndef TD_RANK_VIRTUAL_DIGESTS_H
#define TD_RANK_VIRTUAL_DIGESTS_H

#include "core/digest.h"
#include "core/error.h"
#include "rank/virtual_revision.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Most digests of layers, of rank files, of documents, and of tensors. A full share drops half of them; see
     * td_virtual_digests_add. The first three together take 14 MiB of memory, those of tensors at most 80 MiB. */
    TD_VIRTUAL_LAYERS_MAX = 32768,
    TD_VIRTUAL_RANKS_MAX = 16384,
    TD_VIRTUAL_DOCUMENTS_MAX = 16384,
    TD_VIRTUAL_TENSORS_MAX = 524288,
    TD_VIRTUAL_LARGE_BYTES = 64 * 1024 * 1024, /* digests of larger contents are kept before others */
    TD_VIRTUAL_RECENT_USES =
        4096, /* of one share: the digests that these found are dropped last, for clients in mid-pull */
    TD_VIRTUAL_ORIGINS_MAX = 64, /* most digests that td_virtual_digests_origins examines */
};

/* The content key of a virtual file: a SHA-256 over everything that decides its bytes. Equal keys mean equal bytes. */
struct td_virtual_key {
    uint8_t bytes[TD_SHA256_BYTES];
};

/* The digest of a virtual file's content, and its origin. */
struct td_virtual_digest {
    uint8_t sum[TD_SHA256_BYTES]; /* the SHA-256 of its bytes */
    uint64_t size_bytes;
    /* A revision that has the file, for callers that know only the digest. kind TD_REVISION_FILES: no revision has
     * it */
    struct td_virtual_revision origin;
    bool is_document; /* of a document of that revision, recorded for its origin alone */
    bool is_tensor;   /* of a tensor or a part of one; it has no origin */
};

struct td_virtual_digests;

/* Makes an empty table that is kept in memory only. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_virtual_digests_create(struct td_virtual_digests **out, struct td_error *err);

/* Reads the log in the state directory, and keeps it from now on. state_dir NULL: does nothing. Call at most once,
 * before other threads use the table. `root` and errors as td_record_log_open. */
bool td_virtual_digests_keep(struct td_virtual_digests *digests, const char *state_dir, const char *root,
                             struct td_error *err);

/* Writes the records that still wait, and frees the table. NULL: does nothing. */
void td_virtual_digests_destroy(struct td_virtual_digests *digests);

/* Copies what is known of the content with this key. Returns false when it is not known. */
bool td_virtual_digests_find(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                             struct td_virtual_digest *out);

/* Records a digest. It reaches the disk with its batch or at the next flush; may wait for the disk. When memory is
 * short, the digest is not recorded. Layers, rank files, documents and tensors have a share each, so that none pushes
 * out others. A full share drops half of its digests, the least recently used ones. Digests of contents below
 * TD_VIRTUAL_LARGE_BYTES are dropped before others, since hashing them again is quick, unless they were among the last
 * TD_VIRTUAL_RECENT_USES. */
void td_virtual_digests_add(struct td_virtual_digests *digests, const struct td_virtual_key *key,
                            const struct td_virtual_digest *digest);

/* Writes the waiting records and waits until they are on the disk. */
void td_virtual_digests_flush(struct td_virtual_digests *digests);

/* Does the same, at most once a second; else does nothing. */
void td_virtual_digests_flush_if_due(struct td_virtual_digests *digests);

/* Copies the different origins of documents, or else of rank files, with this SHA-256, the newest first, at most
 * `capacity`. Returns their number. An origin is a hint: the caller must compute the key of the file in that revision,
 * and search for it with td_virtual_digests_find. */
size_t td_virtual_digests_origins(struct td_virtual_digests *digests, bool of_documents,
                                  const uint8_t sum[TD_SHA256_BYTES], struct td_virtual_revision *out, size_t capacity);

/* Returns the number of known digests. */
size_t td_virtual_digests_count(struct td_virtual_digests *digests);

#endif
