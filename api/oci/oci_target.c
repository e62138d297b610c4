#include "api/oci/oci_target.h"

#include "catalog/file_kind.h"
#include "rank/repo_view.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list ------------------------------------------------------------------------------------------ */

static bool add(struct td_oci_call *oci, struct td_oci_target **targets, size_t *count, size_t *capacity,
                const struct td_oci_target *target)
{
    struct td_oci_target *grown = td_arena_grow(&oci->arena, *targets, *count, capacity, sizeof *grown);
    if (grown == NULL)
        return false;
    *targets = grown;
    grown[(*count)++] = *target;
    return true;
}

static const struct td_entry *entry_at(const struct td_oci_call *oci, size_t i)
{
    return &oci->call->snapshot->entries[oci->repo->first_entry + i];
}

/* Returns the image encoder of the repository: the one in F16 of several, else the first. NULL when there is none. */
static const struct td_entry *find_projector(const struct td_oci_call *oci)
{
    const struct td_entry *found = NULL;
    struct td_oci_gguf_name name;
    for (size_t i = 0; i < oci->repo->entry_count; i++) {
        const struct td_entry *entry = entry_at(oci, i);
        if (!td_oci_gguf_name_read(entry->path, &name) || !name.is_projector || !name.is_first)
            continue;
        if (strcmp(name.quant, "F16") == 0)
            return entry;
        found = found == NULL ? entry : found;
    }
    return found;
}

/* Lists the GGUF files of models; a tag is empty where the name says no quantisation. */
static bool list_gguf(struct td_oci_call *oci, struct td_oci_target **targets, size_t *count, size_t *capacity)
{
    struct td_oci_target target = {.form = TD_OCI_GGUF, .revision = TD_TEXT("main"), .projector = find_projector(oci)};
    for (size_t i = 0; i < oci->repo->entry_count; i++) {
        target.gguf = entry_at(oci, i);
        if (!td_oci_gguf_name_read(target.gguf->path, &target.gguf_name) || target.gguf_name.is_projector ||
            !target.gguf_name.is_first)
            continue;
        target.tag = td_arena_strndup(&oci->arena, td_text_of(target.gguf_name.quant));
        if (target.tag == NULL || !add(oci, targets, count, capacity, &target))
            return false;
    }
    return true;
}

/* Sets *only to whether the repository's checkpoints are all GGUF files, and there is one. */
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

const struct td_oci_target *td_oci_default_gguf(const struct td_oci_target *targets, size_t count)
{
    const struct td_oci_target *first = NULL;
    for (size_t i = 0; i < count; i++) {
        if (targets[i].form != TD_OCI_GGUF)
            continue;
        if (strcmp(targets[i].gguf_name.quant, "Q4_K_M") == 0)
            return &targets[i];
        first = first == NULL ? &targets[i] : first;
    }
    return first;
}

/* Returns whether the tag always stands for the same form of a repository, so that no ref may have it. */
static bool is_reserved(struct td_text tag)
{
    static const char *const tags[] = {"main", "flat", "image", "latest"};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (td_text_equals(tag, tags[i]))
            return true;
    return false;
}

/* Adds the refs of a cache whose commits are there, where their names are tags. */
static bool list_refs(struct td_oci_call *oci, struct td_oci_target **targets, size_t *count, size_t *capacity)
{
    for (size_t i = 0; i < oci->repo->ref_count; i++) {
        struct td_text name = td_text_of(oci->repo->refs[i].name);
        const struct td_oci_target target = {.tag = name.p, .form = TD_OCI_ARTIFACT, .revision = name};
        if (td_oci_tag_is_valid(name) && !is_reserved(name) && td_repo_at(oci->repo, name) != NULL &&
            !add(oci, targets, count, capacity, &target))
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
    return order != 0 || x->gguf == NULL || y->gguf == NULL ? order : strcmp(x->gguf->path, y->gguf->path);
}

bool td_oci_targets(struct td_oci_call *oci, struct td_oci_target **targets, size_t *count, struct td_error *err)
{
    struct td_oci_target latest;
    size_t capacity = 0;
    bool is_gguf;
    const struct td_oci_target fixed[] = {
        {.tag = "main", .form = TD_OCI_ARTIFACT, .revision = TD_TEXT("main")},
        {.tag = "flat", .form = TD_OCI_FLAT, .revision = TD_TEXT("main")},
        {.tag = "image", .form = TD_OCI_IMAGE, .revision = TD_TEXT("main")},
    };
    *targets = NULL;
    *count = 0;
    if (oci->repo->entry_count > TD_OCI_MOST_FILES)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "the repository has %zu files, and an artifact at most %d; the paths of the Hub serve it",
                            oci->repo->entry_count, TD_OCI_MOST_FILES);
    if (!has_only_gguf(oci, &is_gguf, err))
        return false;
    bool ok = list_gguf(oci, targets, count, &capacity);
    const struct td_oci_target *gguf = ok && is_gguf ? td_oci_default_gguf(*targets, *count) : NULL;
    latest = gguf != NULL ? *gguf : fixed[0];
    latest.tag = "latest";
    latest.is_alias = true;
    for (size_t i = 0; ok && i < sizeof fixed / sizeof *fixed; i++)
        ok = add(oci, targets, count, &capacity, &fixed[i]);
    ok = ok && add(oci, targets, count, &capacity, &latest) && list_refs(oci, targets, count, &capacity);
    if (ok)
        qsort(*targets, *count, sizeof **targets, target_compare);
    return ok || td_error_no_memory(err);
}

/* ---- finding one --------------------------------------------------------------------------------------- */

/* Sets the error for a tag that stands for nothing, and names the tags that there are. */
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
    (void)td_error_set(err, TD_NOT_FOUND, "%.*s has no tag \"%.*s\"; it has %s", TD_SHOW(oci->path.name, 120),
                       TD_SHOW(tag, 100), there == NULL ? "others" : there);
    td_buffer_fini(&list);
    return false;
}

/* Returns whether the target is what the tag means, in the pass-th of three ways: the tag itself, a quantisation in any
 * case of letters, and the name of the file. */
static bool is_meant(const struct td_oci_target *target, struct td_text tag, int pass)
{
    if (pass == 0)
        return td_text_equals(tag, target->tag);
    if (target->form != TD_OCI_GGUF || target->is_alias)
        return false;
    return pass == 1 ? td_text_equals_ignore_case(tag, target->tag)
                     : td_text_equals(tag, td_base_name(target->gguf->path));
}

bool td_oci_target_find(struct td_oci_call *oci, struct td_text tag, struct td_oci_target *target, struct td_error *err)
{
    struct td_oci_target *targets;
    struct td_virtual_revision virtual;
    size_t count;
    if (!td_oci_targets(oci, &targets, &count, err))
        return false;
    for (int pass = 0; td_oci_tag_is_valid(tag) && pass < 3; pass++)
        for (size_t i = 0; i < count; i++)
            if (is_meant(&targets[i], tag, pass)) {
                *target = targets[i];
                return true;
            }
    *target = (struct td_oci_target){.tag = "", .form = TD_OCI_ARTIFACT, .revision = tag};
    if (td_repo_at(oci->repo, tag) != NULL || td_virtual_revision_read_name(tag, &virtual, err))
        return true;
    return no_tag(oci, targets, count, tag, err);
}
