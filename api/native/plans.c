/* Plans that clients register: POST plans, and GET plans/{plan}. */
#include "api/call/checkpoint_choice.h"
#include "api/call/shown_model.h"
#include "api/native/parameters.h"
#include "api/native/ranks.h"
#include "api/native/routes.h"

#include "core/clock.h"
#include "core/json/json_canonical.h"
#include "core/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* tensors times ranks of one plan: they are planned when it is registered */
    PLAN_WORK_MAX = 4 * 1000 * 1000
};

/* A limit on the time for planning all ranks of a plan; most plans take milliseconds. */
enum { PLANNING_S = 10 };

/* Writes the path of a rank's file, or of the boxes, relative to the server. */
static void write_href(const struct td_shown_model *shown, const struct td_rank_set *set, uint64_t rank,
                       struct td_buffer *out)
{
    td_buffer_puts(out, "/models/");
    td_uri_encode(out, td_text_of(shown->id), true);
    td_buffer_printf(out, "/plans/%.*s/", (int)set->name.id.len, set->name.id.p);
    if (set->name.is_boxes)
        td_buffer_puts(out, "boxes.bin");
    else
        td_buffer_printf(out, "rank-%" PRIu64 ".safetensors", rank);
    const char *separator = td_shown_model_write_query(shown, "?", out);
    if (set->checkpoint != &set->model->checkpoints[0]) {
        td_buffer_printf(out, "%scheckpoint=", separator);
        td_uri_encode(out, td_text_of(set->checkpoint->id), false);
    }
}

static bool add_rank(const struct td_call *call, const struct td_rank_set *set, uint64_t rank,
                     const struct td_rank_file *file, const char *tag, struct td_json_builder *json,
                     struct td_error *err)
{
    struct td_buffer href;
    const struct td_shown_model shown = td_shown_model_of(call, set->model);
    td_buffer_init(&href);
    write_href(&shown, set, rank, &href);
    bool ok = !href.failed || td_error_no_memory(err);
    td_json_begin_object(json, NULL);
    td_json_add_u64(json, "rank", rank);
    td_json_add_text(json, "href", td_buffer_text(&href));
    td_json_add_u64(json, "nbytes", file->nbytes);
    td_json_add_string(json, "etag", tag);
    td_json_end(json);
    td_json_flush(json);
    td_buffer_fini(&href);
    return ok && (!json->out->failed || td_buffer_refuse(json->out, err));
}

/* Adds the client's rules that match no tensor. Leaves out an engine's rules, which are for many models. */
static void add_unused_rules(const struct td_rank_maker *maker, struct td_json_builder *json)
{
    const struct td_plan_match *match = &maker->basis.match;
    size_t count = maker->set->name.by_engine ? 0 : match->unused_count;
    td_json_begin_array(json, "unused_rules");
    for (size_t i = 0; i < count; i++)
        td_json_add_u64(json, NULL, match->unused[i]);
    td_json_end(json);
}

/* Adds "outputs" and "dropped" of rank 0, and "unused_rules". A plan of boxes has none of these. */
static bool add_outputs(struct td_rank_maker *maker, struct td_json_builder *json, struct td_error *err)
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

/* Plans every rank, and adds them as "ranks". */
static bool add_ranks(const struct td_call *call, struct td_rank_maker *maker, struct td_json_builder *json,
                      struct td_error *err)
{
    uint64_t until_ns = td_clock_ns() + PLANNING_S * TD_NS_PER_S;
    uint64_t tp_size = maker->set->name.tp_size;
    td_json_begin_array(json, "ranks");
    for (uint64_t rank = 0; rank < tp_size; rank++) {
        struct td_rank_file *file = NULL;
        char tag[TD_TAG_BYTES] = "";
        if (atomic_load(&call->api->draining))
            return td_error_set(err, TD_RESOURCE_EXHAUSTED, "the server is shutting down");
        if (td_clock_ns() > until_ns)
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "planning %" PRIu64 " ranks takes more than %d s; use fewer or simpler rules", tp_size,
                                PLANNING_S);
        if (!td_rank_maker_get(maker, rank, &file, tag, err))
            return false;
        bool ok = add_rank(call, maker->set, rank, file, tag, json, err);
        td_rank_file_unref(file);
        if (!ok)
            return false;
    }
    td_json_end(json);
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
    struct td_json_builder json;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init_budget(&out, &call->api->ranks.live);
    td_json_builder_init(&json, &out);
    td_rank_maker_init(&maker, &call->api->ranks, set);
    td_json_begin_object(&json, NULL);
    td_json_add_text(&json, "id", set->name.id);
    td_shown_model_add(call, set->model, &json);
    td_json_add_string(&json, "checkpoint", set->checkpoint->id);
    td_json_add_u64(&json, "tp_size", set->name.tp_size);
    bool ok = add_outputs(&maker, &json, &err) && add_ranks(call, &maker, &json, &err);
    td_json_end(&json);
    td_json_builder_fini(&json);
    td_buffer_putc(&out, '\n');
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
    if (!name->is_boxes && set.checkpoint->tensor_count > PLAN_WORK_MAX / name->tp_size) {
        td_response_fail(call->response, 422, NULL,
                         "a plan of %zu tensors for %" PRIu64 " ranks is too much at once; %d tensors times ranks "
                         "are the most",
                         set.checkpoint->tensor_count, name->tp_size, PLAN_WORK_MAX);
        return false;
    }
    struct td_error err = TD_ERROR_INIT;
    if (!td_run_in_background(write_plan, &(struct planning){.call = call, .set = &set}, &err))
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
