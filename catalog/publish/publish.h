/* Publishing: blobs and commits that clients put into the served directory. The journey:
 *   1. publish_disk opens the repository in DIR, in the layout of a Hugging Face cache, and locks it.
 *   2. publish_upload takes a blob in pieces, in any order and from many requests, with a journal; publish_stream takes
 *      one whose digest or size is not known before.
 *   3. storage/fetch/fetch_hasher hashes it as it arrives; a rename gives it its name, blobs/ and its SHA-256.
 *   4. commit_list applies a list of paths to the revision's files; publish_tree makes the snapshot of symlinks.
 *   5. publish_refs renames the revision's file into place: that is the commit.
 *   6. publish_collect removes commits and blobs that nothing names.
 * This module opens all of it, and tidies. Thread-safe, except open and
 * close. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_H
#define TD_CATALOG_PUBLISH_PUBLISH_H

#include "catalog/publish/publish_store.h"

#include <stdbool.h>

/* Opens what is published in the served directory, and takes the lock. Counts the bytes that blobs take now. Errors as
 * td_publish_disk_open; TD_RESOURCE_EXHAUSTED. */
bool td_publish_open(const struct td_publish_config *config, struct td_publish **out, struct td_error *err);

/* Closes it; blobs that are not complete stay, to be resumed. No upload may be under way. NULL is allowed. */
void td_publish_close(struct td_publish *publish);

/* Copies the current state to *status, and measures the age of the oldest open upload and the room of the disk. */
void td_publish_report(struct td_publish *publish, struct td_publish_status *status);

/* Removes a repository with all its revisions, and empties its remains. Errors as td_publish_repo_remove and
 * td_publish_repo_open. */
bool td_publish_remove(struct td_publish *publish, const struct td_publish_name *name, struct td_error *err);

/* Gives a repository another name, by one rename: what was published stays as it is, and so do pieces of
 * unfinished blobs. Errors: TD_NOT_FOUND; TD_CONFLICT when something has the other name or the ids of two repositories
 * would be in each other's way, and while a part of a blob arrives; as td_publish_repo_open and
 * td_publish_fail. */
bool td_publish_move(struct td_publish *publish, const struct td_publish_name *from, const struct td_publish_name *to,
                     struct td_error *err);

/* Removes a repository if `may` says so while nobody else changes it. Sets *is_removed. Errors as td_publish_remove. */
bool td_publish_remove_if(struct td_publish *publish, const struct td_publish_name *name,
                          bool (*may)(void *context, const struct td_publish_repo *repo), void *context,
                          bool *is_removed, struct td_error *err);

/* Removes a repository if its only revision has no file, nothing else was pushed to it, and no blob arrives or waits
 * for its commit. Sets *is_removed. Errors as td_publish_remove. */
bool td_publish_remove_empty(struct td_publish *publish, const struct td_publish_name *name, bool *is_removed,
                             struct td_error *err);

/* Removes what has expired in one repository, as td_publish_tidy does. */
void td_publish_tidy_one(struct td_publish *publish, const struct td_publish_name *name);

/* Closes uploads that nobody continued for a minute, and removes what has expired in all repositories: unfinished
 * blobs, blobs and commits that nothing names (publish_collect.h). May take long. One thread at a time. `stop` ends it
 * soon. */
void td_publish_tidy(struct td_publish *publish, const _Atomic bool *stop);

#endif
