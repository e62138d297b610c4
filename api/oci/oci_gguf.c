#include "api/oci/oci_gguf.h"

#include "catalog/checkpoints/shard_group.h"
#include "catalog/model/file_kind.h"
#include "core/extension.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- names --------------------------------------------------------------------------------------------- */

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

/* ---- one file ------------------------------------------------------------------------------------------ */

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

/* ---- the list ------------------------------------------------------------------------------------------ */

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

bool td_oci_gguf_list(struct td_oci_call *oci, struct td_oci_gguf **list, size_t *count)
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
