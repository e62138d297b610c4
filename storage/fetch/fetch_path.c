#include "storage/fetch/fetch_path.h"

#include "core/utf8.h"
#include "storage/fetch/fetch_target.h"

#include <string.h>

/* Returns the fault of the path as a whole, or NULL. */
static const char *fault_of_whole(struct td_text path)
{
    if (path.len == 0)
        return "is empty";
    if (path.p[0] == '/')
        return "is absolute";
    if (path.len > TD_FETCH_PATH_BYTES)
        return "has more than 1,024 bytes";
    if (!td_utf8_valid(path.p, path.len))
        return "is not UTF-8";
    for (size_t i = 0; i < path.len; i++)
        if ((unsigned char)path.p[i] < ' ' || path.p[i] == 0x7f || path.p[i] == '\\')
            return "has a control character or a backslash";
    return NULL;
}

static const char *fault_of_part(struct td_text part)
{
    if (part.len == 0)
        return "has an empty part";
    if (part.len > TD_FETCH_NAME_BYTES)
        return "has a part of more than 238 bytes";
    if (td_text_equals(part, ".") || td_text_equals(part, ".."))
        return "has a part \".\" or \"..\"";
    return NULL;
}

const char *td_fetch_path_fault(struct td_text path, const char *(*refuse_part)(struct td_text part))
{
    struct td_text rest = path;
    const char *fault = fault_of_whole(path);
    size_t parts = 0;
    for (bool is_last = false; fault == NULL && !is_last; parts++) {
        is_last = memchr(rest.p, '/', rest.len) == NULL;
        struct td_text part = td_text_take_until(&rest, '/');
        fault = parts == TD_FETCH_PATH_PARTS ? "has more than 32 parts" : fault_of_part(part);
        if (fault == NULL && refuse_part != NULL)
            fault = refuse_part(part);
    }
    return fault;
}
