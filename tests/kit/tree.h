/* Directories of files for tests, made below TMPDIR (or /tmp) and removed with their contents. A failure ends the
 * process, because no test looks for it. Names are relative to the tree; missing parents are made. */
#ifndef TD_TESTS_KIT_TREE_H
#define TD_TESTS_KIT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TREE_PATH_BYTES = 4096 };

/* Two commits of repositories in caches. */
#define C0 "0000000000000000000000000000000000000000"
#define C1 "1111111111111111111111111111111111111111"

struct tree {
    char path[256];
};

void tree_open(struct tree *tree);
void tree_close(struct tree *tree);

/* Writes the full path of the name to `out`. */
void tree_at(const struct tree *tree, const char *name, char out[TREE_PATH_BYTES]);

void tree_directory(const struct tree *tree, const char *name);

/* Writes a new file, or truncates a file and writes new content. Sets the mtime to a minute ago, so that the file
 * counts as settled. */
void tree_write(const struct tree *tree, const char *name, const void *bytes, size_t len);
void tree_text(const struct tree *tree, const char *name, const char *text);

/* Writes a copy of a small file that is elsewhere (`from`, a path). */
void tree_copy(const struct tree *tree, const char *from, const char *name);

/* Overwrites bytes in place: same inode, same size, new times. */
void tree_poke(const struct tree *tree, const char *name, uint64_t off, const void *bytes, size_t len);

void tree_truncate(const struct tree *tree, const char *name, uint64_t size);
void tree_symlink(const struct tree *tree, const char *name, const char *target);
void tree_fifo(const struct tree *tree, const char *name);
void tree_rename(const struct tree *tree, const char *from, const char *to);

/* Removes a file, or a directory with its contents. */
void tree_remove(const struct tree *tree, const char *name);

/* Sets the mtime to that many nanoseconds ago (negative: in the future). */
void tree_set_age(const struct tree *tree, const char *name, int64_t age_ns);

/* ---- safetensors --------------------------------------------------------------------------------------- */

struct tree_tensor {
    const char *name; /* as written between the quotes of the JSON */
    const char *dtype, *shape;
    uint64_t nbytes;
};

/* Returns byte i of the data. The bytes depend on their position, so that a wrong offset shows. Files with another
 * `salt` have other bytes. */
static inline uint8_t tree_data_byte(uint64_t i, unsigned salt)
{
    return (uint8_t)(i * 7 + i / 251 + 1 + salt * 97);
}

/* Writes a safetensors file of these tensors, in this order. metadata is a JSON object or NULL. Returns where the data
 * begins. */
uint64_t tree_tensors(const struct tree *tree, const char *name, const struct tree_tensor *tensors, size_t count,
                      const char *metadata, unsigned salt);

/* Writes a file of F32 tensors of shape [2]. The names are separated by blanks. */
void tree_simple(const struct tree *tree, const char *name, const char *tensor_names);

/* Writes the index that maps tensors to files: "a f1 b f2". */
void tree_index(const struct tree *tree, const char *name, const char *pairs);

#endif
