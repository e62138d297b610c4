/* Metadata of a manifest, as the parsers write it. */
#ifndef TD_PARSER_METADATA_H
#define TD_PARSER_METADATA_H

#include "core/buffer.h"
#include "core/text.h"
#include "parser/manifest.h"
#include "parser/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_METADATA_TEXT_MAX = 4096 }; /* most bytes of a text that are shown */

/* Returns the keys of the metadata as a list of names, which borrows the metadata. */
struct td_names td_metadata_keys(const struct td_metadata *metadata, size_t count);

/* Appends a text of len bytes as a JSON value. `shown` is the text or its beginning, at most TD_METADATA_TEXT_MAX
 * bytes; only a beginning is written as {"length":LEN,"first":"..."}. Text that is not UTF-8 is escaped by
 * td_utf8_escape. */
void td_metadata_write_text(struct td_buffer *out, struct td_text shown, bool is_utf8, uint64_t len);

#endif
