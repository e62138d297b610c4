#include "catalog/upstream/wrong_tags.h"

#include <stdio.h>
#include <string.h>

void td_wrong_tags_add(struct td_wrong_tags *tags, const char *tag)
{
    (void)snprintf(tags->tags[tags->next], sizeof tags->tags[0], "%s", tag);
    tags->next = (tags->next + 1) % TD_WRONG_TAGS;
}

bool td_wrong_tags_has(const struct td_wrong_tags *tags, struct td_text etag)
{
    for (size_t i = 0; i < TD_WRONG_TAGS; i++) {
        size_t len = strlen(tags->tags[i]);
        if (len > 0 && etag.len > len && memcmp(etag.p + 1, tags->tags[i], len) == 0)
            return true;
    }
    return false;
}
