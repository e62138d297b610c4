/* The files of tensor-parallel ranks, for an engine or for a registered plan. */
#include "api/native/ranks.h"
#include "api/call/checkpoint_choice.h"

#include "api/call/hash_wait.h"
#include "api/call/shown_model.h"
#include "api/call/tensor_text.h"
#include "api/native/parameters.h"
#include "api/native/routes.h"
#include "core/digits.h"
#include "rank/file_answer.h"
#include "rank/tensor_source.h"
#include "slicing/runs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- descriptions -------------------------------------------------------------------------------------- */

/* Adds name, dtype, shape and nbytes. */
static void add_output(struct td_document *json, const struct td_plan_output *output)
{
    td_tensor_add_facts(json, &(struct td_tensor_facts){.name = td_text_of(output->name),
                                                        .dtype = output->dtype,
                                                        .shape = output->shape,
                                                        .rank = output->rank,
                                                        .nbytes = output->nbytes});
}

static void add_dropped(struct td_document *json, const struct td_plan *plan)
{
    td_document_begin_array(json, "dropped");
    for (size_t i = 0; i < plan->dropped_count; i++) {
        td_document_add_string(json, NULL, plan->dropped[i]);
    }
    td_document_end(json);
}

void td_rank_json_add_href(const struct td_call *call, const struct td_rank_set *set, uint64_t rank,
                           struct td_document *json)
{
    const struct td_shown_model shown = td_shown_model_of(call, set->model);
    const struct td_rank_name *name = &set->name;
    struct td_buffer *out = json->out;
    if (!td_document_begin_text(json, "href")) /* percent-encoded: nothing to escape */
        return;
    td_shown_model_write_path(&shown, name->engine.len > 0 ? "shards/" : "plans/", out);
    if (name->engine.len > 0)
        td_buffer_printf(out, "%.*s/tp%" PRIu64 "/", (int)name->engine.len, name->engine.p, name->tp_size);
    else
        td_buffer_printf(out, "%.*s/", (int)name->id.len, name->id.p);
    if (name->is_boxes)
        td_buffer_puts(out, "boxes.bin");
    else
        td_buffer_printf(out, "rank-%" PRIu64 ".safetensors", rank);
    (void)td_checkpoint_write_query(out, "?", &shown, set->model, set->checkpoint);
    td_document_end_text(json);
}

void td_rank_json_add_outputs(const struct td_plan *plan, struct td_document *json)
{
    td_document_begin_array(json, "outputs");
    for (size_t i = 0; i < plan->output_count; i++) {
        td_document_begin_object(json, NULL);
        add_output(json, &plan->outputs[i]);
        td_document_end(json);
    }
    td_document_end(json);
    add_dropped(json, plan);
}

/* Adds where a run begins: in a file, or, when the tensor's bytes are not one run of a file, in those bytes in
 * row-major order. */
static void add_place(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct td_run *run,
                      struct td_document *json)
{
    struct td_tensor_ref ref = td_checkpoint_tensor(checkpoint, run->source - TD_RANK_SOURCE_TENSOR);
    bool in_file = td_tensor_access(ref.tensor) == TD_ACCESS_DIRECT;
    if (in_file)
        td_document_add_string(json, "file", td_model_relative(call->model, checkpoint->parts[ref.part]));
    else
        td_document_add_text(json, "tensor", td_tensor_name(ref.tensor));
    td_document_add_u64(json, "offset", run->off + (in_file ? ref.tensor->offset : 0));
    td_document_add_u64(json, "length", run->len);
}

/* Adds a run of a block. The run recurs `rounds` times by itself, or, when the runs of the block take turns, once in
 * each round, `step` bytes further. */
static void add_run(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct td_run *run,
                    uint64_t rounds, bool turns, struct td_document *json)
{
    bool nested = run->count > 1 && rounds > 1;
    uint64_t count = run->count > 1 ? run->count : rounds;
    td_document_begin_object(json, NULL);
    if (run->source == TD_RUN_ZEROS) {
        td_document_add_u64(json, "zeros", run->len * run->count * rounds);
        td_document_end(json);
        return;
    }
    add_place(call, checkpoint, run, json);
    if (count > 1) {
        td_document_add_u64(json, "count", count);
        td_document_add_u64(json, "stride", run->count > 1 ? run->stride : run->step);
    }
    if (nested) {
        td_document_add_u64(json, "count2", rounds);
        td_document_add_u64(json, "stride2", run->step);
    }
    if (turns)
        td_document_add_u64(json, "step", run->step);
    td_document_end(json);
}

static void add_block(const struct td_call *call, const struct td_checkpoint *checkpoint,
                      const struct td_layout *layout, const struct td_block *block, struct td_document *json)
{
    const struct td_run *runs = &layout->runs[block->first_run];
    bool turns = block->run_count > 1 && block->rounds > 1;
    if (turns) {
        td_document_begin_object(json, NULL);
        td_document_add_u64(json, "repeat", block->rounds);
        td_document_begin_array(json, "extents");
    }
    for (size_t i = 0; i < block->run_count; i++) {
        add_run(call, checkpoint, &runs[i], turns ? 1 : block->rounds, turns, json);
    }
    if (turns) {
        td_document_end(json);
        td_document_end(json);
    }
}

/* Adds the only extent of a constant: its value, since no file holds its bytes. */
static void add_constant(const struct td_plan_output *output, struct td_document *json)
{
    td_document_begin_array(json, "extents");
    td_document_begin_object(json, NULL);
    td_document_add_real(json, "constant", (double)output->constant, true);
    td_document_end(json);
    td_document_end(json);
}

/* Returns the layout of a result alone, with one reference for the caller, or NULL; not for a constant. Errors as
 * td_layout_create and td_layout_append_output. */
static struct td_layout *lay_out(const struct td_checkpoint *checkpoint, const struct td_plan *plan,
                                 const struct td_plan_output *output, struct td_budget *budget, struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(checkpoint);
    struct td_layout *layout = td_layout_create(budget, err);
    if (layout != NULL && !td_layout_append_output(layout, TD_RANK_SOURCE_TENSOR, plan, output, &tensors, err)) {
        td_layout_unref(layout);
        return NULL;
    }
    return layout;
}

static bool add_extents(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct td_plan *plan,
                        const struct td_plan_output *output, struct td_document *json, struct td_error *err)
{
    if (output->is_constant) {
        add_constant(output, json);
        return true;
    }
    struct td_layout *layout = lay_out(checkpoint, plan, output, json->out->budget, err);
    if (layout == NULL)
        return false;
    td_document_begin_array(json, "extents");
    for (size_t i = 0; i < layout->block_count; i++)
        add_block(call, checkpoint, layout, &layout->blocks[i], json);
    td_document_end(json);
    td_layout_unref(layout);
    return true;
}

/* Adds the plan's results to an empty set, in their order. Errors as lay_out and td_tensor_sums_add_result. */
static bool collect_results(const struct td_checkpoint *checkpoint, const struct td_plan *plan,
                            struct td_budget *budget, struct td_tensor_sums *sums, struct td_error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < plan->output_count; i++) {
        const struct td_plan_output *output = &plan->outputs[i];
        struct td_layout *layout = output->is_constant ? NULL : lay_out(checkpoint, plan, output, budget, err);
        ok = (layout != NULL || output->is_constant) && td_tensor_sums_add_result(sums, output, layout, err);
        td_layout_unref(layout);
    }
    return ok;
}

/* Appends {"model","checkpoint","engine","tp_size","tp_rank","nbytes","header_bytes","etag","href","tensors":[{"name",
 * "dtype","shape","nbytes","extents":[...]}],"dropped":[...]}; api/openapi.yaml describes the extents. sums: the
 * digests of the results, in their order, which become "sha256"; NULL: none are shown. Errors as
 * td_layout_append_output. */
static bool write_rank_json(const struct td_call *call, const struct td_rank_set *set, const struct td_rank_file *file,
                            const struct td_plan *plan, const char *tag, const struct td_tensor_sums *sums,
                            struct td_buffer *out, struct td_error *err)
{
    const struct td_checkpoint *checkpoint = set->checkpoint;
    struct td_document json;
    bool ok = true;
    td_call_begin_document(call, &json, out);
    td_shown_model_add(call, call->model, &json);
    td_document_add_string(&json, "checkpoint", checkpoint->id);
    td_document_add_text(&json, "engine", set->name.engine.len > 0 ? set->name.engine : TD_TEXT("plan"));
    td_document_add_u64(&json, "tp_size", plan->tp_size);
    td_document_add_u64(&json, "tp_rank", plan->tp_rank);
    td_document_add_u64(&json, "nbytes", file->nbytes);
    td_document_add_u64(&json, "header_bytes", file->header_bytes);
    td_document_add_string(&json, "etag", tag);
    td_rank_json_add_href(call, set, plan->tp_rank, &json);
    td_document_begin_array(&json, "tensors");
    for (size_t i = 0; ok && i < plan->output_count; i++) {
        td_document_begin_object(&json, NULL);
        add_output(&json, &plan->outputs[i]);
        if (sums != NULL)
            td_tensor_add_sha256(&json, sums->items[i].sum);
        ok = add_extents(call, checkpoint, plan, &plan->outputs[i], &json, err);
        td_document_end(&json);
    }
    td_document_end(&json);
    add_dropped(&json, plan);
    td_call_end_document(call, &json);
    return ok && (!out->failed || td_buffer_refuse(out, err));
}

/* ---- answers ------------------------------------------------------------------------------------------- */

enum { SHOWN_BYTES = 200 };

void td_native_answer_plan_json(const struct td_call *call, struct td_buffer *json)
{
    struct td_error err = TD_ERROR_INIT;
    if (!json->failed) {
        td_response_set_json_from(call->response, json, json->budget);
        return;
    }
    (void)td_buffer_refuse(json, &err);
    td_response_fail_error(call->response, &err);
}

void td_native_fail_engine(const struct td_call *call, struct td_text engine)
{
    const char *known[TD_ENGINE_NAME_COUNT + 1] = {NULL};
    struct td_error err = TD_ERROR_INIT;
    for (size_t i = 0; i < TD_ENGINE_NAME_COUNT; i++)
        known[i] = td_engine_name(i);
    (void)td_engine_not_found(engine, &err);
    td_call_fail_known(call, 404, known, "%s", err.message);
}

bool td_native_plan_key(const struct td_call *call, struct td_text id, char key[TD_PLAN_KEY_BYTES])
{
    char model[TD_TAG_BYTES] = "";
    if (id.len >= TD_TAG_BYTES)
        return false;
    bool ok = call->caller.kind == TD_CALLER_OPEN || td_digest_tag(call->model->id, strlen(call->model->id), model);
    (void)snprintf(key, TD_PLAN_KEY_BYTES, "%.*s%s%s", (int)id.len, id.p, model[0] == '\0' ? "" : "@", model);
    return ok;
}

struct td_stored_plan *td_native_find_plan(const struct td_call *call, struct td_text name)
{
    char key[TD_PLAN_KEY_BYTES];
    struct td_stored_plan *stored = td_native_plan_key(call, name, key) ? td_lru_get(&call->api->plans, key) : NULL;
    if (stored == NULL)
        td_response_fail(call->response, 404, NULL,
                         "no plan \"%.*s\" is known (any more): register it again, POST /models/%s/plans",
                         TD_SHOW(name, 64), call->model->id);
    return stored;
}

static void describe_file(const struct td_call *call, const struct td_rank_set *set, const struct td_rank_file *file,
                          const struct td_plan *plan, const char *tag, const struct td_tensor_sums *sums)
{
    struct td_buffer json;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init_budget(&json, &call->api->ranks.live);
    if (write_rank_json(call, set, file, plan, tag, sums, &json, &err))
        td_native_answer_plan_json(call, &json);
    else
        td_response_fail_error(call->response, &err);
    td_buffer_fini(&json);
}

/* The file that a path names. */
struct wanted {
    uint64_t rank;
    bool as_json, as_boxes;
    bool with_digests; /* of the tensors; with as_json alone */
};

/* Answers with the rank's file, or with its description as JSON, which has these digests; sums NULL: none. */
static void answer_file(const struct td_call *call, const struct td_rank_set *set, const struct wanted *wanted,
                        const struct td_tensor_sums *sums)
{
    const uint64_t rank = wanted->rank;
    struct td_rank_maker maker;
    struct td_rank_file *file = NULL;
    struct td_plan plan = {0};
    char tag[TD_TAG_BYTES];
    struct td_error err = TD_ERROR_INIT;
    td_rank_maker_init(&maker, &call->api->ranks, set);
    bool ok = td_rank_maker_get(&maker, rank, &file, tag, &err) &&
              (wanted->as_json ? td_rank_maker_plan(&maker, rank, &plan, &err)
                               : td_rank_file_answer(&call->api->ranks, set, rank, file, tag, call->response, &err));
    if (!ok)
        td_response_fail_error(call->response, &err);
    else if (wanted->as_json)
        describe_file(call, set, file, &plan, tag, sums);
    call->response->planning_ns += maker.planning_ns;
    td_plan_fini(&plan);
    td_rank_maker_fini(&maker);
    td_rank_file_unref(file);
}

/* Makes the rank's file, which the caller drops, and the set of its results in *sums, which td_tensor_sums_fini frees
 * in every case. Returns false after it answered an error. */
static bool collect_file(const struct td_call *call, const struct td_rank_set *set, uint64_t rank,
                         struct td_rank_file **file, struct td_tensor_sums *sums)
{
    struct td_rank_maker maker;
    struct td_plan plan = {0};
    char tag[TD_TAG_BYTES];
    struct td_error err = TD_ERROR_INIT;
    td_rank_maker_init(&maker, &call->api->ranks, set);
    bool ok = td_rank_maker_get(&maker, rank, file, tag, &err) && td_rank_maker_plan(&maker, rank, &plan, &err);
    td_digests_init(call, sums, set->model, set->checkpoint, *file);
    ok = ok && collect_results(set->checkpoint, &plan, &call->api->ranks.live, sums, &err);
    if (!ok)
        td_response_fail_error(call->response, &err);
    call->response->planning_ns += maker.planning_ns;
    td_plan_fini(&plan);
    td_rank_maker_fini(&maker);
    return ok;
}

/* Answers with the description of the rank's file and the digests of its tensors. Plans the file twice, because a
 * request that waits for digests must not keep others from planning. */
static void answer_with_digests(const struct td_call *call, const struct td_rank_set *set, const struct wanted *wanted)
{
    struct td_rank_file *file = NULL;
    struct td_tensor_sums sums;
    struct td_tensor_sums *const sets[] = {&sums};
    if (collect_file(call, set, wanted->rank, &file, &sums) && td_digests_wait(call, sets, 1))
        answer_file(call, set, wanted, &sums);
    td_tensor_sums_fini(&sums);
    td_rank_file_unref(file);
}

/* Checks that the set has the file. Returns false after it answered an error. */
static bool check_wanted(const struct td_call *call, const struct td_rank_set *set, const struct wanted *wanted)
{
    const struct td_rank_name *name = &set->name;
    if (name->is_boxes && !wanted->as_boxes)
        td_response_fail(call->response, 404, NULL,
                         "plan \"%.*s\" is a list of boxes, which has the file boxes.bin alone", TD_SHOW(name->id, 64));
    else if (!name->is_boxes && wanted->as_boxes)
        td_response_fail(call->response, 404, NULL,
                         "boxes.bin is for plans that are lists of boxes; this one has rank-0.safetensors%s",
                         name->tp_size > 1 ? " and those of the other ranks" : "");
    else if (wanted->rank >= name->tp_size)
        td_response_fail(call->response, 404, NULL,
                         "rank %" PRIu64 " does not exist: with %" PRIu64 " rank%s, use 0 to %" PRIu64, wanted->rank,
                         name->tp_size, td_plural(name->tp_size), name->tp_size - 1);
    else
        return true;
    return false;
}

static void answer_rank(const struct td_call *call, const struct td_rank_name *name, const struct wanted *wanted)
{
    struct td_rank_set set = {.snapshot = call->snapshot, .model = call->model, .name = *name};
    struct td_stored_plan *stored = NULL;
    set.checkpoint = td_checkpoint_parameter(call);
    if (set.checkpoint == NULL || (name->engine.len == 0 && (stored = td_native_find_plan(call, name->id)) == NULL))
        return;
    if (stored != NULL)
        td_stored_plan_describe(stored, &set);
    if (check_wanted(call, &set, wanted) &&
        (stored == NULL || td_native_check_manifest(call, set.checkpoint, td_stored_plan_manifest(stored)))) {
        if (wanted->with_digests)
            answer_with_digests(call, &set, wanted);
        else
            answer_file(call, &set, wanted, NULL);
    }
    td_stored_plan_unref(stored);
}

/* Reads the name of a rank file. Returns false after it answered an error. */
static bool read_file_name(const struct td_call *call, bool is_plan, struct td_text text, struct wanted *out)
{
    *out = (struct wanted){.as_boxes = is_plan && td_text_equals(text, "boxes.bin")};
    if (out->as_boxes || td_rank_name_read_file(text, &out->rank, &out->as_json))
        return true;
    static const char known[] =
        "the files are rank-{r}.safetensors, rank-{r}.json and model-rank-{r}-part-0.safetensors";
    if (text.len == 0)
        td_response_fail(call->response, 404, NULL, "a rank's file is missing at the end of the path; %s", known);
    else
        td_response_fail(call->response, 404, NULL, "no file \"%.*s\"; %s", TD_SHOW(text, SHOWN_BYTES), known);
    return false;
}

void td_native_answer_rank(const struct td_call *call, const struct td_rank_name *name, struct td_text file_name)
{
    struct wanted wanted;
    bool with_digests;
    if (!read_file_name(call, name->engine.len == 0, file_name, &wanted) || !td_digests_parameter(call, &with_digests))
        return;
    wanted.with_digests = with_digests;
    if (with_digests && !wanted.as_json)
        td_response_fail(call->response, 400, NULL,
                         "digests is a parameter of rank-{r}.json, which describes the file");
    else
        answer_rank(call, name, &wanted);
}

static void fail_size(const struct td_call *call, struct td_text engine, struct td_text tp)
{
    char fault[128] = "the number of ranks is missing";
    if (tp.len > 0)
        (void)snprintf(fault, sizeof fault, "\"%.*s\" is not a valid number of ranks", TD_SHOW(tp, 64));
    td_response_fail(call->response, 400, NULL, "%s; tp1 to tp%d are right, as in shards/%.*s/tp2/rank-0.safetensors",
                     fault, TD_MAX_TP_SIZE, (int)engine.len, engine.p);
}

/* Answers shards/{engine}/tp{n}/{file}. */
void td_handle_rank_file(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", "digests", NULL};
    struct td_text rest = call->rest;
    struct td_text engine = td_text_take_until(&rest, '/');
    struct td_text tp = td_text_take_until(&rest, '/');
    struct td_rank_name name;
    if (!td_call_check_parameters(call, known))
        return;
    if (!td_rank_name_engine(engine, 0, &name))
        td_native_fail_engine(call, engine);
    else if (!td_rank_name_read_size(tp, &name.tp_size))
        fail_size(call, engine, tp);
    else
        td_native_answer_rank(call, &name, rest);
}

void td_handle_model_file(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", NULL};
    struct td_rank_name name;
    if (td_rank_name_engine(TD_TEXT("none"), 1, &name) && td_call_check_parameters(call, known))
        answer_rank(call, &name, &(struct wanted){0});
}
