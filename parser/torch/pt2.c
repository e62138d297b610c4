/* The plan. The archive is read with parser/zip. read_archive goes through the members of data/weights/ and
 * data/constants/: a config (JSON) lists tensors and names the record that holds the storage of each; a .pt file is
 * read by the reader of torch.save's files through a window, and its tensors are copied to this manifest. Old archives,
 * without folders, have two such files alone (read_old_archive).
 *
 * What is hard: entries of a config can name one record many times. So the codings of deflated records are made once
 * per member, each file of torch.save is read once, and the bytes of names and of loaded members have budgets of their
 * own (names_left, structure_left).
 *
 * Stays with the pull reader: a config may be large, and each entry becomes a tensor at once. */
#include "parser/torch/pt2.h"

#include "core/buffer.h"
#include "core/checked.h"
#include "core/json/json.h"
#include "parser/format/names.h"
#include "parser/torch/torch.h"
#include "parser/zip/zip.h"
#include "parser/zip/zip_unpack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYOUT_STRIDED = 7,
    SMALL_RECORD_MAX = 64,
    /* Budget of prefixes: the names of models, and of entries that stand for a file of torch.save. */
    NAMES_FREE_BYTES = 1024 * 1024,
    NAMES_PER_BYTE = 16, /* of the file */
};

/* schema.ScalarType. */
static const char *const types[] = {
    [1] = "U8",       [2] = "I8",   [3] = "I16",      [4] = "I32",      [5] = "I64",          [6] = "F16",
    [7] = "F32",      [8] = "F64",  [9] = "C32",      [10] = "C64",     [11] = "C128",        [12] = "BOOL",
    [13] = "BF16",    [28] = "U16", [29] = "F8_E4M3", [30] = "F8_E5M2", [31] = "F8_E4M3FNUZ", [32] = "F8_E5M2FNUZ",
    [33] = "F8_E8M0", [34] = "U32", [35] = "U64",
};

/* The reader's state for one member of the archive. */
struct member {
    const struct td_coding *coding; /* of a deflated storage; NULL: none was made yet */
    bool is_read;                   /* the member was read as a file of torch.save */
};

struct reader {
    const struct td_input *input;
    const struct td_limits *limits;
    struct td_manifest *manifest;
    struct td_error *err;
    struct td_zip zip;
    const char *root; /* the archive's folder with its slash; not terminated */
    size_t root_len;
    struct member *members;  /* by their numbers in zip.entries */
    uint64_t structure_left; /* bytes of whole members that may still be loaded */
    uint64_t names_left;     /* bytes of prefixes that may still be written */
    size_t tensor_capacity;
    bool several_models; /* names then begin with the model's name */
    bool big_endian;
};

/* One entry of a config, as the config has it. */
struct payload {
    struct td_tensor tensor;
    uint64_t sizes[TD_MAX_RANK], strides[TD_MAX_RANK];
    uint64_t dtype, layout, storage_offset;
    uint32_t size_count, stride_count;
    bool use_pickle, has_meta;
    char *path; /* in the arena */
    size_t path_len;
};

/* ---- names --------------------------------------------------------------------------------------------- */

/* Returns prefix.name in the arena; either part may be empty. NULL is an error. */
static char *join_name(struct reader *r, struct td_text prefix, struct td_text name)
{
    size_t dot = prefix.len > 0 && name.len > 0 ? 1 : 0;
    if (prefix.len > r->names_left) {
        (void)td_error_set(r->err, TD_INVALID_ARGUMENT, "names that begin with \"%.*s\" unfold without end",
                           TD_SHOW(prefix, 96));
        return NULL;
    }
    r->names_left -= prefix.len;
    char *text = td_arena_array(&r->manifest->arena, prefix.len + dot + name.len + 1, 1);
    if (text == NULL) {
        (void)td_error_no_memory(r->err);
        return NULL;
    }
    memcpy(text, prefix.p, prefix.len);
    if (dot > 0)
        text[prefix.len] = '.';
    memcpy(text + prefix.len + dot, name.p, name.len);
    text[prefix.len + dot + name.len] = '\0';
    return text;
}

/* Copies numbers to the arena; *out is NULL for none. */
static bool copy_numbers(struct reader *r, const uint64_t *numbers, uint32_t count, const uint64_t **out)
{
    *out = NULL;
    if (count == 0 || numbers == NULL)
        return true;
    uint64_t *copy = td_arena_array(&r->manifest->arena, count, sizeof *copy);
    if (copy == NULL)
        return td_error_no_memory(r->err);
    memcpy(copy, numbers, count * sizeof *copy);
    *out = copy;
    return true;
}

/* ---- files of torch.save within the archive ------------------------------------------------------------- */

/* A member that torch.save wrote, and its tensors. */
struct saved {
    const struct td_zip_entry *entry;
    const struct td_coding *packed; /* the member is deflated: its own coding. NULL: it is stored */
    const char *too_large;          /* why a deflated member cannot be decoded; NULL: it can */
    struct td_manifest manifest;
};

/* Copies the member's tensors to this manifest. Their offsets count from the member's place in the archive or, for a
 * deflated member, in its unpacked bytes. */
static bool copy_tensors(struct reader *r, const struct saved *saved, struct td_text prefix)
{
    const struct td_coding **codings = NULL;
    const bool packed = saved->entry->deflated;
    const uint64_t off = packed ? 0 : saved->entry->offset;
    if (!packed && !td_manifest_copy_codings(r->manifest, &saved->manifest, off, &codings, r->err))
        return false;
    for (size_t i = 0; i < saved->manifest.tensor_count; i++) {
        struct td_tensor tensor = saved->manifest.tensors[i];
        const char *name = join_name(r, prefix, td_tensor_name(&tensor));
        if (packed && tensor.coding != NULL && tensor.reason == NULL)
            tensor.reason = "compressed twice";
        if (packed && tensor.reason == NULL)
            tensor.reason = saved->too_large;
        if (packed)
            tensor.coding = NULL;
        if (name == NULL || !td_manifest_copy_tensor(r->manifest, &tensor, name, codings, off, &tensor, r->err))
            return false;
        if (packed && tensor.reason == NULL)
            tensor.coding = saved->packed;
        if (td_manifest_add_tensor(r->manifest, &tensor, &r->tensor_capacity, r->err) == NULL)
            return false;
    }
    return true;
}

/* Reads a member, given as an input of its own, with the reader of torch.save's files, which runs nothing. */
static bool parse_saved(struct reader *r, struct saved *saved, const struct td_input *inner,
                        const struct td_limits *limits, struct td_text prefix)
{
    struct td_error why = TD_ERROR_INIT;
    const struct td_zip_entry *entry = saved->entry;
    const size_t limit = r->manifest->arena.limit_bytes;
    td_manifest_init(&saved->manifest, td_arena_left(&r->manifest->arena));
    bool ok = td_format_torch.parse(inner, limits, &saved->manifest, &why);
    if (!ok) {
        bool has_place = why.pos != TD_ERROR_POS_NONE && !entry->deflated;
        (void)td_error_at(r->err, why.code, has_place ? entry->offset + why.pos : entry->header_at, "\"%.96s\": %.300s",
                          entry->name, why.message);
    } else if (!td_arena_claim(&r->manifest->arena, saved->manifest.arena.used_bytes)) {
        ok = td_error_no_memory(r->err);
    } else {
        ok = copy_tensors(r, saved, prefix);
    }
    r->manifest->arena.limit_bytes = limit;
    td_manifest_fini(&saved->manifest);
    return ok;
}

/* Returns a member's bytes, unpacked, which the caller frees with free(). They count as structure of the file. */
static uint8_t *load_structure(struct reader *r, const struct td_zip_entry *entry)
{
    uint64_t most = td_arena_left(&r->manifest->arena);
    if (most == 0 || most > r->structure_left)
        most = r->structure_left;
    uint8_t *bytes = td_zip_load(r->input, entry, most, r->err);
    if (bytes != NULL)
        r->structure_left -= entry->size_bytes;
    return bytes;
}

/* Lists the tensors of a deflated member, and unpacks it to read them. */
static bool read_deflated(struct reader *r, const struct td_zip_entry *entry, struct td_text prefix)
{
    struct saved saved = {.entry = entry};
    const size_t limit = r->manifest->arena.limit_bytes;
    if (!td_zip_set_coding(r->manifest, entry, &saved.packed, &saved.too_large))
        return td_error_no_memory(r->err);
    uint8_t *bytes = load_structure(r, entry);
    if (bytes == NULL)
        return false;
    struct td_input inner = td_input_memory(bytes, (size_t)entry->size_bytes);
    struct td_limits limits = td_torch_inner_limits(r->limits, entry->size_bytes, 1);
    bool ok = td_arena_claim(&r->manifest->arena, (size_t)entry->size_bytes) || td_error_no_memory(r->err);
    ok = ok && parse_saved(r, &saved, &inner, &limits, prefix);
    r->manifest->arena.limit_bytes = limit;
    free(bytes);
    return ok;
}

/* Lists the tensors of a member that torch.save wrote. Refuses a second entry for one member, so each is read once. */
static bool read_saved(struct reader *r, const struct td_zip_entry *entry, struct td_text prefix)
{
    struct saved saved = {.entry = entry};
    struct member *member = &r->members[entry - r->zip.entries];
    struct td_window window;
    struct td_input inner;
    if (member->is_read)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, entry->header_at,
                           "\"%.96s\" is named twice as a pickled tensor; torch.export.save writes a file for each",
                           entry->name);
    member->is_read = true;
    if (entry->deflated)
        return read_deflated(r, entry, prefix);
    struct td_limits limits = td_torch_inner_limits(r->limits, entry->stored_bytes, TD_TORCH_INNER_UNPACKED);
    return td_input_window(r->input, entry->offset, entry->stored_bytes, &window, &inner, r->err) &&
           parse_saved(r, &saved, &inner, &limits, prefix);
}

/* ---- configs -------------------------------------------------------------------------------------------- */

/* Reads {"as_int": n}. */
static bool read_int(struct td_json *json, uint64_t *out)
{
    return td_json_expect(json, TD_JSON_OBJECT_BEGIN, "an object") && td_json_expect(json, TD_JSON_KEY, "as_int") &&
           (td_json_equals(json, "as_int") || td_json_fail(json, "a size is not a number")) &&
           td_json_expect(json, TD_JSON_NUMBER, "a number") && td_json_u64(json, out) &&
           td_json_expect(json, TD_JSON_OBJECT_END, "the end of the object");
}

static bool read_ints(struct td_json *json, uint64_t out[TD_MAX_RANK], uint32_t *count)
{
    *count = 0;
    if (!td_json_expect(json, TD_JSON_ARRAY_BEGIN, "a list"))
        return false;
    for (;;) {
        struct td_json ahead = *json; /* looks ahead for the end of the list */
        struct td_error ignored = TD_ERROR_INIT;
        ahead.err = &ignored;
        if (td_json_next(&ahead) == TD_JSON_ARRAY_END)
            return td_json_expect(json, TD_JSON_ARRAY_END, "the end of the list");
        if (*count == TD_MAX_RANK)
            return td_json_fail(json, "a tensor has more than 64 dimensions");
        if (!read_int(json, &out[*count]))
            return false;
        (*count)++;
    }
}

/* Refuses a member of an object that was met before; `bit` stands for it in *seen. */
static bool refuse_second(struct td_json *json, unsigned *seen, unsigned bit)
{
    if ((*seen & bit) != 0)
        return td_json_fail(json, "a member occurs twice");
    *seen |= bit;
    return true;
}

static bool read_meta(struct td_json *json, struct payload *p)
{
    enum { DTYPE = 1, SIZES = 2, STRIDES = 4, OFFSET = 8, LAYOUT = 16, ALL = 31 };
    enum td_json_token token;
    unsigned seen = 0;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        bool ok = true;
        if (td_json_equals(json, "dtype"))
            ok = refuse_second(json, &seen, DTYPE) && td_json_expect(json, TD_JSON_NUMBER, "a number") &&
                 td_json_u64(json, &p->dtype);
        else if (td_json_equals(json, "layout"))
            ok = refuse_second(json, &seen, LAYOUT) && td_json_expect(json, TD_JSON_NUMBER, "a number") &&
                 td_json_u64(json, &p->layout);
        else if (td_json_equals(json, "sizes"))
            ok = refuse_second(json, &seen, SIZES) && read_ints(json, p->sizes, &p->size_count);
        else if (td_json_equals(json, "strides"))
            ok = refuse_second(json, &seen, STRIDES) && read_ints(json, p->strides, &p->stride_count);
        else if (td_json_equals(json, "storage_offset"))
            ok = refuse_second(json, &seen, OFFSET) && read_int(json, &p->storage_offset);
        else
            ok = td_json_skip(json);
        if (!ok)
            return false;
    }
    p->has_meta = true;
    return token == TD_JSON_OBJECT_END && ((seen == ALL && p->size_count == p->stride_count) ||
                                           td_json_fail(json, "tensor_meta lacks its type, sizes, strides or layout"));
}

static bool read_path(struct reader *r, struct td_json *json, struct payload *p)
{
    if (!td_json_expect(json, TD_JSON_STRING, "a string"))
        return false;
    p->path = td_arena_array(&r->manifest->arena, json->value_len + 1, 1);
    if (p->path == NULL)
        return td_error_no_memory(json->err);
    return td_json_string(json, p->path, json->value_len + 1, &p->path_len) &&
           (td_is_plain_file_name(td_text_n(p->path, p->path_len)) ||
            td_json_fail(json, "path_name is not the plain name of a record"));
}

static bool read_payload(struct reader *r, struct td_json *json, struct payload *p)
{
    enum { PATH = 1, PICKLE = 2, META = 4 };
    enum td_json_token token;
    unsigned seen = 0;
    if (!td_json_expect(json, TD_JSON_OBJECT_BEGIN, "an object"))
        return false;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        bool ok = true;
        if (td_json_equals(json, "path_name")) {
            ok = refuse_second(json, &seen, PATH) && read_path(r, json, p);
        } else if (td_json_equals(json, "use_pickle")) {
            ok = refuse_second(json, &seen, PICKLE);
            token = ok ? td_json_next(json) : TD_JSON_ERROR;
            p->use_pickle = token == TD_JSON_TRUE;
            ok = token == TD_JSON_TRUE || token == TD_JSON_FALSE ||
                 td_json_fail(json, "use_pickle is neither true nor false");
        } else if (td_json_equals(json, "tensor_meta")) {
            ok = refuse_second(json, &seen, META);
            token = ok ? td_json_next(json) : TD_JSON_ERROR;
            ok = token == TD_JSON_NULL ||
                 (token == TD_JSON_OBJECT_BEGIN ? read_meta(json, p)
                                                : td_json_fail(json, "tensor_meta is not an object"));
        } else {
            ok = td_json_skip(json);
        }
        if (!ok)
            return false;
    }
    if (token == TD_JSON_OBJECT_END && p->path == NULL)
        (void)td_json_fail(json, "an entry has no path_name");
    return token == TD_JSON_OBJECT_END && p->path != NULL;
}

static const struct td_zip_entry *find_record(const struct reader *r, const char *folder, struct td_text name)
{
    char path[1024];
    int at = snprintf(path, sizeof path, "%.*s%s%.*s", (int)r->root_len, r->root, folder, (int)name.len, name.p);
    return at < 0 || (size_t)at >= sizeof path ? NULL : td_zip_find(&r->zip, td_text_n(path, (size_t)at));
}

/* Sets the coding of a deflated record, the same for all tensors in it, or the reason why the record cannot be
 * decoded. */
static bool set_coding(struct reader *r, const struct td_zip_entry *record, struct td_tensor *tensor)
{
    const struct td_coding **coding = &r->members[record - r->zip.entries].coding;
    if (*coding == NULL && !td_zip_set_coding(r->manifest, record, coding, &tensor->reason))
        return td_error_no_memory(r->err);
    tensor->coding = *coding;
    return true;
}

/* Puts a tensor over the record that holds its storage. */
static bool place_tensor(struct reader *r, const struct payload *p, const struct td_zip_entry *record,
                         struct td_tensor *tensor)
{
    const char *type = p->dtype < sizeof types / sizeof *types ? types[p->dtype] : NULL;
    uint64_t skipped;
    tensor->dtype = type == NULL ? td_dtype_find(TD_TEXT("OPAQUE")) : td_dtype_find(td_text_of(type));
    tensor->rank = p->size_count;
    if (!copy_numbers(r, p->sizes, p->size_count, &tensor->shape))
        return false;
    if (type == NULL || p->layout != LAYOUT_STRIDED) {
        tensor->reason = type == NULL ? "of a type that is not known" : "sparse";
        return true;
    }
    if (!copy_numbers(r, p->strides, p->stride_count, &tensor->strides))
        return false;
    if (record->size_bytes == 0) { /* the weights were fake when they were saved; torch.export.load makes zeros */
        if (!td_tensor_place(tensor, 0, UINT64_MAX, record->header_at, r->err))
            return false;
        tensor->reason = tensor->nbytes > 0 ? "no bytes of it are stored" : NULL;
        return true;
    }
    const uint64_t begin = record->deflated ? 0 : record->offset; /* 0: in the decoded bytes */
    if (record->deflated && !set_coding(r, record, tensor))
        return false;
    if (!td_mul_u64(p->storage_offset, tensor->dtype->block_bytes, &skipped) ||
        !td_add_u64(begin, skipped, &tensor->offset))
        return td_error_at(r->err, TD_INVALID_ARGUMENT, record->header_at, "tensor \"%.96s\" is past 2^64-1",
                           tensor->name);
    if (r->big_endian && tensor->dtype->block_bytes > 1)
        tensor->reason = "big-endian";
    return td_tensor_place(tensor, begin, begin + record->size_bytes, record->header_at, r->err);
}

/* Lists one entry of a config under its name. Skips objects that are no tensors. */
static bool add_payload(struct reader *r, const struct payload *p, const char *folder, const char *name)
{
    const struct td_zip_entry *record = find_record(r, folder, td_text_n(p->path, p->path_len));
    bool is_object = strncmp(p->path, "custom_obj_", 11) == 0 || strncmp(p->path, "opaque_obj_", 11) == 0;
    if (is_object)
        return true;
    if (record == NULL)
        return td_error_set(r->err, TD_INVALID_ARGUMENT, "\"%.96s\" of tensor \"%.96s\" is not in the archive", p->path,
                            name);
    if (p->use_pickle)
        return read_saved(r, record, td_text_of(name));
    if (!p->has_meta)
        return td_error_set(r->err, TD_INVALID_ARGUMENT, "tensor \"%.96s\" has no tensor_meta", name);
    struct td_tensor tensor = {.name = name, .name_len = (uint32_t)strlen(name)};
    return place_tensor(r, p, record, &tensor) &&
           td_manifest_add_tensor(r->manifest, &tensor, &r->tensor_capacity, r->err) != NULL;
}

/* Reads {"config": {name: payload, ...}}. */
static bool read_entries(struct reader *r, struct td_json *json, const char *folder, struct td_text prefix)
{
    enum td_json_token token;
    if (!td_json_expect(json, TD_JSON_OBJECT_BEGIN, "an object") || !td_json_expect(json, TD_JSON_KEY, "config") ||
        !(td_json_equals(json, "config") || td_json_fail(json, "config is missing")) ||
        !td_json_expect(json, TD_JSON_OBJECT_BEGIN, "an object"))
        return false;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        struct payload payload = {0};
        size_t len;
        char *text = td_arena_array(&r->manifest->arena, json->value_len + 1, 1);
        if (text == NULL)
            return td_error_no_memory(r->err);
        if (!td_json_string(json, text, json->value_len + 1, &len))
            return false;
        const char *name = prefix.len == 0 ? text : join_name(r, prefix, td_text_n(text, len));
        if (name == NULL || !read_payload(r, json, &payload) || !add_payload(r, &payload, folder, name))
            return false;
    }
    return token == TD_JSON_OBJECT_END && td_json_expect(json, TD_JSON_OBJECT_END, "the end of the object") &&
           td_json_expect(json, TD_JSON_END, "the end of the config");
}

static bool read_config(struct reader *r, const struct td_zip_entry *entry, const char *folder, struct td_text prefix)
{
    struct td_json json;
    const size_t limit = r->manifest->arena.limit_bytes;
    uint8_t *text = load_structure(r, entry);
    if (text == NULL)
        return false;
    bool ok = td_arena_claim(&r->manifest->arena, (size_t)entry->size_bytes) || td_error_no_memory(r->err);
    td_json_init(&json, td_text_n((const char *)text, (size_t)entry->size_bytes), entry->deflated ? 0 : entry->offset,
                 r->err);
    ok = ok && read_entries(r, &json, folder, prefix);
    r->manifest->arena.limit_bytes = limit;
    free(text);
    return ok;
}

/* ---- archives ------------------------------------------------------------------------------------------- */

static bool ends_with(struct td_text name, const char *suffix)
{
    size_t suffix_len = strlen(suffix);
    return name.len > suffix_len && memcmp(name.p + name.len - suffix_len, suffix, suffix_len) == 0;
}

/* Reads one member below the root: a config, or a file of tensors of torch 2.8. Skips others. */
static bool read_member(struct reader *r, const struct td_zip_entry *entry)
{
    static const struct {
        const char *folder, *config;
    } kinds[] = {{"data/weights/", "_weights_config.json"}, {"data/constants/", "_constants_config.json"}};
    const char *name = entry->name + r->root_len;
    size_t len = entry->name_len - r->root_len;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t folder_len = strlen(kinds[i].folder);
        if (len <= folder_len || memcmp(name, kinds[i].folder, folder_len) != 0)
            continue;
        const char *base = name + folder_len;
        size_t base_len = len - folder_len;
        bool is_config = ends_with(td_text_n(base, base_len), kinds[i].config);
        if (!is_config && !ends_with(td_text_n(base, base_len), ".pt"))
            continue;
        size_t model_len = base_len - (is_config ? strlen(kinds[i].config) : strlen(".pt"));
        if (!r->several_models)
            model_len = 0;
        return is_config ? read_config(r, entry, kinds[i].folder, td_text_n(base, model_len))
                         : read_saved(r, entry, td_text_n(base, model_len));
    }
    return true;
}

/* Sets *is to whether the record has exactly this text. Returns false when it could not be read. */
static bool record_is(struct reader *r, const char *name, const char *text, bool *is)
{
    char bytes[SMALL_RECORD_MAX];
    const struct td_zip_entry *entry = find_record(r, "", td_text_of(name));
    size_t len = strlen(text);
    *is = entry != NULL && entry->size_bytes == len && len <= sizeof bytes;
    if (*is && !td_zip_load_head(r->input, entry, bytes, len, r->err))
        return false;
    *is = *is && memcmp(bytes, text, len) == 0;
    return true;
}

static size_t count_members(const struct reader *r, const char *folder)
{
    size_t count = 0;
    for (size_t i = 0; i < r->zip.count; i++) {
        const struct td_zip_entry *entry = &r->zip.entries[i];
        size_t len = strlen(folder);
        count += entry->name_len > r->root_len + len && memcmp(entry->name + r->root_len, folder, len) == 0;
    }
    return count;
}

static bool read_archive(struct reader *r)
{
    if (!td_zip_check_case(&r->zip, r->err) || !td_zip_check_root(&r->zip, &r->root_len, r->err))
        return false;
    r->root = r->zip.entries[0].name;
    bool is_pt2;
    bool is_version_0;
    if (!record_is(r, "archive_format", "pt2", &is_pt2) || !record_is(r, "archive_version", "0", &is_version_0) ||
        !record_is(r, "byteorder", "big", &r->big_endian))
        return false;
    if (!is_pt2 || !is_version_0)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, 0,
                           "no archive of torch.export.save of version 0: its archive_format or archive_version "
                           "is another");
    size_t models = count_members(r, "models/");
    if (models == 0 && count_members(r, "data/aotinductor/") > 0)
        return td_error_at(r->err, TD_INVALID_ARGUMENT, 0,
                           "an AOTInductor package: its weights are part of compiled code; save the exported "
                           "program with torch.export.save");
    r->several_models = models > 1;
    for (size_t i = 0; i < r->zip.count; i++)
        if (!read_member(r, &r->zip.entries[i]))
            return false;
    return true;
}

/* Reads an archive of torch 2.7 or before. */
static bool read_old_archive(struct reader *r)
{
    static const char *const names[] = {"serialized_state_dict.pt", "serialized_constants.pt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct td_zip_entry *entry = td_zip_find(&r->zip, td_text_of(names[i]));
        if (entry == NULL)
            return td_error_at(r->err, TD_INVALID_ARGUMENT, 0, "\"%s\" is not in the archive", names[i]);
        if (!read_saved(r, entry, TD_TEXT("")))
            return false;
    }
    return true;
}

static bool make_members(struct reader *r, struct td_arena *arena)
{
    r->members = td_arena_array(arena, r->zip.count, sizeof *r->members);
    if (r->members == NULL)
        return td_error_no_memory(r->err);
    for (size_t i = 0; i < r->zip.count; i++)
        r->members[i] = (struct member){0};
    return true;
}

static bool parse_pt2(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                      struct td_error *err)
{
    static const char old[] = "serialized_exported_program.json";
    struct reader r = {
        .input = input, .limits = limits, .manifest = manifest, .err = err, .structure_left = limits->max_header_bytes};
    struct td_arena arena;
    const size_t limit = manifest->arena.limit_bytes;
    td_arena_init(&arena, td_arena_left(&manifest->arena));
    manifest->shares_bytes = true;
    if (!td_mul_u64(input->size_bytes, NAMES_PER_BYTE, &r.names_left) ||
        !td_add_u64(r.names_left, NAMES_FREE_BYTES, &r.names_left))
        r.names_left = UINT64_MAX;
    bool ok = td_zip_read_torch(&r.zip, input, limits, &arena, err);
    ok = ok && make_members(&r, &arena);
    if (ok && !td_arena_claim(&manifest->arena, arena.used_bytes))
        ok = td_error_no_memory(err);
    ok = ok && (td_zip_find(&r.zip, TD_TEXT(old)) != NULL ? read_old_archive(&r) : read_archive(&r));
    ok = ok && td_manifest_finish(manifest, err);
    td_arena_fini(&arena);
    manifest->arena.limit_bytes = limit;
    return ok;
}

static const char *const extensions[] = {".pt2", NULL};

const struct td_format td_format_pt2 = {.name = "pt2", .extensions = extensions, .parse = parse_pt2};
