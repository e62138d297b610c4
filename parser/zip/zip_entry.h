/* One member of a zip archive. */
#ifndef TD_PARSER_ZIP_ZIP_ENTRY_H
#define TD_PARSER_ZIP_ZIP_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

struct td_zip_entry {
    const char *name; /* UTF-8, not empty, without NUL; terminated; in the arena of td_zip_read */
    uint32_t name_len;
    bool deflated;
    uint32_t crc32;        /* of the unpacked bytes; 0 where the writer left it out (PyTorch can) */
    uint64_t offset;       /* of the member's data, from the start of the archive */
    uint64_t stored_bytes; /* length of the data in the archive */
    uint64_t size_bytes;   /* length of the unpacked data; equal to stored_bytes when the member is stored */
    uint64_t header_at;    /* offset of the local header: for error positions */
};

#endif
