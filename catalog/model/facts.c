/* Plan: a card's front matter becomes JSON first (parser/model_card.h). A configuration stays as it is, but only the
 * members that the Hub shows are kept, each at most 64 KiB. One pull reader then goes over the members of the object,
 * keeps the words that answers need, and skips everything else.
 *
 * What is hard: a file with a fault must still give the members before the fault, so read_config() keeps these members
 * and reports the fault beside them. Python writes NaN and Infinity, which are not JSON: they end the reading but are
 * not a fault.
 *
 * Stays with the pull reader: members are kept byte for byte as they are spelled, which a tree does not hold. */
#include "catalog/model/facts.h"

#include "catalog/model/file_kind.h"
#include "core/checked.h"
#include "core/json/json.h"
#include "parser/format/elements.h"
#include "parser/model_card.h"

#include <stdlib.h>
#include <string.h>

enum {
    CONFIG_BYTES = 4 * 1024 * 1024, /* most bytes of a configuration; longer ones are not read */
    MEMBER_BYTES = 64 * 1024,       /* most bytes of a member's value that is kept */
};

/* ---- kinds --------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    const char *const *members; /* members that are kept, as the Hub shows them; NULL: the file is a card */
} kinds[] = {
    [TD_FACTS_CARD] = {"README.md", NULL},
    [TD_FACTS_CONFIG] = {"config.json",
                         (const char *const[]){"architectures", "model_type", "auto_map", "quantization_config", NULL}},
    [TD_FACTS_TOKENIZER] = {"tokenizer_config.json",
                            (const char *const[]){"bos_token", "chat_template", "cls_token", "eos_token", "mask_token",
                                                  "pad_token", "sep_token", "unk_token", "use_default_system_prompt",
                                                  NULL}},
    [TD_FACTS_DIFFUSERS] = {"model_index.json", (const char *const[]){"_class_name", NULL}},
    [TD_FACTS_ADAPTER] = {"adapter_config.json", (const char *const[]){"base_model_name_or_path", "task_type", NULL}},
};

enum td_facts_kind td_facts_kind_of(const char *path)
{
    const char *name = td_base_name(path);
    for (size_t i = TD_FACTS_CARD; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i].name) == 0)
            return (enum td_facts_kind)i;
    return TD_FACTS_NONE;
}

/* Keys of a card that become tags, and what the Hub writes before the values. */
static const struct {
    const char *key, *of_model, *of_dataset;
} tag_keys[] = {
    {"tags", "", ""},
    {"language", "", "language:"},
    {"license", "license:", "license:"},
    {"datasets", "dataset:", NULL},
    {"base_model", "base_model:", NULL},
    {"task_categories", NULL, "task_categories:"},
    {"task_ids", NULL, "task_ids:"},
    {"size_categories", NULL, "size_categories:"},
    {"multilinguality", NULL, "multilinguality:"},
    {"annotations_creators", NULL, "annotations_creators:"},
    {"language_creators", NULL, "language_creators:"},
    {"source_datasets", NULL, "source_datasets:"},
};

const char *td_fact_tag_prefix(const struct td_fact_tag *tag, bool of_dataset)
{
    if (of_dataset)
        return tag_keys[tag->key].of_dataset;
    return tag->repeats ? NULL : tag_keys[tag->key].of_model;
}

const char *td_fact_tag_key(const struct td_fact_tag *tag)
{
    return tag_keys[tag->key].key;
}

unsigned td_fact_tag_keys(void)
{
    return sizeof tag_keys / sizeof *tag_keys;
}

/* ---- members ------------------------------------------------------------------------------------------- */

struct reader {
    struct td_json json;
    struct td_facts *facts;
    size_t tag_capacity;
    struct td_error *err;
};

/* Copies the latest token, a string, into the arena. Leaves *out alone when the string is empty or too long. Returns
 * false for want of memory. */
static bool keep_word(struct reader *r, const char **out)
{
    char word[TD_FACTS_WORD_BYTES];
    struct td_error none = TD_ERROR_INIT;
    struct td_json json = r->json; /* a copy: a NUL in the string is no reason to stop */
    size_t len;
    json.err = &none;
    if (json.value_len >= sizeof word || !td_json_string(&json, word, sizeof word, &len) || len == 0)
        return true;
    *out = td_arena_strndup(&r->facts->arena, td_text_n(word, len));
    return *out != NULL || td_error_no_memory(r->err);
}

/* Reads the next value if it is a string; skips any other. */
static bool read_word(struct reader *r, const char **out)
{
    struct td_json before = r->json;
    if (td_json_next(&r->json) == TD_JSON_STRING)
        return keep_word(r, out);
    r->json = before;
    return td_json_skip(&r->json);
}

static bool add_tag(struct reader *r, unsigned key)
{
    struct td_facts *facts = r->facts;
    struct td_fact_tag tag = {.key = key};
    if (facts->tag_count == TD_FACTS_TAGS_MAX)
        return true;
    if (!keep_word(r, &tag.value) || tag.value == NULL)
        return tag.value == NULL && r->err->code == TD_OK;
    for (size_t i = 0; i < facts->tag_count; i++) {
        const struct td_fact_tag *other = &facts->tags[i];
        if (strcmp(other->value, tag.value) != 0)
            continue;
        if (other->key == key)
            return true;
        const char *prefix = tag_keys[key].of_model;
        const char *other_prefix = tag_keys[other->key].of_model;
        tag.repeats = tag.repeats || (prefix != NULL && other_prefix != NULL && strcmp(prefix, other_prefix) == 0);
    }
    struct td_fact_tag *grown =
        td_arena_grow(&facts->arena, facts->tags, facts->tag_count, &r->tag_capacity, sizeof *grown);
    if (grown == NULL)
        return td_error_no_memory(r->err);
    facts->tags = grown;
    facts->tags[facts->tag_count++] = tag;
    return true;
}

/* Reads the tags of the next value: a word, or a list of words. */
static bool read_tags(struct reader *r, unsigned key)
{
    struct td_json before = r->json;
    enum td_json_token token = td_json_next(&r->json);
    if (token == TD_JSON_STRING)
        return add_tag(r, key);
    if (token != TD_JSON_ARRAY_BEGIN) {
        r->json = before;
        return td_json_skip(&r->json);
    }
    for (;;) {
        before = r->json;
        token = td_json_next(&r->json);
        if (token == TD_JSON_ARRAY_END)
            return true;
        if (token == TD_JSON_STRING ? !add_tag(r, key) : (r->json = before, !td_json_skip(&r->json)))
            return false;
    }
}

/* ---- a card -------------------------------------------------------------------------------------------- */

/* Reads the value of the latest token, a key of the front matter. */
static bool read_card_member(struct reader *r)
{
    if (td_json_equals(&r->json, "pipeline_tag"))
        return read_word(r, &r->facts->pipeline_tag);
    if (td_json_equals(&r->json, "library_name"))
        return read_word(r, &r->facts->library_name);
    for (unsigned i = 0; i < sizeof tag_keys / sizeof *tag_keys; i++)
        if (td_json_equals(&r->json, tag_keys[i].key))
            return read_tags(r, i);
    return td_json_skip(&r->json);
}

static bool read_card(struct reader *r, struct td_text text, bool is_cut)
{
    struct td_buffer json;
    td_buffer_init(&json);
    bool ok = td_model_card_read(text, is_cut, &json, r->err);
    if (ok && json.len > 0) {
        struct td_facts *facts = r->facts;
        facts->json = td_arena_strndup(&facts->arena, td_buffer_text(&json));
        facts->json_len = json.len;
        ok = facts->json != NULL || td_error_no_memory(r->err);
    }
    td_buffer_fini(&json);
    if (!ok || r->facts->json == NULL)
        return ok;
    td_json_init(&r->json, td_text_n(r->facts->json, r->facts->json_len), 0, r->err);
    ok = td_json_expect(&r->json, TD_JSON_OBJECT_BEGIN, "an object");
    while (ok && td_json_next(&r->json) == TD_JSON_KEY)
        ok = read_card_member(r);
    return ok && r->err->code == TD_OK;
}

/* ---- a configuration ----------------------------------------------------------------------------------- */

/* Reads the words that answers need from the value that follows, which was kept as JSON before. */
static bool note_value(struct reader *r, const char *member)
{
    struct td_facts *facts = r->facts;
    if (strcmp(member, "model_type") == 0)
        return read_word(r, &facts->model_type);
    if (strcmp(member, "chat_template") == 0)
        facts->has_chat_template = true;
    if (strcmp(member, "architectures") != 0)
        return td_json_skip(&r->json);
    struct td_json before = r->json;
    if (td_json_next(&r->json) == TD_JSON_ARRAY_BEGIN && td_json_next(&r->json) == TD_JSON_STRING &&
        !keep_word(r, &facts->architecture))
        return false;
    r->json = before;
    return td_json_skip(&r->json);
}

/* Appends the member whose key is the latest token to the kept ones; by hand and not by core/message/document.h,
 * because the value is kept as it is spelled, and the object ends where the text has a fault. */
static bool keep_member(struct reader *r, const char *member, struct td_buffer *out)
{
    struct td_json before = r->json;
    if (!td_json_skip(&r->json))
        return false;
    size_t from = before.pos;
    size_t len = r->json.pos - from;
    if (len > MEMBER_BYTES)
        return true;
    struct td_buffer value;
    td_buffer_init(&value);
    bool ok = td_json_minify(td_text_n(before.text.p + from, len), &value, r->err);
    if (ok) {
        td_buffer_puts(out, out->len == 0 ? "{" : ",");
        td_json_write_cstring(out, member);
        td_buffer_putc(out, ':');
        td_buffer_append(out, value.data, value.len);
    }
    td_buffer_fini(&value);
    r->json = before;
    return ok && note_value(r, member);
}

static bool read_members(struct reader *r, const char *const *members, struct td_buffer *out)
{
    uint32_t seen = 0;
    if (!td_json_expect(&r->json, TD_JSON_OBJECT_BEGIN, "an object"))
        return false;
    while (td_json_next(&r->json) == TD_JSON_KEY) {
        size_t i = 0;
        while (members[i] != NULL && !td_json_equals(&r->json, members[i]))
            i++;
        bool is_new = members[i] != NULL && (seen >> i & 1) == 0;
        seen |= is_new ? UINT32_C(1) << i : 0;
        if (is_new ? !keep_member(r, members[i], out) : !td_json_skip(&r->json))
            return false;
    }
    return r->err->code == TD_OK && td_json_expect(&r->json, TD_JSON_END, "the end of the file");
}

/* Returns whether one of the numbers stands at `pos` that Python writes and reads, though they are no JSON. */
static bool is_python_number(struct td_text text, uint64_t pos)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (pos <= text.len && td_text_begins(td_text_skip(text, (size_t)pos), td_text_of(words[i])))
            return true;
    return false;
}

/* Reads a configuration; keeps what comes before a fault. Python writes Infinity into configurations: that is no fault,
 * but nothing after it is kept. */
static bool read_config(struct reader *r, const char *const *members, struct td_text text)
{
    struct td_buffer out;
    struct td_error inner = TD_ERROR_INIT;
    struct td_error *err = r->err;
    td_buffer_init(&out);
    r->err = &inner;
    td_json_init(&r->json, text, 0, &inner);
    bool ok = read_members(r, members, &out) || inner.code == TD_INVALID_ARGUMENT;
    r->err = err;
    bool is_fault = ok && inner.code == TD_INVALID_ARGUMENT && !is_python_number(text, inner.pos);
    if (!ok) {
        *err = inner;
    } else if (out.len > 0) {
        td_buffer_putc(&out, '}');
        ok = !out.failed && (r->facts->json = td_arena_strndup(&r->facts->arena, td_buffer_text(&out))) != NULL;
        r->facts->json_len = out.len;
        ok = ok || td_error_no_memory(err);
    }
    ok = ok && (!out.failed || td_error_no_memory(err));
    td_buffer_fini(&out);
    if (ok && is_fault)
        *err = inner;
    return ok && !is_fault;
}

/* ---- files --------------------------------------------------------------------------------------------- */

bool td_facts_read(enum td_facts_kind kind, const struct td_input *input, struct td_facts **out, struct td_error *err)
{
    bool is_card = kinds[kind].members == NULL;
    uint64_t most = is_card ? TD_CARD_MAX_BYTES : CONFIG_BYTES;
    uint64_t len = input->size_bytes < most ? input->size_bytes : most;
    *out = NULL;
    if (len < input->size_bytes && !is_card)
        return td_error_set(err, TD_INVALID_ARGUMENT, "%s has more than %d bytes", kinds[kind].name, CONFIG_BYTES);
    struct reader r = {.facts = calloc(1, sizeof *r.facts), .err = err};
    if (r.facts == NULL)
        return td_error_no_memory(err);
    td_arena_init(&r.facts->arena, 0); /* no limit needed: the file is short */
    char *text = (char *)td_input_load(input, 0, len, most, err);
    bool ok = text != NULL && (is_card ? read_card(&r, td_text_n(text, (size_t)len), len < input->size_bytes)
                                       : read_config(&r, kinds[kind].members, td_text_n(text, (size_t)len)));
    free(text);
    if (r.facts->json != NULL && (ok || err->code == TD_INVALID_ARGUMENT))
        *out = r.facts;
    else
        td_facts_destroy(r.facts);
    return ok;
}

void td_facts_destroy(struct td_facts *facts)
{
    if (facts == NULL)
        return;
    td_arena_fini(&facts->arena);
    free(facts);
}

/* ---- elements ------------------------------------------------------------------------------------------ */

bool td_facts_count_elements(struct td_manifest *manifest, struct td_dtype_count **out, size_t *count,
                             struct td_error *err)
{
    size_t capacity = 0;
    *out = NULL;
    *count = 0;
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const struct td_tensor *tensor = &manifest->tensors[i];
        size_t at = 0;
        if (tensor->dtype == NULL || tensor->alias_of != NULL)
            continue;
        while (at < *count && (*out)[at].dtype != tensor->dtype)
            at++;
        if (at == *count) {
            struct td_dtype_count *grown = td_arena_grow(&manifest->arena, *out, *count, &capacity, sizeof *grown);
            if (grown == NULL)
                return td_error_no_memory(err);
            *out = grown;
            (*out)[(*count)++] = (struct td_dtype_count){.dtype = tensor->dtype};
        }
        if (!td_add_u64((*out)[at].elems, td_tensor_elements(tensor), &(*out)[at].elems))
            (*out)[at].elems = UINT64_MAX;
    }
    return true;
}
