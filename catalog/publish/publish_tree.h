/* Snapshots on disk: the list of files of a commit as a directory of relative symlinks to blobs. Threads: that which
 * has opened the repository. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_TREE_H
#define TD_CATALOG_PUBLISH_PUBLISH_TREE_H

#include "catalog/publish/commit_list.h"
#include "catalog/publish/publish_folder.h"
#include "catalog/publish/publish_stage.h"

/* Reads the SHA-256 in the target of a link that a walk over a snapshot has found: `../../blobs/HEX`, with a `../` more
 * for each level of folders. depth_above: levels between the directory that is walked and the snapshot (1 for
 * snapshots/, 0 for a snapshot). Returns false for any other target or item. */
bool td_publish_link_read(const struct td_folder_item *item, size_t depth_above, uint8_t sha256[TD_SHA256_BYTES]);

/* Returns whether the text is a commit id: 40 lower-case hexadecimal digits. */
bool td_publish_is_commit(struct td_text name);

/* Opens the directory of a commit's snapshot. Returns the descriptor, or -1 with errno. */
int td_publish_tree_open(const struct td_publish_repo *repo, const char *commit);

/* Sets sha256 to that of the file at this path in the commit's snapshot. Returns false when there is none. */
bool td_publish_tree_find(const struct td_publish_repo *repo, const char *commit, const char *path,
                          uint8_t sha256[TD_SHA256_BYTES]);

/* Reads a snapshot into the list, zeros at first, and checks that its files are those that the commit's id says.
 * `fd` is the snapshot's directory. Errors: TD_FAILED_PRECONDITION for a snapshot that was changed, or is larger than
 * a commit can be: names what is wrong; TD_RESOURCE_EXHAUSTED; TD_IO. */
bool td_publish_tree_read(int fd, const char *commit, struct td_commit_list *list, struct td_error *err);

/* Makes the directory `name` in the stage with a link for each file of the list, durably. Files with has_link are
 * hard-linked from the snapshot `before`, where the file system allows it; else their links get the time that they have
 * there. Errors as td_publish_fail. */
bool td_publish_tree_write(const struct td_publish_stage *stage, const char *name, const struct td_commit_list *list,
                           int before, struct td_error *err);

/* Sets the times of links in the snapshot `fd` to now: of files of the order without has_link. */
void td_publish_tree_touch(int fd, const struct td_commit_list *list);

#endif
