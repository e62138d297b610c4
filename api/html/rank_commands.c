/* Clients of the Hub, of registries and of S3 know the files of ranks of default checkpoints alone, by names that this
 * module looks up: rank/repo_view.h says which file of a repository's virtual revision is that of the model. */
#include "api/html/rank_commands.h"

#include "api/html/command_words.h"
#include "catalog/names/bucket.h"
#include "catalog/names/oci_name.h"
#include "rank/repo_view.h"
#include "slicing/engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REVISION_BYTES = 64 };

/* The names that the lines are made of. */
struct wanted {
    const struct td_call *call;
    const struct td_rank_set *set;
    struct td_text engine;
    bool needs_token;
    const struct td_repo *repo;    /* NULL: the model has no name in a repository */
    char revision[REVISION_BYTES]; /* "tp2-rank0-vllm" */
    const char *file;              /* rank 0's file in that revision; in an arena */
    /* No other model of the repository has such a file: clients that take the whole revision need the files of all. */
    bool is_alone;
};

void td_rank_write_path(struct td_buffer *out, const struct td_rank_set *set, struct td_text engine, uint64_t rank,
                        const char *ending)
{
    td_buffer_puts(out, "/models/");
    td_uri_encode(out, td_text_of(set->model->id), true);
    td_buffer_puts(out, "/shards/");
    td_uri_encode(out, engine, false);
    td_buffer_printf(out, "/tp%" PRIu64 "/rank-%" PRIu64 "%s", set->name.tp_size, rank, ending);
    if (!td_model_is_default_checkpoint(set->model, set->checkpoint)) {
        td_buffer_puts(out, "?checkpoint=");
        td_uri_encode(out, td_text_of(set->checkpoint->id), false);
    }
}

/* Finds the file of the model in the repository's revision of rank 0. Errors: TD_RESOURCE_EXHAUSTED. */
static bool find_file(struct wanted *wanted, struct td_arena *arena, struct td_error *err)
{
    struct td_repo_view view;
    struct td_repo_item *items;
    size_t count;
    const char *folder = "";
    struct td_error missing = TD_ERROR_INIT;
    const struct td_model *model = wanted->set->model;
    struct td_snapshot *snapshot = wanted->call->snapshot;
    const struct td_text id = td_text_of(model->id);
    const struct td_repo *repo = td_repo_find(snapshot, false, id);
    repo = repo != NULL ? repo : td_repo_above(snapshot, false, id, &folder);
    if (repo == NULL || wanted->set->checkpoint != &model->checkpoints[0])
        return true;
    if (!td_repo_view_open(snapshot, repo, td_text_of(wanted->revision), &view, &missing))
        return missing.code == TD_NOT_FOUND || td_error_copy(err, &missing);
    if (!td_repo_view_list_rank_files(&view, arena, &items, &count, err))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (items[i].model != model)
            continue;
        wanted->repo = repo;
        wanted->file = items[i].path;
        wanted->is_alone = count == 1;
    }
    return true;
}

/* ---- the lines --------------------------------------------------------------------------------------------- */

/* Each appends its line. Returns false if there is none. */

static bool write_curl(const struct wanted *wanted, struct td_buffer *out)
{
    struct td_buffer url;
    td_buffer_init(&url);
    bool ok = td_command_origin(&url, wanted->call);
    td_rank_write_path(&url, wanted->set, wanted->engine, 0, ".safetensors");
    td_buffer_puts(out, "curl -f -o rank-0.safetensors ");
    if (wanted->needs_token)
        td_buffer_puts(out, "-H \"Authorization: Bearer $TENSORD_TOKEN\" ");
    td_command_word(out, td_buffer_text(&url));
    out->failed = out->failed || url.failed;
    td_buffer_fini(&url);
    return ok;
}

static bool has_hub_name(const struct wanted *wanted)
{
    return wanted->repo != NULL && td_command_takes_hub_id(td_text_of(wanted->repo->hub_id));
}

static bool write_hf(const struct wanted *wanted, struct td_buffer *out)
{
    td_buffer_puts(out, "HF_ENDPOINT=");
    if (!has_hub_name(wanted) || !td_command_origin(out, wanted->call))
        return false;
    td_buffer_printf(out, "%s hf download %s ", wanted->needs_token ? " HF_TOKEN=$TENSORD_TOKEN" : "",
                     wanted->repo->hub_id);
    if (!wanted->is_alone) {
        td_command_word(out, td_text_of(wanted->file));
        td_buffer_putc(out, ' ');
    }
    td_buffer_printf(out, "--revision %s --local-dir rank-0", wanted->revision);
    return true;
}

static bool write_boto3(const struct wanted *wanted, struct td_buffer *out)
{
    char file[64];
    struct td_buffer key;
    const char *id = wanted->set->model->id;
    const struct td_bucket *bucket = td_bucket_of(wanted->call->snapshot, td_text_of(id));
    if (bucket == NULL || !td_command_takes_bucket(td_text_of(bucket->name)) ||
        wanted->set->checkpoint != &wanted->set->model->checkpoints[0])
        return false;
    td_buffer_puts(out, "import boto3\nfrom botocore import UNSIGNED\nfrom botocore.config import Config\n\n"
                        "s3 = boto3.client(\"s3\", region_name=\"us-east-1\", endpoint_url=\"");
    if (!td_command_s3_origin(out, wanted->call))
        return false;
    td_buffer_printf(out,
                     "\",\n                  config=Config(signature_version=%s, s3={\"addressing_style\": "
                     "\"path\"}))\ns3.download_file(",
                     wanted->needs_token ? "\"s3v4\"" : "UNSIGNED");
    td_command_string(out, td_text_of(bucket->name));
    td_buffer_puts(out, ", ");
    (void)td_rank_name_write_state(0, file, sizeof file);
    td_buffer_init(&key);
    const struct td_entry entry = {.path = id}; /* its path is as that of a file in the model's place */
    td_buffer_printf(&key, "%s/shards/%.*s/tp%" PRIu64 "/%s", td_bucket_key(bucket, &entry), (int)wanted->engine.len,
                     wanted->engine.p, wanted->set->name.tp_size, file);
    td_command_string(out, td_buffer_text(&key));
    out->failed = out->failed || key.failed;
    td_buffer_fini(&key);
    td_buffer_puts(out, ", \"rank-0.safetensors\")");
    return true;
}

static bool write_python(const struct wanted *wanted, struct td_buffer *out)
{
    td_buffer_puts(out, "import tensord\n\nweights = tensord.load_rank(\"");
    bool ok = td_command_origin(out, wanted->call);
    td_buffer_puts(out, "/models/");
    td_uri_encode(out, td_text_of(wanted->set->model->id), true);
    if (!td_model_is_default_checkpoint(wanted->set->model, wanted->set->checkpoint)) {
        td_buffer_puts(out, "?checkpoint=");
        td_uri_encode(out, td_text_of(wanted->set->checkpoint->id), false);
    }
    td_buffer_printf(out, "\", engine=\"%.*s\", tp=%" PRIu64 ", rank=0)", (int)wanted->engine.len, wanted->engine.p,
                     wanted->set->name.tp_size);
    return ok;
}

static bool write_oras(const struct wanted *wanted, struct td_buffer *out)
{
    struct td_catalog_status status;
    const struct td_oci_names *names = td_oci_names_of(wanted->call->snapshot);
    const struct td_text host = td_request_host(wanted->call->request);
    size_t i = 0;
    td_catalog_get_status(wanted->call->api->catalog, &status);
    while (i < names->count && names->items[i].repo != wanted->repo)
        i++;
    if (!wanted->is_alone || i == names->count || host.len == 0 || !status.hasher.enabled)
        return false;
    td_buffer_printf(out, "oras pull %s%s%.*s/%s:%s -o rank-0",
                     strcmp(td_request_scheme(wanted->call->request), "http") == 0 ? "--plain-http " : "",
                     wanted->needs_token ? "-u any -p \"$TENSORD_TOKEN\" " : "", (int)host.len, host.p,
                     names->items[i].name, wanted->revision);
    return true;
}

static bool write_pull(const struct wanted *wanted, struct td_buffer *out)
{
    td_buffer_puts(out, "tensord pull ");
    if (!wanted->is_alone || !has_hub_name(wanted) || !td_command_origin(out, wanted->call))
        return false;
    td_buffer_printf(out, " %s --engine %.*s --tp %" PRIu64 " --rank 0 -o rank-0", wanted->repo->hub_id,
                     (int)wanted->engine.len, wanted->engine.p, wanted->set->name.tp_size);
    return true;
}

static const struct {
    const char *name, *label;
    bool (*write)(const struct wanted *wanted, struct td_buffer *out);
} lines[TD_RANK_COMMANDS] = {
    {"curl", "curl", write_curl},       {"pull", "tensord pull, with all other files", write_pull},
    {"python", "Python", write_python}, {"hf", "hf download", write_hf},
    {"boto3", "boto3", write_boto3},    {"oras", "oras pull, with all other files", write_oras},
};

/* Adds a line, if there is one. Returns false when memory is short. */
static bool add_line(const struct wanted *wanted, size_t i, struct td_rank_commands *out)
{
    struct td_buffer text;
    td_buffer_init(&text);
    bool has_line = lines[i].write(wanted, &text);
    char *line = td_buffer_release_string(&text);
    if (line == NULL || !has_line) {
        free(line);
        return line != NULL;
    }
    out->items[out->count++] = (struct td_rank_command){.name = lines[i].name, .label = lines[i].label, .text = line};
    return true;
}

/* Writes the name of rank 0's virtual revision, where '-' stands for '@' in the engine. */
static void write_revision(struct wanted *wanted)
{
    int len = snprintf(wanted->revision, sizeof wanted->revision, "tp%" PRIu64 "-rank0-%.*s", wanted->set->name.tp_size,
                       (int)wanted->engine.len, wanted->engine.p);
    for (int i = 0; i < len && wanted->revision[i] != '\0'; i++)
        if (wanted->revision[i] == '@')
            wanted->revision[i] = '-';
}

bool td_rank_commands_make(const struct td_call *call, const struct td_rank_set *set, struct td_text engine,
                           struct td_rank_commands *out, struct td_error *err)
{
    struct wanted wanted = {
        .call = call, .set = set, .engine = engine, .needs_token = call->caller.kind != TD_CALLER_OPEN};
    struct td_arena arena;
    out->count = 0;
    write_revision(&wanted);
    td_arena_init(&arena, 0);
    bool ok = find_file(&wanted, &arena, err);
    for (size_t i = 0; ok && i < TD_RANK_COMMANDS; i++)
        ok = add_line(&wanted, i, out) || td_error_no_memory(err);
    td_arena_fini(&arena);
    return ok;
}

void td_rank_commands_fini(struct td_rank_commands *commands)
{
    for (size_t i = 0; i < commands->count; i++)
        free(commands->items[i].text);
    commands->count = 0;
}
