#include "api/native/description.h"

#include "http/page_token.h"

#include <string.h>

void td_description_begin(struct td_description *description, const struct td_call *call)
{
    memset(description, 0, sizeof *description);
    description->call = call;
    description->reserved.budget = td_shared_budget_of(&call->api->lists, call->request->client);
    td_error_init(&description->err);
    td_buffer_init(&description->out);
    td_json_builder_init(&description->json, &description->out);
    td_json_begin_object(&description->json, NULL);
}

void td_description_finish(struct td_description *description, bool ok)
{
    struct td_response *response = description->call->response;
    td_json_end(&description->json);
    td_json_builder_fini(&description->json);
    td_buffer_putc(&description->out, '\n');
    if (!ok || !td_reserved_answer_json(&description->reserved, &description->out, response, &description->err))
        td_response_fail_error(response, &description->err);
    td_buffer_fini(&description->out);
    td_reserved_release(&description->reserved);
}

bool td_description_room(struct td_description *description, size_t text_bytes)
{
    return td_reserved_json_room(&description->reserved, &description->json, text_bytes, &description->err);
}

bool td_description_add_problems(struct td_description *description, const struct td_problems *problems)
{
    struct td_json_builder *json = &description->json;
    td_json_begin_array(json, "errors");
    for (size_t i = 0; i < problems->count; i++) {
        const struct td_problem *problem = &problems->items[i];
        if (!td_description_room(description, strlen(problem->path) + strlen(problem->message)))
            return false;
        td_json_begin_object(json, NULL);
        td_json_add_string(json, "file", problem->path);
        td_json_add_string(json, "message", problem->message);
        td_json_end(json);
    }
    td_json_end(json);
    return true;
}

bool td_description_add_next_page(struct td_description *description, struct td_text listing, const char *last_id)
{
    struct td_buffer token;
    td_buffer_init(&token);
    if (last_id != NULL)
        td_page_token_write(&token, listing, td_text_of(last_id));
    bool ok = !token.failed || td_error_no_memory(&description->err);
    td_json_add_text(&description->json, "next_page_token", td_buffer_text(&token));
    td_buffer_fini(&token);
    return ok;
}
