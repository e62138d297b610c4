#include "server/cmd/local_path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Returns whether the text begins with a scheme and "://" (RFC 3986 section 3.1). */
static bool is_url(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    size_t len = strspn(text, letters);
    return len > 0 && strncmp(text + len, "://", 3) == 0;
}

bool td_local_path_check(const char *path, const char *command, struct td_error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 || errno != ENOENT)
        return true;
    if (is_url(path))
        return td_error_set(
            err, TD_NOT_FOUND,
            "\"%.200s\" is a URL, and tensord %s reads local files: tensord pull URL MODEL copies a model "
            "from a server, and curl URL/models/MODEL/tensors prints its tensors",
            path, command);
    return td_error_set(err, TD_NOT_FOUND, "\"%.200s\" does not exist", path);
}
