#include "core/extension.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* Returns the part of the name at its end that is as long as the extension, or NULL when nothing comes before it. */
static const char *end_of(const char *name, const char *extension)
{
    size_t len = strlen(name);
    size_t n = strlen(extension);
    return len > n ? name + len - n : NULL;
}

bool td_has_extension(const char *name, const char *extension)
{
    const char *end = end_of(name, extension);
    return end != NULL && strcmp(end, extension) == 0;
}

bool td_has_extension_any_case(const char *name, const char *extension)
{
    const char *end = end_of(name, extension);
    return end != NULL && strcasecmp(end, extension) == 0;
}
