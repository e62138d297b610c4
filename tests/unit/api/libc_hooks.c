/* Replaces strdup and realpath, whose results the program frees, by versions that allocate through alloc_hooks.h, so
 * that its counts balance. Link with --wrap=strdup and --wrap=realpath. */
#include "tests/unit/alloc_hooks.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

char *__wrap_strdup(const char *text);
char *__wrap_realpath(const char *path, char *out);
char *__real_realpath(const char *path, char *out);

char *__wrap_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = __wrap_malloc(bytes);
    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

char *__wrap_realpath(const char *path, char *out)
{
    char resolved[PATH_MAX];
    if (out != NULL)
        return __real_realpath(path, out);
    return __real_realpath(path, resolved) == NULL ? NULL : __wrap_strdup(resolved);
}
