/* The bytes of a zip archive's members. */
#ifndef TD_PARSER_ZIP_ZIP_UNPACK_H
#define TD_PARSER_ZIP_ZIP_UNPACK_H

#include "core/input.h"
#include "parser/format/manifest.h"
#include "parser/zip/zip_entry.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns a member's bytes, unpacked when the member is deflated, which the caller frees with free(); NULL on failure.
 * Never NULL for an empty member. A member of more than limit_bytes is refused (TD_RESOURCE_EXHAUSTED) before anything
 * is allocated. A deflated member is refused when it unpacks to another size than the directory says, or to bytes of
 * another CRC (unless that CRC is 0). The CRC of a stored member is not checked. Errors: TD_INVALID_ARGUMENT with the
 * position when the member is damaged, TD_RESOURCE_EXHAUSTED, and those of the input. */
uint8_t *td_zip_load(const struct td_input *input, const struct td_zip_entry *entry, uint64_t limit_bytes,
                     struct td_error *err);

/* Writes the first len bytes of a member to out, unpacked when the member is deflated. Unpacks no more than that, so
 * the rest of the member stays unchecked. Errors: TD_INVALID_ARGUMENT when len is above size_bytes or the bytes are
 * damaged, TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_zip_load_head(const struct td_input *input, const struct td_zip_entry *entry, void *out, size_t len,
                      struct td_error *err);

/* Sets *coding to a new coding of the manifest that describes a deflated member. When the member unpacks to more than
 * TD_CODING_STREAM_MAX_BYTES, sets *reason to a static text instead, unless *reason is set already. Returns false, and
 * sets no error, when out of memory. */
bool td_zip_set_coding(struct td_manifest *manifest, const struct td_zip_entry *entry, const struct td_coding **coding,
                       const char **reason);

#endif
