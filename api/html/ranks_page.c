#include "api/html/ranks_page.h"

#include "api/call/checkpoint_choice.h"
#include "api/html/command_words.h"
#include "api/html/page.h"
#include "api/html/rank_commands.h"
#include "api/html/shown.h"
#include "api/html/templates.h"
#include "core/digits.h"
#include "core/thread.h"
#include "rank/rank_list.h"
#include "slicing/engine/engine.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_RANKS = 2, BAR_WIDTH = 1000 };

struct ranks {
    struct td_snapshot *snapshot; /* a reference, which the set needs */
    struct td_rank_set set;       /* its name's texts are static */
    const char *engine;           /* as it was asked for; static */
    struct td_budget *budget;     /* of `bytes` */
    uint64_t *bytes;              /* of each rank's file, tp_size numbers */
    uint64_t made;                /* how many of them are set: all, unless the engine refuses the model */
    bool needs_token;
    struct td_error refusal; /* TD_OK: none */
    struct td_rank_commands commands;
};

static size_t bytes_of_numbers(const struct ranks *ranks)
{
    return (size_t)ranks->set.name.tp_size * sizeof *ranks->bytes; /* at most TD_MAX_TP_SIZE */
}

static void destroy(void *context)
{
    struct ranks *ranks = context;
    if (ranks->bytes != NULL)
        td_budget_give(ranks->budget, bytes_of_numbers(ranks));
    free(ranks->bytes);
    td_rank_commands_fini(&ranks->commands);
    td_snapshot_unref(ranks->snapshot);
    free(ranks);
}

/* ---- the page -------------------------------------------------------------------------------------------- */

static uint64_t largest(const struct ranks *ranks)
{
    uint64_t most = 1;
    for (uint64_t i = 0; i < ranks->made; i++)
        most = ranks->bytes[i] > most ? ranks->bytes[i] : most;
    return most;
}

/* Returns the sum of the files' bytes; at most UINT64_MAX. */
static uint64_t total(const struct ranks *ranks)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ranks->made; i++)
        sum = ranks->bytes[i] > UINT64_MAX - sum ? UINT64_MAX : sum + ranks->bytes[i];
    return sum;
}

static void write_file_path(const struct td_page_place *place, const char *ending, struct td_buffer *out)
{
    const struct ranks *ranks = place->context;
    td_rank_write_path(out, &ranks->set, td_text_of(ranks->engine), place->row[0], ending);
}

static void write_slot(const struct td_page_place *place, unsigned slot, struct td_buffer *out)
{
    const struct ranks *ranks = place->context;
    const struct td_model *model = ranks->set.model;
    switch ((enum td_ranks_slot)slot) {
    case TD_SLOT_RANKS_TITLE:
        td_buffer_printf(out, "%s: ranks", model->id);
        break;
    case TD_SLOT_RANKS_MODEL:
        td_buffer_puts(out, model->id);
        break;
    case TD_SLOT_RANKS_HERE:
        td_buffer_puts(out, "/models/");
        td_uri_encode(out, td_text_of(model->id), true);
        td_buffer_puts(out, "/view/ranks");
        break;
    case TD_SLOT_RANKS_ENGINE:
        td_buffer_puts(out, td_engine_name(place->row[0]));
        break;
    case TD_SLOT_RANKS_SHOWN_ENGINE:
        td_buffer_puts(out, ranks->engine);
        break;
    case TD_SLOT_RANKS_MOST:
        td_buffer_u64(out, TD_MAX_TP_SIZE);
        break;
    case TD_SLOT_RANKS_TP:
        td_buffer_u64(out, ranks->set.name.tp_size);
        break;
    case TD_SLOT_RANKS_PLURAL:
        td_buffer_puts(out, td_plural(ranks->set.name.tp_size));
        break;
    case TD_SLOT_RANKS_CHECKPOINT:
        td_buffer_puts(out, model->checkpoints[place->row[1]].id);
        break;
    case TD_SLOT_RANKS_REASON:
        td_buffer_puts(out, ranks->refusal.message);
        break;
    case TD_SLOT_RANKS_TOTAL_SIZE:
        td_shown_bytes(out, total(ranks));
        break;
    case TD_SLOT_RANKS_RANK:
        td_buffer_u64(out, place->row[0]);
        break;
    case TD_SLOT_RANKS_BYTES:
        td_buffer_u64(out, ranks->bytes[place->row[0]]);
        break;
    case TD_SLOT_RANKS_SIZE:
        td_shown_bytes(out, ranks->bytes[place->row[0]]);
        break;
    case TD_SLOT_RANKS_WIDTH:
        td_buffer_u64(out, (uint64_t)((double)ranks->bytes[place->row[0]] / (double)largest(ranks) * BAR_WIDTH));
        break;
    case TD_SLOT_RANKS_FILE:
        write_file_path(place, ".safetensors", out);
        break;
    case TD_SLOT_RANKS_JSON:
        write_file_path(place, ".json", out);
        break;
    case TD_SLOT_RANKS_COMMAND:
        td_buffer_puts(out, ranks->commands.items[place->row[0]].name);
        break;
    case TD_SLOT_RANKS_COMMAND_LABEL:
        td_buffer_puts(out, ranks->commands.items[place->row[0]].label);
        break;
    case TD_SLOT_RANKS_COMMAND_TEXT:
        td_buffer_puts(out, ranks->commands.items[place->row[0]].text);
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct ranks *ranks = place->context;
    const struct td_model *model = ranks->set.model;
    const bool is_refused = ranks->refusal.code != TD_OK;
    switch ((enum td_ranks_section)section) {
    case TD_SECTION_RANKS_ENGINES:
        return TD_ENGINE_NAME_COUNT;
    case TD_SECTION_RANKS_CHOSEN:
        return strcmp(td_engine_name(place->row[0]), ranks->engine) == 0 ? 1 : 0;
    case TD_SECTION_RANKS_HAS_CHECKPOINTS:
        return model->checkpoint_count > 1 ? 1 : 0;
    case TD_SECTION_RANKS_CHECKPOINTS:
        return model->checkpoint_count;
    case TD_SECTION_RANKS_CHECKPOINT_CHOSEN:
        return &model->checkpoints[place->row[1]] == ranks->set.checkpoint ? 1 : 0;
    case TD_SECTION_RANKS_REFUSED:
        return is_refused ? 1 : 0;
    case TD_SECTION_RANKS_TABLE:
    case TD_SECTION_RANKS_TABLE_END:
        return is_refused ? 0 : 1;
    case TD_SECTION_RANKS_RANKS:
        return is_refused ? 0 : (size_t)ranks->made;
    case TD_SECTION_RANKS_TOKENS:
        return ranks->needs_token ? 1 : 0;
    case TD_SECTION_RANKS_COMMANDS:
        return is_refused ? 0 : ranks->commands.count;
    }
    return 0;
}

static const struct td_page_class ranks_class = {
    .page = &td_template_ranks, .write = write_slot, .rows = count_rows, .destroy = destroy};

/* ---- the request ----------------------------------------------------------------------------------------- */

/* Returns the parameter's text, or an empty one. A form sends fields that are empty. */
static struct td_text parameter(const struct td_call *call, const char *name)
{
    const struct td_text *text = td_uri_parameter(call->uri, name);
    return text == NULL ? TD_TEXT("") : *text;
}

/* Reads the engine: without the parameter vLLM's, or for a model without config.json one that needs none. Returns NULL
 * after it answered 400. */
static const char *read_engine(const struct td_call *call)
{
    const char *known[TD_ENGINE_NAME_COUNT + 1] = {NULL};
    struct td_error err = TD_ERROR_INIT;
    struct td_text engine = parameter(call, "engine");
    if (engine.len == 0)
        engine = call->model->config != NULL ? TD_TEXT("vllm") : TD_TEXT("fsdp");
    for (size_t i = 0; i < TD_ENGINE_NAME_COUNT; i++) {
        known[i] = td_engine_name(i);
        if (td_text_equals(engine, known[i]))
            return known[i];
    }
    (void)td_engine_not_found(engine, &err);
    td_call_fail_known(call, 400, known, "%s", err.message);
    return NULL;
}

/* Reads the number of ranks. Returns false after it answered 400. */
static bool read_ranks(const struct td_call *call, uint64_t *tp_size)
{
    *tp_size = DEFAULT_RANKS;
    if (parameter(call, "tp").len == 0)
        return true;
    if (!td_call_read_number(call, "tp", TD_MAX_TP_SIZE, tp_size))
        return false;
    if (*tp_size == 0)
        td_response_fail(call->response, 400, NULL, "tp must be at least 1");
    return *tp_size > 0;
}

/* For td_rank_list_make: notes the bytes of a rank's file. */
static bool note_bytes(void *context, uint64_t rank, const struct td_rank_file *file, const char *tag,
                       struct td_error *err)
{
    struct ranks *ranks = context;
    (void)tag;
    (void)err;
    ranks->bytes[rank] = file->nbytes;
    ranks->made = rank + 1;
    return true;
}

struct planning {
    const struct td_call *call;
    struct ranks *ranks;
    struct td_error *err;
    bool ok;
};

static bool is_over(void *context)
{
    return td_call_over(context);
}

/* Plans the files of all ranks. For td_run_in_background. */
static void plan(void *argument)
{
    struct planning *planning = argument;
    const struct td_call *call = planning->call;
    const struct td_cancel over = {.is_asked = is_over, .context = (void *)(uintptr_t)call};
    struct td_rank_maker maker;
    td_rank_maker_init(&maker, &call->api->ranks, &planning->ranks->set);
    planning->ok = td_rank_list_make(&maker, &over, note_bytes, planning->ranks, planning->err);
    call->response->planning_ns += maker.planning_ns;
    td_rank_maker_fini(&maker);
}

/* Takes the memory for the numbers of bytes. */
static bool take_numbers(struct ranks *ranks, struct td_error *err)
{
    const size_t bytes = bytes_of_numbers(ranks);
    if (!td_budget_take(ranks->budget, bytes))
        return td_budget_refuse(ranks->budget, bytes, err);
    ranks->bytes = malloc(bytes);
    if (ranks->bytes != NULL)
        return true;
    td_budget_give(ranks->budget, bytes);
    return td_error_no_memory(err);
}

/* Fills in the page. A refusal of the engine is part of it. Errors: those that may pass. */
static bool fill(const struct td_call *call, struct ranks *ranks, struct td_error *err)
{
    struct td_error failure = TD_ERROR_INIT;
    struct planning planning = {.call = call, .ranks = ranks, .err = &failure};
    if (!take_numbers(ranks, err))
        return false;
    bool ok =
        td_rank_list_check(&ranks->set, &failure) && td_run_in_background(plan, &planning, &failure) && planning.ok;
    if (ok)
        return td_rank_commands_make(call, &ranks->set, td_text_of(ranks->engine), &ranks->commands, err);
    if (failure.code != TD_FAILED_PRECONDITION)
        return td_error_copy(err, &failure);
    ranks->refusal = failure;
    return true;
}

void td_html_ranks(const struct td_call *call)
{
    static const char *const known[] = {"engine", "tp", "checkpoint", NULL};
    struct td_rank_name name;
    struct td_error err = TD_ERROR_INIT;
    uint64_t tp_size;
    if (!td_call_check_parameters(call, known))
        return;
    if (call->model->is_delta) {
        td_call_refuse_delta(call);
        return;
    }
    const char *engine = read_engine(call);
    if (engine == NULL || !read_ranks(call, &tp_size))
        return;
    const struct td_checkpoint *checkpoint = td_checkpoint_parameter(call);
    if (checkpoint == NULL || !td_rank_name_engine(td_text_of(engine), tp_size, &name))
        return;
    struct ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    ranks->snapshot = td_snapshot_ref(call->snapshot);
    ranks->set =
        (struct td_rank_set){.snapshot = call->snapshot, .model = call->model, .checkpoint = checkpoint, .name = name};
    ranks->engine = engine;
    ranks->budget = td_shared_budget_of(&call->api->lists, call->request->client);
    ranks->needs_token = call->caller.kind != TD_CALLER_OPEN;
    td_error_init(&ranks->refusal);
    if (!fill(call, ranks, &err)) {
        destroy(ranks);
        td_response_fail_error(call->response, &err);
    } else if (!td_page_set(call->response, &ranks_class, ranks, &err)) {
        td_response_fail_error(call->response, &err);
    }
    td_command_vary(call->response);
}
