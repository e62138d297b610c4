#include "slicing/engine/model_config.h"

#include "core/json/json_document.h"

#include <string.h>

/* Of a document's tree: about 300,000 values. A config.json that names the 21,841 classes of ImageNet has 44,000. */
enum { TREE_MAX_BYTES = 32 << 20 };

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
    NUMBER("attention_bias", attention_bias),
    NUMBER("new_decoder_architecture", new_decoder_architecture),
    NUMBER("multi_query", multi_query),
};

enum { NUMBER_KEYS = sizeof number_keys / sizeof *number_keys, FLAG_KEYS = sizeof flag_keys / sizeof *flag_keys };

struct config_reader {
    const struct td_json_document *document;
    struct td_model_config config;
    uint32_t seen; /* keys of this object: numbers, then flags, then the others */
};

static uint64_t *number_at(struct td_model_config *config, size_t offset)
{
    return (uint64_t *)(void *)((char *)config + offset);
}

static bool seen_twice(struct config_reader *r, unsigned bit, const cJSON *item)
{
    if ((r->seen >> bit & 1) != 0)
        return !td_json_document_fail_key(r->document, item, "%s is given twice", item->string);
    r->seen |= UINT32_C(1) << bit;
    return false;
}

static bool read_number(struct config_reader *r, const struct number_key *key, const cJSON *item)
{
    uint64_t *out = number_at(&r->config, key->offset);
    uint64_t value;
    if (cJSON_IsNull(item))
        return true;
    if (!cJSON_IsRaw(item))
        return td_json_document_fail(r->document, item, "%s must be a number", key->name);
    if (!td_json_document_u64(r->document, item, &value))
        return false;
    if (value > TD_CONFIG_MAX_NUMBER)
        return td_json_document_fail(r->document, item, "%s is past %d", key->name, TD_CONFIG_MAX_NUMBER);
    if (*out != 0 && *out != value)
        return td_json_document_fail(r->document, item, "%s differs from the same number under another name",
                                     key->name);
    *out = value;
    return true;
}

static bool read_flag(struct config_reader *r, const struct number_key *key, const cJSON *item)
{
    bool *out = (bool *)(void *)((char *)&r->config + key->offset);
    *out = cJSON_IsTrue(item);
    return cJSON_IsBool(item) || cJSON_IsNull(item) ||
           td_json_document_fail(r->document, item, "%s must be true or false", key->name);
}

static bool keep_name(struct config_reader *r, const cJSON *item, const char *key, char *out)
{
    if (!td_json_item_is_string(item) || td_json_document_spelled(r->document, item).len >= TD_CONFIG_NAME_BYTES)
        return td_json_document_fail(r->document, item, "%s must be a name of at most %d bytes", key,
                                     TD_CONFIG_NAME_BYTES - 1);
    const char *name = td_json_document_string(r->document, item);
    if (name != NULL)
        memcpy(out, name, strlen(name) + 1);
    return name != NULL;
}

static bool read_architectures(struct config_reader *r, const cJSON *list)
{
    static const char wanted[] = "architectures must be an array of names";
    if (cJSON_IsNull(list))
        return true;
    if (!cJSON_IsArray(list))
        return td_json_document_fail(r->document, list, wanted);
    const cJSON *first = list->child;
    if (first == NULL)
        return true;
    if (cJSON_IsNull(first))
        return td_json_document_fail(r->document, first, wanted);
    if (!keep_name(r, first, "architectures[0]", r->config.architecture))
        return false;
    for (const cJSON *item = first->next; item != NULL; item = item->next)
        if (!td_json_item_is_string(item))
            return td_json_document_fail(r->document, item, wanted);
    return true;
}

enum { KEY_ARCHITECTURES = NUMBER_KEYS + FLAG_KEYS, KEY_MODEL_TYPE, KEY_QUANTISED, KEY_TIED, KEY_TEXT_CONFIG };

/* Reads a member other than text_config. */
static bool read_member(struct config_reader *r, const cJSON *item)
{
    for (unsigned i = 0; i < NUMBER_KEYS; i++)
        if (strcmp(item->string, number_keys[i].name) == 0)
            return !seen_twice(r, i, item) && read_number(r, &number_keys[i], item);
    for (unsigned i = 0; i < FLAG_KEYS; i++)
        if (strcmp(item->string, flag_keys[i].name) == 0)
            return !seen_twice(r, NUMBER_KEYS + i, item) && read_flag(r, &flag_keys[i], item);
    if (strcmp(item->string, "architectures") == 0)
        return !seen_twice(r, KEY_ARCHITECTURES, item) && read_architectures(r, item);
    if (strcmp(item->string, "model_type") == 0)
        return !seen_twice(r, KEY_MODEL_TYPE, item) &&
               (cJSON_IsNull(item) || keep_name(r, item, "model_type", r->config.model_type));
    if (strcmp(item->string, "tie_word_embeddings") == 0) {
        static const struct number_key tied = NUMBER("tie_word_embeddings", tied);
        r->config.has_tied = !cJSON_IsNull(item);
        return !seen_twice(r, KEY_TIED, item) && read_flag(r, &tied, item);
    }
    if (strcmp(item->string, "quantization_config") == 0) {
        r->config.quantised = !cJSON_IsNull(item);
        return !seen_twice(r, KEY_QUANTISED, item);
    }
    return true;
}

/* Reads one object but for its text_config, which *text_config is set to; NULL: there it is a member like others. */
static bool read_object(struct config_reader *r, const cJSON *object, const cJSON **text_config)
{
    r->config.multi_query = true;
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        if (text_config != NULL && strcmp(item->string, "text_config") == 0) {
            *text_config = item;
            if (seen_twice(r, KEY_TEXT_CONFIG, item))
                return false;
        } else if (!read_member(r, item)) {
            return false;
        }
    }
    return true;
}

/* The inner object's numbers, the outer one's names where it has them. */
static bool read_text_config(struct config_reader *outer, const cJSON *text_config)
{
    struct config_reader inner = {.document = outer->document};
    if (cJSON_IsNull(text_config))
        return true;
    if (!cJSON_IsObject(text_config))
        return td_json_document_fail(outer->document, text_config, "an object expected");
    if (!read_object(&inner, text_config, NULL))
        return false;
    if (inner.config.heads == 0)
        return true;
    if (outer->config.architecture[0] != '\0')
        memcpy(inner.config.architecture, outer->config.architecture, TD_CONFIG_NAME_BYTES);
    else if (inner.config.architecture[0] == '\0' && outer->config.model_type[0] != '\0')
        memcpy(inner.config.model_type, outer->config.model_type, TD_CONFIG_NAME_BYTES);
    inner.config.quantised = inner.config.quantised || outer->config.quantised;
    if (!inner.config.has_tied) {
        inner.config.has_tied = outer->config.has_tied;
        inner.config.tied = outer->config.tied;
    }
    outer->config = inner.config;
    return true;
}

static bool read_document(const struct td_json_document *document, struct td_model_config *out)
{
    struct config_reader r = {.document = document};
    const cJSON *text_config = NULL;
    const cJSON *root = td_json_document_object(document, "an object");
    bool ok = root != NULL && read_object(&r, root, &text_config) && td_json_document_end(document) &&
              (text_config == NULL || read_text_config(&r, text_config));
    struct td_model_config *config = &r.config;
    if (config->kv_heads == 0)
        config->kv_heads = config->heads;
    if (config->head_dim == 0 && config->heads > 0 && config->hidden_size % config->heads == 0)
        config->head_dim = config->hidden_size / config->heads;
    if (ok)
        *out = *config;
    return ok;
}

bool td_model_config_read(struct td_text text, struct td_model_config *out, struct td_error *err)
{
    struct td_error inner = TD_ERROR_INIT;
    struct td_json_document document;
    struct td_arena arena;
    char message[TD_ERROR_TEXT_BYTES];
    if (text.len > TD_CONFIG_MAX_BYTES)
        return td_error_set(err, TD_FAILED_PRECONDITION, "config.json has %zu bytes; at most %d are read", text.len,
                            TD_CONFIG_MAX_BYTES);
    td_arena_init(&arena, TREE_MAX_BYTES);
    td_json_document_read(&document, text, &arena, &inner);
    bool ok = read_document(&document, out);
    td_arena_fini(&arena);
    if (ok || inner.code == TD_RESOURCE_EXHAUSTED)
        return ok || td_error_copy(err, &inner);
    return td_error_set(err, TD_FAILED_PRECONDITION, "config.json: %s", td_error_text(&inner, message));
}
