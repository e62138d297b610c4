#include "api/oci/oci_target.h"

#include "catalog/checkpoints/shard_group.h"
#include "catalog/model/file_kind.h"
#include "core/text.h"
#include "rank/repo_view.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names of GGUF files ------------------------------------------------------------------------------- */

/* The quantisations of files (huggingface.js, packages/tasks/src/gguf.ts, GGMLFileQuantizationType). Of two that begin
 * alike, the longer stands first. */
static const char *const quants[] = {
    "F32",     "F16",    "BF16",      "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8", "Q4_0",    "Q4_1_SOME_F16", "Q4_1",
    "Q4_2",    "Q4_3",   "Q8_0",      "Q5_0",     "Q5_1",     "Q2_K_XL",  "Q2_K_S",  "Q2_K",          "Q3_K_XL",
    "Q3_K_S",  "Q3_K_M", "Q3_K_L",    "Q3_K",     "Q4_K_XL",  "Q4_K_S",   "Q4_K_M",  "Q4_K",          "Q5_K_XL",
    "Q5_K_S",  "Q5_K_M", "Q5_K",      "Q6_K_XL",  "Q6_K",     "Q8_K_XL",  "IQ2_XXS", "IQ2_XS",        "IQ3_XS",
    "IQ3_XXS", "IQ1_S",  "IQ4_NL",    "IQ3_S",    "IQ3_M",    "IQ2_S",    "IQ2_M",   "IQ4_XS",        "IQ1_M",
    "TQ1_0",   "TQ2_0",  "MXFP4_MOE", "MXFP4",    "NVFP4",    "Q1_0",     "Q2_0",
};

static char to_capital(char c)
{
    return (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
}

/* Returns the length of the word at the beginning of the text; 0 when the text does not begin with it. */
static size_t word_len(struct td_text text, const char *word)
{
    return td_text_begins_ignore_case(text, word) ? strlen(word) : 0;
}

/* Returns the length of the quantisation at the beginning of the text, including the variant of its size that follows
 * ("_L"); 0 if the text begins with no quantisation, or if more characters of the word follow. */
static size_t quant_len(struct td_text text)
{
    size_t len = 0;
    for (size_t i = 0; len == 0 && i < sizeof quants / sizeof *quants; i++)
        len = word_len(text, quants[i]);
    if (len == 0)
        return 0;
    size_t end = len + 1;
    while (end < text.len && text.p[len] == '_' && td_is_letter(text.p[end]))
        end++;
    if (end > len + 1)
        len = end;
    return len < text.len && td_is_letter_or_digit(text.p[len]) ? 0 : len;
}

/* Writes the last quantisation in the name. */
static void find_quant(struct td_text name, char quant[TD_OCI_QUANT_BYTES])
{
    const struct td_text prefix = TD_TEXT("UD-");
    for (size_t i = name.len; quant[0] == '\0' && i-- > 0;) {
        size_t len = i > 0 && td_is_letter_or_digit(name.p[i - 1]) ? 0 : quant_len(td_text_skip(name, i));
        if (len == 0)
            continue;
        bool has_prefix = i >= prefix.len && word_len(td_text_skip(name, i - prefix.len), prefix.p) > 0;
        size_t from = has_prefix ? i - prefix.len : i;
        size_t total = i + len - from;
        for (size_t k = 0; total < TD_OCI_QUANT_BYTES && k < total; k++)
            quant[k] = to_capital(name.p[from + k]);
        quant[total < TD_OCI_QUANT_BYTES ? total : 0] = '\0';
    }
}

bool td_oci_gguf_name_read(const char *path, struct td_oci_gguf_name *out)
{
    static const char extension[] = ".gguf";
    const char *base = td_base_name(path);
    struct td_shard_of of;
    *out = (struct td_oci_gguf_name){.is_first = true};
    if (!td_has_extension_any_case(base, extension))
        return false;
    struct td_text name = td_text_n(base, strlen(base) - strlen(extension));
    out->is_sharded = td_shard_of_name(base, &of);
    if (out->is_sharded) {
        out->is_first = of.number == 1;
        name.len = of.stem_len;
    }
    out->is_projector = td_text_begins_ignore_case(name, "mmproj");
    for (size_t i = 1; !out->is_projector && i < name.len; i++)
        out->is_projector = !td_is_letter_or_digit(name.p[i - 1]) && word_len(td_text_skip(name, i), "mmproj") > 0;
    find_quant(name, out->quant);
    return true;
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

static const struct td_entry *entry_at(const struct td_oci_call *oci, size_t i)
{
    return &oci->call->snapshot->entries[oci->repo->first_entry + i];
}

/* Returns whether the repository has all shards of the file, which is the first of them. */
static bool has_shards(const struct td_oci_call *oci, const struct td_entry *first)
{
    const char *path = td_repo_relative(oci->repo, first);
    const char *base = td_base_name(path);
    struct td_shard_of of;
    char name[PATH_MAX];
    size_t len = strlen(path);
    if (len >= sizeof name || !td_shard_of_name(base, &of))
        return false;
    memcpy(name, path, len + 1);
    char *digits = name + (base - path) + of.stem_len + 1;
    for (unsigned i = 2; i <= of.total; i++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%05u", i); /* the total has five digits */
        memcpy(digits, number, strlen("00001"));
        if (td_snapshot_find_in_run(oci->call->snapshot, oci->repo->first_entry, oci->repo->entry_count,
                                    oci->repo->prefix_len, td_text_n(name, len)) == NULL)
            return false;
    }
    return true;
}

bool td_oci_gguf_next(const struct td_oci_call *oci, struct td_oci_gguf_walk *walk, struct td_oci_gguf *gguf)
{
    while (walk->number < oci->repo->entry_count && walk->seen < TD_OCI_MOST_FILES) {
        *gguf = (struct td_oci_gguf){.entry = entry_at(oci, walk->number++)};
        if (!td_oci_gguf_name_read(gguf->entry->path, &gguf->name))
            continue;
        walk->seen++;
        if (gguf->name.is_projector || !gguf->name.is_first)
            continue;
        if (gguf->name.is_sharded)
            gguf->use = has_shards(oci, gguf->entry) ? TD_OCI_GGUF_SHARDED : TD_OCI_GGUF_INCOMPLETE;
        return true;
    }
    return false;
}

/* Returns the place of the quantisation in the sorted list, or where it belongs. */
static size_t place_of(const struct td_oci_gguf *list, size_t count, const char *quant)
{
    size_t low = 0;
    while (low < count) {
        size_t mid = low + (count - low) / 2;
        if (strcmp(list[mid].name.quant, quant) < 0)
            low = mid + 1;
        else
            count = mid;
    }
    return low;
}

/* Sets *list, in the call's arena, to one file for each quantisation (the empty one too), sorted by quantisation. Of
 * several files with one quantisation it takes the most usable, else the first. Lists at most TD_OCI_GGUF_TAGS
 * quantisations, those of the first files. Returns false when memory is short. */
static bool choose_gguf(struct td_oci_call *oci, struct td_oci_gguf **list, size_t *count)
{
    struct td_oci_gguf_walk walk = {0};
    struct td_oci_gguf gguf;
    struct td_oci_gguf *files = td_arena_array(&oci->arena, TD_OCI_GGUF_TAGS, sizeof *files);
    *list = files;
    *count = 0;
    if (files == NULL)
        return false;
    while (td_oci_gguf_next(oci, &walk, &gguf)) {
        size_t at = place_of(files, *count, gguf.name.quant);
        bool is_there = at < *count && strcmp(files[at].name.quant, gguf.name.quant) == 0;
        if (is_there && gguf.use < files[at].use) {
            files[at] = gguf;
        } else if (!is_there && *count < TD_OCI_GGUF_TAGS) {
            memmove(&files[at + 1], &files[at], (*count - at) * sizeof *files);
            files[at] = gguf;
            ++*count;
        }
    }
    return true;
}

const struct td_entry *td_oci_gguf_projector(const struct td_oci_call *oci)
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

/* ---- the list ------------------------------------------------------------------------------------------ */

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

bool td_oci_target_add(struct td_oci_call *oci, struct td_oci_target_list *list, const struct td_oci_target *target)
{
    struct td_oci_target *grown = td_arena_grow(&oci->arena, list->items, list->count, &list->capacity, sizeof *grown);
    if (grown == NULL)
        return false;
    list->items = grown;
    grown[list->count++] = *target;
    return true;
}

struct td_oci_target td_oci_gguf_target(const struct td_oci_gguf *gguf, const struct td_entry *projector)
{
    return (struct td_oci_target){
        .tag = "", .form = TD_OCI_GGUF, .revision = TD_TEXT("main"), .gguf = *gguf, .projector = projector};
}

/* Lists the GGUF files of models. A tag is empty if the file's name has no quantisation. */
static bool list_gguf(struct td_oci_call *oci, struct td_oci_target_list *list)
{
    const struct td_entry *projector = td_oci_gguf_projector(oci);
    struct td_oci_gguf *files;
    size_t count;
    if (!choose_gguf(oci, &files, &count))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct td_oci_target target = td_oci_gguf_target(&files[i], projector);
        target.tag = files[i].name.quant;
        if (!td_oci_target_add(oci, list, &target))
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
    *only = false;
    if (oci->repo->lacks_main)
        return true;
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

const struct td_oci_target *td_oci_default_gguf(const struct td_oci_target_list *list, bool takes_shards)
{
    const struct td_oci_target *best = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const struct td_oci_target *target = &list->items[i];
        if (target->form == TD_OCI_GGUF && target->gguf.use != TD_OCI_GGUF_INCOMPLETE &&
            (best == NULL || is_better(&target->gguf, &best->gguf, takes_shards)))
            best = target;
    }
    return best;
}

/* Adds the targets of the fixed tags. is_gguf: the alias stands for one of the GGUF files, which are listed. */
static bool list_fixed(struct td_oci_call *oci, bool is_gguf, struct td_oci_target_list *list)
{
    const struct td_oci_target *gguf = is_gguf ? td_oci_default_gguf(list, false) : NULL;
    for (size_t i = 0; oci->repo->entry_count > 0 && i < FIXED; i++) {
        struct td_oci_target target = {.form = fixed[i].form, .revision = TD_TEXT("main")};
        if (fixed[i].is_alias && gguf != NULL)
            target = *gguf;
        target.tag = fixed[i].tag;
        target.is_alias = fixed[i].is_alias;
        if (!td_oci_target_add(oci, list, &target))
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
static bool list_refs(struct td_oci_call *oci, struct td_oci_target_list *list)
{
    for (size_t i = 0; i < oci->repo->ref_count; i++) {
        struct td_text name = td_text_of(oci->repo->refs[i].name);
        const struct td_oci_target target = {.tag = name.p, .form = TD_OCI_ARTIFACT, .revision = name};
        const struct td_repo *revision = td_repo_of_ref(oci->repo, &oci->repo->refs[i]);
        if (td_oci_tag_is_valid(name) && !is_fixed(name) && revision != NULL && revision->entry_count > 0 &&
            !td_oci_target_add(oci, list, &target))
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

void td_oci_targets_sort(struct td_oci_target_list *list)
{
    if (list->count > 0)
        qsort(list->items, list->count, sizeof *list->items, target_compare);
}

bool td_oci_target_fits(const struct td_oci_target *target, size_t file_count, struct td_error *err)
{
    return target->form == TD_OCI_GGUF || target->is_pushed || file_count <= TD_OCI_MOST_FILES ||
           td_error_set(err, TD_FAILED_PRECONDITION,
                        "the repository has %zu files, and an artifact at most %d; the paths of the Hub serve it",
                        file_count, TD_OCI_MOST_FILES);
}

bool td_oci_targets(struct td_oci_call *oci, struct td_oci_target_list *list, struct td_error *err)
{
    bool is_gguf;
    *list = (struct td_oci_target_list){.items = NULL};
    if (!has_only_gguf(oci, &is_gguf, err))
        return false;
    if (!list_gguf(oci, list) || !list_fixed(oci, is_gguf, list) || !list_refs(oci, list))
        return td_error_no_memory(err);
    td_oci_targets_sort(list);
    return true;
}

/* ---- finding one --------------------------------------------------------------------------------------- */

/* Sets the error for an unknown tag, with a list of existing tags. */
static bool no_tag(const struct td_oci_call *oci, const struct td_oci_target_list *targets, struct td_text tag,
                   struct td_error *err)
{
    enum { MOST = 12 };
    struct td_buffer list;
    size_t listed = 0;
    td_buffer_init(&list);
    for (size_t i = 0; i < targets->count && listed <= MOST; i++) {
        const char *name = targets->items[i].tag;
        if (name[0] == '\0' || (i > 0 && strcmp(name, targets->items[i - 1].tag) == 0))
            continue;
        td_buffer_puts(&list, listed > 0 ? ", " : "");
        td_buffer_puts(&list, listed < MOST ? name : "...");
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
static const struct td_oci_target *find_listed(const struct td_oci_target_list *list, struct td_text tag)
{
    const struct td_oci_target *items = list->items;
    for (size_t i = 0; i < list->count; i++)
        if (td_text_equals(tag, items[i].tag))
            return &items[i];
    for (size_t i = 0; i < list->count; i++)
        if (items[i].form == TD_OCI_GGUF && !items[i].is_alias && td_text_equals_ignore_case(tag, items[i].tag))
            return &items[i];
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
    struct td_oci_target_list targets;
    struct td_virtual_revision virtual;
    if (!td_oci_targets(oci, &targets, err))
        return false;
    if (td_oci_tag_is_valid(tag)) {
        const struct td_oci_target *listed = find_listed(&targets, tag);
        if (listed != NULL)
            *target = *listed;
        if (listed != NULL || find_named(oci, tag, target))
            return true;
    }
    *target = (struct td_oci_target){.tag = "", .form = TD_OCI_ARTIFACT, .revision = tag};
    const struct td_repo *revision = td_repo_at(oci->repo, tag);
    if ((revision != NULL && revision->entry_count > 0) || td_virtual_revision_read_name(tag, &virtual, err))
        return true;
    return no_tag(oci, &targets, tag, err);
}
