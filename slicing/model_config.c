#include "slicing/model_config.h"

#include "core/json.h"

#include <inttypes.h>
#include <string.h>

struct number_key {
    const char *name;
    size_t offset; /* of the member of td_model_config */
};

#define NUMBER(name, member)                           \
    {                                                  \
        name, offsetof(struct td_model_config, member) \
    }

static const struct number_key number_keys[] = {
    NUMBER("num_attention_heads", heads),
    NUMBER("n_head", heads),
    NUMBER("num_key_value_heads", kv_heads),
    NUMBER("num_kv_heads", kv_heads),
    NUMBER("n_head_kv", kv_heads),
    NUMBER("head_dim", head_dim),
    NUMBER("hidden_size", hidden_size),
    NUMBER("n_embed", hidden_size),
    NUMBER("vocab_size", vocab_size),
    NUMBER("num_hidden_layers", layers),
    NUMBER("n_layer", layers),
    NUMBER("num_nextn_predict_layers", nextn_layers),
    NUMBER("num_experts", experts),
    NUMBER("num_local_experts", experts),
    NUMBER("n_routed_experts", experts),
    NUMBER("q_lora_rank", q_lora_rank),
};

static const struct number_key flag_keys[] = {
    NUMBER("new_decoder_architecture", new_decoder_architecture),
    NUMBER("multi_query", multi_query),
};

enum { NUMBER_KEYS = sizeof number_keys / sizeof *number_keys, FLAG_KEYS = sizeof flag_keys / sizeof *flag_keys };

struct config_reader {
    struct td_json json;
    struct td_model_config config;
    uint32_t seen; /* bits of the keys seen in this object: numbers, then flags, then the others */
};

static uint64_t *number_at(struct td_model_config *config, size_t offset)
{
    return (uint64_t *)(void *)((char *)config + offset);
}

static bool seen_twice(struct config_reader *r, unsigned bit, const char *name)
{
    if ((r->seen >> bit & 1) != 0)
        return !td_json_fail(&r->json, "%s is given twice", name);
    r->seen |= UINT32_C(1) << bit;
    return false;
}

static bool read_number(struct config_reader *r, const struct number_key *key)
{
    uint64_t *out = number_at(&r->config, key->offset);
    uint64_t value;
    enum td_json_token token = td_json_next(&r->json);
    if (token == TD_JSON_NULL)
        return true;
    if (token != TD_JSON_NUMBER)
        return token != TD_JSON_ERROR && td_json_fail(&r->json, "%s must be a number", key->name);
    if (!td_json_u64(&r->json, &value))
        return false;
    if (value > TD_CONFIG_MAX_NUMBER)
        return td_json_fail(&r->json, "%s is past %d", key->name, TD_CONFIG_MAX_NUMBER);
    if (*out != 0 && *out != value)
        return td_json_fail(&r->json, "%s differs from the same number under another name", key->name);
    *out = value;
    return true;
}

static bool read_flag(struct config_reader *r, const struct number_key *key)
{
    bool *out = (bool *)(void *)((char *)&r->config + key->offset);
    enum td_json_token token = td_json_next(&r->json);
    *out = token == TD_JSON_TRUE;
    if (token != TD_JSON_TRUE && token != TD_JSON_FALSE && token != TD_JSON_NULL)
        return token != TD_JSON_ERROR && td_json_fail(&r->json, "%s must be true or false", key->name);
    return true;
}

/* Keeps a name, which is the latest token; null is none. */
static bool keep_name(struct config_reader *r, enum td_json_token token, const char *key, char *out)
{
    size_t len;
    if (token == TD_JSON_NULL || token == TD_JSON_ERROR)
        return token == TD_JSON_NULL;
    if (token != TD_JSON_STRING || r->json.value_len >= TD_CONFIG_NAME_BYTES)
        return td_json_fail(&r->json, "%s must be a name of at most %d bytes", key, TD_CONFIG_NAME_BYTES - 1);
    return td_json_string(&r->json, out, TD_CONFIG_NAME_BYTES, &len);
}

static bool read_architectures(struct config_reader *r)
{
    enum td_json_token token = td_json_next(&r->json);
    if (token == TD_JSON_NULL)
        return true;
    if (token != TD_JSON_ARRAY_BEGIN)
        return token != TD_JSON_ERROR && td_json_fail(&r->json, "architectures must be an array of names");
    token = td_json_next(&r->json);
    if (token == TD_JSON_ARRAY_END)
        return true;
    if (token == TD_JSON_NULL)
        return td_json_fail(&r->json, "architectures must be an array of names");
    if (!keep_name(r, token, "architectures[0]", r->config.architecture))
        return false;
    while ((token = td_json_next(&r->json)) != TD_JSON_ARRAY_END)
        if (token != TD_JSON_STRING)
            return token != TD_JSON_ERROR && td_json_fail(&r->json, "architectures must be an array of names");
    return true;
}

/* Skips a value. *given receives whether it is anything but null. */
static bool skip_value(struct config_reader *r, bool *given)
{
    struct td_json before = r->json;
    if (!td_json_skip(&r->json))
        return false;
    *given = td_json_next(&before) != TD_JSON_NULL;
    return true;
}

enum { KEY_ARCHITECTURES = NUMBER_KEYS + FLAG_KEYS, KEY_MODEL_TYPE, KEY_QUANTISED, KEY_TEXT_CONFIG };

/* Reads a member, whose key is the latest token. If text_config is not NULL, it receives a reader at that object, which
 * is then skipped. */
static bool read_member(struct config_reader *r, struct td_json *text_config)
{
    struct td_json *json = &r->json;
    for (unsigned i = 0; i < NUMBER_KEYS; i++)
        if (td_json_equals(json, number_keys[i].name))
            return !seen_twice(r, i, number_keys[i].name) && read_number(r, &number_keys[i]);
    for (unsigned i = 0; i < FLAG_KEYS; i++)
        if (td_json_equals(json, flag_keys[i].name))
            return !seen_twice(r, NUMBER_KEYS + i, flag_keys[i].name) && read_flag(r, &flag_keys[i]);
    if (td_json_equals(json, "architectures"))
        return !seen_twice(r, KEY_ARCHITECTURES, "architectures") && read_architectures(r);
    if (td_json_equals(json, "model_type"))
        return !seen_twice(r, KEY_MODEL_TYPE, "model_type") &&
               keep_name(r, td_json_next(json), "model_type", r->config.model_type);
    if (td_json_equals(json, "quantization_config"))
        return !seen_twice(r, KEY_QUANTISED, "quantization_config") && skip_value(r, &r->config.quantised);
    if (text_config != NULL && td_json_equals(json, "text_config")) {
        if (seen_twice(r, KEY_TEXT_CONFIG, "text_config"))
            return false;
        *text_config = *json;
    }
    return td_json_skip(json);
}

/* Reads an object; its text_config is skipped (see read_member). */
static bool read_object(struct config_reader *r, struct td_json *text_config)
{
    enum td_json_token token;
    r->config.multi_query = true;
    if (!td_json_expect(&r->json, TD_JSON_OBJECT_BEGIN, "an object"))
        return false;
    while ((token = td_json_next(&r->json)) == TD_JSON_KEY)
        if (!read_member(r, text_config))
            return false;
    return token != TD_JSON_ERROR;
}

/* Replaces the numbers by those of text_config, if that has heads, and keeps the outer names where there are any. */
static bool read_text_config(struct config_reader *outer, const struct td_json *at)
{
    struct config_reader inner = {.json = *at};
    struct td_json peek = *at;
    if (td_json_next(&peek) == TD_JSON_NULL)
        return true;
    if (!read_object(&inner, NULL))
        return false;
    if (inner.config.heads == 0)
        return true;
    if (outer->config.architecture[0] != '\0')
        memcpy(inner.config.architecture, outer->config.architecture, TD_CONFIG_NAME_BYTES);
    else if (inner.config.architecture[0] == '\0' && outer->config.model_type[0] != '\0')
        memcpy(inner.config.model_type, outer->config.model_type, TD_CONFIG_NAME_BYTES);
    inner.config.quantised = inner.config.quantised || outer->config.quantised;
    outer->config = inner.config;
    return true;
}

bool td_model_config_read(struct td_text text, struct td_model_config *out, struct td_error *err)
{
    struct td_error inner = TD_ERROR_INIT;
    struct config_reader r = {.seen = 0};
    struct td_json text_config = {.text = {NULL, 0}}; /* set when it is found */
    if (text.len > TD_CONFIG_MAX_BYTES)
        return td_error_set(err, TD_FAILED_PRECONDITION, "config.json has %zu bytes; at most %d are read", text.len,
                            TD_CONFIG_MAX_BYTES);
    td_json_init(&r.json, text, 0, &inner);
    if (!read_object(&r, &text_config) || !td_json_expect(&r.json, TD_JSON_END, "the end of the file") ||
        (text_config.text.p != NULL && !read_text_config(&r, &text_config)))
        return td_error_set(err, TD_FAILED_PRECONDITION, "config.json: %s (at byte %" PRIu64 ")", inner.message,
                            inner.pos);
    struct td_model_config *config = &r.config;
    if (config->kv_heads == 0)
        config->kv_heads = config->heads;
    if (config->head_dim == 0 && config->heads > 0 && config->hidden_size % config->heads == 0)
        config->head_dim = config->hidden_size / config->heads;
    *out = *config;
    return true;
}
