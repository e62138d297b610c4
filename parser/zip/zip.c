#include "parser/zip/zip.h"

#include "parser/zip/zip_directory.h"
#include "parser/zip/zip_end.h"
#include "parser/zip/zip_local.h"
#include "parser/zip/zip_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct td_text entry_name(const void *context, size_t i)
{
    const struct td_zip_entry *entries = context;
    return td_text_n(entries[i].name, entries[i].name_len);
}

/* Fills *zip: drops folders, sorts the names and refuses a name that occurs twice. */
static bool finish_directory(struct td_zip_reader *r, struct td_zip *zip)
{
    size_t count = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->entries[i].name[r->entries[i].name_len - 1] != '/')
            r->entries[count++] = r->entries[i];
    struct td_zip_entry **by_name = td_arena_array(r->arena, count, sizeof(struct td_zip_entry *));
    if (by_name == NULL)
        return td_zip_no_memory(r);
    struct td_names names = {.count = count, .context = r->entries, .get = entry_name};
    struct td_order *order;
    if (!td_names_order(&names, &order, r->err))
        return false;
    for (size_t i = 0; i < count; i++)
        by_name[i] = &r->entries[order == NULL ? i : order[i].index];
    size_t twice = td_names_duplicate(&names, order);
    free(order);
    if (twice < count)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, r->entries[twice].header_at,
                           "two zip members are named \"%.96s\"", r->entries[twice].name);
    *zip = (struct td_zip){.entries = r->entries, .count = count, .by_name = by_name};
    return true;
}

/* Loads the directory after checking that it fits. Lowers the arena's limit by the scratch that the directory needs, so
 * that entries and scratch together stay within the limit. */
static bool load_directory(struct td_zip_reader *r)
{
    if (r->directory_bytes > r->limits->max_header_bytes) {
        (void)td_error_at(r->err, TD_RESOURCE_EXHAUSTED, r->directory_at,
                          "zip directory of %" PRIu64 " bytes is larger than the limit of %" PRIu64, r->directory_bytes,
                          r->limits->max_header_bytes);
        return false;
    }
    size_t most = r->limits->max_memory_bytes;
    size_t limit = r->arena->limit_bytes;
    if (most != 0 && (limit == 0 || limit > most))
        limit = most;
    if (limit != 0) {
        /* the directory itself, and 40 bytes of scratch for each record, which has 46 bytes or more */
        uint64_t scratch = 2 * r->directory_bytes + TD_ZIP_LOCAL_BYTES + UINT16_MAX;
        if (limit <= r->arena->used_bytes || limit - r->arena->used_bytes <= scratch)
            return td_zip_no_memory(r);
        r->arena->limit_bytes = limit - (size_t)scratch;
    }
    r->directory = td_input_load(r->input, r->directory_at, r->directory_bytes, r->limits->max_header_bytes, r->err);
    return r->directory != NULL;
}

static bool read_archive(struct td_zip_reader *r, struct td_zip *zip)
{
    size_t arena_limit = r->arena->limit_bytes;
    *zip = (struct td_zip){0};
    bool ok = td_zip_find_end(r) && load_directory(r) && td_zip_read_directory(r) && td_zip_place_members(r) &&
              finish_directory(r, zip);
    r->arena->limit_bytes = arena_limit;
    free(r->local);
    free(r->central_at);
    free(r->order);
    free(r->directory);
    return ok;
}

bool td_zip_read(struct td_zip *zip, const struct td_input *input, const struct td_limits *limits,
                 struct td_arena *arena, struct td_error *err)
{
    struct td_zip_reader r = {.input = input, .limits = limits, .arena = arena, .err = err};
    return read_archive(&r, zip);
}

bool td_zip_read_torch(struct td_zip *zip, const struct td_input *input, const struct td_limits *limits,
                       struct td_arena *arena, struct td_error *err)
{
    struct td_zip_reader r = {.input = input, .limits = limits, .arena = arena, .err = err, .as_torch = true};
    return read_archive(&r, zip);
}

static struct td_text by_name(const void *context, size_t i)
{
    struct td_zip_entry *const *entries = context;
    return td_text_n(entries[i]->name, entries[i]->name_len);
}

const struct td_zip_entry *td_zip_find(const struct td_zip *zip, struct td_text name)
{
    struct td_names names = {.count = zip->count, .context = zip->by_name, .get = by_name};
    bool found;
    size_t at = td_names_search(&names, name, &found);
    return found ? zip->by_name[at] : NULL;
}

/* ---- PyTorch's rules ---- */

static uint8_t fold_case(char c)
{
    return (uint8_t)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static int compare_folded(const struct td_zip_entry *a, const struct td_zip_entry *b)
{
    for (uint32_t i = 0; i < a->name_len && i < b->name_len; i++)
        if (fold_case(a->name[i]) != fold_case(b->name[i]))
            return fold_case(a->name[i]) < fold_case(b->name[i]) ? -1 : 1;
    return (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

static int by_folded_name(const void *context, size_t a, size_t b)
{
    const struct td_zip *zip = context;
    return compare_folded(&zip->entries[a], &zip->entries[b]);
}

bool td_zip_check_case(const struct td_zip *zip, struct td_error *err)
{
    struct td_order *order = malloc((zip->count + 1) * sizeof *order);
    if (order == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < zip->count; i++) /* names share their beginnings, so a key would decide nothing */
        order[i] = (struct td_order){.key = 0, .index = i};
    bool ok = td_order_sort(order, zip->count, by_folded_name, zip, err);
    for (size_t i = 1; ok && i < zip->count; i++) {
        const struct td_zip_entry *a = &zip->entries[order[i - 1].index];
        const struct td_zip_entry *b = &zip->entries[order[i].index];
        if (compare_folded(a, b) == 0)
            ok = td_error_at(err, TD_INVALID_ARGUMENT, b->header_at,
                             "zip members \"%.96s\" and \"%.96s\" differ in case only; PyTorch takes one for the "
                             "other",
                             a->name, b->name);
    }
    free(order);
    return ok;
}

bool td_zip_check_root(const struct td_zip *zip, size_t *root_len, struct td_error *err)
{
    const struct td_zip_entry *first = zip->entries;
    const char *slash = zip->count > 0 ? memchr(first->name, '/', first->name_len) : NULL;
    if (slash == NULL)
        return td_error_at(err, TD_INVALID_ARGUMENT, 0,
                           "zip archive is not a PyTorch file: its first member is not in a folder");
    size_t len = (size_t)(slash - first->name) + 1;
    for (size_t i = 1; i < zip->count; i++) {
        const struct td_zip_entry *e = &zip->entries[i];
        if (e->name_len < len || memcmp(e->name, first->name, len) != 0)
            return td_error_at(err, TD_INVALID_ARGUMENT, e->header_at,
                               "zip member \"%.96s\" is not in \"%.96s\"'s folder, as all of a PyTorch file are",
                               e->name, first->name);
    }
    *root_len = len;
    return true;
}
