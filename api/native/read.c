/* POST tensors:read: several tensors, or parts of them, in one answer. */
#include "api/call/checkpoint_choice.h"
#include "api/call/tensor_text.h"
#include "api/native/parameters.h"
#include "api/native/routes.h"
#include "core/json/json_document.h"
#include "rank/file_answer.h"
#include "rank/tensor_source.h"

#include <stdio.h>
#include <string.h>

/* Limits on the memory of the body's tree and lists. The tree of a body without faults takes at most 14 bytes for each
 * byte, the lists take 5 ({"name":""}, takes 166 and 55). The lists have a limit of their own, as in
 * slicing/plan_spec.c. */
enum { TREE_FREE_BYTES = 64 * 1024, TREE_PER_BYTE = 14, LISTS_FREE_BYTES = 1024, LISTS_PER_BYTE = 5 };

/* The request of a POST to tensors:read. */
struct batch {
    struct td_arena arena;
    struct td_plan_items items;
    bool has_items;
    const char *manifest; /* the tag of the manifest that the request is bound to, or NULL */
    enum { NOT_GIVEN, RAW, SAFETENSORS } format;
};

static bool read_batch_format(const struct td_json_document *document, const cJSON *item, struct batch *batch)
{
    if (batch->format != NOT_GIVEN)
        return td_json_document_fail_key(document, item, "\"format\" is given twice");
    if (!td_json_item_is_string(item))
        return td_json_document_fail(document, item, "the format, a string, expected");
    struct td_text spelled = td_json_document_spelled(document, item);
    const char *text = spelled.len < 32 ? td_json_document_string(document, item) : NULL;
    if (text != NULL && strcmp(text, "raw") == 0)
        batch->format = RAW;
    if (text != NULL && strcmp(text, "safetensors") == 0)
        batch->format = SAFETENSORS;
    return batch->format != NOT_GIVEN ||
           td_json_document_fail(document, item, "\"format\" is \"raw\" or \"safetensors\"");
}

static bool read_batch_manifest(const struct td_json_document *document, const cJSON *item, struct batch *batch)
{
    if (batch->manifest != NULL)
        return td_json_document_fail_key(document, item, "\"manifest\" is given twice");
    if (!td_json_item_is_string(item))
        return td_json_document_fail(document, item, "the manifest's tag, a string, expected");
    batch->manifest = td_json_document_string(document, item);
    return batch->manifest != NULL;
}

static bool read_batch_member(const struct td_json_document *document, const cJSON *item, struct batch *batch,
                              struct td_error *err)
{
    if (strcmp(item->string, "format") == 0)
        return read_batch_format(document, item, batch);
    if (strcmp(item->string, "manifest") == 0)
        return read_batch_manifest(document, item, batch);
    if (strcmp(item->string, "tensors") != 0)
        return td_json_document_unknown_key(document, item, "the keys are \"tensors\", \"format\" and \"manifest\"");
    if (batch->has_items)
        return td_json_document_fail_key(document, item, "\"tensors\" is given twice");
    batch->has_items = true;
    return td_plan_items_read(document, item, &batch->arena, &batch->items, err);
}

/* Reads {"tensors": [{"name", "slice"?, "as"?}...], "format"?, "manifest"?}. */
static bool read_batch(const struct td_call *call, struct batch *batch, struct td_error *err)
{
    struct td_text body = call->request->body;
    struct td_json_document document;
    td_json_document_read(&document, td_text_n(body.p == NULL ? "" : body.p, body.len), &batch->arena, err);
    batch->arena.limit_bytes = batch->arena.used_bytes + LISTS_FREE_BYTES + LISTS_PER_BYTE * body.len;
    const cJSON *root = td_json_document_object(&document, "an object with \"tensors\" and \"format\"");
    if (root == NULL)
        return false;
    for (const cJSON *item = root->child; item != NULL; item = item->next)
        if (!read_batch_member(&document, item, batch, err))
            return false;
    if (!td_json_document_end(&document))
        return false;
    return batch->has_items || td_error_at(err, TD_INVALID_ARGUMENT, body.len, "\"tensors\" is missing");
}

/* Gives the results their names. Bare bytes have no names, so a tensor may be read twice. */
static bool name_results(struct batch *batch, struct td_error *err)
{
    struct td_plan_item *items = td_arena_array(&batch->arena, batch->items.count, sizeof *items);
    char name[24];
    if (items == NULL)
        return td_arena_refuse(&batch->arena, "a list of tensors", err);
    for (size_t i = 0; i < batch->items.count; i++) {
        int len = snprintf(name, sizeof name, "%zu", i);
        items[i] = batch->items.items[i];
        items[i].as = td_arena_strndup(&batch->arena, td_text_n(name, (size_t)len));
        if (items[i].as == NULL)
            return td_arena_refuse(&batch->arena, "a list of tensors", err);
    }
    batch->items.items = items;
    return true;
}

/* Notes the results of the plan for call->results, under the names that the items give them. */
static bool note_results(const struct td_call *call, const struct td_plan_item *items, const struct td_plan *plan,
                         struct td_error *err)
{
    struct td_read_results *results = call->results;
    static const char what[] = "the list of results";
    if (results == NULL)
        return true;
    results->facts = td_arena_array(&results->arena, plan->output_count, sizeof *results->facts);
    if (results->facts == NULL)
        return td_arena_refuse(&results->arena, what, err);
    for (size_t i = 0; i < plan->output_count; i++) {
        const struct td_plan_output *output = &plan->outputs[i];
        const char *name = items[i].as != NULL ? items[i].as : items[i].name;
        const size_t len = strlen(name);
        char *copy = td_arena_strndup(&results->arena, td_text_n(name, len));
        uint64_t *shape = td_arena_array(&results->arena, output->rank + (size_t)1, sizeof *shape);
        if (copy == NULL || shape == NULL)
            return td_arena_refuse(&results->arena, what, err);
        if (output->rank > 0)
            memcpy(shape, output->shape, output->rank * sizeof *shape);
        results->facts[results->count++] = (struct td_tensor_facts){.name = td_text_n(copy, len),
                                                                    .dtype = output->dtype,
                                                                    .shape = shape,
                                                                    .rank = output->rank,
                                                                    .nbytes = output->nbytes};
    }
    return true;
}

static void answer_batch(const struct td_call *call, const struct td_checkpoint *checkpoint, struct batch *batch)
{
    static const struct td_rank_metadata metadata[] = {{"format", "pt"}};
    struct td_tensor_list tensors = td_checkpoint_tensors(checkpoint);
    struct td_budget *budget = &call->api->ranks.live;
    struct td_plan plan = {0};
    struct td_rank_file *file = NULL;
    struct td_error err = TD_ERROR_INIT;
    bool is_raw = batch->format != SAFETENSORS;
    const struct td_plan_item *asked = batch->items.items;
    bool ok = td_note_read(call->api->catalog, call->snapshot, call->model->id, call->response, &err) &&
              (!is_raw || name_results(batch, &err)) &&
              td_plan_from_items(batch->items.items, batch->items.count, &tensors, budget, &plan, &err) &&
              note_results(call, asked, &plan, &err) &&
              td_rank_file_create(&plan, &tensors, metadata, 1, !is_raw, budget, &file, &err) &&
              td_rank_file_append(call->api->catalog, call->snapshot, checkpoint, file, call->request->cancel,
                                  &call->response->body, &err);
    size_t planned_bytes =
        ok ? plan.arena.used_bytes : TD_RANK_TRIM_BYTES; /* a failed plan may have freed a part already */
    td_plan_fini(&plan);
    td_rank_store_trim(planned_bytes);
    td_rank_file_unref(file);
    if (!ok) {
        td_response_fail_error(call->response, &err);
        return;
    }
    call->response->content_type = "application/octet-stream";
    call->response->cache_control = "no-cache";
}

void td_handle_read(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", NULL};
    struct batch batch = {.format = NOT_GIVEN};
    struct td_error err = TD_ERROR_INIT;
    const struct td_checkpoint *checkpoint = NULL;
    td_arena_init_budget(&batch.arena, TREE_FREE_BYTES + TREE_PER_BYTE * call->request->body.len,
                         &call->api->ranks.live);
    if (td_call_check_parameters(call, known) && (checkpoint = td_checkpoint_parameter(call)) != NULL) {
        if (!read_batch(call, &batch, &err))
            td_call_fail_json(call, &err);
        else if (td_native_check_manifest(call, checkpoint, batch.manifest))
            answer_batch(call, checkpoint, &batch);
    }
    td_arena_fini(&batch.arena);
}
