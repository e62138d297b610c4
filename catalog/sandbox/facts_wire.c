#include "catalog/sandbox/facts_wire.h"

#include "core/json/json.h"
#include "parser/model_card.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_BYTES = 13 }; /* the least bytes of a tag on the wire */

void td_facts_write(const struct td_facts *facts, struct td_wire_writer *out)
{
    td_wire_put_u8(out, facts != NULL);
    if (facts == NULL)
        return;
    td_wire_put_text(out, td_text_n(facts->json, facts->json_len));
    td_wire_put_string(out, facts->pipeline_tag);
    td_wire_put_string(out, facts->library_name);
    td_wire_put_string(out, facts->architecture);
    td_wire_put_string(out, facts->model_type);
    td_wire_put_u8(out, facts->has_chat_template);
    td_wire_put_u64(out, facts->tag_count);
    for (size_t i = 0; i < facts->tag_count; i++) {
        td_wire_put_text(out, td_text_of(facts->tags[i].value));
        td_wire_put_u32(out, facts->tags[i].key);
        td_wire_put_u8(out, facts->tags[i].repeats);
    }
}

/* Returns whether the text is one object of JSON. */
static bool is_object(const char *text)
{
    struct td_error none = TD_ERROR_INIT;
    struct td_json json;
    td_json_init(&json, td_text_of(text), 0, &none);
    return text[0] == '{' && td_json_skip(&json) && td_json_next(&json) == TD_JSON_END;
}

static void read_tags(struct td_wire_reader *in, struct td_facts *facts)
{
    size_t count = td_wire_get_count(in, TAG_BYTES);
    if (!td_wire_check(in, count <= TD_FACTS_TAGS_MAX))
        return;
    facts->tags = td_arena_array(&facts->arena, count, sizeof *facts->tags);
    if (facts->tags == NULL)
        in->no_memory = in->failed = true;
    for (size_t i = 0; i < count && !in->failed; i++) {
        struct td_fact_tag *tag = &facts->tags[i];
        tag->value = td_wire_get_copy(in, &facts->arena);
        tag->key = td_wire_get_u32(in);
        tag->repeats = td_wire_get_bool(in);
        (void)td_wire_check(in, tag->value != NULL && tag->value[0] != '\0' &&
                                    strlen(tag->value) < TD_FACTS_WORD_BYTES && tag->key < td_fact_tag_keys());
    }
    facts->tag_count = in->failed ? 0 : count;
}

bool td_facts_receive(struct td_wire_reader *in, struct td_facts **out, struct td_error *err)
{
    *out = NULL;
    if (!td_wire_get_bool(in))
        return !in->failed || td_wire_refuse(in, err);
    struct td_facts *facts = calloc(1, sizeof *facts);
    if (facts == NULL)
        return td_error_no_memory(err);
    td_arena_init(&facts->arena, 0); /* in proportion to the bytes */
    facts->json = td_wire_get_copy(in, &facts->arena);
    facts->json_len = facts->json == NULL ? 0 : strlen(facts->json);
    facts->pipeline_tag = td_wire_get_string(in, &facts->arena);
    facts->library_name = td_wire_get_string(in, &facts->arena);
    facts->architecture = td_wire_get_string(in, &facts->arena);
    facts->model_type = td_wire_get_string(in, &facts->arena);
    facts->has_chat_template = td_wire_get_bool(in);
    if (td_wire_check(in, facts->json != NULL && facts->json_len <= TD_CARD_MAX_JSON_BYTES && is_object(facts->json)))
        read_tags(in, facts);
    if (!in->failed) {
        *out = facts;
        return true;
    }
    td_facts_destroy(facts);
    return td_wire_refuse(in, err);
}
