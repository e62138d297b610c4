/* The disk of patches (patch_store.h): files without names that a patch is made in, and the patches themselves, all
 * within a limit of bytes. With a state directory, patches are files of its folder "patches", which a restart finds
 * again; without, they have no names, and end with the process. */
#ifndef TD_RANK_PATCH_PATCH_DISK_H
#define TD_RANK_PATCH_PATCH_DISK_H

#include "core/budget.h"
#include "core/digest.h"
#include "core/error.h"
#include "storage/blob.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most bytes of all files together without a state directory. The limit is 32 MiB or more, since each file takes 4
 * MiB at once. One patch may have a quarter of it, since the parts of a patch are on the disk twice while it is made.
 */
#define TD_PATCH_UNNAMED_BYTES (UINT64_C(1) << 30)
enum { TD_PATCH_SHARE = 4 };

struct td_patch_disk {
    int dir_fd;             /* of the folder; -1: not opened yet */
    bool is_kept;           /* the folder is that of a state directory */
    bool leaves_names;      /* patches that are dropped keep their names, for the next start */
    struct td_budget bytes; /* of all files. The owner sets its make_room, which calls td_patch_disk_drop_found */
    pthread_mutex_t lock;   /* guards the list of patches that a start has found, the newest first */
    struct td_patch_found *found;
    size_t found_count;
};

/* A patch: the file's bytes, mapped. They never change. */
struct td_patch {
    struct td_blob blob;            /* first; its last reference drops the file */
    char tag[TD_SHA256_TEXT_BYTES]; /* the SHA-256 of the bytes */
    struct td_patch_disk *disk;
    size_t mapped_bytes;
    char name[TD_TAG_BYTES]; /* of the file in the folder; empty: it has none */
};

/* Starts without a folder. Returns false when no lock can be created. */
bool td_patch_disk_init(struct td_patch_disk *disk);

/* Sets the limit to max_bytes, without a state directory to at most TD_PATCH_UNNAMED_BYTES, which it is at first. Then
 * uses the folder "patches" of the state directory (NULL: none), which is not in `root`: removes what no patch is, and
 * lists the patches, the oldest of them removed beyond the limit. Logs why if the folder cannot be used, and continues
 * without it. One thread, before patches are made. */
void td_patch_disk_keep(struct td_patch_disk *disk, uint64_t max_bytes, const char *state_dir, const char *root);

/* Frees it, when all patches are dropped. */
void td_patch_disk_fini(struct td_patch_disk *disk);

/* Removes the oldest of the patches that the start has found and nobody has asked for. Returns false when there is
 * none. */
bool td_patch_disk_drop_found(struct td_patch_disk *disk);

/* Returns the patch of this name that the start has found, with one reference for the caller, after reading all of it
 * and comparing its SHA-256. Returns NULL, with the file removed, when it is damaged; NULL when there is none. */
struct td_patch *td_patch_disk_load(struct td_patch_disk *disk, const char *name);

/* ---- what a patch is made of ---------------------------------------------------------------------------- */

enum { TD_SPOOL_NAME_BYTES = 32 };

/* A file that grows, without a name, or with one until it is a patch. For one thread. All members are private. */
struct td_spool {
    struct td_patch_disk *disk;
    int fd;
    uint8_t *buffer; /* bytes that are not written yet, from `written` on */
    size_t filled;
    uint64_t written;
    uint64_t most_bytes;
    size_t taken_bytes;             /* of the disk's budget */
    char name[TD_SPOOL_NAME_BYTES]; /* of the file that is to be a patch of the state directory; else empty */
};

/* Opens an empty spool. becomes_patch: td_spool_become may be called. Call td_spool_close in every case. Errors:
 * TD_FAILED_PRECONDITION when no file can be made, TD_RESOURCE_EXHAUSTED. */
bool td_spool_open(struct td_patch_disk *disk, bool becomes_patch, struct td_spool *spool, struct td_error *err);

/* Closes it and frees its room on the disk. */
void td_spool_close(struct td_spool *spool);

/* Returns the number of bytes in it. */
uint64_t td_spool_bytes(const struct td_spool *spool);

/* Appends bytes. When the limit or the disk is full, drops patches by the budget's make_room. Errors:
 * TD_FAILED_PRECONDITION when the spool would have more bytes than one patch may have; TD_RESOURCE_EXHAUSTED when the
 * limit or the disk is full of other things. */
bool td_spool_add(struct td_spool *spool, const void *bytes, size_t len, struct td_error *err);

/* Removes all bytes from this place on. */
void td_spool_cut(struct td_spool *spool, uint64_t bytes);

/* Reads bytes that were appended. Errors: TD_IO. */
bool td_spool_read(struct td_spool *spool, uint64_t off, void *out, size_t len, struct td_error *err);

/* Makes the spool, whose bytes have this SHA-256, a patch, with one reference for the caller, and closes the spool.
 * With a state directory the patch is the file `name` of the folder. Errors as td_spool_add; TD_UNAVAILABLE. */
bool td_spool_become(struct td_spool *spool, const char *name, const uint8_t sum[TD_SHA256_BYTES],
                     struct td_patch **out, struct td_error *err);

#endif
