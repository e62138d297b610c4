/* Hashes virtual files, such as rank files and the layers of images, and sets of tensors, for requests that wait for
 * their digests: two threads of normal priority take files from a queue, which has each content key once, however many
 * requests wait for it. One thread takes all files, large ones first. The other takes small ones alone, so that they do
 * not wait for large ones. Owners, which are repositories, take turns. When a request stops waiting, its file stays in
 * the queue, and the next request for it waits for the same job. Thread-safe. */
#ifndef TD_RANK_VIRTUAL_HASHER_H
#define TD_RANK_VIRTUAL_HASHER_H

#include "catalog/model/snapshot.h"
#include "core/cancel.h"
#include "rank/virtual_digests.h"
#include "storage/body.h"

enum {
    TD_VIRTUAL_HASHER_QUEUE = 512,       /* most files that wait to be hashed or are being hashed */
    TD_VIRTUAL_HASHER_OWN = 128,         /* most among them of one owner */
    TD_VIRTUAL_HASHER_CLIENT = 384,      /* most among them that one client asked for */
    TD_VIRTUAL_HASHER_RANKS = 64,        /* most rank files and sets of tensors among them, since each takes memory of
                                            the rank store */
    TD_VIRTUAL_HASHER_OWN_RANKS = 32,    /* most of these among them of one owner */
    TD_VIRTUAL_HASHER_CLIENT_RANKS = 48, /* most of these among them that one client asked for: more than OWN_RANKS,
                                            so that a client can have files of a second owner hashed */
    TD_VIRTUAL_QUICK_BYTES = 64 * 1024 * 1024, /* files up to this size have a thread of their own */
};

struct td_virtual_hasher;

/* How the body of a virtual file is made. A file in the queue is only its recipe: no file is open for it. The thread
 * that hashes the file calls `open` and `next`. */
struct td_virtual_recipe {
    void *context; /* owned */
    /* Appends the whole content to the body, which is empty. */
    bool (*open)(void *context, struct td_body *body, struct td_error *err);
    /* NULL: the file is one content. Otherwise the file is a set of tensors, and each of them is a content with a key
     * and a digest of its own. Moves to the next one, before the first call to the first one, and sets *key to its key;
     * `open` then opens it. Returns false after the last one. */
    bool (*next)(void *context, struct td_virtual_key *key);
    /* Frees the context. */
    void (*free)(void *context);
};

/* A virtual file that is to be hashed. */
struct td_virtual_file {
    struct td_virtual_key key;         /* that requests wait for; the digest of a set of tensors is not known by it */
    struct td_virtual_revision origin; /* see td_virtual_digest */
    uint64_t size_bytes;
    uint64_t owner;  /* td_virtual_owner of a repository or a model */
    uint64_t client; /* identifies the client that asked first */
    bool is_unasked; /* no request named it; it is hashed because a requested digest may be its own */
    struct td_virtual_recipe recipe;
    struct td_snapshot *snapshot; /* that the recipe needs; borrowed; NULL: none */
};

/* How far the hashing of one file is. */
enum td_virtual_state {
    TD_VIRTUAL_UNKNOWN,   /* the file was not begun, or its digest or error was dropped */
    TD_VIRTUAL_KNOWN,     /* the digest is known */
    TD_VIRTUAL_UNDER_WAY, /* the file is in the queue, or is being hashed */
    TD_VIRTUAL_FAILED,    /* hashing failed when the file was last begun; it may be begun again */
};

struct td_virtual_progress {
    uint64_t done_bytes, total_bytes; /* of one file */
};

/* Returns the owner of the files of a repository or a model. Owners that are equal by chance share their turns. */
uint64_t td_virtual_owner(const char *id);

/* Starts the threads, with an empty table of digests. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_virtual_hasher_create(struct td_virtual_hasher **out, struct td_error *err);

/* Stops the threads, also in the middle of a file, waits for their end, and frees the hasher. Drops its references on
 * snapshots. Nobody may wait any more. NULL: does nothing. */
void td_virtual_hasher_destroy(struct td_virtual_hasher *hasher);

/* Returns the table of known digests, which lives as long as the hasher. */
struct td_virtual_digests *td_virtual_hasher_digests(struct td_virtual_hasher *hasher);

/* Returns the cancel object that ends long reads when the hasher stops, for the blobs of bodies that are given to
 * td_virtual_hasher_begin. Lives as long as the hasher. */
const struct td_cancel *td_virtual_hasher_cancel(const struct td_virtual_hasher *hasher);

/* Puts the file into the queue, unless its digest is known or it is there already. Takes over the recipe, also on
 * failure, and holds a reference on the snapshot until the file is hashed. When the queue, or its part for rank files,
 * is full, a client without a file in it displaces the last file of the client that has the most there, at least two;
 * requests that wait for the displaced file get TD_RESOURCE_EXHAUSTED. Errors: TD_RESOURCE_EXHAUSTED when the queue,
 * the owner's share or the client's share is full, when memory is short, and for a file that nobody asked for by name
 * while such files of another owner are in the queue. */
bool td_virtual_hasher_begin(struct td_virtual_hasher *hasher, struct td_virtual_file *file, struct td_error *err);

/* Returns how many bytes were hashed since the start, of all files. */
uint64_t td_virtual_hasher_hashed_bytes(const struct td_virtual_hasher *hasher);

/* Returns whether the digest of the file with this key is known, or the file is in the queue, so that nobody need begin
 * it. */
bool td_virtual_hasher_has(struct td_virtual_hasher *hasher, const struct td_virtual_key *key);

/* Waits for the digest of the file with this key until until_ns (monotonic; 0: does not wait), while it is in the
 * queue, and no longer once `cancel` (NULL: none) is asked. Sets *out when the digest is known, *progress while hashing
 * is under way (else zeros), and *err after a failure. For a set of tensors TD_VIRTUAL_KNOWN means that all of them
 * have been hashed now, *out says nothing, and the digests are in the table. Errors: TD_UNAVAILABLE when a file changed
 * while it was hashed; as the recipe and td_body_read. */
enum td_virtual_state td_virtual_hasher_wait(struct td_virtual_hasher *hasher, const struct td_virtual_key *key,
                                             uint64_t until_ns, const struct td_cancel *cancel,
                                             struct td_virtual_digest *out, struct td_virtual_progress *progress,
                                             struct td_error *err);

#endif
