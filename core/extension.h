/* Extensions of file names. */
#ifndef TD_CORE_EXTENSION_H
#define TD_CORE_EXTENSION_H

#include <stdbool.h>

/* Returns whether the name ends in this extension (".bin") with at least one character before it. */
bool td_has_extension(const char *name, const char *extension);

/* Does the same and ignores the case of ASCII letters. */
bool td_has_extension_any_case(const char *name, const char *extension);

#endif
