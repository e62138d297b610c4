/* The blobs that one walk has looked at. All commits of a Hugging Face cache link to the same blobs, so a walk of many
 * commits looks at each blob once, and only reads the links to it. Not thread-safe. */
#ifndef TD_CATALOG_SCAN_SEEN_BLOBS_H
#define TD_CATALOG_SCAN_SEEN_BLOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* All zeros at first. */
struct td_seen_blobs {
    struct td_seen_blob *items; /* a hash table; NULL: empty */
    size_t count, capacity;
};

/* A directory of blobs. */
struct td_blobs_place {
    dev_t device;
    ino_t inode; /* 0: none */
};

/* Finds the directory to which links of a commit's directory lead, "../../blobs" for depth 1: the commit's own; each
 * level below it has one "../" more. `fd` is open on the directory. The inode is 0 when there is none. */
struct td_blobs_place td_blobs_place_of(int fd, unsigned depth);

enum { TD_BLOB_NAME_BYTES = 256 };

/* Reads a link in that directory. Returns whether it leads to an item of the directory of blobs, and writes its name.
 */
bool td_blob_link_read(int fd, const char *link, unsigned depth, char name[TD_BLOB_NAME_BYTES]);

/* Returns the state of the blob as it was found before, borrowed until the next addition; NULL when it was not. */
const struct stat *td_seen_blobs_find(const struct td_seen_blobs *seen, const struct td_blobs_place *place,
                                      const char *name);

/* Adds a blob that was not found before. Without memory it is looked at again. */
void td_seen_blobs_add(struct td_seen_blobs *seen, const struct td_blobs_place *place, const char *name,
                       const struct stat *st);

void td_seen_blobs_fini(struct td_seen_blobs *seen);

#endif
