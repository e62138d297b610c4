/* An engine either has rules for every model (`any`), or a table of models. For the latter: read config.json, find the
 * row of the architecture whose condition applies, check the numbers, and make td_rules from the row's fragments. A
 * model that is known but has no layout, or is quantised, is refused, and the message names the first tensor that a
 * rule with a reason matches. */
#include "slicing/engine/engine.h"

#include "slicing/engine/engine_table.h"
#include "slicing/engine/model_config.h"
#include "slicing/plan/plan_items.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The rules of these two engines do not depend on the model. */
static const struct td_table_rule whole[] = {{"**", NULL, TD_TABLE_WHOLE, 0}, {0}};

const struct td_table_engine td_engine_none = {.name = "none", .number = 2, .any = whole};

/* torch.distributed.fsdp.fully_shard and DTensor's Shard(0): pieces of torch.chunk
 * (https://github.com/pytorch/pytorch, torch/distributed/tensor/placement_types.py). */
static const struct td_table_rule chunk[] = {{"**", NULL, TD_TABLE_CHUNK, 0}, {0}};

const struct td_table_engine td_engine_fsdp = {.name = "fsdp", .number = 0, .any = chunk};

/* All engine names, sorted. "vllm" stands for its newest version. */
static const struct engine_name {
    const char *name;
    const struct td_table_engine *engine;
} names[] = {
    {"fsdp", &td_engine_fsdp},      {"nano-vllm", &td_engine_nano_vllm}, {"none", &td_engine_none},
    {"vllm", &td_engine_vllm_0_33}, {"vllm@0.13", &td_engine_vllm_0_13}, {"vllm@0.33", &td_engine_vllm_0_33},
};

enum { MAX_NEXTN_LAYERS = 64 }; /* DeepSeek-V3 has 1 */

_Static_assert(sizeof names / sizeof *names == TD_ENGINE_NAME_COUNT, "TD_ENGINE_NAME_COUNT is the number of names");

const char *td_engine_name(size_t i)
{
    return i < TD_ENGINE_NAME_COUNT ? names[i].name : NULL;
}

static const struct td_table_engine *find_engine(struct td_text name)
{
    for (size_t i = 0; i < TD_ENGINE_NAME_COUNT; i++)
        if (td_text_equals(name, names[i].name))
            return names[i].engine;
    return NULL;
}

const char *td_engine_own_name(struct td_text name)
{
    const struct td_table_engine *engine = find_engine(name);
    return engine == NULL ? NULL : engine->name;
}

const char *td_engine_label(struct td_text name)
{
    const struct td_table_engine *engine = find_engine(name);
    return engine == NULL ? NULL : engine->label != NULL ? engine->label : engine->name;
}

bool td_engine_number(struct td_text name, unsigned *number)
{
    const struct td_table_engine *engine = find_engine(name);
    if (engine != NULL)
        *number = engine->number;
    return engine != NULL;
}

const char *td_engine_name_of(uint64_t number)
{
    for (size_t i = 0; i < TD_ENGINE_NAME_COUNT; i++)
        if (names[i].engine->number == number)
            return names[i].engine->name;
    return NULL;
}

/* Returns whether the tag is the name with '-' in place of '@'. */
static bool is_tag_of(struct td_text tag, const char *name)
{
    if (tag.len != strlen(name))
        return false;
    for (size_t i = 0; i < tag.len; i++)
        if (tag.p[i] != (name[i] == '@' ? '-' : name[i]))
            return false;
    return true;
}

const char *td_engine_of_tag(struct td_text tag)
{
    for (size_t i = 0; i < TD_ENGINE_NAME_COUNT; i++)
        if (is_tag_of(tag, names[i].name))
            return names[i].engine->name;
    return NULL;
}

bool td_engine_exists(struct td_text name)
{
    return find_engine(name) != NULL;
}

/* Writes all names, with this character in place of '@'. */
static void list_names(char at, char *out, size_t capacity)
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < TD_ENGINE_NAME_COUNT && n < capacity; i++)
        n += (size_t)snprintf(out + n, capacity - n, "%s%s", i > 0 ? ", " : "", names[i].name);
    for (char *p = strchr(out, '@'); p != NULL; p = strchr(p + 1, '@'))
        *p = at;
}

void td_engine_list(char *out, size_t capacity)
{
    list_names('@', out, capacity);
}

static bool not_found(struct td_text name, char at, struct td_error *err)
{
    char known[TD_ERROR_MESSAGE_BYTES];
    list_names(at, known, sizeof known);
    return td_error_set(err, TD_NOT_FOUND, "no engine \"%.*s\"; the engines are %s", TD_SHOW(name, 64), known);
}

bool td_engine_not_found(struct td_text name, struct td_error *err)
{
    return not_found(name, '@', err);
}

bool td_engine_tag_not_found(struct td_text tag, struct td_error *err)
{
    return not_found(tag, '-', err);
}

bool td_engine_reads_states(struct td_text name)
{
    const struct td_table_engine *engine = find_engine(name);
    return engine != NULL && engine->reads_states;
}

bool td_engine_needs_config(struct td_text name)
{
    const struct td_table_engine *engine = find_engine(name);
    return engine != NULL && engine->any == NULL;
}

/* ---- which model ---- */

/* Returns whether the condition applies to the model. */
static bool holds_for_model(enum td_table_condition condition, const struct td_model_config *config)
{
    switch (condition) {
    case TD_TABLE_Q_LORA:
        return config->q_lora_rank > 0;
    case TD_TABLE_NO_Q_LORA:
        return config->q_lora_rank == 0;
    case TD_TABLE_BIASES:
        return config->attention_bias;
    case TD_TABLE_NO_BIASES:
        return !config->attention_bias;
    case TD_TABLE_ALWAYS:
        break;
    }
    return true;
}

#define ELSE "use rules (POST plans; --plan FILE), none or fsdp"
#define ELSE_SHORT "use rules, none or fsdp"

/* Lists the architectures that the engine has a layout for, and the number of those that there is no room for. */
static void list_models(const struct td_table_engine *engine, char *out, size_t capacity)
{
    enum { MORE_BYTES = 24 };
    size_t len = 0;
    size_t more = 0;
    out[0] = '\0';
    for (size_t i = 0; i < engine->model_count; i++) {
        const char *name = engine->models[i].architecture;
        if ((engine->models[i].particulars & TD_TABLE_REFUSED) != 0 ||
            (i > 0 && strcmp(name, engine->models[i - 1].architecture) == 0))
            continue;
        if (more > 0 || strlen(name) + 2 >= capacity - MORE_BYTES - len)
            more++;
        else
            len += (size_t)snprintf(out + len, capacity - len, "%s%s", len > 0 ? ", " : "", name);
    }
    if (more > 0)
        (void)snprintf(out + len, capacity - len, " and %zu more", more);
}

/* Sets TD_FAILED_PRECONDITION with the text and the engine's way_on. Returns false. */
static bool refuse_engine(const struct td_table_engine *engine, const char *text, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION, "%s%s%s", text, engine->way_on == NULL ? "" : "; ",
                        engine->way_on == NULL ? "" : engine->way_on);
}

static bool no_table(const struct td_table_engine *engine, const struct td_model_config *config, struct td_error *err)
{
    enum { KNOWN_BYTES = TD_ERROR_MESSAGE_BYTES - 174 }; /* the rest of the message */
    char known[KNOWN_BYTES];
    char text[TD_ERROR_MESSAGE_BYTES];
    list_models(engine, known, sizeof known);
    const char *name = config->architecture[0] != '\0' ? config->architecture : config->model_type;
    if (name[0] == '\0')
        (void)snprintf(text, sizeof text,
                       "config.json names no architecture; engine %s knows %s; for others " ELSE_SHORT, engine->name,
                       known);
    else
        (void)snprintf(text, sizeof text, "engine %s has no table for %.40s; it knows %s; for others " ELSE_SHORT,
                       engine->name, name, known);
    return refuse_engine(engine, text, err);
}

static const struct td_table_model *find_model(const struct td_table_engine *engine,
                                               const struct td_model_config *config)
{
    for (size_t i = 0; i < engine->model_count; i++) {
        const struct td_table_model *model = &engine->models[i];
        bool same = config->architecture[0] != '\0' ? strcmp(config->architecture, model->architecture) == 0
                                                    : strcmp(config->model_type, model->model_type) == 0;
        if (same && holds_for_model(model->condition, config))
            return model;
    }
    return NULL;
}

/* ---- numbers ---- */

static bool missing(struct td_error *err, const char *key)
{
    return td_error_set(err, TD_FAILED_PRECONDITION, "config.json has no %s, which the layout depends on", key);
}

/* Checks that config.json has the numbers that the layout needs; corrects Falcon's key-value heads. */
static bool check_numbers(const struct td_table_model *model, struct td_model_config *config, struct td_error *err)
{
    if (config->heads == 0)
        return missing(err, "num_attention_heads");
    bool latent = (model->particulars & TD_TABLE_LATENT) != 0;
    if (config->head_dim == 0 && !latent)
        return missing(err, "head_dim, and no hidden_size that num_attention_heads divides");
    if ((model->particulars & TD_TABLE_KV_FALCON) != 0 && !config->new_decoder_architecture)
        config->kv_heads = config->multi_query ? 1 : config->heads;
    if (!latent && config->heads % config->kv_heads != 0)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "config.json: %" PRIu64 " key-value heads do not divide %" PRIu64 " attention heads",
                            config->kv_heads, config->heads);
    if ((model->particulars & TD_TABLE_HAS_EXPERTS) != 0 && config->experts == 0)
        return missing(err, "number of experts");
    return true;
}

/* ---- rules ---- */

struct builder {
    const struct td_table_engine *engine;
    const struct td_model_config *config;
    struct td_rule_list *list;
};

static void set_parts(struct td_rule *rule, int32_t dim, const struct td_rule_part *parts, uint32_t count)
{
    rule->dim = dim;
    rule->part_count = count;
    for (uint32_t i = 0; i < count; i++)
        rule->parts[i] = parts[i];
}

/* Sets the parts of a rule that splits by heads. */
static void set_heads(const struct builder *b, struct td_rule *rule, enum td_table_split layout)
{
    const struct td_model_config *config = b->config;
    const struct td_rule_part any_heads = {.count = config->heads, .what = TD_UNITS_HEADS};
    const struct td_rule_part queries = {.count = config->heads, .unit = config->head_dim, .what = TD_UNITS_HEADS};
    const struct td_rule_part keys = {.count = config->kv_heads,
                                      .unit = config->head_dim,
                                      .replicate = b->engine->replicates_keys,
                                      .what = TD_UNITS_KEY_VALUE_HEADS};
    const struct td_rule_part all[] = {queries, keys, keys};
    if (layout == TD_TABLE_HEADS || layout == TD_TABLE_HEADS_ROW)
        set_parts(rule, layout == TD_TABLE_HEADS_ROW ? 1 : 0, &any_heads, 1);
    else if (layout == TD_TABLE_QUERIES || layout == TD_TABLE_QUERIES_ROW)
        set_parts(rule, layout == TD_TABLE_QUERIES_ROW ? 1 : 0, &queries, 1);
    else if (layout == TD_TABLE_KEYS)
        set_parts(rule, 0, &keys, 1);
    else
        set_parts(rule, 0, all, 3);
    if (layout == TD_TABLE_QKV_GROUPS)
        rule->groups = config->kv_heads;
}

static void set_layout(const struct builder *b, struct td_rule *rule, enum td_table_split layout)
{
    const struct td_rule_part half = {.unit = 1};
    const struct td_rule_part halves[] = {half, half};
    switch (layout) {
    case TD_TABLE_WHOLE:
        rule->whole = true;
        break;
    case TD_TABLE_CHUNK:
        rule->uneven = TD_UNEVEN_CHUNK;
        break;
    case TD_TABLE_VOCABULARY:
        rule->parts[0] = (struct td_rule_part){.count = b->config->vocab_size, .unit = 1, .what = TD_UNITS_VOCABULARY};
        rule->part_count = 1;
        rule->pad_to = b->engine->vocabulary_pad;
        break;
    case TD_TABLE_HALVES:
        set_parts(rule, 0, halves, 2);
        break;
    case TD_TABLE_ROW:
        rule->dim = 1;
        break;
    case TD_TABLE_EXPERTS:
    case TD_TABLE_EXPERTS_ROW:
        rule->dim = layout == TD_TABLE_EXPERTS_ROW ? 1 : 0;
        rule->stack = true;
        rule->stack_size = b->config->experts;
        break;
    case TD_TABLE_COLUMN:
        break;
    case TD_TABLE_DROP:
        rule->drop = true;
        break;
    case TD_TABLE_ONE:
        rule->is_constant = true;
        rule->constant = 1;
        break;
    case TD_TABLE_HEADS:
    case TD_TABLE_HEADS_ROW:
    case TD_TABLE_QUERIES:
    case TD_TABLE_QUERIES_ROW:
    case TD_TABLE_KEYS:
    case TD_TABLE_QKV:
    case TD_TABLE_QKV_GROUPS:
        set_heads(b, rule, layout);
        break;
    case TD_TABLE_REFUSE: /* set by add_fragment */
        break;
    }
}

static void add_fragment(struct builder *b, const struct td_table_rule *fragment)
{
    for (const struct td_table_rule *row = fragment; row->match != NULL; row++) {
        struct td_rule *rule = &b->list->rules[b->list->count++];
        *rule = (struct td_rule){.match = row->match, .slot = row->slot};
        if (row->layout == TD_TABLE_REFUSE) {
            rule->refuse = row->out;
            continue;
        }
        rule->out = row->out;
        set_layout(b, rule, row->layout);
    }
}

static size_t fragment_len(const struct td_table_rule *fragment)
{
    size_t len = 0;
    while (fragment[len].match != NULL)
        len++;
    return len;
}

/* Adds rules that drop the layers after the model's own: they predict further tokens and belong to a second model
 * (DeepSeek-V3). */
static bool drop_nextn(struct builder *b, struct td_arena *arena, struct td_error *err)
{
    const struct td_model_config *config = b->config;
    struct td_buffer text;
    td_buffer_init(&text);
    bool ok = true;
    for (uint64_t i = 0; ok && i < config->nextn_layers; i++) {
        td_buffer_clear(&text);
        td_buffer_printf(&text, "model.layers.%" PRIu64 ".**", config->layers + i);
        char *match = text.failed ? NULL : td_arena_strndup(arena, td_buffer_text(&text));
        ok = match != NULL || td_error_no_memory(err);
        b->list->rules[b->list->count++] = (struct td_rule){.match = match, .drop = true};
    }
    td_buffer_fini(&text);
    return ok;
}

static bool allocate_rules(struct td_rule_list *list, size_t count, struct td_arena *arena, struct td_error *err)
{
    list->count = 0;
    list->rules = td_arena_array(arena, count, sizeof *list->rules);
    return list->rules != NULL || td_error_no_memory(err);
}

/* Returns whether the head and the embeddings are one tensor: config.json says so, and the checkpoint has the
 * embeddings. */
static bool is_tied(const struct td_table_model *model, const struct td_model_config *config,
                    const struct td_tensor_list *tensors)
{
    bool by_default = (model->particulars & TD_TABLE_TIED_BY_DEFAULT) != 0;
    uint32_t number;
    if (model->tied == NULL || !(config->has_tied ? config->tied : by_default))
        return false;
    for (const struct td_table_rule *row = model->tied; row->match != NULL; row++)
        if (row->out != NULL && td_plan_items_find(tensors, row->match, &number) != NULL)
            return true;
    return false;
}

static bool add_model(struct builder *b, const struct td_table_model *model, const struct td_tensor_list *tensors,
                      struct td_arena *arena, struct td_error *err)
{
    static const struct td_table_rule nothing[] = {{0}};
    const struct td_table_rule *tied = is_tied(model, b->config, tensors) ? model->tied : nothing;
    size_t count = b->config->nextn_layers;
    if (count > MAX_NEXTN_LAYERS || (count > 0 && b->config->layers == 0))
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "config.json: num_nextn_predict_layers is %zu; at most %d, and with num_hidden_layers",
                            count, MAX_NEXTN_LAYERS);
    for (size_t i = 0; i < TD_TABLE_MAX_FRAGMENTS && model->fragments[i] != NULL; i++)
        count += fragment_len(model->fragments[i]);
    if (!allocate_rules(b->list, count + fragment_len(tied), arena, err) || !drop_nextn(b, arena, err))
        return false;
    add_fragment(b, tied);
    for (size_t i = 0; i < TD_TABLE_MAX_FRAGMENTS && model->fragments[i] != NULL; i++)
        add_fragment(b, model->fragments[i]);
    b->list->plain_types_only = true;
    b->list->way_on = b->engine->way_on;
    return true;
}

/* ---- refusals ---- */

/* Refuses the model, and names the first tensor that a rule refuses. */
static bool refuse_model(const struct td_table_engine *engine, const struct td_rule_list *rules,
                         const struct td_model_config *config, const struct td_tensor_list *tensors,
                         struct td_error *err)
{
    uint64_t steps = TD_PLAN_MAX_STEPS;
    char text[TD_ERROR_MESSAGE_BYTES];
    const char *why = config->quantised ? "config.json has a quantization_config, and " : "";
    for (size_t i = 0; i < tensors->count; i++) {
        const struct td_tensor *tensor = tensors->get(tensors->context, i);
        struct td_captures captures;
        const struct td_rule *rule = td_rules_find(rules, td_tensor_name(tensor), &captures, &steps);
        if (rule != NULL && rule->refuse != NULL) {
            (void)snprintf(text, sizeof text, "%stensor \"%.160s\": %s", why, tensor->name, rule->refuse);
            return refuse_engine(engine, text, err);
        }
    }
    if (config->quantised)
        (void)snprintf(text, sizeof text,
                       "config.json has a quantization_config, and the layout of quantised weights depends on how "
                       "engine %s runs them; " ELSE,
                       engine->name);
    else
        (void)snprintf(text, sizeof text, "engine %s has no layout for %.40s; " ELSE, engine->name,
                       config->architecture[0] != '\0' ? config->architecture : config->model_type);
    return refuse_engine(engine, text, err);
}

static bool check_tp_size(const struct td_table_engine *engine, uint64_t tp_size, struct td_error *err)
{
    if (!td_tp_size_check(tp_size, err))
        return false;
    if (engine->max_tp_size > 0 && tp_size > engine->max_tp_size)
        return td_error_set(err, TD_FAILED_PRECONDITION, "tp_size is %" PRIu64 "; engine %s takes at most %" PRIu64,
                            tp_size, engine->name, engine->max_tp_size);
    return true;
}

bool td_engine_rules(const char *engine_name, struct td_text config_text, const struct td_tensor_list *tensors,
                     uint64_t tp_size, struct td_arena *arena, struct td_rule_list *out, struct td_error *err)
{
    const struct td_table_engine *engine = find_engine(td_text_of(engine_name));
    struct td_model_config config = {.heads = 0};
    struct builder b = {.engine = engine, .config = &config, .list = out};
    *out = (struct td_rule_list){.count = 0};
    if (engine == NULL)
        return td_engine_not_found(td_text_of(engine_name), err);
    if (!check_tp_size(engine, tp_size, err))
        return false;
    if (engine->any != NULL) {
        if (!allocate_rules(out, fragment_len(engine->any), arena, err))
            return false;
        add_fragment(&b, engine->any);
        return true;
    }
    if (config_text.p == NULL)
        return td_error_set(
            err, TD_FAILED_PRECONDITION,
            "the model has no config.json, from which engine %s learns the architecture: put one beside "
            "the checkpoint",
            engine->name);
    if (!td_model_config_read(config_text, &config, err))
        return false;
    const struct td_table_model *model = find_model(engine, &config);
    if (model == NULL)
        return no_table(engine, &config, err);
    if (!check_numbers(model, &config, err) || !add_model(&b, model, tensors, arena, err))
        return false;
    bool refused = config.quantised || (model->particulars & TD_TABLE_REFUSED) != 0;
    return !refused || refuse_model(engine, out, &config, tensors, err);
}
