/* A strict reader of zip archives. It reads what checkpoints use (stored and deflated members, zip64, data descriptors)
 * and refuses everything else.
 *
 * The central directory decides, because PyTorch leaves sizes and CRCs of its local headers at 0. Where a local header
 * does state a value, the value must agree. The members, each with its local header and descriptor, must fill the
 * archive from its first byte to the central directory. So no two readers can find different members. Up to 65,536
 * bytes after the end record, a comment or not, are ignored, as in zipfile and PyTorch.
 *
 * Sources: PKWARE APPNOTE 6.3.9; for what writers do, Python's zipfile and PyTorch's
 * caffe2/serialize/inline_container.cc with miniz. */
#ifndef TD_PARSER_ZIP_ZIP_H
#define TD_PARSER_ZIP_ZIP_H

#include "core/arena.h"
#include "core/input.h"
#include "core/text.h"
#include "parser/format/limits.h"
#include "parser/zip/zip_entry.h"

#include <stdbool.h>
#include <stddef.h>

struct td_zip {
    struct td_zip_entry *entries; /* without folders, in the order of the central directory; in the arena */
    size_t count;
    struct td_zip_entry **by_name; /* the same entries, sorted by name in byte order; names are unique */
};

/* Reads and checks the central directory and every local header, and fills *zip. Names may be any text, such as "/a"
 * and "../a", because they are never used as paths. The entries come from the arena. The arena's limit bounds them
 * together with the scratch of this call, and is restored at the end. Errors: TD_INVALID_ARGUMENT with the position,
 * TD_RESOURCE_EXHAUSTED, and those of the input. */
bool td_zip_read(struct td_zip *zip, const struct td_input *input, const struct td_limits *limits,
                 struct td_arena *arena, struct td_error *err);

/* Does the same by the rules of PyTorch's reader. Names must be relative paths without "..". The offset of the
 * directory that an end record states counts from the beginning of the file. So in a file of several archives one after
 * the other, the first archive is read if the last end record states the offset, size and number of members of the
 * first one's directory. td_zip_read refuses such a file, because zipfile reads the last archive. */
bool td_zip_read_torch(struct td_zip *zip, const struct td_input *input, const struct td_limits *limits,
                       struct td_arena *arena, struct td_error *err);

/* Returns the member with exactly this name, or NULL. */
const struct td_zip_entry *td_zip_find(const struct td_zip *zip, struct td_text name);

/* Refuses two names that differ only in the case of ASCII letters: PyTorch's reader ignores the case. */
bool td_zip_check_case(const struct td_zip *zip, struct td_error *err);

/* Refuses members outside of the first member's folder: all members of a PyTorch file are in one folder, named after
 * the file or "archive". Sets *root_len to the length of the folder's name and its slash. */
bool td_zip_check_root(const struct td_zip *zip, size_t *root_len, struct td_error *err);

#endif
