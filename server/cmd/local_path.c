#include "server/cmd/local_path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

bool td_local_path_check(const char *path, const char *command, struct td_error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 || errno != ENOENT)
        return true;
    if (strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0)
        return td_error_set(
            err, TD_NOT_FOUND,
            "\"%.200s\" is a URL, and tensord %s reads local files: tensord pull URL MODEL copies a model "
            "from a server, and curl URL/models/MODEL/tensors prints its tensors",
            path, command);
    return td_error_set(err, TD_NOT_FOUND, "\"%.200s\" does not exist", path);
}
