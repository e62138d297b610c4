/* Plan: the modules of a level have names with a common beginning, so in byte order the tensors of a module follow one
 * another ('.' and '/' are neighbours in ASCII). One pass over the names therefore needs only the path of the module
 * that it is in. Each level keeps its first TD_MODULES_LISTED modules and counts the others. */
#include "api/html/module_tree.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

struct module {
    struct td_text path;
    size_t name_at, level;
    struct module *above; /* NULL: the module is on the first level */
    size_t inner_count;   /* the modules directly in it, except on the last level */
    size_t listed_count;  /* those of them that are listed */
    uint64_t tensors, elements, bytes;
};

struct td_module_tree {
    struct module modules[TD_MODULE_LEVELS][TD_MODULES_LISTED];
    size_t kept[TD_MODULE_LEVELS];            /* modules of the level in `modules` */
    size_t first_level_count;                 /* all modules of the first level */
    struct td_text path[TD_MODULE_LEVELS];    /* the modules of the tensor that was added last, `depth` of them */
    struct module *current[TD_MODULE_LEVELS]; /* the same; NULL: the module is not kept */
    size_t depth;
};

struct td_module_tree *td_module_tree_create(void)
{
    return calloc(1, sizeof(struct td_module_tree));
}

static bool divides(char c)
{
    return c == '.' || c == '/';
}

/* Returns where the part of the name ends that begins at `at`. */
static size_t end_of_part(struct td_text name, size_t at)
{
    while (at < name.len && divides(name.p[at]))
        at++;
    while (at < name.len && !divides(name.p[at]))
        at++;
    return at;
}

/* Adds to a sum that stops at 2^64-1. */
static void add_to(uint64_t *sum, uint64_t value)
{
    if (!td_add_u64(*sum, value, sum))
        *sum = UINT64_MAX;
}

/* Begins the module of this path on a level, within the current modules of the levels above. */
static void begin_module(struct td_module_tree *tree, size_t level, struct td_text path)
{
    struct module *above = level == 0 ? NULL : tree->current[level - 1];
    bool is_kept = (level == 0 || above != NULL) && tree->kept[level] < TD_MODULES_LISTED;
    tree->path[level] = path;
    tree->current[level] = NULL;
    if (level == 0)
        tree->first_level_count++;
    else if (above != NULL)
        above->inner_count++;
    if (!is_kept)
        return;
    struct module *module = &tree->modules[level][tree->kept[level]++];
    size_t name_at = level == 0 ? 0 : tree->path[level - 1].len;
    while (level > 0 && divides(path.p[name_at]))
        name_at++;
    *module = (struct module){.path = path, .name_at = name_at, .level = level, .above = above};
    tree->current[level] = module;
}

void td_module_tree_add(struct td_module_tree *tree, struct td_text name, uint64_t elements, uint64_t bytes)
{
    size_t level = 0;
    for (size_t end = end_of_part(name, 0); level < TD_MODULE_LEVELS && end < name.len; level++) {
        struct td_text path = td_text_n(name.p, end);
        if (level >= tree->depth || td_text_compare(path, tree->path[level]) != 0) {
            begin_module(tree, level, path);
            tree->depth = level + 1; /* the modules in another module are other ones, too */
        }
        end = end_of_part(name, end);
    }
    tree->depth = level;
    for (size_t i = 0; i < level; i++) {
        struct module *module = tree->current[i];
        if (module == NULL)
            continue;
        add_to(&module->tensors, 1);
        add_to(&module->elements, elements);
        add_to(&module->bytes, bytes);
    }
}

/* ---- the list ------------------------------------------------------------------------------------------ */

static size_t count_digits(const char *p, const char *end)
{
    const char *at = p;
    while (at < end && td_is_digit(*at))
        at++;
    return (size_t)(at - p);
}

/* Compares two texts, numbers in them by their values. Equal texts alone are equal. */
static int compare_natural(struct td_text a, struct td_text b)
{
    const char *p = a.p;
    const char *q = b.p;
    const char *const p_end = a.p + a.len;
    const char *const q_end = b.p + b.len;
    while (p < p_end && q < q_end) {
        size_t digits = count_digits(p, p_end);
        size_t others = count_digits(q, q_end);
        if (digits == 0 || others == 0) {
            if (*p != *q)
                return (unsigned char)*p < (unsigned char)*q ? -1 : 1;
            p++;
            q++;
            continue;
        }
        for (; digits > 1 && *p == '0'; digits--)
            p++;
        for (; others > 1 && *q == '0'; others--)
            q++;
        int order = digits != others ? (digits < others ? -1 : 1) : memcmp(p, q, digits);
        if (order != 0)
            return order;
        p += digits;
        q += others;
    }
    return p < p_end ? 1 : q < q_end ? -1 : td_text_compare(a, b);
}

/* Returns the module itself, or the one above it that is on this level. */
static const struct module *at_level(const struct module *module, size_t level)
{
    while (module->level > level)
        module = module->above;
    return module;
}

/* Orders modules so that those in a module follow it. */
static int compare_modules(const void *a, const void *b)
{
    const struct module *x = *(const struct module *const *)a;
    const struct module *y = *(const struct module *const *)b;
    for (size_t level = 0; level <= x->level && level <= y->level; level++) {
        const struct module *m = at_level(x, level);
        const struct module *n = at_level(y, level);
        if (m != n)
            return compare_natural(m->path, n->path);
    }
    return x->level < y->level ? -1 : x->level > y->level ? 1 : 0;
}

struct list {
    struct td_module_line *lines;
    size_t count;
};

static void add_more(struct list *list, size_t more)
{
    if (more > 0)
        list->lines[list->count++] = (struct td_module_line){.kind = TD_MODULE_MORE, .more = more};
}

/* Closes the open modules up to `end`, the innermost first. */
static void close_modules(struct list *list, const struct module *open, const struct module *end)
{
    for (; open != NULL && open != end; open = open->above) {
        add_more(list, open->inner_count - open->listed_count);
        list->lines[list->count++] = (struct td_module_line){.kind = TD_MODULE_CLOSE};
    }
}

static void write_lines(struct list *list, struct module *const *listed, size_t count, size_t first_level_count)
{
    const struct module *open = NULL;
    size_t on_first_level = 0;
    for (size_t i = 0; i < count; i++) {
        const struct module *module = listed[i];
        close_modules(list, open, module->above);
        list->lines[list->count++] =
            (struct td_module_line){.kind = module->inner_count > 0 ? TD_MODULE_OPEN : TD_MODULE_ALONE,
                                    .path = module->path,
                                    .name_at = module->name_at,
                                    .level = module->level,
                                    .tensors = module->tensors,
                                    .elements = module->elements,
                                    .bytes = module->bytes};
        open = module->inner_count > 0 ? module : module->above;
        on_first_level += module->level == 0 ? 1 : 0;
    }
    close_modules(list, open, NULL);
    add_more(list, first_level_count - on_first_level);
}

bool td_module_tree_finish(struct td_module_tree *tree, struct td_module_line **lines, size_t *count,
                           struct td_error *err)
{
    struct module *listed[TD_MODULES_LISTED];
    size_t listed_count = 0;
    *lines = NULL;
    *count = 0;
    for (size_t level = 0; level < TD_MODULE_LEVELS; level++) {
        for (size_t i = 0; i < tree->kept[level] && listed_count < TD_MODULES_LISTED; i++) {
            struct module *module = &tree->modules[level][i];
            listed[listed_count++] = module;
            if (module->above != NULL)
                module->above->listed_count++;
        }
    }
    bool ok = true;
    if (listed_count > 0) {
        struct list list = {.lines = malloc((3 * listed_count + 1) * sizeof *list.lines)};
        qsort(listed, listed_count, sizeof(struct module *), compare_modules);
        if (list.lines != NULL)
            write_lines(&list, listed, listed_count, tree->first_level_count);
        else
            ok = td_error_no_memory(err);
        *lines = list.lines;
        *count = list.count;
    }
    free(tree);
    return ok;
}
