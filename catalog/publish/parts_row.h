/* The row of an upload: a file in which its parts stand side by side, so that it becomes the blob without a copy.
 * Clients send parts of one size, but for the last one. So part N begins at (N - 1) times the size of the part that
 * came first, and the row is hashed along its front while parts still arrive. A part that does not fit, or that is sent
 * again, gets a file of its own, and the upload is then completed by a copy.
 *
 * A row is known in memory alone: after the end of the process its parts are read from it, and new ones do not join
 * them. Thread-safe; private to catalog/publish/. */
#ifndef TD_CATALOG_PUBLISH_PARTS_ROW_H
#define TD_CATALOG_PUBLISH_PARTS_ROW_H

#include "catalog/publish/publish_store.h"
#include "storage/own_folder.h"

#define TD_PARTS_FOLDER "parts"
#define TD_PARTS_ROW_NAME "row"
#define TD_PARTS_PLACED_NAME "placed"

/* Writes the path of an upload's folder, or of an item in it, below the own folder. item: may be empty. */
void td_parts_path(const char *id, const char *item, char path[TD_OWN_NAME_BYTES]);

/* Claims the place of a part in the row of the upload `id`, and reserves its bytes on the disk. Begins the row with the
 * first part of an upload. Sets *off to where the part begins, and *fd, which is borrowed until td_parts_row_leave.
 * Returns NULL when the part needs a file of its own; errno is then ENOSPC or EDQUOT when the disk is full, else 0. */
struct td_parts_row *td_parts_row_claim(struct td_publish *publish, const char *id, unsigned number,
                                        uint64_t size_bytes, uint64_t *off, int *fd);

/* Ends a claim. is_complete: all bytes of the part are in the file, durably; else its place is free again. */
void td_parts_row_leave(struct td_publish *publish, struct td_parts_row *row, unsigned number, uint64_t size_bytes,
                        bool is_complete);

/* Closes the row of an upload to parts, if it consists of the parts 1 to `count` alone and none is arriving. Returns
 * NULL when there is no such row. The caller ends with td_parts_row_open. */
struct td_parts_row *td_parts_row_seal(struct td_publish *publish, const char *id, unsigned count);

/* Lets parts into a sealed row again; is_over: forgets the row, as it must after td_parts_row_sum. */
void td_parts_row_open(struct td_publish *publish, struct td_parts_row *row, bool is_over);

/* Cuts a sealed row to its size, and waits until all of it is hashed. Once for each row. Errors: TD_IO,
 * TD_RESOURCE_EXHAUSTED. */
bool td_parts_row_sum(struct td_parts_row *row, uint64_t size_bytes, uint8_t sum[TD_SHA256_BYTES],
                      struct td_error *err);

/* Forgets the row of an upload that ends; NULL: all rows. One that is in use is forgotten after that. */
void td_parts_row_drop(struct td_publish *publish, const char *id);

#endif
