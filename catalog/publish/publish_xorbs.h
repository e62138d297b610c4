/* Objects that clients send before the files that are made of them (the xorbs of Xet): files in incoming/, which no
 * scan finds and which a start of the server removes. They count towards the bound on all blobs. An object has a name,
 * "FOLDER/SESSION/HASH" of the repository, an upload's session and the object's hash, and a table of numbers behind its
 * bytes. It goes upload_expires_s after an object of its session arrived, or it was read, for the last time.
 * Thread-safe; an object that is being written belongs to one thread at a time. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_XORBS_H
#define TD_CATALOG_PUBLISH_PUBLISH_XORBS_H

#include "catalog/publish/publish_store.h"

struct td_publish_xorb_part;

/* Begins an object of so many bytes, the table included. client: as for td_shared_budget_of. Errors: as
 * td_publish_stream_begin; TD_UNAVAILABLE when there are TD_PUBLISH_XORBS objects, or half as many of this client. */
bool td_publish_xorb_begin(struct td_publish *publish, uint64_t client, uint64_t most_bytes,
                           struct td_publish_xorb_part **out, struct td_error *err);

/* Appends bytes. Errors: TD_INVALID_ARGUMENT for more than most_bytes; TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_publish_xorb_write(struct td_publish_xorb_part *part, const void *bytes, size_t len, struct td_error *err);

/* Appends the table, gives the object its name, and frees the part. An object of that name stays as it is. Errors: as
 * above; nothing of the object stays then. */
bool td_publish_xorb_end(struct td_publish_xorb_part *part, const char *name, const uint32_t *table, size_t count,
                         struct td_error *err);

/* Drops an object that is being written. NULL is allowed. */
void td_publish_xorb_abandon(struct td_publish_xorb_part *part);

/* Opens an object for reading. Sets *table_at to where its table begins, and *count to how many numbers it has. Returns
 * the descriptor, which the caller closes, or -1 when there is no object of this name. */
int td_publish_xorb_open(struct td_publish *publish, const char *name, uint64_t *table_at, size_t *count);

/* Keeps the objects whose names begin so, "FOLDER/SESSION/", as if they had arrived now. */
void td_publish_xorbs_renew(struct td_publish *publish, const char *begin);

/* Removes objects whose time is over; all: every object. */
void td_publish_xorbs_expire(struct td_publish *publish, bool all);

#endif
