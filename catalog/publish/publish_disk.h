/* Repositories that are published, on disk. Everything is in the served directory, in the layout of a Hugging Face
 * cache, so that a commit becomes visible by one rename and other tools can use DIR as HF_HUB_CACHE:
 *
 *   DIR/.tensord-publish/lock                   held by the process that publishes
 *                        incoming/              unfinished snapshots and streams, which a start removes
 *                        new/models--org--name/ a repository without a commit; its first commit moves it into DIR
 *                        parts/                 uploads that arrive in numbered parts (publish_parts.h)
 *                        sessions/              blobs that arrive one request after the other (publish_session.h)
 *                        trash/                 items that are being removed
 *   DIR/models--org--name/blobs/HEX             a file by its SHA-256; never replaced and never written to again
 *                              .HEX.tensord-*   an unfinished blob and its journal
 *                        /snapshots/COMMIT/     a directory of relative symlinks to blobs
 *                        /refs/REVISION         the commit of a revision: the rename of this file is the commit
 *                        /commits/COMMIT        message, token, time and parent; only repositories that were published
 *                                               have this folder
 *                        /squashed/             where the history of a revision ends that was squashed
 *                        /manifests/ tags/ referrers/  what clients of registries push (publish_manifests.h)
 *
 * Thread-safe, except open and close; everything may wait for the disk. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_DISK_H
#define TD_CATALOG_PUBLISH_PUBLISH_DISK_H

#include "catalog/publish/publish_leases.h"
#include "catalog/publish/publish_quiet.h"
#include "core/error.h"
#include "storage/own_folder.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define TD_PUBLISH_FOLDER ".tensord-publish"

enum { TD_PUBLISH_LOCKS = 64 };

struct td_publish_disk {
    struct td_own_folder own;
    pthread_mutex_t locks[TD_PUBLISH_LOCKS]; /* a repository has the one that its folder's name selects */
    pthread_mutex_t naming;                  /* held while a repository gets its name; taken after `locks` */
    struct td_publish_leases leases;         /* of blobs that answers say are here */
    struct td_publish_quiet quiet;           /* repositories that need no tidying */
};

/* Opens the folder, and empties its trash and incoming/. Call td_publish_disk_close if it succeeds.
 * Errors as td_own_folder_open. */
bool td_publish_disk_open(struct td_publish_disk *disk, const char *root, struct td_error *err);
void td_publish_disk_close(struct td_publish_disk *disk);

/* The name of a repository. */
struct td_publish_name {
    bool is_dataset;
    char folder[NAME_MAX + 1]; /* models--org--name, models--name, datasets--org--name */
    char path[NAME_MAX + 1];   /* where a directory of the operator would be: org/name, datasets/org/name */
};

/* Checks an id of one or two segments, "name" or "org/name", and sets *name. Errors: TD_INVALID_ARGUMENT for another
 * number of segments, an empty or hidden one, "--", "..", "@", a backslash, a control character, bytes that are not
 * UTF-8, an id of more than 200 bytes or whose last segment is a word that follows ids in paths, such as "blobs". */
bool td_publish_name(const char *id, bool is_dataset, struct td_publish_name *name, struct td_error *err);

/* Sets *name to the name of the repository with this folder. Returns false for a folder that no repository can have. */
bool td_publish_name_of_folder(const char *folder, struct td_publish_name *name);

/* Returns a number below TD_PUBLISH_LOCKS that selects the repository's lock. */
size_t td_publish_name_slot(const struct td_publish_name *name);

/* Calls `visit` for each repository that was published, and each in new/, until it returns false. Folders of other
 * programs are passed over. Errors: TD_IO, and those of `visit`. */
bool td_publish_disk_each(struct td_publish_disk *disk,
                          bool (*visit)(void *context, const struct td_publish_name *name, struct td_error *err),
                          void *context, struct td_error *err);

/* A repository while one thread changes it or adds to it; others wait to open it. */
struct td_publish_repo {
    struct td_publish_disk *disk;
    struct td_publish_name name;
    int fd;                      /* of its directory; -1: it does not exist */
    bool is_new;                 /* it has no commit, and is in new/ */
    pthread_mutex_t *other_lock; /* of the name that it moves to, which is held, too; NULL: none */
};

/* Opens a repository and takes its lock. create: makes an empty one in new/ if there is none. Without `create`, a
 * repository that does not exist is opened with fd -1. Errors: TD_CONFLICT when the name is that of a directory, or of
 * a cache's folder, that was not published, and for a new one when its id would be below that of another, or above, or
 * below a directory with files;
 * TD_FAILED_PRECONDITION when the own folder was replaced; TD_RESOURCE_EXHAUSTED for a full disk; TD_PERMISSION_DENIED,
 * TD_IO. */
bool td_publish_repo_open(struct td_publish_disk *disk, const struct td_publish_name *name, bool create,
                          struct td_publish_repo *repo, struct td_error *err);

/* Opens a repository that will move, and takes the locks of both names. Errors as td_publish_repo_open. */
bool td_publish_repo_open_to_move(struct td_publish_disk *disk, const struct td_publish_name *from,
                                  const struct td_publish_name *to, struct td_publish_repo *repo, struct td_error *err);

/* Gives the lock back and closes the directory. */
void td_publish_repo_close(struct td_publish_repo *repo);

/* Opens a repository for reading alone, without its lock: others may change it. A repository that does not exist, or
 * was not published, is opened with fd -1. Call td_publish_repo_look_end in any case. Errors as td_publish_fail. */
bool td_publish_repo_look(struct td_publish_disk *disk, const struct td_publish_name *name,
                          struct td_publish_repo *repo, struct td_error *err);
void td_publish_repo_look_end(struct td_publish_repo *repo);

/* Makes the names of all complete blobs of an open repository durable; their content is so already. Call it before
 * something that names blobs, such as a commit, is written. Errors as td_publish_fail. */
bool td_publish_blobs_sync(const struct td_publish_repo *repo, struct td_error *err);

/* Checks, before the body of a request is read, that the repository was published, or may be. Errors as
 * td_publish_repo_open for a new one. */
bool td_publish_check_name(struct td_publish_disk *disk, const struct td_publish_name *name, struct td_error *err);

/* Moves a repository with a whole first commit from new/ into the served directory, durably: it is visible from now on.
 * After an error it is in new/ again; only where it can be moved neither durably nor back, it is visible (!is_new).
 * Errors: TD_CONFLICT as td_publish_repo_open, when the name was taken since; TD_IO. */
bool td_publish_repo_show(struct td_publish_repo *repo, struct td_error *err);

/* Reports a failure of the system, which errno names: "cannot WHAT "models--org--name"". Codes: TD_RESOURCE_EXHAUSTED
 * for a full disk, a quota or too long a file (sys says which), and for memory and descriptors; TD_PERMISSION_DENIED;
 * else TD_IO. Returns false. */
bool td_publish_fail(const struct td_publish_name *name, const char *what, struct td_error *err);

/* Removes a repository with all its revisions, durably: it vanishes by one rename, and readers keep what they have
 * opened. The directory is then gone (fd -1); after an error only where it can be moved neither durably nor back.
 * Writes the name of its remains, which the caller removes by td_own_folder_remove, to trash, an empty text before; it
 * stays empty when the repository stays. Errors: TD_NOT_FOUND, TD_IO. */
bool td_publish_repo_remove(struct td_publish_repo *repo, char trash[TD_OWN_NAME_BYTES], struct td_error *err);

/* Gives a repository of td_publish_repo_open_to_move its other name, by one rename; the caller closes it under its old
 * name. Errors: TD_NOT_FOUND; TD_CONFLICT when something has the other name, or its id would be below that of another
 * repository, or above; as td_publish_fail. */
bool td_publish_repo_move(struct td_publish_repo *repo, const struct td_publish_name *to, struct td_error *err);

#endif
