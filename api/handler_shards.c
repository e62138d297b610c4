#include "api/handlers.h"
#include "api/shard_view.h"
#include "api/tensor_source.h"

#include "core/clock.h"
#include "core/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char octets[] = "application/octet-stream";

enum {
    /* tensors times ranks of one plan: they are planned when it is registered */
    PLAN_WORK_MAX = 4 * 1000 * 1000,
    SHOWN_BYTES = 200
};

/* All ranks of a plan have to be planned within this time, which is a bound, not an aim. */
#define PLANNING_NS UINT64_C(10000000000)

/* ---- specifications ------------------------------------------------------------------------------------ */

/* A plan by name: what stands in paths, and what has to be known of it before it is read. */
struct plan_name {
    struct td_text engine; /* empty: a registered plan */
    struct td_text id;     /* of a registered one */
    uint64_t tp_size;
    bool by_engine, by_config; /* an engine's rules make it; and config.json is asked for them */
};

/* A registered plan's text, shared, with what plan_name says of it. */
struct stored_plan {
    _Atomic int refs;
    uint64_t tp_size;
    bool by_engine, by_config;
    size_t len;
    char text[];
};

static void *stored_plan_ref(void *value)
{
    struct stored_plan *plan = value;
    atomic_fetch_add(&plan->refs, 1);
    return plan;
}

static void stored_plan_unref(void *value)
{
    struct stored_plan *plan = value;
    if (plan != NULL && atomic_fetch_sub(&plan->refs, 1) == 1)
        free(plan);
}

static void *file_ref(void *value)
{
    return td_shard_file_ref(value);
}

static void file_unref(void *value)
{
    td_shard_file_unref(value);
}

const struct td_lru_class td_plan_store_class = {.ref = stored_plan_ref, .unref = stored_plan_unref};
const struct td_lru_class td_shard_cache_class = {.ref = file_ref, .unref = file_unref};

/* The registered plan of this id, a reference for the caller; NULL: an error was answered. */
static struct stored_plan *find_stored(const struct td_call *call, struct td_text name)
{
    char id[TD_TAG_BYTES];
    struct stored_plan *stored = NULL;
    if (name.len < sizeof id) {
        memcpy(id, name.p, name.len);
        id[name.len] = '\0';
        stored = td_lru_get(&call->api->plans, id);
    }
    if (stored == NULL)
        td_response_fail(call->response, 404, NULL,
                         "no plan \"%.*s\" is known (any more): register it again, POST /models/%s/plans",
                         (int)(name.len > 64 ? 64 : name.len), name.p, call->model->id);
    return stored;
}

/* Reads a plan; *stored is NULL for an engine's. Fini in every case. */
static bool read_spec(const struct plan_name *name, const struct stored_plan *stored,
                      struct td_plan_spec *spec, struct td_error *err)
{
    return stored == NULL
               ? td_plan_spec_init_engine(spec, name->engine.p, name->engine.len, name->tp_size, err)
               : td_plan_spec_parse(spec, stored->text, stored->len, err);
}

/* Completes the name of a registered plan. */
static void describe(const struct stored_plan *stored, struct plan_name *name)
{
    name->tp_size = stored->tp_size;
    name->by_engine = stored->by_engine;
    name->by_config = stored->by_config;
}

/* ---- files --------------------------------------------------------------------------------------------- */

static bool make_file(const struct td_call *call, const struct td_checkpoint *checkpoint,
                      const struct plan_name *name, const struct td_plan_spec *spec, uint64_t rank,
                      struct td_shard_file **out, struct td_error *err)
{
    char id[TD_TAG_BYTES] = "";
    char size_text[24];
    char rank_text[24];
    char *config = NULL;
    size_t config_len = 0;
    struct td_plan plan = {0};
    struct td_tensor_list tensors = td_checkpoint_tensors(checkpoint);
    (void)snprintf(size_text, sizeof size_text, "%" PRIu64, spec->tp_size);
    (void)snprintf(rank_text, sizeof rank_text, "%" PRIu64, rank);
    memcpy(id, name->id.p == NULL ? "" : name->id.p, name->id.len);
    const struct td_shard_metadata metadata[] = {
        {"format", "pt"},
        {"model", call->model->id},
        {"engine", name->id.len > 0 ? "plan" : spec->engine},
        {"tp_size", size_text},
        {"tp_rank", rank_text},
        {"plan", id},
    };
    size_t metadata_count = sizeof metadata / sizeof *metadata - (name->id.len > 0 ? 0 : 1);
    bool ok = (spec->engine == NULL || td_call_config(call, &config, &config_len, err)) &&
              td_plan_spec_apply(spec, config, config_len, &tensors, rank, &plan, err) &&
              td_shard_file_create(&plan, &tensors, metadata, metadata_count, true, out, err);
    td_plan_fini(&plan);
    free(config);
    return ok;
}

/* The validator of a rank's file, and its key in the cache: what it is made of and how. */
static bool file_tag(const struct td_call *call, const struct td_checkpoint *checkpoint,
                     const struct plan_name *name, uint64_t rank, char tag[TD_TAG_BYTES])
{
    uint64_t numbers[] = {name->tp_size, rank, name->by_engine ? TD_ENGINE_REVISION : 0};
    bool by_config = name->by_config && call->model->config != NULL;
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "shard");
    td_digest_add_cstring(digest, checkpoint->tag);
    td_digest_add_cstring(digest, by_config ? td_file_tag(call->model->config->file) : "");
    td_digest_add(digest, name->engine.p, name->engine.len);
    td_digest_add(digest, name->id.p, name->id.len);
    td_digest_add(digest, numbers, sizeof numbers);
    return td_digest_finish(digest, tag);
}

/* One rank's file, computed now or before, and its validator. spec is read when it is needed, from stored (NULL: an
 * engine's), unless it has been (tp_size is set). False: an error was answered. */
static bool get_file(const struct td_call *call, const struct td_checkpoint *checkpoint,
                     const struct plan_name *name, const struct stored_plan *stored,
                     struct td_plan_spec *spec, uint64_t rank, struct td_shard_file **out,
                     char tag[TD_TAG_BYTES])
{
    struct td_error err;
    td_error_init(&err);
    if (!file_tag(call, checkpoint, name, rank, tag))
        return td_call_no_memory(call);
    *out = td_lru_get(&call->api->shards, tag);
    if (*out != NULL)
        return true;
    if ((spec->tp_size == 0 && !read_spec(name, stored, spec, &err)) ||
        !make_file(call, checkpoint, name, spec, rank, out, &err)) {
        td_response_fail_error(call->response, &err);
        return false;
    }
    (void)td_lru_put(&call->api->shards, tag, *out, td_shard_file_memory_bytes(*out));
    return true;
}

/* Makes the file the body. */
static void send_file(const struct td_call *call, const struct td_checkpoint *checkpoint,
                      struct td_shard_file *file, const char *tag)
{
    struct td_error err;
    td_error_init(&err);
    if (!td_call_append_file(call, checkpoint, file, &err)) {
        td_response_fail_error(call->response, &err);
        return;
    }
    call->response->content_type = octets;
    call->response->cache_control = "no-cache";
    call->response->accept_ranges = true;
    td_response_set_etag(call->response, "%s", tag);
}

static void write_json(const struct td_call *call, const struct td_checkpoint *checkpoint,
                       const struct plan_name *name, const struct td_shard_file *file, const char *tag)
{
    char engine[32] = "plan";
    struct td_buffer json;
    td_buffer_init(&json);
    if (name->engine.len > 0 && name->engine.len < sizeof engine) {
        memcpy(engine, name->engine.p, name->engine.len);
        engine[name->engine.len] = '\0';
    }
    if (td_shard_view_write(call, checkpoint, file, engine, tag, &json))
        td_response_set_json(call->response, &json);
    else
        (void)td_call_no_memory(call);
    td_buffer_fini(&json);
}

static void answer_rank(const struct td_call *call, struct plan_name *name, uint64_t rank, bool as_json)
{
    const struct td_checkpoint *checkpoint = td_call_checkpoint(call);
    struct td_plan_spec spec = {0};
    struct stored_plan *stored = NULL;
    struct td_shard_file *file = NULL;
    char tag[TD_TAG_BYTES];
    if (checkpoint == NULL || (name->engine.len == 0 && (stored = find_stored(call, name->id)) == NULL))
        return;
    if (stored != NULL)
        describe(stored, name);
    if (rank >= name->tp_size)
        td_response_fail(call->response, 404, NULL,
                         "no rank %" PRIu64 " of %" PRIu64 "; there are 0 to %" PRIu64, rank, name->tp_size,
                         name->tp_size - 1);
    else if (get_file(call, checkpoint, name, stored, &spec, rank, &file, tag) && as_json)
        write_json(call, checkpoint, name, file, tag);
    else if (file != NULL)
        send_file(call, checkpoint, file, tag);
    td_shard_file_unref(file);
    td_plan_spec_fini(&spec);
    stored_plan_unref(stored);
}

/* ---- paths --------------------------------------------------------------------------------------------- */

/* Takes the text before the next '/' (or all) off the front. */
static struct td_text next_segment(struct td_text *rest)
{
    size_t n = 0;
    while (n < rest->len && rest->p[n] != '/')
        n++;
    struct td_text segment = {.p = rest->p, .len = n};
    n += n < rest->len ? 1 : 0;
    *rest = (struct td_text){.p = rest->p + n, .len = rest->len - n};
    return segment;
}

/* A number without a sign or leading zeros, below 10^9. */
static bool read_number(struct td_text text, uint64_t *out)
{
    *out = 0;
    if (text.len == 0 || text.len > 9 || (text.len > 1 && text.p[0] == '0'))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        *out = *out * 10 + (uint64_t)(text.p[i] - '0');
    }
    return true;
}

/* What lies between a prefix and a suffix. */
static bool take_between(struct td_text text, const char *prefix, const char *suffix, struct td_text *out)
{
    size_t before = strlen(prefix);
    size_t after = strlen(suffix);
    if (text.len < before + after || memcmp(text.p, prefix, before) != 0 ||
        memcmp(text.p + text.len - after, suffix, after) != 0)
        return false;
    *out = (struct td_text){.p = text.p + before, .len = text.len - before - after};
    return true;
}

/* rank-{r}.safetensors, rank-{r}.json, and the name by which vLLM and SGLang ask for a sharded state. */
static bool read_file_name(const struct td_call *call, struct td_text text, uint64_t *rank, bool *as_json)
{
    struct td_text number;
    *as_json = take_between(text, "rank-", ".json", &number);
    if ((*as_json || take_between(text, "rank-", ".safetensors", &number) ||
         take_between(text, "model-rank-", "-part-0.safetensors", &number)) &&
        read_number(number, rank))
        return true;
    td_response_fail(call->response, 404, NULL,
                     "no file \"%.*s\"; there are rank-{r}.safetensors, rank-{r}.json and "
                     "model-rank-{r}-part-0.safetensors",
                     (int)(text.len > SHOWN_BYTES ? SHOWN_BYTES : text.len), text.p);
    return false;
}

static void write_engines(struct td_buffer *out)
{
    for (size_t i = 0; td_engine_name(i) != NULL; i++)
        td_buffer_printf(out, "%s%s", i > 0 ? ", " : "", td_engine_name(i));
}

static bool check_engine(const struct td_call *call, struct td_text engine)
{
    struct td_buffer list;
    if (td_engine_exists(engine.p, engine.len))
        return true;
    td_buffer_init(&list);
    write_engines(&list);
    const char *names = td_buffer_terminate(&list);
    td_response_fail(call->response, 404, NULL, "no engine \"%.*s\"; there are %s",
                     (int)(engine.len > 64 ? 64 : engine.len), engine.p, names == NULL ? "" : names);
    td_buffer_fini(&list);
    return false;
}

/* {engine}/tp{n}/{file} */
void td_handle_shard(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", NULL};
    struct td_text rest = call->rest;
    struct plan_name name = {.engine = next_segment(&rest)};
    struct td_text tp = next_segment(&rest);
    struct td_text size;
    uint64_t rank;
    bool as_json;
    if (!td_call_check_parameters(call, known) || !check_engine(call, name.engine))
        return;
    if (!take_between(tp, "tp", "", &size) || !read_number(size, &name.tp_size) || name.tp_size < 1 ||
        name.tp_size > TD_MAX_TP_SIZE) {
        td_response_fail(call->response, 400, NULL,
                         "\"%.*s\" is no number of ranks; tp1 to tp%d is right, as in "
                         "shards/%.*s/tp2/rank-0.safetensors",
                         (int)(tp.len > 64 ? 64 : tp.len), tp.p, TD_MAX_TP_SIZE, (int)name.engine.len,
                         name.engine.p);
        return;
    }
    name.by_engine = true;
    name.by_config = td_engine_needs_config(name.engine.p, name.engine.len);
    if (read_file_name(call, rest, &rank, &as_json))
        answer_rank(call, &name, rank, as_json);
}

void td_handle_model_file(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", NULL};
    struct plan_name name = {.engine = {.p = "none", .len = 4}, .tp_size = 1, .by_engine = true};
    if (td_call_check_parameters(call, known))
        answer_rank(call, &name, 0, false);
}

/* ---- registered plans ---------------------------------------------------------------------------------- */

static void write_rank(const struct td_call *call, const struct td_checkpoint *checkpoint,
                       const struct plan_name *name, uint64_t rank, const struct td_shard_file *file,
                       const char *tag, struct td_buffer *out)
{
    td_buffer_printf(out, "%s{\"rank\":%" PRIu64 ",\"href\":\"/models/", rank > 0 ? "," : "", rank);
    td_uri_encode(out, call->model->id, strlen(call->model->id), true);
    td_buffer_printf(out, "/plans/%.*s/rank-%" PRIu64 ".safetensors", (int)name->id.len, name->id.p, rank);
    if (checkpoint != &call->model->checkpoints[0]) {
        td_buffer_puts(out, "?checkpoint=");
        td_uri_encode(out, checkpoint->id, strlen(checkpoint->id), false);
    }
    td_buffer_printf(out, "\",\"nbytes\":%" PRIu64 ",\"etag\":\"%s\"}", file->nbytes, tag);
}

/* {"id", "model", "checkpoint", "tp_size", "outputs" of rank 0, "dropped", "ranks"}. False: an error was answered. */
static bool write_plan(const struct td_call *call, const struct td_checkpoint *checkpoint,
                       const struct plan_name *name, struct td_plan_spec *spec, struct td_buffer *out)
{
    uint64_t until_ns = td_clock_ns() + PLANNING_NS;
    td_buffer_printf(out, "{\"id\":\"%.*s\",\"model\":", (int)name->id.len, name->id.p);
    td_json_write_cstring(out, call->model->id);
    td_buffer_puts(out, ",\"checkpoint\":");
    td_json_write_cstring(out, checkpoint->id);
    td_buffer_printf(out, ",\"tp_size\":%" PRIu64 ",", spec->tp_size);
    for (uint64_t rank = 0; rank < spec->tp_size; rank++) {
        struct td_shard_file *file = NULL;
        char tag[TD_TAG_BYTES] = "";
        if (td_clock_ns() > until_ns || atomic_load(&call->api->draining)) {
            td_response_fail(call->response, 422, NULL,
                             "planning %" PRIu64 " ranks takes too long; use fewer or simpler rules",
                             spec->tp_size);
            return false;
        }
        if (!get_file(call, checkpoint, name, NULL, spec, rank, &file, tag) || file == NULL)
            return false;
        if (rank == 0) {
            td_shard_view_write_outputs(&file->plan, out);
            td_buffer_puts(out, ",\"ranks\":[");
        }
        write_rank(call, checkpoint, name, rank, file, tag, out);
        td_shard_file_unref(file);
        if (out->failed)
            return td_call_no_memory(call);
    }
    td_buffer_puts(out, "]}\n");
    return !out->failed || td_call_no_memory(call);
}

/* Answers with the plan; 200. */
static bool answer_plan(const struct td_call *call, const struct plan_name *name, struct td_plan_spec *spec)
{
    struct td_buffer json;
    const struct td_checkpoint *checkpoint = td_call_checkpoint(call);
    if (checkpoint == NULL)
        return false;
    if (checkpoint->tensor_count > PLAN_WORK_MAX / spec->tp_size) {
        td_response_fail(call->response, 422, NULL,
                         "a plan of %zu tensors for %" PRIu64
                         " ranks is too much at once; %d tensors times ranks "
                         "are the most",
                         checkpoint->tensor_count, spec->tp_size, PLAN_WORK_MAX);
        return false;
    }
    td_buffer_init(&json);
    bool ok = write_plan(call, checkpoint, name, spec, &json);
    if (ok)
        td_response_set_json(call->response, &json);
    td_buffer_fini(&json);
    return ok && call->response->status == 200;
}

/* Keeps the text under its id; *is_new says whether it was not there. */
static bool store_plan(const struct td_call *call, const struct td_buffer *text, const struct plan_name *name,
                       bool *is_new)
{
    struct stored_plan *plan = malloc(sizeof *plan + text->len);
    if (plan == NULL)
        return td_call_no_memory(call);
    atomic_init(&plan->refs, 1);
    plan->tp_size = name->tp_size;
    plan->by_engine = name->by_engine;
    plan->by_config = name->by_config;
    plan->len = text->len;
    memcpy(plan->text, text->data, text->len);
    *is_new = td_lru_put(&call->api->plans, name->id.p, plan, sizeof *plan + text->len);
    stored_plan_unref(plan);
    return true;
}

/* Without insignificant blanks the same plan has the same id, whoever registers it. */
static void register_plan(const struct td_call *call, const struct td_buffer *text, struct td_plan_spec *spec)
{
    char id[TD_TAG_BYTES];
    bool is_new = false;
    if (!td_digest_tag(text->data, text->len, id)) {
        (void)td_call_no_memory(call);
        return;
    }
    struct plan_name name = {
        .id = {.p = id, .len = strlen(id)}, .tp_size = spec->tp_size, .by_engine = spec->engine != NULL};
    name.by_config = name.by_engine && td_engine_needs_config(spec->engine, strlen(spec->engine));
    if (!answer_plan(call, &name, spec) || !store_plan(call, text, &name, &is_new))
        return;
    if (is_new) {
        call->response->status = 201;
        td_response_add_header(call->response, "Location", "plans/%s", id); /* relative: ids may be long */
    }
}

void td_handle_plans(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", NULL};
    struct td_plan_spec spec = {0};
    struct td_buffer text;
    struct td_error err;
    struct td_text body = call->request->body;
    if (!td_call_check_parameters(call, known))
        return;
    td_error_init(&err);
    td_buffer_init(&text);
    if (td_plan_spec_parse(&spec, body.p == NULL ? "" : body.p, body.len, &err) &&
        td_json_minify(body.p, body.len, &text, &err))
        register_plan(call, &text, &spec);
    else
        td_call_fail_json(call, &err);
    td_buffer_fini(&text);
    td_plan_spec_fini(&spec);
}

/* {plan}, or {plan}/{file} */
void td_handle_plan(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", NULL};
    struct td_text rest = call->rest;
    struct plan_name name = {.id = next_segment(&rest)};
    uint64_t rank;
    bool as_json;
    if (!td_call_check_parameters(call, known))
        return;
    if (rest.len > 0) {
        if (read_file_name(call, rest, &rank, &as_json))
            answer_rank(call, &name, rank, as_json);
        return;
    }
    struct td_plan_spec spec = {0};
    struct td_error err;
    struct stored_plan *stored = find_stored(call, name.id);
    if (stored == NULL)
        return;
    td_error_init(&err);
    describe(stored, &name);
    if (read_spec(&name, stored, &spec, &err))
        (void)answer_plan(call, &name, &spec);
    else
        td_response_fail_error(call->response, &err);
    td_plan_spec_fini(&spec);
    stored_plan_unref(stored);
}
