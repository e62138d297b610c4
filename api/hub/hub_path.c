#include "api/hub/hub_path.h"

#include "http/uri.h"

#include <stdlib.h>
#include <string.h>

void td_hub_path_split(struct td_hub_path *path, struct td_text raw_path)
{
    path->count = 0;
    path->memory = NULL;
    path->is_folder = raw_path.len > 0 && raw_path.p[raw_path.len - 1] == '/';
    for (size_t at = 0, end; at < raw_path.len; at = end + 1) {
        bool is_last = path->count + 1 == TD_HUB_MAX_SEGMENTS;
        end = at;
        while (end < raw_path.len && (raw_path.p[end] != '/' || is_last))
            end++;
        if (end > at)
            path->segments[path->count++] = td_text_n(raw_path.p + at, end - at);
    }
}

bool td_hub_path_parse(struct td_hub_path *path, struct td_text raw_path, struct td_error *err)
{
    td_hub_path_split(path, raw_path);
    path->memory = malloc(raw_path.len + 1);
    if (path->memory == NULL)
        return td_error_no_memory(err);
    char *to = path->memory;
    for (size_t i = 0; i < path->count; i++) {
        struct td_text raw = path->segments[i];
        struct td_text *segment = &path->segments[i];
        segment->p = to;
        if (!td_uri_decode(raw, false, TD_URI_TARGET, to, &segment->len, err))
            return false;
        to += segment->len;
        *to++ = '/';
    }
    return true;
}

void td_hub_path_fini(struct td_hub_path *path)
{
    free(path->memory);
    path->memory = NULL;
}

struct td_text td_hub_path_join(const struct td_hub_path *path, size_t first, size_t end)
{
    if (first >= end)
        return TD_TEXT("");
    const struct td_text *last = &path->segments[end - 1];
    const char *from = path->segments[first].p;
    return td_text_n(from, (size_t)(last->p + last->len - from));
}
