/* Describes a published model's directory in one short text, by which eviction tells whether the operator has changed
 * anything in the directory since. Thread-safe. */
#ifndef TD_CATALOG_UPSTREAM_PUBLISHED_TREE_H
#define TD_CATALOG_UPSTREAM_PUBLISHED_TREE_H

#include "core/digest.h"

#include <stdbool.h>

/* Writes a tag over path, kind, inode and modification time of the directory and of everything below it, and the size
 * of what is no directory. A move of the directory does not change the tag. Follows no links. May take long: it looks
 * at each file, but reads none. Returns false, with an empty tag, when something cannot be looked at, is deeper than
 * files of a listing can be, or is on another file system than the directory. */
bool td_published_tree_tag(const char *directory, char tag[TD_TAG_BYTES]);

#endif
