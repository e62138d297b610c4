/* The tree of a model's modules, from the names of its tensors: "model.layers.0.mlp.weight" is in the modules "model",
 * "model.layers" and "model.layers.0". The parts of a name are divided by '.' or '/'; a part begins with all such
 * characters that stand before it. Pure: names are borrowed, and a tree of any number of names takes bounded memory.
 *
 * A list of the tree has at most TD_MODULES_LISTED modules of at most TD_MODULE_LEVELS levels. The modules of a level
 * are listed only if there is room after those of the levels above. */
#ifndef TD_API_HTML_MODULE_TREE_H
#define TD_API_HTML_MODULE_TREE_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_MODULE_LEVELS = 3, TD_MODULES_LISTED = 200 };

enum td_module_line_kind {
    TD_MODULE_OPEN,  /* a module with modules in it: their lines follow, up to its line TD_MODULE_CLOSE */
    TD_MODULE_ALONE, /* a module without modules in it, or on the last level */
    TD_MODULE_MORE,  /* `more` modules of the open one, or of the first level, are not listed */
    TD_MODULE_CLOSE,
};

struct td_module_line {
    enum td_module_line_kind kind;
    struct td_text path;               /* of OPEN and ALONE: "model.layers.0"; borrowed from a tensor's name */
    size_t name_at;                    /* where the last part begins in `path` */
    size_t level;                      /* of OPEN and ALONE: 0 for the first level */
    uint64_t tensors, elements, bytes; /* of all tensors in the module; each at most 2^64-1 */
    size_t more;
};

struct td_module_tree;

/* Starts a tree. td_module_tree_finish frees it. Returns NULL when memory is short. */
struct td_module_tree *td_module_tree_create(void);

/* Adds a tensor. Names must come in byte order and outlive the lines. */
void td_module_tree_add(struct td_module_tree *tree, struct td_text name, uint64_t elements, uint64_t bytes);

/* Frees the tree, and sets *lines to the list, which the caller frees with free(), and *count to its length. In a list
 * the modules of one module are in the order of their names, with numbers in the order of their values: "2" before
 * "10". No modules: *lines is NULL. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_module_tree_finish(struct td_module_tree *tree, struct td_module_line **lines, size_t *count,
                           struct td_error *err);

#endif
