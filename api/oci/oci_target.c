#include "api/oci/oci_target.h"

#include "catalog/model/file_kind.h"
#include "rank/repo_view.h"

#include <stdlib.h>
#include <string.h>

/* The tags that stand for the same form of every repository at `main`, so that no ref may have them; but "latest" may
 * stand for a GGUF file. */
static const struct {
    const char *tag;
    enum td_oci_form form;
    bool is_alias;
} fixed[] = {
    {"main", TD_OCI_ARTIFACT, false},
    {"flat", TD_OCI_FLAT, false},
    {"image", TD_OCI_IMAGE, false},
    {"latest", TD_OCI_ARTIFACT, true},
};

enum { FIXED = sizeof fixed / sizeof *fixed };

/* ---- the list ------------------------------------------------------------------------------------------ */

static bool add_target(struct td_oci_call *oci, struct td_oci_target **targets, size_t *count, size_t *capacity,
                       const struct td_oci_target *target)
{
    struct td_oci_target *grown = td_arena_grow(&oci->arena, *targets, *count, capacity, sizeof *grown);
    if (grown == NULL)
        return false;
    *targets = grown;
    grown[(*count)++] = *target;
    return true;
}

struct td_oci_target td_oci_gguf_target(const struct td_oci_gguf *gguf, const struct td_entry *projector)
{
    return (struct td_oci_target){
        .tag = "", .form = TD_OCI_GGUF, .revision = TD_TEXT("main"), .gguf = *gguf, .projector = projector};
}

/* Lists the GGUF files of models. A tag is empty if the file's name has no quantisation. */
static bool list_gguf(struct td_oci_call *oci, struct td_oci_target **targets, size_t *count, size_t *capacity)
{
    const struct td_entry *projector = td_oci_gguf_projector(oci);
    struct td_oci_gguf *list;
    size_t list_count;
    if (!td_oci_gguf_list(oci, &list, &list_count))
        return false;
    for (size_t i = 0; i < list_count; i++) {
        struct td_oci_target target = td_oci_gguf_target(&list[i], projector);
        target.tag = list[i].name.quant;
        if (!add_target(oci, targets, count, capacity, &target))
            return false;
    }
    return true;
}

/* Sets *only to whether the repository has checkpoints and all of them are GGUF files. */
static bool has_only_gguf(const struct td_oci_call *oci, bool *only, struct td_error *err)
{
    struct td_repo_view view;
    const struct td_model *model;
    size_t count = 0;
    size_t gguf_count = 0;
    if (!td_repo_view_open(oci->call->snapshot, oci->repo, TD_TEXT("main"), &view, err))
        return false;
    const struct td_repo_models models = td_repo_view_models(&view);
    for (size_t i = 0; (model = td_repo_models_get(&models, i)) != NULL; i++) {
        count += model->checkpoint_count;
        for (size_t k = 0; k < model->checkpoint_count; k++)
            gguf_count += strcmp(model->checkpoints[k].format, "gguf") == 0 ? 1 : 0;
    }
    *only = count > 0 && gguf_count == count;
    return true;
}

/* Returns whether "latest" means x rather than y. */
static bool is_better(const struct td_oci_gguf *x, const struct td_oci_gguf *y, bool takes_shards)
{
    bool is_usual = strcmp(x->name.quant, "Q4_K_M") == 0;
    if (!takes_shards && x->use != y->use)
        return x->use < y->use;
    if (is_usual != (strcmp(y->name.quant, "Q4_K_M") == 0))
        return is_usual;
    return strcmp(x->entry->path, y->entry->path) < 0;
}

const struct td_oci_target *td_oci_default_gguf(const struct td_oci_target *targets, size_t count, bool takes_shards)
{
    const struct td_oci_target *best = NULL;
    for (size_t i = 0; i < count; i++)
        if (targets[i].form == TD_OCI_GGUF && targets[i].gguf.use != TD_OCI_GGUF_INCOMPLETE &&
            (best == NULL || is_better(&targets[i].gguf, &best->gguf, takes_shards)))
            best = &targets[i];
    return best;
}

/* Adds the targets of the fixed tags. is_gguf: the alias stands for one of the GGUF files, which are listed. */
static bool list_fixed(struct td_oci_call *oci, bool is_gguf, struct td_oci_target **targets, size_t *count,
                       size_t *capacity)
{
    const struct td_oci_target *gguf = is_gguf ? td_oci_default_gguf(*targets, *count, false) : NULL;
    for (size_t i = 0; i < FIXED; i++) {
        struct td_oci_target target = {.form = fixed[i].form, .revision = TD_TEXT("main")};
        if (fixed[i].is_alias && gguf != NULL)
            target = *gguf;
        target.tag = fixed[i].tag;
        target.is_alias = fixed[i].is_alias;
        if (!add_target(oci, targets, count, capacity, &target))
            return false;
    }
    return true;
}

static bool is_fixed(struct td_text tag)
{
    for (size_t i = 0; i < FIXED; i++)
        if (td_text_equals(tag, fixed[i].tag))
            return true;
    return false;
}

/* Adds the refs of a cache whose commits exist and whose names are valid tags. */
static bool list_refs(struct td_oci_call *oci, struct td_oci_target **targets, size_t *count, size_t *capacity)
{
    for (size_t i = 0; i < oci->repo->ref_count; i++) {
        struct td_text name = td_text_of(oci->repo->refs[i].name);
        const struct td_oci_target target = {.tag = name.p, .form = TD_OCI_ARTIFACT, .revision = name};
        if (td_oci_tag_is_valid(name) && !is_fixed(name) && td_repo_at(oci->repo, name) != NULL &&
            !add_target(oci, targets, count, capacity, &target))
            return false;
    }
    return true;
}

static int target_compare(const void *a, const void *b)
{
    const struct td_oci_target *x = a;
    const struct td_oci_target *y = b;
    int order = strcmp(x->tag, y->tag);
    if (order == 0)
        order = (x->form > y->form) - (x->form < y->form);
    return order;
}

bool td_oci_target_fits(const struct td_oci_target *target, size_t file_count, struct td_error *err)
{
    return target->form == TD_OCI_GGUF || file_count <= TD_OCI_MOST_FILES ||
           td_error_set(err, TD_FAILED_PRECONDITION,
                        "the repository has %zu files, and an artifact at most %d; the paths of the Hub serve it",
                        file_count, TD_OCI_MOST_FILES);
}

bool td_oci_targets(struct td_oci_call *oci, struct td_oci_target **targets, size_t *count, struct td_error *err)
{
    size_t capacity = 0;
    bool is_gguf;
    *targets = NULL;
    *count = 0;
    if (!has_only_gguf(oci, &is_gguf, err))
        return false;
    bool ok = list_gguf(oci, targets, count, &capacity) && list_fixed(oci, is_gguf, targets, count, &capacity) &&
              list_refs(oci, targets, count, &capacity);
    if (ok)
        qsort(*targets, *count, sizeof **targets, target_compare);
    return ok || td_error_no_memory(err);
}

/* ---- finding one --------------------------------------------------------------------------------------- */

/* Sets the error for an unknown tag, with a list of existing tags. */
static bool no_tag(const struct td_oci_call *oci, const struct td_oci_target *targets, size_t count, struct td_text tag,
                   struct td_error *err)
{
    enum { MOST = 12 };
    struct td_buffer list;
    size_t listed = 0;
    td_buffer_init(&list);
    for (size_t i = 0; i < count && listed <= MOST; i++) {
        if (targets[i].tag[0] == '\0' || (i > 0 && strcmp(targets[i].tag, targets[i - 1].tag) == 0))
            continue;
        td_buffer_puts(&list, listed > 0 ? ", " : "");
        td_buffer_puts(&list, listed < MOST ? targets[i].tag : "...");
        listed++;
    }
    const char *there = td_buffer_terminate(&list);
    (void)td_error_set(err, TD_NOT_FOUND, "%.*s has no tag \"%.*s\"; it has %s; a rank's is spelled tp8-rank0-vllm",
                       TD_SHOW(oci->path.name, 120), TD_SHOW(tag, 100), there == NULL ? "others" : there);
    td_buffer_fini(&list);
    return false;
}

/* Returns the target of the tag in the list: of the tag itself, else of a quantisation in any case of letters; or NULL.
 */
static const struct td_oci_target *find_listed(const struct td_oci_target *targets, size_t count, struct td_text tag)
{
    for (size_t i = 0; i < count; i++)
        if (td_text_equals(tag, targets[i].tag))
            return &targets[i];
    for (size_t i = 0; i < count; i++)
        if (targets[i].form == TD_OCI_GGUF && !targets[i].is_alias && td_text_equals_ignore_case(tag, targets[i].tag))
            return &targets[i];
    return NULL;
}

/* Finds the GGUF file of this name. */
static bool find_named(const struct td_oci_call *oci, struct td_text name, struct td_oci_target *target)
{
    struct td_oci_gguf_walk walk = {0};
    struct td_oci_gguf gguf;
    while (td_oci_gguf_next(oci, &walk, &gguf))
        if (td_text_equals(name, td_base_name(gguf.entry->path))) {
            *target = td_oci_gguf_target(&gguf, td_oci_gguf_projector(oci));
            return true;
        }
    return false;
}

bool td_oci_target_find(struct td_oci_call *oci, struct td_text tag, struct td_oci_target *target, struct td_error *err)
{
    struct td_oci_target *targets;
    struct td_virtual_revision virtual;
    size_t count;
    if (!td_oci_targets(oci, &targets, &count, err))
        return false;
    if (td_oci_tag_is_valid(tag)) {
        const struct td_oci_target *listed = find_listed(targets, count, tag);
        if (listed != NULL)
            *target = *listed;
        if (listed != NULL || find_named(oci, tag, target))
            return true;
    }
    *target = (struct td_oci_target){.tag = "", .form = TD_OCI_ARTIFACT, .revision = tag};
    if (td_repo_at(oci->repo, tag) != NULL || td_virtual_revision_read_name(tag, &virtual, err))
        return true;
    return no_tag(oci, targets, count, tag, err);
}
