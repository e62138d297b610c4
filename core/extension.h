/* Extensions of file names. Pure. */
#ifndef TD_CORE_EXTENSION_H
#define TD_CORE_EXTENSION_H

#include <stdbool.h>

/* Whether the name is something and then this extension (".bin"); the extension alone is a name without one. */
bool td_has_extension(const char *name, const char *extension);

/* The same in any case (ASCII). */
bool td_has_extension_any_case(const char *name, const char *extension);

#endif
