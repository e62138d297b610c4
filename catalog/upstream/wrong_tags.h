/* Entity tags of responses with bytes that turned out to be wrong: a client must not resume such a response where it
 * was cut off. The latest TD_WRONG_TAGS tags are kept in memory. The caller ensures that calls do not overlap. */
#ifndef TD_CATALOG_UPSTREAM_WRONG_TAGS_H
#define TD_CATALOG_UPSTREAM_WRONG_TAGS_H

#include "core/digest.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

enum { TD_WRONG_TAGS = 512 };

/* All zeros: none. */
struct td_wrong_tags {
    char tags[TD_WRONG_TAGS][TD_SHA256_TEXT_BYTES];
    size_t next;
};

/* Adds a tag without its quotes. In a full table it replaces the oldest tag. */
void td_wrong_tags_add(struct td_wrong_tags *tags, const char *tag);

/* Returns whether an entity tag, with its quotes, begins with one of the tags: a facade may have added a suffix. */
bool td_wrong_tags_has(const struct td_wrong_tags *tags, struct td_text etag);

#endif
