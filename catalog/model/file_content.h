/* The content of one file of the catalog: decides which files are read, parses them, and notes why one is refused. */
#ifndef TD_CATALOG_MODEL_FILE_CONTENT_H
#define TD_CATALOG_MODEL_FILE_CONTENT_H

#include "catalog/model/snapshot.h"
#include "core/error.h"
#include "core/input.h"
#include "parser/format/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns a new, unread file with one reference, or NULL when memory is short. `path` is the file's place below the
 * root; `name` is the name that clients know, which decides the kind. `maps` is borrowed and may be NULL. */
struct td_file *td_file_create(const char *path, const char *name, const struct td_file_id *id,
                               struct td_mapping_cache *maps, const struct td_limits *limits);

/* Returns whether a scan reads the file. A scan reads a file that holds tensors or facts or describes tensors, a .json
 * file, whose first bytes show whether its lines are rows, and a file that is short enough for a Git LFS pointer. */
bool td_file_is_read(const struct td_file *file);

/* Reads the file's content from `input` into the file: its manifest, index or facts. `name` is that of
 * td_file_create. Turns the file into a plain file when its bytes are not of the format that its name may stand for.
 * Errors: TD_INVALID_ARGUMENT for a broken file and for a Git LFS pointer; TD_RESOURCE_EXHAUSTED; those of `input`. */
bool td_file_parse(struct td_file *file, const char *name, const struct td_input *input, const struct td_limits *limits,
                   struct td_error *err);

/* Returns the memory, in bytes, that the file's content takes. */
size_t td_file_content_bytes(const struct td_file *file);

/* Returns why the file is refused or damaged. Leaves out the words that say what the model may lack. Returns NULL when
 * nothing is wrong. */
const char *td_file_damage(const struct td_file *file);

/* Marks the file as refused, notes the reason, and frees its content. After a fault that may pass (I/O, memory) the
 * next scan reads the file again. */
void td_file_refuse(struct td_file *file, const struct td_error *why);

/* Notes why the file could not be read. Refuses a checkpoint file and a Git LFS pointer. A plain file stays, because it
 * is served whatever its bytes are; one that describes a model is marked as damaged. */
void td_file_fail(struct td_file *file, const struct td_error *why);

#endif
