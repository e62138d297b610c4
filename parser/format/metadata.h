/* Metadata of a manifest, as the parsers write it: by hand and not by json_build.h, because the values are small and
 * are written item by item while the file is read. */
#ifndef TD_PARSER_FORMAT_METADATA_H
#define TD_PARSER_FORMAT_METADATA_H

#include "core/buffer.h"
#include "core/text.h"
#include "parser/format/manifest.h"
#include "parser/format/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_METADATA_TEXT_MAX = 4096 }; /* most bytes of a text that are shown */

/* Returns the keys of the metadata as a list of names, which borrows the metadata. */
struct td_names td_metadata_keys(const struct td_metadata *metadata, size_t count);

/* Returns the value of this key in a file's own metadata, as JSON, borrowed; NULL when the key is absent. */
const char *td_metadata_find(const struct td_metadata *metadata, size_t count, const char *key);

/* Appends a text as a JSON value. `len` is the length of the whole text in bytes; `shown` is the text or its beginning,
 * at most TD_METADATA_TEXT_MAX bytes. A beginning is written as {"length":LEN,"first":"..."}. is_utf8 says whether
 * `shown` is UTF-8; other text is escaped by td_utf8_escape. */
void td_metadata_write_text(struct td_buffer *out, struct td_text shown, bool is_utf8, uint64_t len);

#endif
