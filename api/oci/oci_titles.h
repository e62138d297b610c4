/* Titles of layers without '/', for clients that make one file of each layer and no folders. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_TITLES_H
#define TD_API_OCI_OCI_TITLES_H

#include "core/arena.h"
#include "core/error.h"

/* Sets *titles, in the arena, to a title for each of these paths, which all differ: the path with "--" for each '/'.
 * Where titles meet, those that were changed get the first 16 hexadecimal digits of the SHA-256 of the path and '-'
 * before them. So do titles of more than 255 bytes, the longest name of a file on Linux, and lose their beginnings.
 * Takes n log n time. Errors: TD_FAILED_PRECONDITION when titles still meet, which takes a file whose name was chosen
 * to that end; TD_RESOURCE_EXHAUSTED. */
bool td_oci_flat_titles(const char *const *paths, size_t count, struct td_arena *arena, const char ***titles,
                        struct td_error *err);

#endif
