/* The headers of tar archives: one block of 512 bytes, and the records of pax. Sources: POSIX pax(1), "ustar
 * Interchange Format" and "pax Interchange Format"; GNU tar's src/tar.h; Lib/tarfile.py of Python. */
#ifndef TD_PARSER_ROWS_TAR_HEADER_H
#define TD_PARSER_ROWS_TAR_HEADER_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { TD_TAR_BLOCK_BYTES = 512, TD_TAR_SHORT_PATH_BYTES = 256 /* of prefix, slash and name */ };

struct td_tar_header {
    char type;                          /* typeflag; 0 is a regular file, or a directory when name ends in a slash */
    bool is_directory;                  /* by type and name */
    uint64_t size;                      /* of the data after the header */
    uint32_t path_len;                  /* 0: no path */
    char path[TD_TAR_SHORT_PATH_BYTES]; /* without a NUL */
};

/* The pax records of the next member, or of all that follow. */
struct td_tar_records {
    bool has_path, has_size;
    struct td_text path; /* borrowed from the records' text; without slashes at its end */
    uint64_t size;
    bool is_sparse; /* a record begins with GNU.sparse. */
};

/* Returns whether a block has only zeros, as at the end of an archive. */
bool td_tar_is_zero(const uint8_t block[TD_TAR_BLOCK_BYTES]);

/* Reads a header that begins at `pos` in the archive. Errors: TD_INVALID_ARGUMENT with the position of the field when
 * the checksum does not fit or the size is not a number. */
bool td_tar_header_read(const uint8_t block[TD_TAR_BLOCK_BYTES], uint64_t pos, struct td_tar_header *header,
                        struct td_error *err);

/* Reads the records of a pax header, which begin at `pos` in the archive. Of records with one key the last one counts.
 * Errors: TD_INVALID_ARGUMENT with the position of the record that is malformed, or whose path or size is wrong. */
bool td_tar_records_read(struct td_text text, uint64_t pos, struct td_tar_records *records, struct td_error *err);

#endif
