/* Revisions and tags of published repositories: files refs/REVISION that hold a commit id. The caller has opened the
 * repository, so nobody else changes it. A repository in new/ has no revisions. Each call may wait for the disk. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_REFS_H
#define TD_CATALOG_PUBLISH_PUBLISH_REFS_H

#include "catalog/names/repo.h"
#include "catalog/publish/publish_stage.h"

#include <stdbool.h>
#include <stddef.h>

enum { TD_REVISION_BYTES = 201 /* of the longest name of a revision, with a NUL */ };

/* Checks the name of a revision: parts of letters, digits and "._-+" (no leading dot, no "..", no ".lock" at the end)
 * separated by '/', at most 200 bytes; and neither 40 hexadecimal digits, which name commits, nor "HEAD", which names
 * main. Errors: TD_INVALID_ARGUMENT. */
bool td_commit_check_revision(const char *revision, struct td_error *err);

/* Writes the commit that a revision, "HEAD" or a commit's id names to commit. Returns false when there is none; then
 * the commit is empty. */
bool td_publish_resolve(const struct td_publish_repo *repo, const char *revision, char commit[TD_COMMIT_BYTES]);

/* Sets sha256 to that of the file at this path in a revision. Returns false when there is none. The repository may only
 * be looked at: a commit that is made at the same time, and even removes the one before, is no reason for false. */
bool td_publish_find_file(const struct td_publish_repo *repo, const char *revision, const char *path,
                          uint8_t sha256[TD_SHA256_BYTES]);

/* Calls `visit` with each revision and its commit, by name. Stops and returns false when `visit` does, and when memory
 * is short or the disk fails. */
bool td_publish_each_ref(const struct td_publish_repo *repo,
                         bool (*visit)(void *context, const char *name, const char *commit), void *context);

/* Sets a revision or tag to a commit, which another revision or the commit's id names: makes it or moves it. `moves`:
 * it may exist already; else that is TD_CONFLICT. Errors: TD_NOT_FOUND for the target; TD_CONFLICT also when the name
 * is that of a folder of revisions, or a revision is in its way; TD_FAILED_PRECONDITION for more revisions than scans
 * read; as td_commit_check_revision; as td_publish_fail. */
bool td_publish_set_ref(struct td_publish_repo *repo, const char *revision, const char *target, bool moves,
                        struct td_error *err);

/* Removes a revision or tag; its commit stays for a while (publish_collect.h). Errors: TD_NOT_FOUND;
 * TD_FAILED_PRECONDITION for "main"; as td_publish_fail. */
bool td_publish_delete_ref(struct td_publish_repo *repo, const char *revision, struct td_error *err);

struct td_publish_ref {
    char name[TD_REVISION_BYTES];
    char commit[TD_COMMIT_BYTES]; /* empty: the file holds no commit id */
};

struct td_publish_ref_list {
    struct td_publish_ref *items; /* sorted by name */
    size_t count, capacity;
    size_t folder_count;
};

/* Reads all revisions into *refs, zeros at first, also those that were damaged; the caller frees refs->items in any
 * case. Errors: TD_FAILED_PRECONDITION for a refs/ that is no such folder; TD_RESOURCE_EXHAUSTED; TD_IO. */
bool td_publish_refs_read(const struct td_publish_repo *repo, struct td_publish_ref_list *refs, struct td_error *err);

/* Checks that a revision that does not exist can be made. Errors: as td_publish_set_ref. */
bool td_publish_ref_check_new(const struct td_publish_repo *repo, const char *revision, struct td_error *err);

/* Lets the revision name the commit, durably and by one rename; a crash leaves the old commit or the new one. In a
 * repository in new/ too, for td_publish_repo_show. A failure leaves the revision as it was. Errors: TD_CONFLICT as
 * above; as td_publish_fail. */
bool td_publish_ref_write(const struct td_publish_stage *stage, const char *revision, const char *commit,
                          struct td_error *err);

#endif
