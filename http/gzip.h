/* Unpacks gzip (RFC 1952): one or more members, one after the other. Bytes after the last member that are no member are
 * an error, as every damage is; checksums are compared. The unpacked bytes may be 1,032 times as many as the packed
 * ones. For one thread. */
#ifndef TD_HTTP_GZIP_H
#define TD_HTTP_GZIP_H

#include "core/error.h"
#include "core/text.h"
#include "http/body_room.h"

#include <stdbool.h>
#include <stddef.h>

/* Unpacks bytes as they arrive. */
struct td_gunzip;

enum { TD_GUNZIP_BYTES = 64 * 1024 }; /* the most memory that one takes */

/* Takes the next unpacked bytes, at least one. Returns false to end the unpacking, with an error. */
typedef bool td_gunzip_take(void *context, const void *bytes, size_t len, struct td_error *err);

/* Returns one that gives the unpacked bytes to `take`, or NULL. Errors: TD_RESOURCE_EXHAUSTED. */
struct td_gunzip *td_gunzip_create(td_gunzip_take *take, void *context, struct td_error *err);

/* Unpacks the next bytes. Errors: TD_INVALID_ARGUMENT for damaged bytes; those of `take`. After an error no further
 * bytes may be added. */
bool td_gunzip_add(struct td_gunzip *gunzip, const void *bytes, size_t len, struct td_error *err);

/* Checks, after the last byte, that the last member was complete; no bytes at all are complete. Errors:
 * TD_INVALID_ARGUMENT. */
bool td_gunzip_end(const struct td_gunzip *gunzip, struct td_error *err);

/* Frees it. NULL is allowed. */
void td_gunzip_destroy(struct td_gunzip *gunzip);

/* Unpacks all of the text into memory that `room` counts: four times the text's length at first, then twice as much
 * whenever it is full, and never more than room->most_bytes. The caller frees *out with free() and then
 * calls room->give; *out is NULL for an empty text. Errors: TD_INVALID_ARGUMENT for damaged bytes,
 * TD_FAILED_PRECONDITION for more than room->most_bytes, TD_RESOURCE_EXHAUSTED; of a text that takes long to unpack,
 * that of td_may_wait. */
bool td_gunzip_whole(struct td_text packed, const struct td_body_room *room, char **out, size_t *len,
                     struct td_error *err);

#endif
