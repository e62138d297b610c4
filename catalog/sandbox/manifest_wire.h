/* A manifest as bytes, from the parser's process to the server. */
#ifndef TD_CATALOG_SANDBOX_MANIFEST_WIRE_H
#define TD_CATALOG_SANDBOX_MANIFEST_WIRE_H

#include "catalog/sandbox/wire.h"
#include "parser/format/manifest.h"

/* Appends the manifest of one file, which a parser has finished. */
void td_manifest_write(const struct td_manifest *manifest, struct td_wire_writer *out);

/* Reads what td_manifest_write wrote of a file of size_bytes bytes into *manifest, which the caller has initialised,
 * and ends in every case. Trusts no value: all that parser/format/manifest.h and core/coding.h promise of a manifest is
 * true of the result, each servable tensor is inside the file, and memory is in proportion to the bytes and within the
 * arena's limit. Errors: TD_INTERNAL when the bytes are not such a manifest; TD_RESOURCE_EXHAUSTED. */
bool td_manifest_read(struct td_wire_reader *in, uint64_t size_bytes, struct td_manifest *manifest,
                      struct td_error *err);

#endif
