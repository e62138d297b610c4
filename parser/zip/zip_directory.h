/* The end records of a zip archive, which say where its central directory is, and the directory: one record per member.
 * Only for parser/zip. */
#ifndef TD_PARSER_ZIP_ZIP_DIRECTORY_H
#define TD_PARSER_ZIP_ZIP_DIRECTORY_H

#include "parser/zip/zip_reader.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The fields of a directory record that its entry does not keep. */
struct td_zip_central {
    uint16_t version; /* needed to extract */
    uint16_t flags;
    uint16_t method;
    uint32_t crc32;
    uint16_t name_len;
    uint16_t extra_len;
    uint16_t comment_len;
};

/* Finds the end record from the end of the file, and reads the directory: sets r->directory_at, r->directory_bytes,
 * r->count and r->directory, and fills r->entries (all but their offset), r->order, r->central_at and r->longest_name.
 * Lowers the arena's limit by the scratch that r owns. The caller frees that scratch and restores the limit, also after
 * a failure. */
bool td_zip_read_directory(struct td_zip_reader *r);

/* Returns the fields of the directory record that begins at p. */
struct td_zip_central td_zip_load_central(const uint8_t *p);

/* Finds the zip64 field in extra[0..len) and sets *data and *data_len; *data is NULL without a zip64 field. Fewer than
 * four bytes at the end are padding, as for Python's zipfile. Returns false, without an error, when a field runs past
 * the end or there are two zip64 fields. */
bool td_zip_find_extra64(const uint8_t *extra, size_t len, const uint8_t **data, size_t *data_len);

/* Replaces *value by the next eight bytes of a zip64 field (*data, *len) when *value is 2^32-1, which means that the
 * value did not fit into 32 bits. Without such a field *value stays. Returns false, without an error, when the field is
 * too short. */
bool td_zip_widen(uint64_t *value, const uint8_t **data, size_t *len);

#endif
