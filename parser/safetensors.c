/* Follows huggingface/safetensors, safetensors/src/tensor.rs (SafeTensors::read_metadata, Metadata::validate). Accepts,
 * as the reference does, whitespace around the JSON, `"__metadata__": null`, `{}`, an empty tensor name and unknown
 * members of an entry. Refuses more than the reference, where serde is lax by accident or the format's description
 * forbids it: a repeated name, an entry that is an array, a dtype that is an object, a name with a NUL, more than
 * TD_MAX_RANK dimensions.
 *
 * Stays with the pull reader: a header has up to 100 MB.
 *
 * The header is read into private memory and parsed once. Tensors usually come in the order of their data, which is
 * checked as they are read; otherwise they are sorted by their data to check that these fill the file. */
#include "parser/safetensors.h"

#include "core/checked.h"
#include "core/json/json.h"
#include "parser/format/manifest.h"
#include "parser/format/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    PREFIX_BYTES = 8,
    /* No entry is shorter, which bounds how many tensors a header can hold. */
    SHORTEST_ENTRY_BYTES = sizeof "\"\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,0]}" - 1,
};

struct header {
    struct td_json json;
    char *text; /* the N bytes in private memory: even if the file changes, every check sees the same bytes */
    size_t len;
    uint64_t data_start; /* in the file */
    uint64_t data_bytes;
    struct td_manifest *manifest;
    size_t capacity;     /* of manifest->tensors */
    uint64_t next_begin; /* the next tensor's beginning, if the entries are in the order of their data */
    bool in_data_order;
    bool has_metadata;
    struct td_error *err;
};

enum entry_member { MEMBER_DTYPE, MEMBER_SHAPE, MEMBER_OFFSETS, MEMBER_COUNT };

/* One entry while it is read. Its members come in any order, so they are checked against each other at the end. */
struct entry {
    const char *name;
    size_t name_len;
    const struct td_dtype *dtype;
    uint64_t dims[TD_MAX_RANK];
    uint32_t rank;
    uint64_t begin, end;
    bool seen[MEMBER_COUNT];
    size_t shape_at, offsets_at; /* positions of these values in the text */
};

static const char *const member_names[MEMBER_COUNT] = {"dtype", "shape", "data_offsets"};

static bool header_no_memory(const struct header *h)
{
    return td_error_set(h->err, TD_RESOURCE_EXHAUSTED,
                        "out of memory: the header needs more than one file's limit, or than there is");
}

/* Copies the latest KEY or STRING into the arena, decoded. */
static const char *copy_string(struct header *h, size_t *len)
{
    struct td_json *json = &h->json;
    char *copy = td_arena_strndup(&h->manifest->arena, td_json_raw(json));
    if (copy == NULL) {
        (void)header_no_memory(h);
        return NULL;
    }
    *len = json->value_len;
    if (json->escaped && !td_json_string(json, copy, json->value_len + 1, len))
        return NULL;
    return copy;
}

/* Reports a value of the wrong kind; a fault of the JSON itself is reported already. Returns false. */
static bool entry_wants(struct header *h, const struct entry *e, enum td_json_token got, const char *wanted)
{
    if (got == TD_JSON_ERROR)
        return false;
    return td_json_fail(&h->json, "tensor \"%.96s\": %s", e->name, wanted);
}

static bool read_dtype(struct header *h, struct entry *e)
{
    enum td_json_token token = td_json_next(&h->json);
    if (token != TD_JSON_STRING)
        return entry_wants(h, e, token, "dtype must be a string such as \"F32\"");
    char decoded[64];
    const char *name = h->json.text.p + h->json.value;
    size_t len = h->json.value_len;
    if (h->json.escaped && len < sizeof decoded) {
        if (!td_json_string(&h->json, decoded, sizeof decoded, &len))
            return false;
        name = decoded;
    }
    e->dtype = td_dtype_find(td_text_n(name, len));
    if (e->dtype != NULL && td_dtype_is_safetensors(e->dtype))
        return true;
    char known[256] = "";
    size_t used = 0;
    const struct td_dtype *dtype;
    for (size_t i = 0; (dtype = td_dtype_at(i)) != NULL && td_dtype_is_safetensors(dtype) &&
                       used + strlen(dtype->name) + 2 < sizeof known;
         i++) {
        if (i > 0)
            known[used++] = ' ';
        memcpy(known + used, dtype->name, strlen(dtype->name) + 1);
        used += strlen(dtype->name);
    }
    return td_json_fail(&h->json, "tensor \"%.96s\": unknown dtype \"%.*s\"; known: %s", e->name,
                        (int)(len < 32 ? len : 32), name, known);
}

static bool read_shape(struct header *h, struct entry *e)
{
    enum td_json_token token = td_json_next(&h->json);
    if (token != TD_JSON_ARRAY_BEGIN)
        return entry_wants(h, e, token, "shape must be an array of whole numbers");
    e->shape_at = h->json.start;
    for (;;) {
        token = td_json_next(&h->json);
        if (token == TD_JSON_ARRAY_END)
            return true;
        if (token != TD_JSON_NUMBER)
            return entry_wants(h, e, token, "shape must hold whole numbers only");
        if (e->rank == TD_MAX_RANK)
            return td_json_fail(&h->json, "tensor \"%.96s\": shape has more than %d dimensions", e->name, TD_MAX_RANK);
        if (!td_json_u64(&h->json, &e->dims[e->rank++]))
            return false;
    }
}

static bool read_offsets(struct header *h, struct entry *e)
{
    uint64_t *const out[] = {&e->begin, &e->end};
    enum td_json_token token = td_json_next(&h->json);
    if (token != TD_JSON_ARRAY_BEGIN)
        return entry_wants(h, e, token, "data_offsets must be an array [begin, end]");
    e->offsets_at = h->json.start;
    for (size_t i = 0; i < 2; i++) {
        token = td_json_next(&h->json);
        if (token != TD_JSON_NUMBER)
            return entry_wants(h, e, token, "data_offsets must hold two whole numbers [begin, end]");
        if (!td_json_u64(&h->json, out[i]))
            return false;
    }
    token = td_json_next(&h->json);
    if (token != TD_JSON_ARRAY_END)
        return entry_wants(h, e, token, "data_offsets must hold two numbers, not more");
    return true;
}

static bool read_member(struct header *h, struct entry *e)
{
    size_t member = 0;
    while (member < MEMBER_COUNT && !td_json_equals(&h->json, member_names[member]))
        member++;
    if (member == MEMBER_COUNT) /* skipped, as in the reference: TensorInfo does not deny unknown fields */
        return td_json_skip(&h->json);
    if (e->seen[member])
        return td_json_fail(&h->json, "tensor \"%.96s\": %s is given twice", e->name, member_names[member]);
    e->seen[member] = true;
    switch (member) {
    case MEMBER_DTYPE:
        return read_dtype(h, e);
    case MEMBER_SHAPE:
        return read_shape(h, e);
    default:
        return read_offsets(h, e);
    }
}

/* Checks the members of an entry against each other and against the file. */
static bool check_entry(struct header *h, const struct entry *e)
{
    uint64_t shape_at = PREFIX_BYTES + e->shape_at;
    uint64_t offsets_at = PREFIX_BYTES + e->offsets_at;
    uint64_t elems = 1;
    for (uint32_t i = 0; i < e->rank;
         i++) /* a later zero does not excuse an overflow, as with the reference's try_fold */
        if (!td_mul_u64(elems, e->dims[i], &elems))
            return td_error_at(h->err, TD_INVALID_ARGUMENT, shape_at,
                               "tensor \"%.96s\": the product of its shape is larger than 2^64-1", e->name);
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): MEMBER_DTYPE was seen, so it is set
    if (elems % e->dtype->block_elems != 0)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, shape_at,
                           "tensor \"%.96s\": %" PRIu64 " elements of %s do not fill whole bytes; their number "
                           "must be a multiple of %u",
                           e->name, elems, e->dtype->name, e->dtype->block_elems);
    if (e->begin > e->end)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, offsets_at,
                           "tensor \"%.96s\": data_offsets [%" PRIu64 ", %" PRIu64 "] end before they begin", e->name,
                           e->begin, e->end);
    if (e->end > h->data_bytes)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, offsets_at,
                           "tensor \"%.96s\": data_offsets [%" PRIu64 ", %" PRIu64 "] end past the file, which has "
                           "%" PRIu64 " bytes of data",
                           e->name, e->begin, e->end, h->data_bytes);
    uint64_t nbytes;
    if (!td_dtype_nbytes(e->dtype, elems, &nbytes) || nbytes != e->end - e->begin)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, offsets_at,
                           "tensor \"%.96s\": %" PRIu64 " elements of %s do not take the %" PRIu64 " bytes of "
                           "data_offsets [%" PRIu64 ", %" PRIu64 "]",
                           e->name, elems, e->dtype->name, e->end - e->begin, e->begin, e->end);
    return true;
}

static bool add_tensor(struct header *h, const struct entry *e)
{
    struct td_manifest *manifest = h->manifest;
    uint64_t *shape = NULL;
    if (e->rank > 0) {
        shape = td_arena_array(&manifest->arena, e->rank, sizeof *shape);
        if (shape == NULL)
            return header_no_memory(h);
        memcpy(shape, e->dims, e->rank * sizeof *shape);
    }
    if (manifest->tensor_count == h->capacity)
        return td_error_set(h->err, TD_INTERNAL, "more tensors than the header has room for");
    manifest->tensors[manifest->tensor_count++] = (struct td_tensor){
        .name = e->name,
        .name_len = (uint32_t)e->name_len,
        .rank = e->rank,
        .dtype = e->dtype,
        .shape = shape,
        .nbytes = e->end - e->begin,
        .offset = h->data_start + e->begin,
    };
    if (e->begin != h->next_begin)
        h->in_data_order = false;
    h->next_begin = e->end;
    return true;
}

/* Reads an entry. The latest token is the tensor's name. */
static bool read_tensor(struct header *h)
{
    struct entry e;
    e.rank = 0; /* clearing the whole struct would cost 512 bytes of dims for each of perhaps a million entries */
    e.begin = e.end = 0;
    e.shape_at = e.offsets_at = 0;
    e.dtype = NULL;
    memset(e.seen, 0, sizeof e.seen);
    e.name = copy_string(h, &e.name_len);
    if (e.name == NULL)
        return false;
    enum td_json_token token = td_json_next(&h->json);
    if (token != TD_JSON_OBJECT_BEGIN)
        return entry_wants(h, &e, token, "its entry must be an object with dtype, shape and data_offsets");
    while ((token = td_json_next(&h->json)) == TD_JSON_KEY)
        if (!read_member(h, &e))
            return false;
    if (token == TD_JSON_ERROR)
        return false;
    for (size_t i = 0; i < MEMBER_COUNT; i++)
        if (!e.seen[i])
            return td_json_fail(&h->json, "tensor \"%.96s\": %s is missing", e.name, member_names[i]);
    return check_entry(h, &e) && add_tensor(h, &e);
}

/* Refuses metadata with a repeated key. `object` is the reader as it was at the first key. */
static bool check_metadata_unique(struct header *h, const struct td_json *object)
{
    const struct td_metadata *metadata = h->manifest->metadata;
    struct td_names names = td_metadata_keys(metadata, h->manifest->metadata_count);
    struct td_order *order;
    if (!td_names_order(&names, &order, h->err))
        return false;
    size_t twice = td_names_duplicate(&names, order);
    free(order);
    if (twice == names.count)
        return true;
    struct td_text name = td_text_of(metadata[twice].key);
    return td_error_at(h->err, TD_INVALID_ARGUMENT, PREFIX_BYTES + td_json_find_member(*object, name, 1),
                       "__metadata__ holds \"%.96s\" twice", name.p);
}

/* Reads the metadata. The latest token is the key "__metadata__". Values are kept as they are, because they are JSON.
 */
static bool read_metadata(struct header *h)
{
    struct td_manifest *manifest = h->manifest;
    struct td_json *json = &h->json;
    if (h->has_metadata)
        return td_json_fail(json, "__metadata__ is given twice");
    h->has_metadata = true;
    enum td_json_token token = td_json_next(json);
    if (token == TD_JSON_NULL)
        return true;
    if (token != TD_JSON_OBJECT_BEGIN)
        return token != TD_JSON_ERROR && td_json_fail(json, "__metadata__ must be an object of strings");
    struct td_json object = *json;
    manifest->metadata = td_arena_array(&manifest->arena, td_json_count_members(object), sizeof *manifest->metadata);
    if (manifest->metadata == NULL)
        return header_no_memory(h);
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        size_t len;
        const char *key = copy_string(h, &len);
        if (key == NULL)
            return false;
        token = td_json_next(json);
        if (token != TD_JSON_STRING)
            return token != TD_JSON_ERROR && td_json_fail(json, "__metadata__ \"%.96s\" must be a string", key);
        const char *value =
            td_arena_strndup(&manifest->arena, td_text_n(json->text.p + json->start, json->pos - json->start));
        if (value == NULL)
            return header_no_memory(h);
        manifest->metadata[manifest->metadata_count++] = (struct td_metadata){.key = key, .value = value};
    }
    return token != TD_JSON_ERROR && check_metadata_unique(h, &object);
}

/* Returns an upper bound on the entries in the text, by counting the objects that open. It is exact for what writers
 * write, and never more than the text has room for, so a hostile header cannot make it large. */
static size_t count_entries_at_most(struct td_text text)
{
    size_t braces = 0;
    const char *end = text.p + text.len;
    // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): read_header has set the text
    for (const char *p = text.p; (p = memchr(p, '{', (size_t)(end - p))) != NULL; p++)
        braces++;
    size_t room = text.len / SHORTEST_ENTRY_BYTES;
    return braces < room ? braces : room;
}

/* Sets the arena's limit. Scratch that sorting may need later counts against the memory limit from the start. */
static bool set_arena_limit(struct header *h, size_t max_memory_bytes)
{
    struct td_arena *arena = &h->manifest->arena;
    if (max_memory_bytes == 0)
        return true;
    size_t scratch = h->len + h->capacity * 2 * sizeof(struct td_order);
    if (scratch >= max_memory_bytes)
        return header_no_memory(h);
    size_t left = max_memory_bytes - scratch;
    if (arena->limit_bytes == 0 || arena->limit_bytes > left)
        arena->limit_bytes = left;
    return true;
}

static bool read_entries(struct header *h)
{
    struct td_json *json = &h->json;
    td_json_init(json, td_text_n(h->text, h->len), PREFIX_BYTES, h->err);
    h->manifest->tensors = td_arena_array(&h->manifest->arena, h->capacity, sizeof *h->manifest->tensors);
    if (h->manifest->tensors == NULL)
        return header_no_memory(h);
    h->in_data_order = true;
    if (!td_json_expect(json, TD_JSON_OBJECT_BEGIN, "an object that maps tensor names to their entries"))
        return false;
    enum td_json_token token;
    while ((token = td_json_next(json)) == TD_JSON_KEY)
        if (!(td_json_equals(json, "__metadata__") ? read_metadata(h) : read_tensor(h)))
            return false;
    return token != TD_JSON_ERROR && td_json_expect(json, TD_JSON_END, "the end of the header");
}

/* Returns the position in the file of the nth entry with the tensor's name. */
static uint64_t entry_position(const struct header *h, const struct td_tensor *tensor, unsigned nth)
{
    struct td_json json;
    td_json_init(&json, td_text_n(h->text, h->len), 0, NULL);
    (void)td_json_next(&json);
    return PREFIX_BYTES + td_json_find_member(json, td_tensor_name(tensor), nth);
}

static bool finish_manifest(struct header *h)
{
    struct td_manifest *manifest = h->manifest;
    if (td_manifest_finish(manifest, h->err))
        return true;
    for (size_t i = 1; h->err != NULL && h->err->pos == TD_ERROR_POS_NONE && i < manifest->tensor_count; i++) {
        const struct td_tensor *t = &manifest->tensors[i];
        if (td_text_compare(td_tensor_name(&t[-1]), td_tensor_name(t)) == 0)
            h->err->pos = entry_position(h, t, 1);
    }
    return false;
}

/* Refuses a tensor that does not begin where the tensor before it, in the order of the data, ended. */
static bool check_next(const struct header *h, const struct td_tensor *tensor, uint64_t *expected)
{
    uint64_t begin = tensor->offset - h->data_start;
    if (begin > *expected)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, entry_position(h, tensor, 0),
                           "tensor \"%.96s\" begins at data byte %" PRIu64 ", but the bytes from %" PRIu64
                           " on belong to no tensor",
                           tensor->name, begin, *expected);
    if (begin < *expected)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, entry_position(h, tensor, 0),
                           "tensor \"%.96s\" begins at data byte %" PRIu64
                           ", within the tensor before it, which ends at %" PRIu64,
                           tensor->name, begin, *expected);
    *expected = begin + tensor->nbytes;
    return true;
}

static int by_end(const void *context, size_t a, size_t b)
{
    const struct td_tensor *tensors = context;
    return (tensors[a].nbytes > tensors[b].nbytes) - (tensors[a].nbytes < tensors[b].nbytes);
}

/* Checks, as Metadata::validate does, that the tensors in the order of (begin, end) cover the data without gap or
 * overlap. */
static bool check_coverage(const struct header *h)
{
    const struct td_manifest *manifest = h->manifest;
    uint64_t end = h->next_begin;
    bool ok = true;
    if (!h->in_data_order) {
        size_t count = manifest->tensor_count;
        struct td_order *order = malloc(count * sizeof *order); /* cannot overflow: struct td_tensor is larger */
        if (order == NULL)
            return header_no_memory(h);
        for (size_t i = 0; i < count; i++)
            order[i] = (struct td_order){.key = manifest->tensors[i].offset, .index = i};
        ok = td_order_sort(order, count, by_end, manifest->tensors, h->err);
        end = 0;
        for (size_t i = 0; ok && i < count; i++)
            ok = check_next(h, &manifest->tensors[order[i].index], &end);
        free(order);
    }
    if (ok && end != h->data_bytes)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, h->data_start + end,
                           "the tensors end at data byte %" PRIu64 ", but the file has %" PRIu64 " bytes of data", end,
                           h->data_bytes);
    return ok;
}

/* Reads the length, checks that the header fits, and reads the header. */
static bool read_header(struct header *h, const struct td_input *input, const struct td_limits *limits)
{
    uint8_t prefix[PREFIX_BYTES];
    if (input->size_bytes < PREFIX_BYTES)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, input->size_bytes,
                           "the file has %" PRIu64 " bytes; safetensors begins with 8 bytes of header length",
                           input->size_bytes);
    if (!td_input_read(input, 0, prefix, PREFIX_BYTES, h->err))
        return false;
    uint64_t n = td_load_le64(prefix);
    uint64_t rest = input->size_bytes - PREFIX_BYTES;
    if (n > rest)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, 0,
                           "header length %" PRIu64 " is larger than the %" PRIu64 " bytes that follow it", n, rest);
    if (n > limits->max_header_bytes || n > SIZE_MAX / 8)
        return td_error_at(h->err, TD_RESOURCE_EXHAUSTED, 0,
                           "header length %" PRIu64 " is larger than the limit of %" PRIu64 " bytes", n,
                           limits->max_header_bytes);
    if (n == 0)
        return td_error_at(h->err, TD_INVALID_ARGUMENT, 0, "header length is 0; the shortest header is {}");
    if (limits->max_memory_bytes != 0 && n > limits->max_memory_bytes)
        return header_no_memory(h);
    h->len = (size_t)n;
    h->text = malloc(h->len);
    if (h->text == NULL)
        return header_no_memory(h);
    h->data_start = PREFIX_BYTES + n;
    h->data_bytes = rest - n;
    return td_input_read(input, PREFIX_BYTES, h->text, h->len, h->err);
}

/* ---- boxes of larger tensors --------------------------------------------------------------------------- */

/* torch.distributed.checkpoint's HuggingFaceStorageWriter writes, in the metadata of each rank's file, which box of
 * each tensor the file holds (torch/distributed/checkpoint/_hf_utils.py). The value is JSON in a string:
 * {"NAME":{"saved_offsets":[8,0]}} */
static const char boxes_key[] = "DCP_SHARDING_INFO";

/* Reads the offsets of a tensor. The latest token is the key "saved_offsets". */
static bool read_starts(struct td_json *json, const struct td_tensor *tensor, struct td_arena *arena,
                        const uint64_t **out)
{
    uint64_t *starts = td_arena_array(arena, tensor->rank + 1, sizeof *starts);
    uint64_t end;
    if (starts == NULL)
        return td_error_no_memory(json->err);
    bool ok = td_json_next(json) == TD_JSON_ARRAY_BEGIN;
    for (uint32_t i = 0; ok && i < tensor->rank; i++)
        ok = td_json_next(json) == TD_JSON_NUMBER && td_json_u64(json, &starts[i]) &&
             td_add_u64(starts[i], tensor->shape[i], &end);
    *out = starts;
    return (ok && td_json_next(json) == TD_JSON_ARRAY_END) ||
           td_error_set(json->err, TD_INVALID_ARGUMENT,
                        "the saved_offsets of \"%.96s\" are no list of %u whole numbers", tensor->name, tensor->rank);
}

/* Reads the members of a tensor's box. */
static bool read_box(struct td_json *json, const struct td_tensor *tensor, struct td_arena *arena, const uint64_t **out)
{
    enum td_json_token token;
    if (!td_json_expect(json, TD_JSON_OBJECT_BEGIN, "an object with saved_offsets"))
        return false;
    while ((token = td_json_next(json)) == TD_JSON_KEY)
        if (!(td_json_equals(json, "saved_offsets") ? read_starts(json, tensor, arena, out) : td_json_skip(json)))
            return false;
    return token != TD_JSON_ERROR;
}

/* Reads the boxes of all tensors from the text. */
static bool read_boxes(struct td_manifest *manifest, struct td_text text, struct td_error *err)
{
    struct td_json json;
    const uint64_t **starts = td_arena_array(&manifest->arena, manifest->tensor_count + 1, sizeof *starts);
    char *name = starts == NULL ? NULL : malloc(text.len + 1);
    if (name == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < manifest->tensor_count; i++)
        starts[i] = NULL;
    td_json_init(&json, text, 0, err);
    bool ok = td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "an object of tensor names");
    while (ok && td_json_next(&json) == TD_JSON_KEY) {
        size_t len;
        ok = td_json_string(&json, name, text.len + 1, &len);
        const struct td_tensor *tensor = ok ? td_manifest_find(manifest, td_text_n(name, len)) : NULL;
        if (tensor == NULL)
            ok = ok && td_json_skip(&json);
        else
            ok = read_box(&json, tensor, &manifest->arena, &starts[tensor - manifest->tensors]);
    }
    ok = ok && td_json_expect(&json, TD_JSON_END, "the end");
    for (size_t i = 0; ok && i < manifest->tensor_count; i++)
        if (starts[i] == NULL)
            ok = td_error_set(err, TD_INVALID_ARGUMENT, "it has no saved_offsets of \"%.96s\"",
                              manifest->tensors[i].name);
    free(name);
    manifest->starts = starts;
    return ok;
}

/* Reads which boxes the file holds, if its metadata say so. */
static bool find_boxes(struct header *h)
{
    struct td_manifest *manifest = h->manifest;
    struct td_json json;
    struct td_error why = TD_ERROR_INIT;
    size_t len;
    const char *value = td_metadata_find(manifest->metadata, manifest->metadata_count, boxes_key);
    if (value == NULL)
        return true;
    td_json_init(&json, td_text_of(value), 0, &why);
    (void)td_json_next(&json); /* a string, as read_metadata has checked */
    char *text = 2 * json.value_len + 2 <= td_arena_left(&manifest->arena) || manifest->arena.limit_bytes == 0
                     ? malloc(json.value_len + 1)
                     : NULL;
    if (text == NULL)
        return header_no_memory(h);
    bool ok = td_json_string(&json, text, json.value_len + 1, &len) && read_boxes(manifest, td_text_n(text, len), &why);
    free(text);
    return ok || td_error_set(h->err, why.code, "%s in its metadata: %s", boxes_key, why.message);
}

static bool safetensors_parse(const struct td_input *input, const struct td_limits *limits,
                              struct td_manifest *manifest, struct td_error *err)
{
    struct header h = {.manifest = manifest, .err = err};
    size_t arena_limit = manifest->arena.limit_bytes;
    bool ok = read_header(&h, input, limits);
    if (ok) {
        h.capacity = count_entries_at_most(td_text_n(h.text, h.len));
        ok = set_arena_limit(&h, limits->max_memory_bytes) && read_entries(&h) && finish_manifest(&h) &&
             check_coverage(&h) && find_boxes(&h);
    }
    manifest->arena.limit_bytes = arena_limit;
    free(h.text);
    return ok;
}

static const char *const extensions[] = {".safetensors", ".sft", NULL};

const struct td_format td_format_safetensors = {
    .name = "safetensors",
    .extensions = extensions,
    .parse = safetensors_parse,
};
