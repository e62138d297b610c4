/* The end records of a zip archive, which say where its central directory is. Only for parser/zip. */
#ifndef TD_PARSER_ZIP_ZIP_END_H
#define TD_PARSER_ZIP_ZIP_END_H

#include "parser/zip/zip_reader.h"

/* Finds the end record from the end of the file and sets r->directory_at, r->directory_bytes and r->count. */
bool td_zip_find_end(struct td_zip_reader *r);

#endif
