/* Entity tags under which bytes have been given out that turned out to be wrong: a client must not go on where it was
 * cut off. The latest TD_WRONG_TAGS are remembered, in memory. The caller sees to it that calls do not overlap. */
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

/* Adds a tag without its quotes; when the table is full, in the place of the oldest. */
void td_wrong_tags_add(struct td_wrong_tags *tags, const char *tag);

/* Returns whether an entity tag, as an answer has it with its quotes, begins with one of them: a facade may have put
 * something behind it. */
bool td_wrong_tags_has(const struct td_wrong_tags *tags, struct td_text etag);

#endif
