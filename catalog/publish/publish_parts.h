/* Multipart uploads: files of published repositories that arrive in numbered parts, in any order and from many requests
 * at once, and each part whole or not at all. An upload has a folder, so that it survives the end of the server:
 *
 *   DIR/.tensord-publish/parts/ID/about   what it will be
 *                                 NNNNN   a part: its bytes, unless they are in the row, and a note of
 *                                         TD_PART_NOTE_BYTES behind them
 *                                 row     the bytes of parts that stand side by side (parts_row.h)
 *                                 placed  the blob that the row has become
 *                                 done    the file that the upload has become; its parts are gone then
 *
 * Thread-safe; everything may wait for the disk. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_PARTS_H
#define TD_CATALOG_PUBLISH_PUBLISH_PARTS_H

#include "catalog/publish/commit_list.h"
#include "catalog/publish/publish_stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_PARTS_ID_BYTES = 33,        /* of an upload's id, with a NUL */
    TD_PARTS_REPO_BYTES = 256,     /* of a repository's id */
    TD_PARTS_LABEL_BYTES = 1536,   /* of the caller's text about an upload */
    TD_PARTS_MOST_UPLOADS = 10000, /* that are not done */
    TD_PARTS_MOST_OF_ONE = 2500,   /* of these, of one token */
    TD_PARTS_MOST_DONE = 5000,     /* that are noted once there are TD_PARTS_MOST_UPLOADS of both */
    TD_PARTS_MOST_NUMBER = 99999,
    TD_PART_TAG_BYTES = 33,
    TD_PART_LABEL_BYTES = 128, /* of the caller's text about a part */
    TD_PART_NOTE_BYTES = 256
};

/* An upload. */
struct td_parts_upload {
    char id[TD_PARTS_ID_BYTES];
    char repo_id[TD_PARTS_REPO_BYTES]; /* as td_publish_name takes it */
    bool is_dataset;
    char path[TD_COMMIT_PATH_BYTES + 1]; /* of the file */
    char label[TD_PARTS_LABEL_BYTES];    /* the caller's, one line */
    char owner[TD_PUBLISH_OWNER_BYTES];  /* the name of the token that began it; empty without tokens */
    int64_t started_ns;                  /* since 1970 */
    bool is_done;
    struct td_publish_sum sum; /* of an upload that is done: what it has become */
};

/* Begins an upload; chooses its id: ids are ordered by the time when their uploads began. The other members are the
 * caller's. Removes the oldest uploads that are done where there are too many. Errors: TD_FAILED_PRECONDITION when
 * TD_PARTS_MOST_UPLOADS are not done, or TD_PARTS_MOST_OF_ONE of its token; those of td_publish_check_name;
 * TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_parts_begin(struct td_publish *publish, struct td_parts_upload *upload, struct td_error *err);

/* Finds an upload by its id. Errors: TD_NOT_FOUND; TD_IO. */
bool td_parts_find(struct td_publish *publish, struct td_text id, struct td_parts_upload *upload, struct td_error *err);

/* Calls `visit` for each upload that is not done, in any order, until it returns false. Errors: TD_IO,
 * TD_RESOURCE_EXHAUSTED; those of `visit`. */
bool td_parts_each(struct td_publish *publish,
                   bool (*visit)(void *context, const struct td_parts_upload *upload, struct td_error *err),
                   void *context, struct td_error *err);

/* Removes an upload with its parts. Errors: TD_NOT_FOUND; TD_IO. */
bool td_parts_remove(struct td_publish *publish, const char *id, struct td_error *err);

/* Notes what the upload has become, and removes its parts. Errors: TD_NOT_FOUND; TD_IO, TD_RESOURCE_EXHAUSTED. */
bool td_parts_finish(struct td_publish *publish, const char *id, const struct td_publish_sum *sum,
                     struct td_error *err);

/* Adds the bytes of all parts to those that are used. For the start, before the first upload. */
bool td_parts_count(struct td_publish *publish, struct td_error *err);

/* Removes uploads to which nothing has come since this time, in seconds since 1970. */
void td_parts_expire(struct td_publish *publish, int64_t before_s);

/* ---- parts --------------------------------------------------------------------------------------------- */

/* A part that is complete. */
struct td_part_info {
    unsigned number;
    uint64_t size_bytes;
    int64_t written_ns;              /* since 1970 */
    char tag[TD_PART_TAG_BYTES];     /* another one for each time that the part is sent */
    char label[TD_PART_LABEL_BYTES]; /* the caller's */
    uint64_t off;                    /* where the bytes begin in the file that td_parts_open opens */
    bool is_in_row;                  /* of the upload; then `off` is in the row */
    uint64_t held_bytes;             /* in the row, of an earlier part with this number; private */
};

struct td_part_writer;

/* Begins a part of an upload. Takes size_bytes from the bound, and reserves them on the disk; TD_FETCH_SIZE_UNKNOWN is
 * not allowed. Errors: TD_NOT_FOUND without the upload; TD_RESOURCE_EXHAUSTED (sys as td_publish_part_begin), TD_IO. */
bool td_part_begin(struct td_publish *publish, const struct td_parts_upload *upload, unsigned number,
                   uint64_t size_bytes, struct td_part_writer **out, struct td_error *err);

/* Takes the next bytes. Errors: TD_INVALID_ARGUMENT for more than size_bytes; TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_part_write(struct td_part_writer *writer, const void *bytes, size_t len, struct td_error *err);

/* Ends a part whose body has ended, and frees it: it takes its number, from an earlier part, too, durably. Errors:
 * TD_NOT_FOUND when the upload was removed; TD_INVALID_ARGUMENT for fewer bytes than size_bytes; TD_RESOURCE_EXHAUSTED,
 * TD_IO. After an error nothing of it stays. */
bool td_part_end(struct td_part_writer *writer, const char *label, struct td_part_info *info, struct td_error *err);

/* Drops a part. NULL is allowed. */
void td_part_abandon(struct td_part_writer *writer);

/* Writes the complete parts of an upload whose numbers are above `after` to parts[0..*count), by number, at most `most`
 * of them. Sets *has_more to whether there are others after them. Errors: TD_NOT_FOUND; TD_RESOURCE_EXHAUSTED, TD_IO.
 */
bool td_parts_list(struct td_publish *publish, const char *id, unsigned after, size_t most, struct td_part_info *parts,
                   size_t *count, bool *has_more, struct td_error *err);

/* Begins to make a blob of the parts 1 to `count` without a copy of their bytes: possible when all are in the row, one
 * after the other, it has no others, and none is arriving. Returns NULL when it is not possible. The caller ends with
 * td_parts_join or td_parts_unjoin; until then no part joins the row. */
struct td_parts_row *td_parts_begin_join(struct td_publish *publish, const char *id, unsigned count);

/* Makes the blob, of size_bytes, and sets *sum. The parts can be read until the upload is finished or removed. Errors:
 * TD_RESOURCE_EXHAUSTED, TD_IO; the parts stay. */
bool td_parts_join(struct td_publish *publish, const struct td_parts_upload *upload, struct td_parts_row *row,
                   const struct td_publish_name *name, uint64_t size_bytes, struct td_publish_sum *sum,
                   struct td_error *err);

void td_parts_unjoin(struct td_publish *publish, struct td_parts_row *row);

/* Opens a complete part for reading, and sets *info. The bytes begin at info->off. Returns the descriptor, which the
 * caller closes, or -1 when the part does not exist. */
int td_parts_open(struct td_publish *publish, const char *id, unsigned number, struct td_part_info *info);

#endif
