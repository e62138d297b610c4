/* Plans that clients register: POST plans, and GET plans/{plan}. */
#include "api/call/checkpoint_choice.h"
#include "api/call/shown_model.h"
#include "api/native/parameters.h"
#include "api/native/ranks.h"
#include "api/native/routes.h"

#include "core/json/json_canonical.h"
#include "core/thread.h"
#include "rank/rank_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The plan that is being written. */
struct written {
    const struct td_call *call;
    const struct td_rank_set *set;
    struct td_document *json;
};

/* For td_rank_list_make: adds a rank. */
static bool add_rank(void *context, uint64_t rank, const struct td_rank_file *file, const char *tag,
                     struct td_error *err)
{
    const struct written *written = context;
    struct td_document *json = written->json;
    td_document_begin_object(json, NULL);
    td_document_add_u64(json, "rank", rank);
    td_rank_json_add_href(written->call, written->set, rank, json);
    td_document_add_u64(json, "nbytes", file->nbytes);
    td_document_add_string(json, "etag", tag);
    td_document_end(json);
    return !json->out->failed || td_buffer_refuse(json->out, err);
}

/* Adds the client's rules that match no tensor. Leaves out an engine's rules, which are for many models. */
static void add_unused_rules(const struct td_rank_maker *maker, struct td_document *json)
{
    const struct td_plan_match *match = &maker->basis.match;
    size_t count = maker->set->name.by_engine ? 0 : match->unused_count;
    td_document_begin_array(json, "unused_rules");
    for (size_t i = 0; i < count; i++)
        td_document_add_u64(json, NULL, match->unused[i]);
    td_document_end(json);
}

/* Adds "outputs" and "dropped" of rank 0, and "unused_rules". A plan of boxes has none of these. */
static bool add_outputs(struct td_rank_maker *maker, struct td_document *json, struct td_error *err)
{
    struct td_plan plan;
    if (maker->set->name.is_boxes)
        return true;
    bool ok = td_rank_maker_plan(maker, 0, &plan, err);
    if (ok) {
        td_rank_json_add_outputs(&plan, json);
        add_unused_rules(maker, json);
    }
    td_plan_fini(&plan);
    return ok;
}

static bool is_over(void *context)
{
    return td_call_over(context);
}

/* Plans every rank, and adds them as "ranks". */
static bool add_ranks(const struct td_call *call, struct td_rank_maker *maker, struct td_document *json,
                      struct td_error *err)
{
    struct written written = {.call = call, .set = maker->set, .json = json};
    const struct td_cancel over = {.is_asked = is_over, .context = (void *)(uintptr_t)call};
    td_document_begin_array(json, "ranks");
    if (!td_rank_list_make(maker, &over, add_rank, &written, err))
        return false;
    td_document_end(json);
    return true;
}

struct planning {
    const struct td_call *call;
    const struct td_rank_set *set;
};

/* Writes {"id", "model", "checkpoint", "tp_size", "outputs", "dropped", "unused_rules", "ranks"}; for boxes without
 * "outputs", "dropped" and "unused_rules". */
static void write_plan(void *argument)
{
    const struct planning *planning = argument;
    const struct td_call *call = planning->call;
    const struct td_rank_set *set = planning->set;
    struct td_rank_maker maker;
    struct td_buffer out;
    struct td_document json;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init_budget(&out, &call->api->ranks.live);
    td_call_begin_document(call, &json, &out);
    td_rank_maker_init(&maker, &call->api->ranks, set);
    td_document_add_text(&json, "id", set->name.id);
    td_shown_model_add(call, set->model, &json);
    td_document_add_string(&json, "checkpoint", set->checkpoint->id);
    td_document_add_u64(&json, "tp_size", set->name.tp_size);
    bool ok = add_outputs(&maker, &json, &err) && add_ranks(call, &maker, &json, &err);
    td_call_end_document(call, &json);
    if (ok)
        td_native_answer_plan_json(call, &out);
    else
        td_response_fail_error(call->response, &err);
    call->response->planning_ns = maker.planning_ns;
    td_rank_maker_fini(&maker);
    td_buffer_fini(&out);
}

/* Answers 200 with the plan. */
static bool answer_plan(const struct td_call *call, const struct td_checkpoint *checkpoint,
                        const struct td_rank_name *name, const struct td_plan_spec *spec)
{
    struct td_rank_set set = {
        .snapshot = call->snapshot, .model = call->model, .checkpoint = checkpoint, .name = *name, .spec = spec};
    struct td_error err = TD_ERROR_INIT;
    if (!td_rank_list_check(&set, &err) ||
        !td_run_in_background(write_plan, &(struct planning){.call = call, .set = &set}, &err))
        td_response_fail_error(call->response, &err);
    return call->response->status == 200;
}

/* Stores the text under its id. `manifest`: the tag of the checkpoint's manifest, which td_native_check_manifest has
 * checked, or NULL. Sets *is_new when the id was unknown. */
static bool store_plan(const struct td_call *call, const struct td_buffer *text, const struct td_rank_name *name,
                       const char *manifest, bool *is_new)
{
    char key[TD_PLAN_KEY_BYTES];
    struct td_stored_plan *plan = td_native_plan_key(call, name->id, key) ? malloc(sizeof *plan + text->len) : NULL;
    if (plan == NULL)
        return td_call_no_memory(call);
    atomic_init(&plan->refs, 1);
    plan->tp_size = name->tp_size;
    plan->by_engine = name->by_engine;
    plan->by_config = name->by_config;
    plan->stands_for = name->stands_for;
    plan->is_boxes = name->is_boxes;
    (void)snprintf(plan->manifest, sizeof plan->manifest, "%s", manifest == NULL ? "" : manifest);
    plan->len = text->len;
    memcpy(plan->text, text->data, text->len);
    *is_new = td_lru_put(&call->api->plans, key, plan, sizeof *plan + text->len);
    td_stored_plan_unref(plan);
    return true;
}

/* Adds the plan's location, relative to the request's path, since ids of models may be long. */
static void add_location(const struct td_call *call, const char *id)
{
    struct td_buffer location;
    const struct td_shown_model shown = td_shown_model_of(call, call->model);
    td_buffer_init(&location);
    td_buffer_printf(&location, "plans/%s", id);
    (void)td_shown_model_write_query(&shown, "?", &location);
    if (location.failed)
        (void)td_call_no_memory(call);
    else
        td_response_add_header_text(call->response, "Location", td_buffer_text(&location));
    td_buffer_fini(&location);
}

/* The id is a digest of the plan's canonical text, so a plan has one id in whatever order and with whatever blanks it
 * is written.
 */
static void register_plan(const struct td_call *call, const struct td_buffer *text, struct td_plan_spec *spec)
{
    char id[TD_TAG_BYTES];
    bool is_new = false;
    if (spec->engine != NULL && !td_engine_exists(td_text_of(spec->engine))) {
        td_native_fail_engine(call, td_text_of(spec->engine));
        return;
    }
    if (!td_digest_tag(text->data, text->len, id)) {
        (void)td_call_no_memory(call);
        return;
    }
    struct td_rank_name name = {.id = {.p = id, .len = strlen(id)},
                                .tp_size = spec->tp_size,
                                .by_engine = spec->engine != NULL,
                                .is_boxes = spec->boxes != NULL};
    if (name.by_engine) {
        struct td_text engine = td_text_of(spec->engine);
        const char *own = td_engine_own_name(engine);
        name.by_config = td_engine_needs_config(engine);
        if (!td_text_equals(engine, own))
            name.stands_for = td_text_of(own);
    }
    const struct td_checkpoint *checkpoint = td_checkpoint_parameter(call);
    if (checkpoint == NULL || !td_native_check_manifest(call, checkpoint, spec->manifest) ||
        !answer_plan(call, checkpoint, &name, spec) || !store_plan(call, text, &name, spec->manifest, &is_new))
        return;
    if (is_new) {
        call->response->status = 201;
        add_location(call, id);
    }
}

void td_handle_plans(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", NULL};
    struct td_plan_spec spec = {0};
    struct td_buffer text;
    struct td_error err = TD_ERROR_INIT;
    struct td_text body = call->request->body;
    if (!td_call_check_parameters(call, known))
        return;
    td_buffer_init(&text);
    if (td_plan_spec_parse(&spec, td_text_n(body.p == NULL ? "" : body.p, body.len), &call->api->ranks.live, &err) &&
        td_json_canonical(body, &text, &err))
        register_plan(call, &text, &spec);
    else
        td_call_fail_json(call, &err);
    td_buffer_fini(&text);
    td_plan_spec_fini(&spec);
}

/* Answers with a registered plan, as at its registration. */
static void answer_stored(const struct td_call *call, const struct td_rank_name *name,
                          const struct td_stored_plan *stored)
{
    struct td_rank_set set = {.name = *name};
    struct td_plan_spec spec = {0};
    struct td_error err = TD_ERROR_INIT;
    const struct td_checkpoint *checkpoint = td_checkpoint_parameter(call);
    if (checkpoint == NULL || !td_native_check_manifest(call, checkpoint, td_stored_plan_manifest(stored)))
        return;
    td_stored_plan_describe(stored, &set);
    if (td_plan_spec_parse(&spec, set.plan, &call->api->ranks.live, &err))
        (void)answer_plan(call, checkpoint, &set.name, &spec);
    else
        td_response_fail_error(call->response, &err);
    td_plan_spec_fini(&spec);
}

/* Answers plans/{plan} and plans/{plan}/{file}. */
void td_handle_plan(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", NULL};
    static const char *const known_of_file[] = {"checkpoint", "digests", NULL};
    struct td_text rest = call->rest;
    struct td_rank_name name = {.id = td_text_take_until(&rest, '/')};
    if (!td_call_check_parameters(call, rest.len > 0 ? known_of_file : known))
        return;
    if (rest.len > 0) {
        td_native_answer_rank(call, &name, rest);
        return;
    }
    struct td_stored_plan *stored = td_native_find_plan(call, name.id);
    if (stored != NULL)
        answer_stored(call, &name, stored);
    td_stored_plan_unref(stored);
}
