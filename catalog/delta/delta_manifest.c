#include "catalog/delta/delta_manifest.h"

#include "core/json/json.h"
#include "parser/format/names.h"

#include <string.h>

/* The members of a tensor that are read. */
enum { NAME, FILE_NAME, KEY, SUM, SUM_KIND, MEMBERS };

static const char *const members[MEMBERS] = {"name", "payload_file", "payload_key", "checksum", "checksum_algorithm"};

static const char default_kind[] = "xxh3-128"; /* of a manifest that names none */

struct reader {
    struct td_json json;
    struct td_delta_sums *sums;
    struct td_buffer map;               /* the members of the index's weight_map */
    struct td_text version, base, kind; /* numbers and a text, as they stand in the manifest */
    bool has_tensors;
    struct td_error *err;
};

/* Reads a whole number, the next value, and sets *out to its digits. */
static bool read_version(struct reader *r, struct td_text *out)
{
    uint64_t value;
    enum td_json_token token = td_json_next(&r->json);
    if (token != TD_JSON_NUMBER)
        return token != TD_JSON_ERROR && td_json_fail(&r->json, "a version must be a number");
    *out = td_json_raw(&r->json);
    return td_json_u64(&r->json, &value);
}

/* Reads the members of one tensor. The latest token is its bracket. */
static bool read_members(struct reader *r, struct td_text values[MEMBERS], struct td_text *name)
{
    struct td_json *json = &r->json;
    enum td_json_token token;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        size_t i = 0;
        while (i < MEMBERS && !td_json_equals(json, members[i]))
            i++;
        if (i == MEMBERS) {
            if (!td_json_skip(json))
                return false;
            continue;
        }
        if ((token = td_json_next(json)) != TD_JSON_STRING)
            return token != TD_JSON_ERROR && td_json_fail(json, "\"%s\" of a tensor must be a text", members[i]);
        values[i] = td_json_raw(json);
        if (i != NAME)
            continue;
        char *copy = td_arena_strndup(&r->sums->arena, values[i]);
        if (copy == NULL)
            return td_error_no_memory(r->err);
        if (!td_json_string(json, copy, values[i].len + 1, &name->len))
            return false;
        name->p = copy;
    }
    return token == TD_JSON_OBJECT_END;
}

/* Reads one tensor. The latest token is its bracket. */
static bool read_tensor(struct reader *r)
{
    struct td_text values[MEMBERS] = {{0}};
    struct td_text name = {0};
    if (!read_members(r, values, &name))
        return false;
    for (size_t i = 0; i < MEMBERS; i++)
        if (values[i].p == NULL && i != SUM_KIND)
            return td_json_fail(&r->json, "a tensor has no \"%s\"", members[i]);
    if (td_text_compare(values[KEY], values[NAME]) != 0)
        return td_json_fail(&r->json, "the payload_key of \"%.*s\" is not its name", TD_SHOW(name, 96));
    struct td_text kind = values[SUM_KIND].p == NULL ? td_text_of(default_kind) : values[SUM_KIND];
    if (r->kind.p != NULL && td_text_compare(r->kind, kind) != 0)
        return td_json_fail(&r->json, "the tensors have checksums of several kinds");
    r->kind = kind;
    struct td_delta_sums *sums = r->sums;
    struct td_delta_named_sum *items =
        td_arena_grow(&sums->arena, sums->items, sums->count, &sums->capacity, sizeof *items);
    char *sum = td_arena_strndup(&sums->arena, values[SUM]);
    if (items == NULL || sum == NULL)
        return td_error_no_memory(r->err);
    sums->items = items;
    items[sums->count] = (struct td_delta_named_sum){.name = name, .sum = td_text_n(sum, values[SUM].len)};
    td_buffer_printf(&r->map, "%s\"%.*s\":\"%.*s\"", sums->count++ > 0 ? "," : "", (int)values[NAME].len,
                     values[NAME].p, (int)values[FILE_NAME].len, values[FILE_NAME].p);
    return !r->map.failed || td_buffer_refuse(&r->map, r->err);
}

static bool read_tensors(struct reader *r)
{
    enum td_json_token token = td_json_next(&r->json);
    if (token != TD_JSON_ARRAY_BEGIN || r->has_tensors)
        return token != TD_JSON_ERROR && td_json_fail(&r->json, "\"tensors\" must be one list");
    r->has_tensors = true;
    while ((token = td_json_next(&r->json)) == TD_JSON_OBJECT_BEGIN)
        if (!read_tensor(r))
            return false;
    return token == TD_JSON_ARRAY_END ||
           (token != TD_JSON_ERROR && td_json_fail(&r->json, "a tensor must be an object"));
}

static bool read_manifest(struct reader *r)
{
    struct td_json *json = &r->json;
    enum td_json_token token;
    if (!td_json_expect(json, TD_JSON_OBJECT_BEGIN, "an object, the manifest of a delta"))
        return false;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        bool ok = td_json_equals(json, "version")        ? read_version(r, &r->version)
                  : td_json_equals(json, "base_version") ? read_version(r, &r->base)
                  : td_json_equals(json, "tensors")      ? read_tensors(r)
                                                         : td_json_skip(json);
        if (!ok)
            return false;
    }
    if (token == TD_JSON_ERROR)
        return false;
    if (r->version.p == NULL || r->base.p == NULL || !r->has_tensors)
        return td_json_fail(json,
                            "it lacks \"version\", \"base_version\" or \"tensors\", which SkyRL's manifests have");
    return td_json_expect(json, TD_JSON_END, "the end of the manifest");
}

static struct td_text name_of(const void *context, size_t i)
{
    return ((const struct td_delta_named_sum *)context)[i].name;
}

static struct td_names names_of(const struct td_delta_sums *sums)
{
    return (struct td_names){.count = sums->count, .context = sums->items, .get = name_of};
}

bool td_delta_manifest_read(struct td_text text, struct td_buffer *index, struct td_delta_sums *sums,
                            struct td_error *err)
{
    struct reader r = {.sums = sums, .err = err};
    *sums = (struct td_delta_sums){.count = 0};
    td_arena_init(&sums->arena, 0);
    td_buffer_init(&r.map);
    td_json_init(&r.json, text, 0, err);
    bool ok = read_manifest(&r);
    struct td_names names = names_of(sums);
    ok = ok && td_names_sort(&names, sums->items, sizeof *sums->items, err);
    size_t twice = ok ? td_names_duplicate(&names, NULL) : 0;
    if (ok && twice < names.count)
        ok = td_error_set(err, TD_INVALID_ARGUMENT, "\"%.*s\" is in it twice; names must be unique",
                          TD_SHOW(sums->items[twice].name, 96));
    if (ok) {
        if (r.kind.p == NULL)
            r.kind = td_text_of(default_kind);
        td_buffer_printf(index,
                         "{\"metadata\":{\"version\":%.*s,\"base_version\":%.*s,\"delta_encoding\":\"xor\","
                         "\"compression_format\":\"zstd\",\"checksum_format\":\"%.*s\"},\"weight_map\":{",
                         (int)r.version.len, r.version.p, (int)r.base.len, r.base.p, (int)r.kind.len, r.kind.p);
        td_buffer_append(index, r.map.data, r.map.len);
        td_buffer_puts(index, "}}");
        ok = !index->failed || td_buffer_refuse(index, err);
    }
    td_buffer_fini(&r.map);
    return ok;
}

void td_delta_sums_fini(struct td_delta_sums *sums)
{
    td_arena_fini(&sums->arena);
    memset(sums, 0, sizeof *sums);
}

struct td_text td_delta_sums_find(const struct td_delta_sums *sums, struct td_text name)
{
    struct td_names names = names_of(sums);
    bool found = false;
    size_t at = sums->count == 0 ? 0 : td_names_search(&names, name, &found);
    return found ? sums->items[at].sum : td_text_n(NULL, 0);
}
