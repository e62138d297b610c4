/* The local headers and data descriptors of a zip archive's members. Only for parser/zip. */
#ifndef TD_PARSER_ZIP_ZIP_LOCAL_H
#define TD_PARSER_ZIP_ZIP_LOCAL_H

#include "parser/zip/zip_reader.h"

#include <stdbool.h>

/* Reads every local header and sets the offset of every entry. Refuses an archive whose members, in the order of their
 * headers, do not fill it up to the central directory. */
bool td_zip_place_members(struct td_zip_reader *r);

#endif
