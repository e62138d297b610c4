/* Stays with the pull reader: the values of metadata.json are kept byte for byte as they are spelled. */
#include "parser/keras.h"

#include "core/buffer.h"
#include "core/json/json.h"
#include "parser/hdf5/hdf5.h"
#include "parser/zip/zip.h"
#include "parser/zip/zip_unpack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char weights_name[] = "model.weights.h5";
static const char metadata_name[] = "metadata.json";

/* metadata.json holds two strings in practice. */
enum { METADATA_MAX_BYTES = 65536, METADATA_MAX_MEMBERS = 64 };

struct metadata {
    struct td_metadata members[METADATA_MAX_MEMBERS];
    size_t count;
};

/* Copies one member of metadata.json, whose key the reader is at, to the arena. */
static bool read_member(struct td_json *json, struct td_arena *arena, struct td_metadata *out)
{
    char *key = td_arena_strndup(arena, td_json_raw(json));
    if (key == NULL) {
        (void)td_error_no_memory(json->err);
        return false;
    }
    size_t key_len;
    if (!td_json_string(json, key, json->value_len + 1, &key_len))
        return false;
    size_t begin = json->pos; /* after the colon */
    if (!td_json_skip(json))
        return false;
    struct td_buffer value;
    td_buffer_init(&value);
    bool ok = td_json_minify(td_text_n(json->text.p + begin, json->pos - begin), &value, json->err);
    if (ok) {
        char *copy = value.failed ? NULL : td_arena_strndup(arena, td_buffer_text(&value));
        *out = (struct td_metadata){.key = key, .value = copy};
        ok = copy != NULL;
        if (!ok)
            (void)td_error_no_memory(json->err);
    }
    td_buffer_fini(&value);
    return ok;
}

static bool read_members(struct td_json *json, struct td_arena *arena, struct metadata *metadata)
{
    enum td_json_token token;
    if (!td_json_expect(json, TD_JSON_OBJECT_BEGIN, "an object"))
        return false;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        struct td_metadata member = {0};
        if (metadata->count == METADATA_MAX_MEMBERS)
            return td_json_fail(json, "metadata.json has more than %d members", METADATA_MAX_MEMBERS);
        if (!read_member(json, arena, &member))
            return false;
        if (td_metadata_find(metadata->members, metadata->count, member.key) != NULL)
            return td_json_fail(json, "metadata.json holds \"%.96s\" twice", member.key);
        metadata->members[metadata->count++] = member;
    }
    return token != TD_JSON_ERROR && td_json_expect(json, TD_JSON_END, "the end of metadata.json");
}

/* Reads metadata.json, where there is one. A member replaces an attribute of the weights with the same key. */
static bool read_metadata(const struct td_input *input, const struct td_zip *zip, struct td_arena *arena,
                          struct metadata *metadata, struct td_error *err)
{
    const struct td_zip_entry *entry = td_zip_find(zip, TD_TEXT(metadata_name));
    metadata->count = 0;
    if (entry == NULL)
        return true;
    uint8_t *text = td_zip_load(input, entry, METADATA_MAX_BYTES, err);
    if (text == NULL)
        return false;
    struct td_error json_err = TD_ERROR_INIT;
    struct td_json json;
    td_json_init(&json, td_text_n((const char *)text, (size_t)entry->size_bytes), 0, &json_err);
    bool ok = read_members(&json, arena, metadata);
    free(text);
    if (ok)
        return true;
    bool has_pos = json_err.pos != TD_ERROR_POS_NONE && !entry->deflated;
    return td_error_at(err, json_err.code, entry->offset + (has_pos ? json_err.pos : 0),
                       "keras member \"metadata.json\": %.300s", json_err.message);
}

static bool add_metadata(struct td_manifest *manifest, const struct metadata *first, struct td_error *err)
{
    size_t count = first->count;
    struct td_metadata *all =
        td_arena_array(&manifest->arena, count + manifest->metadata_count, sizeof *manifest->metadata);
    if (all == NULL)
        return td_error_no_memory(err);
    memcpy(all, first->members, count * sizeof *all);
    for (size_t i = 0; i < manifest->metadata_count; i++)
        if (td_metadata_find(first->members, first->count, manifest->metadata[i].key) == NULL)
            all[count++] = manifest->metadata[i];
    manifest->metadata = all;
    manifest->metadata_count = count;
    return true;
}

/* Parses the weights, a file within the file, through a window, and then shifts their offsets. */
static bool read_weights(const struct td_input *input, const struct td_zip *zip, const struct td_limits *limits,
                         struct td_manifest *manifest, struct td_error *err)
{
    const struct td_zip_entry *entry = td_zip_find(zip, TD_TEXT(weights_name));
    if (entry == NULL)
        return td_error_at(err, TD_INVALID_ARGUMENT, 0, "keras archive holds no model.weights.h5");
    if (entry->deflated)
        return td_error_at(err, TD_INVALID_ARGUMENT, entry->header_at,
                           "keras archive holds model.weights.h5 compressed (deflate); it must be stored, as Keras "
                           "does, to be served");
    struct td_window window;
    struct td_input weights;
    struct td_error weights_err = TD_ERROR_INIT;
    if (!td_input_window(input, entry->offset, entry->stored_bytes, &window, &weights, err))
        return false;
    if (td_format_hdf5.parse(&weights, limits, manifest, &weights_err))
        return td_manifest_shift(manifest, entry->offset, err);
    if (weights_err.pos == TD_ERROR_POS_NONE)
        return td_error_set(err, weights_err.code, "model.weights.h5: %.400s", weights_err.message);
    td_error_shift(&weights_err, entry->offset);
    return td_error_at(err, weights_err.code, weights_err.pos, "model.weights.h5: %.400s", weights_err.message);
}

static bool keras_parse(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                        struct td_error *err)
{
    struct td_zip zip;
    struct metadata metadata;
    return td_zip_read(&zip, input, limits, &manifest->arena, err) &&
           read_metadata(input, &zip, &manifest->arena, &metadata, err) &&
           read_weights(input, &zip, limits, manifest, err) && add_metadata(manifest, &metadata, err);
}

static const char *const extensions[] = {".keras", NULL};

const struct td_format td_format_keras = {
    .name = "keras",
    .extensions = extensions,
    .parse = keras_parse,
};
