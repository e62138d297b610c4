#include "parser/zip/zip.h"

#include "core/checked.h"
#include "parser/zip/zip_directory.h"
#include "parser/zip/zip_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the members: local headers and data descriptors ---- */

#define DESCRIPTOR_SIGNATURE UINT32_C(0x08074b50)

/* Counts bytes of local headers. Their sum has the same limit as the directory. */
static bool count_local(struct td_zip_reader *r, const struct td_zip_entry *e, uint64_t bytes)
{
    r->local_bytes += bytes;
    if (r->local_bytes <= r->limits->max_header_bytes)
        return true;
    (void)td_error_at(r->err, TD_RESOURCE_EXHAUSTED, e->header_at,
                      "zip local headers take more than the limit of %" PRIu64 " bytes", r->limits->max_header_bytes);
    return false;
}

/* Reads the sizes in r->local: its own fields, or those of its zip64 field for sizes that do not fit. */
static bool read_local_sizes(struct td_zip_reader *r, const struct td_zip_entry *e, uint64_t *stored_bytes,
                             uint64_t *size_bytes)
{
    *stored_bytes = td_load_le32(r->local + 18);
    *size_bytes = td_load_le32(r->local + 22);
    if (*stored_bytes != UINT32_MAX && *size_bytes != UINT32_MAX)
        return true;
    uint16_t extra_len = td_load_le16(r->local + 28);
    uint64_t at = e->header_at + TD_ZIP_LOCAL_BYTES + e->name_len;
    if (!count_local(r, e, extra_len))
        return false;
    uint8_t *extra = td_input_load(r->input, at, extra_len, extra_len, r->err);
    if (extra == NULL)
        return false;
    const uint8_t *data;
    size_t data_len;
    bool ok = td_zip_find_extra64(extra, extra_len, &data, &data_len) && td_zip_widen(size_bytes, &data, &data_len) &&
              td_zip_widen(stored_bytes, &data, &data_len);
    free(extra);
    return ok || td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                             "zip member \"%.96s\": the extra fields of its local header run past their %u bytes, "
                             "or its zip64 field is too short or occurs twice",
                             e->name, extra_len);
}

/* Returns whether a value of the local header matches the directory. When a descriptor follows, CRC and sizes may be 0.
 */
static bool local_agrees(uint64_t local, uint64_t central, uint16_t flags)
{
    return local == central || (local == 0 && (flags & TD_ZIP_FLAG_DESCRIPTOR) != 0);
}

/* Compares the local header in r->local with the directory. */
static bool check_local(struct td_zip_reader *r, const struct td_zip_entry *e, const struct td_zip_central *c)
{
    const uint8_t *local = r->local;
    if (td_load_le16(local + 26) != e->name_len || memcmp(local + TD_ZIP_LOCAL_BYTES, e->name, e->name_len) != 0)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at + 26,
                           "zip member \"%.96s\" has another name in its local header", e->name);
    uint16_t flags = td_load_le16(local + 6);
    if (((flags ^ c->flags) & (TD_ZIP_FLAG_DESCRIPTOR | TD_ZIP_FLAGS_REFUSED)) != 0 ||
        td_load_le16(local + 8) != c->method)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at + 6,
                           "zip member \"%.96s\": its local header says flags 0x%x and method %u, the directory 0x%x "
                           "and %u",
                           e->name, flags, td_load_le16(local + 8), c->flags, c->method);
    uint64_t stored_bytes;
    uint64_t size_bytes;
    if (!read_local_sizes(r, e, &stored_bytes, &size_bytes))
        return false;
    if (!local_agrees(td_load_le32(local + 14), c->crc32, flags) ||
        !local_agrees(stored_bytes, e->stored_bytes, flags) || !local_agrees(size_bytes, e->size_bytes, flags))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at + 14,
                           "zip member \"%.96s\": its local header says %" PRIu64 " bytes, %" PRIu64
                           " unpacked, the directory %" PRIu64 " and %" PRIu64 ", or their CRCs differ",
                           e->name, stored_bytes, size_bytes, e->stored_bytes, e->size_bytes);
    return true;
}

/* Reads as td_input_read does, through the buffer r->near: one read then serves a descriptor and the local header that
 * follows. */
static bool read_near(struct td_zip_reader *r, uint64_t off, void *out, size_t len)
{
    if (len > sizeof r->near || !td_range_within(off, len, r->input->size_bytes))
        return td_input_read(r->input, off, out, len, r->err);
    if (off < r->near_at || off - r->near_at > r->near_bytes || len > r->near_bytes - (off - r->near_at)) {
        uint64_t left = r->input->size_bytes - off;
        r->near_bytes = 0;
        size_t bytes = left < sizeof r->near ? (size_t)left : sizeof r->near;
        if (!td_input_read(r->input, off, r->near, bytes, r->err))
            return false;
        r->near_at = off;
        r->near_bytes = bytes;
    }
    memcpy(out, r->near + (off - r->near_at), len);
    return true;
}

/* Reads a member's local header into r->local, which has room for it. The header must end before `end`. */
static bool read_local(struct td_zip_reader *r, const struct td_zip_entry *e, uint64_t end)
{
    uint64_t bytes = TD_ZIP_LOCAL_BYTES + (uint64_t)e->name_len;
    if (!td_range_within(e->header_at, bytes, end)) {
        (void)td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at,
                          "zip member \"%.96s\": its local header overlaps what begins at byte %" PRIu64, e->name, end);
        return false;
    }
    if (!count_local(r, e, bytes) || !read_near(r, e->header_at, r->local, (size_t)bytes))
        return false;
    if (td_load_le32(r->local) != TD_ZIP_LOCAL_SIGNATURE) {
        (void)td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at,
                          "zip member \"%.96s\" has no local header (PK\\3\\4) where the directory says", e->name);
        return false;
    }
    return true;
}

/* Checks the `len` bytes at `at` between a member's data and the next member. They are the member's descriptor, which
 * has four forms: with or without signature, with sizes of four or eight bytes. Without a descriptor len must be 0. */
static bool check_descriptor(struct td_zip_reader *r, const struct td_zip_entry *e, const struct td_zip_central *c,
                             uint64_t at, uint64_t len)
{
    uint8_t bytes[24];
    if ((c->flags & TD_ZIP_FLAG_DESCRIPTOR) == 0)
        return len == 0 ||
               td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                           "%" PRIu64 " bytes after zip member \"%.96s\" belong to no member", len, e->name);
    if (len != 12 && len != 16 && len != 20 && len != 24)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                           "%" PRIu64 " bytes after zip member \"%.96s\"; its data descriptor has 12, 16, 20 or 24",
                           len, e->name);
    if (!read_near(r, at, bytes, (size_t)len))
        return false;
    bool is_signed = len == 16 || len == 24;
    const uint8_t *p = is_signed ? bytes + 4 : bytes;
    bool is_wide = len >= 20;
    uint64_t stored_bytes = is_wide ? td_load_le64(p + 4) : td_load_le32(p + 4);
    uint64_t size_bytes = is_wide ? td_load_le64(p + 12) : td_load_le32(p + 8);
    if ((is_signed && td_load_le32(bytes) != DESCRIPTOR_SIGNATURE) || td_load_le32(p) != c->crc32 ||
        stored_bytes != e->stored_bytes || size_bytes != e->size_bytes)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, at,
                           "zip member \"%.96s\": its data descriptor does not say what the directory says", e->name);
    return true;
}

/* Checks one member and sets its offset. The local header must begin at *next, and the next member or the directory
 * begins at `end`. Sets *next to `end`. */
static bool place_member(struct td_zip_reader *r, size_t index, uint64_t end, uint64_t *next)
{
    struct td_zip_entry *e = &r->entries[index];
    struct td_zip_central c = td_zip_load_central(r->directory + r->central_at[index]);
    if (e->header_at != *next)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, *next,
                           "%" PRIu64 " bytes before zip member \"%.96s\" belong to no member", e->header_at - *next,
                           e->name);
    if (!read_local(r, e, end) || !check_local(r, e, &c))
        return false;
    uint64_t extra_len = td_load_le16(r->local + 28);
    e->offset = e->header_at + TD_ZIP_LOCAL_BYTES + e->name_len + extra_len; /* below 2^64: the header is in the file */
    if (!td_range_within(e->offset, e->stored_bytes, end))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, e->header_at,
                           "zip member \"%.96s\": its %" PRIu64 " bytes at %" PRIu64
                           " overlap what begins at byte %" PRIu64,
                           e->name, e->stored_bytes, e->offset, end);
    uint64_t data_end = e->offset + e->stored_bytes;
    *next = end;
    return check_descriptor(r, e, &c, data_end, end - data_end);
}

/* Reads every local header and sets the offset of every entry. Refuses an archive whose members, in the order of their
 * headers, do not fill it up to the central directory. */
static bool place_members(struct td_zip_reader *r)
{
    size_t count = (size_t)r->count;
    r->local = malloc(TD_ZIP_LOCAL_BYTES + r->longest_name);
    if (r->local == NULL)
        return td_zip_no_memory(r);
    if (!td_order_sort(r->order, count, NULL, NULL, r->err))
        return false;
    if (count > 0 && r->order[count - 1].key >= r->directory_at)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, r->directory_at,
                           "zip member \"%.96s\" is said to begin at byte %" PRIu64
                           ", not before the directory, which begins at %" PRIu64,
                           r->entries[r->order[count - 1].index].name, r->order[count - 1].key, r->directory_at);
    uint64_t next = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t end = i + 1 < count ? r->order[i + 1].key : r->directory_at;
        if (!place_member(r, r->order[i].index, end, &next))
            return false;
    }
    if (next != r->directory_at)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, next,
                           "%" PRIu64 " bytes before the zip directory belong to no member", r->directory_at - next);
    return true;
}

/* ---- the archive ---- */

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
        by_name[i] = &r->entries[td_order_place(order, i)];
    size_t twice = td_names_duplicate(&names, order);
    free(order);
    if (twice < count)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, r->entries[twice].header_at,
                           "two zip members are named \"%.96s\"", r->entries[twice].name);
    *zip = (struct td_zip){.entries = r->entries, .count = count, .by_name = by_name};
    return true;
}

static bool read_archive(struct td_zip_reader *r, struct td_zip *zip)
{
    size_t arena_limit = r->arena->limit_bytes;
    *zip = (struct td_zip){0};
    bool ok = td_zip_read_directory(r) && place_members(r) && finish_directory(r, zip);
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
