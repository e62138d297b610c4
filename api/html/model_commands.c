#include "api/html/model_commands.h"

#include "api/html/command_words.h"
#include "catalog/model/facts.h"
#include "catalog/model/file_kind.h"
#include "catalog/model/plain_id.h"
#include "catalog/names/bucket.h"
#include "catalog/names/family.h"
#include "catalog/names/oci_name.h"
#include "catalog/names/repo.h"

#include <stdlib.h>
#include <string.h>

/* How clients name the model. */
struct address {
    const struct td_call *call;
    const struct td_model *model;
    const char *scheme;
    struct td_text host; /* with the port */
    bool needs_token;
    const struct td_checkpoint *whole; /* the default checkpoint, or NULL */
    const struct td_repo *repo;        /* of clients of the Hub; NULL: they have no name for the model */
    const char *folder;                /* of the model in the repository; empty: the whole repository */
    const char *revision;              /* NULL: main */
    bool is_version;                   /* the revision is a version, which is a tag of registries too */
};

/* ---- words --------------------------------------------------------------------------------------------- */

static void put_origin(const struct address *at, struct td_buffer *out)
{
    (void)td_command_origin(out, at->call);
}

/* Appends the model's URL, without a '/' at its end. */
static void put_url(const struct address *at, struct td_buffer *out)
{
    put_origin(at, out);
    td_buffer_puts(out, "/models/");
    td_uri_encode(out, td_text_of(at->model->id), true);
}

/* Returns the file that stands for the model: the first of its default checkpoint, else the first of all; or NULL. */
static const struct td_entry *main_file(const struct address *at)
{
    if (at->whole != NULL && at->whole->part_count > 0)
        return at->whole->parts[0];
    return at->model->entry_count > 0 ? &at->call->snapshot->entries[at->model->first_entry] : NULL;
}

static const struct td_facts *config_of(const struct address *at)
{
    return at->model->config == NULL ? NULL : at->model->config->file->facts;
}

/* ---- the lines ----------------------------------------------------------------------------------------- */

static bool write_curl(const struct address *at, struct td_buffer *out)
{
    const struct td_entry *file = main_file(at);
    if (file == NULL)
        return false;
    td_buffer_puts(out, "curl -f -O ");
    if (at->needs_token)
        td_buffer_puts(out, "-H \"Authorization: Bearer $TENSORD_TOKEN\" ");
    put_url(at, out);
    if (at->whole != NULL && at->whole->fits_safetensors) {
        td_buffer_puts(out, "/model.safetensors");
        return true;
    }
    td_buffer_puts(out, "/files/");
    td_uri_encode(out, td_text_of(td_model_relative(at->model, file)), true);
    return true;
}

/* Appends the variables of clients of the Hub. */
static void put_hub_variables(const struct address *at, struct td_buffer *out)
{
    td_buffer_puts(out, "HF_ENDPOINT=");
    put_origin(at, out);
    td_buffer_puts(out, at->needs_token ? " HF_TOKEN=$TENSORD_TOKEN " : " ");
}

/* Appends the options that select the model in its repository. */
static void put_selection(const struct address *at, struct td_buffer *out)
{
    if (at->revision != NULL) {
        td_buffer_puts(out, " --revision ");
        td_command_word(out, td_text_of(at->revision));
    }
    if (at->folder[0] == '\0')
        return;
    struct td_buffer glob;
    td_buffer_init(&glob);
    td_buffer_puts(&glob, at->folder);
    td_buffer_puts(&glob, "/*");
    td_buffer_puts(out, " --include ");
    td_command_word(out, td_buffer_text(&glob));
    out->failed = out->failed || glob.failed;
    td_buffer_fini(&glob);
}

static bool write_hf(const struct address *at, struct td_buffer *out)
{
    if (at->repo == NULL || !td_command_takes_hub_id(td_text_of(at->repo->hub_id)))
        return false;
    put_hub_variables(at, out);
    td_buffer_printf(out, "hf download %s", at->repo->hub_id);
    put_selection(at, out);
    return true;
}

static bool write_pull(const struct address *at, struct td_buffer *out)
{
    if (at->repo == NULL || !td_command_takes_hub_id(td_text_of(at->repo->hub_id)))
        return false;
    td_buffer_puts(out, "tensord pull ");
    put_origin(at, out);
    td_buffer_printf(out, " %s", at->repo->hub_id);
    put_selection(at, out);
    return true;
}

static bool write_python(const struct address *at, struct td_buffer *out)
{
    struct td_buffer url;
    if (at->whole == NULL)
        return false;
    td_buffer_init(&url);
    put_url(at, &url);
    td_buffer_puts(out, "import tensord\n\nweights = tensord.load_file(");
    td_command_string(out, td_buffer_text(&url));
    td_buffer_puts(out, ")");
    out->failed = out->failed || url.failed;
    td_buffer_fini(&url);
    return true;
}

/* Returns whether transformers can load the model. */
static bool suits_transformers(const struct address *at)
{
    const struct td_facts *config = config_of(at);
    return at->repo != NULL && td_command_takes_hub_id(td_text_of(at->repo->hub_id)) && at->folder[0] == '\0' &&
           config != NULL && config->model_type != NULL && at->whole != NULL &&
           (strcmp(at->whole->id, "safetensors") == 0 || strcmp(at->whole->id, "pytorch") == 0);
}

static bool is_causal(const struct address *at)
{
    const struct td_facts *config = config_of(at);
    return config != NULL && config->architecture != NULL && td_has_extension(config->architecture, "ForCausalLM");
}

static bool write_transformers(const struct address *at, struct td_buffer *out)
{
    const char *class = is_causal(at) ? "AutoModelForCausalLM" : "AutoModel";
    if (!suits_transformers(at))
        return false;
    td_buffer_puts(out, "import os\n\nos.environ[\"HF_ENDPOINT\"] = \"");
    put_origin(at, out);
    td_buffer_puts(out, "\"  # before the import of transformers\n");
    if (at->needs_token)
        td_buffer_puts(out, "os.environ[\"HF_TOKEN\"] = os.environ[\"TENSORD_TOKEN\"]\n");
    td_buffer_printf(out, "from transformers import %s\n\nmodel = %s.from_pretrained(\"%s\"", class, class,
                     at->repo->hub_id);
    if (at->revision != NULL) {
        td_buffer_puts(out, ", revision=");
        td_command_string(out, td_text_of(at->revision));
    }
    td_buffer_putc(out, ')');
    return true;
}

static bool write_vllm(const struct address *at, struct td_buffer *out)
{
    if (!suits_transformers(at) || !is_causal(at))
        return false;
    put_hub_variables(at, out);
    td_buffer_printf(out, "vllm serve %s", at->repo->hub_id);
    if (at->revision != NULL) {
        td_buffer_puts(out, " --revision ");
        td_command_word(out, td_text_of(at->revision));
    }
    return true;
}

static bool write_oras(const struct address *at, struct td_buffer *out)
{
    const struct td_oci_names *names = td_oci_names_of(at->call->snapshot);
    if (at->repo == NULL || at->folder[0] != '\0' || (at->revision != NULL && !at->is_version))
        return false;
    for (size_t i = 0; i < names->count; i++) {
        if (names->items[i].repo != at->repo)
            continue;
        td_buffer_puts(out, "oras pull ");
        if (strcmp(at->scheme, "http") == 0)
            td_buffer_puts(out, "--plain-http ");
        if (at->needs_token)
            td_buffer_puts(out, "-u any -p \"$TENSORD_TOKEN\" ");
        td_buffer_printf(out, "%.*s/%s:", (int)at->host.len, at->host.p, names->items[i].name);
        td_command_word(out, td_text_of(at->revision == NULL ? "main" : at->revision));
        td_buffer_puts(out, " -o model");
        return true;
    }
    return false;
}

static bool write_boto3(const struct address *at, struct td_buffer *out)
{
    const struct td_entry *file = main_file(at);
    const struct td_bucket *bucket =
        file == NULL || at->model->is_other_revision ? NULL : td_bucket_of(at->call->snapshot, td_text_of(file->path));
    if (bucket == NULL)
        return false;
    td_buffer_puts(out, "import boto3\nfrom botocore import UNSIGNED\nfrom botocore.config import Config\n\n"
                        "s3 = boto3.client(\"s3\", endpoint_url=\"");
    if (!td_command_s3_origin(out, at->call))
        return false;
    td_buffer_printf(out,
                     "\", region_name=\"us-east-1\",\n                  config=Config(signature_version=%s, "
                     "s3={\"addressing_style\": \"path\"}))\n",
                     at->needs_token ? "\"s3v4\"" : "UNSIGNED");
    td_buffer_puts(out, "s3.download_file(");
    td_command_string(out, td_text_of(bucket->name));
    td_buffer_puts(out, ", ");
    td_command_string(out, td_text_of(td_bucket_key(bucket, file)));
    td_buffer_puts(out, ", ");
    td_command_string(out, td_text_of(td_base_name(file->path)));
    td_buffer_putc(out, ')');
    return true;
}

/* ---- the address --------------------------------------------------------------------------------------- */

/* Finds the repository that the plain id belongs to, and the model's folder in it. */
static void find_repo(struct address *at, struct td_text id)
{
    const struct td_snapshot *snapshot = at->call->snapshot;
    at->repo = td_repo_find(snapshot, false, id);
    if (at->repo == NULL && (at->repo = td_repo_above(snapshot, false, id, &at->folder)) == NULL)
        at->folder = "";
}

/* Finds how clients of the Hub name the model: by its own id, or as a version of a family. `plain` is a buffer for the
 * id, which the folder points into. */
static void find_names(struct address *at, struct td_buffer *plain)
{
    const struct td_snapshot *snapshot = at->call->snapshot;
    const struct td_plain_path id = td_plain_path(at->model, at->model->id);
    size_t rest;
    td_buffer_append(plain, id.before.p, id.before.len);
    td_buffer_append(plain, id.after.p, id.after.len);
    if (td_buffer_terminate(plain) == NULL)
        return;
    const struct td_family *family = td_family_route(snapshot, td_buffer_text(plain), &rest);
    for (size_t i = 0; family != NULL && i < family->count; i++) {
        if (family->versions[i].model != at->model || strcmp(family->id, at->model->id) == 0)
            continue;
        at->repo = td_repo_find(snapshot, false, td_text_of(family->id));
        at->revision = family->versions[i].name;
        at->is_version = true;
        if (at->repo != NULL)
            return;
    }
    find_repo(at, td_buffer_text(plain));
    at->is_version = false;
    at->revision = at->model->is_other_revision ? at->model->revision : NULL;
}

bool td_model_commands_make(const struct td_call *call, const struct td_model *model, struct td_model_commands *out,
                            struct td_error *err)
{
    static const struct {
        const char *name, *label;
        bool (*write)(const struct address *at, struct td_buffer *out);
    } lines[] = {
        {"curl", "curl: the weights, or the first file of them", write_curl},
        {"hf", "hf: all files, into the cache of Hugging Face clients", write_hf},
        {"pull", "tensord pull: all files, into a folder", write_pull},
        {"python", "Python: the tensors, straight into memory", write_python},
        {"transformers", "transformers", write_transformers},
        {"vllm", "vLLM", write_vllm},
        {"oras", "oras: all files, as an artifact of a registry", write_oras},
        {"boto3", "boto3: a file, by the port for clients of S3", write_boto3},
    };
    _Static_assert(sizeof lines / sizeof *lines == TD_MODEL_COMMANDS, "a line for each command");
    struct address at = {.call = call, .model = model, .folder = ""};
    struct td_buffer plain;
    struct td_buffer text;
    *out = (struct td_model_commands){.count = 0};
    at.scheme = td_request_scheme(call->request);
    at.host = td_request_host(call->request);
    at.needs_token = call->caller.kind != TD_CALLER_OPEN;
    at.whole = model->checkpoint_count > 0 ? &model->checkpoints[0] : NULL;
    if (at.host.len == 0)
        return true;
    td_buffer_init(&plain);
    find_names(&at, &plain);
    bool ok = !plain.failed;
    for (size_t i = 0; ok && i < TD_MODEL_COMMANDS; i++) {
        td_buffer_init(&text);
        struct td_model_command *item = &out->items[out->count];
        if (lines[i].write(&at, &text)) {
            item->text = td_buffer_release_string(&text);
            ok = item->text != NULL;
            item->name = lines[i].name;
            item->label = lines[i].label;
            out->count += ok ? 1 : 0;
        }
        td_buffer_fini(&text);
    }
    td_buffer_fini(&plain);
    return ok || td_error_no_memory(err);
}

void td_model_commands_fini(struct td_model_commands *commands)
{
    for (size_t i = 0; i < commands->count; i++)
        free(commands->items[i].text);
    commands->count = 0;
}
