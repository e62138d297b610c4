#include "api/hub/hub_about.h"

#include "api/hub/hub_item.h"
#include "parser/format/manifest.h"

#include <stdio.h>
#include <string.h>

/* ---- tags ---------------------------------------------------------------------------------------------- */

/* Returns whether the i-th tag of the card is shown: it has the form of a tag and is not derived already. */
static bool is_card_tag(const struct td_repo_about *about, size_t i, const char **prefix)
{
    const struct td_fact_tag *tag = &about->card->tags[i];
    *prefix = td_fact_tag_prefix(tag, about->of_dataset);
    if (*prefix == NULL)
        return false;
    for (size_t j = 0; j < about->derived_count; j++)
        if ((*prefix)[0] == '\0' && strcmp(about->derived[j], tag->value) == 0)
            return false;
    return true;
}

static bool equals_both(struct td_text text, const char *prefix, const char *value)
{
    size_t len = strlen(prefix);
    return td_text_begins(text, td_text_n(prefix, len)) && td_text_equals(td_text_skip(text, len), value);
}

bool td_hub_about_has_tag(const struct td_repo_about *about, struct td_text tag)
{
    const char *prefix;
    for (size_t i = 0; i < about->derived_count; i++)
        if (td_text_equals(tag, about->derived[i]))
            return true;
    for (size_t i = 0; about->card != NULL && i < about->card->tag_count; i++)
        if (is_card_tag(about, i, &prefix) && equals_both(tag, prefix, about->card->tags[i].value))
            return true;
    return false;
}

/* Adds a member, or with name NULL an element, that is a string; nothing when `word` is NULL. */
static bool add_word(struct td_hub_call *hub, const char *name, const char *word, struct td_document *json,
                     struct td_error *err)
{
    if (word == NULL)
        return true;
    if (!td_reserved_json_room(&hub->reserved, json, strlen(word), err))
        return false;
    td_document_add_string(json, name, word);
    return true;
}

static bool add_tags(struct td_hub_call *hub, const struct td_repo_about *about, struct td_document *json,
                     struct td_error *err)
{
    td_document_begin_array(json, "tags");
    for (size_t i = 0; i < about->derived_count; i++)
        if (!add_word(hub, NULL, about->derived[i], json, err))
            return false;
    for (size_t i = 0; about->card != NULL && i < about->card->tag_count; i++) {
        const char *prefix;
        char text[320]; /* a prefix and a word of the card */
        if (!is_card_tag(about, i, &prefix))
            continue;
        (void)snprintf(text, sizeof text, "%s%s", prefix, about->card->tags[i].value);
        if (!add_word(hub, NULL, text, json, err))
            return false;
    }
    td_document_end(json);
    return true;
}

bool td_hub_about_add(struct td_hub_call *hub, const struct td_repo_about *about, struct td_document *json,
                      struct td_error *err)
{
    return add_tags(hub, about, json, err) && add_word(hub, "pipeline_tag", about->pipeline_tag, json, err) &&
           add_word(hub, "library_name", about->library, json, err);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

/* Reserves room for text_bytes bytes that are JSON already; td_reserved_json_room counts six for each. */
static bool raw_room(struct td_hub_call *hub, struct td_document *json, size_t text_bytes, struct td_error *err)
{
    return td_reserved_json_room(&hub->reserved, json, text_bytes / 6 + 1, err);
}

/* Adds a value that is JSON already. */
static bool add_json(struct td_hub_call *hub, const char *name, struct td_text value, struct td_document *json,
                     struct td_error *err)
{
    if (!raw_room(hub, json, value.len, err))
        return false;
    td_document_add_raw(json, name, value);
    return true;
}

static bool add_facts(struct td_hub_call *hub, const char *name, const struct td_facts *facts, struct td_document *json,
                      struct td_error *err)
{
    return facts == NULL || add_json(hub, name, td_text_n(facts->json, facts->json_len), json, err);
}

static bool add_config(struct td_hub_call *hub, const struct td_repo_about *about, struct td_document *json,
                       struct td_error *err)
{
    const struct td_facts *config = about->config;
    if (config == NULL && about->tokenizer == NULL && about->diffusers == NULL && about->adapter == NULL)
        return true;
    if (!raw_room(hub, json, config == NULL ? 0 : config->json_len, err))
        return false;
    td_document_begin_object(json, "config");
    if (config != NULL && config->json_len > strlen("{}"))
        td_document_add_members(json, td_text_n(config->json + 1, config->json_len - 2));
    bool ok = add_facts(hub, "tokenizer_config", about->tokenizer, json, err) &&
              add_facts(hub, "diffusers", about->diffusers, json, err) &&
              add_facts(hub, "peft", about->adapter, json, err);
    td_document_end(json);
    return ok;
}

static bool add_safetensors(struct td_hub_call *hub, const struct td_repo_about *about, struct td_document *json,
                            struct td_error *err)
{
    const struct td_checkpoint *checkpoint = td_repo_about_checkpoint(about, "safetensors");
    struct td_dtype_count counts[TD_SUM_DTYPES];
    uint64_t total;
    if (checkpoint == NULL)
        return true;
    size_t count = td_checkpoint_sum_elements(checkpoint, counts, &total);
    if (!raw_room(hub, json, count * 48, err))
        return false;
    td_document_begin_object(json, "safetensors");
    td_document_begin_object(json, "parameters");
    for (size_t i = 0; i < count; i++)
        td_document_add_u64(json, counts[i].dtype->name, counts[i].elems);
    td_document_end(json);
    td_document_add_u64(json, "total", total);
    td_document_end(json);
    return true;
}

static bool add_gguf_member(struct td_hub_call *hub, const struct td_checkpoint *checkpoint, const char *key,
                            const char *name, struct td_document *json, struct td_error *err)
{
    enum { MOST_BYTES = 64 * 1024 };
    const char *value = td_metadata_find(checkpoint->metadata, checkpoint->metadata_count, key);
    return value == NULL || strlen(value) > MOST_BYTES || add_json(hub, name, td_text_of(value), json, err);
}

static bool add_gguf(struct td_hub_call *hub, const struct td_repo_about *about, struct td_document *json,
                     struct td_error *err)
{
    const struct td_checkpoint *checkpoint = td_repo_about_checkpoint(about, "gguf");
    struct td_dtype_count counts[TD_SUM_DTYPES];
    char context_key[128];
    uint64_t total;
    if (checkpoint == NULL)
        return true;
    (void)td_checkpoint_sum_elements(checkpoint, counts, &total);
    const char *architecture =
        td_metadata_find(checkpoint->metadata, checkpoint->metadata_count, "general.architecture");
    size_t len = architecture == NULL ? 0 : strlen(architecture);
    context_key[0] = '\0';
    if (len > 2 && architecture[0] == '"') /* the word between the quotes is part of another key */
        (void)snprintf(context_key, sizeof context_key, "%.*s.context_length", (int)(len > 66 ? 64 : len - 2),
                       architecture + 1);
    td_document_begin_object(json, "gguf");
    td_document_add_u64(json, "total", total);
    bool ok = add_gguf_member(hub, checkpoint, "general.architecture", "architecture", json, err) &&
              add_gguf_member(hub, checkpoint, context_key, "context_length", json, err) &&
              add_gguf_member(hub, checkpoint, "tokenizer.chat_template", "chat_template", json, err);
    td_document_end(json);
    return ok;
}

bool td_hub_about_add_parts(struct td_hub_call *hub, const struct td_repo_about *about,
                            const struct td_hub_parts *parts, struct td_document *json, struct td_error *err)
{
    return (!parts->config || add_config(hub, about, json, err)) &&
           (!parts->card || add_facts(hub, "cardData", about->card, json, err)) &&
           (!parts->safetensors || add_safetensors(hub, about, json, err)) &&
           (!parts->gguf || add_gguf(hub, about, json, err));
}

/* ---- errors -------------------------------------------------------------------------------------------- */

/* The list of errors while it is written. */
struct errors {
    struct td_hub_call *hub;
    struct td_document *json;
    size_t count;
    struct td_error *err;
};

/* Adds an error of directory/file, or of the file when the directory is empty. */
static bool add_one(struct errors *errors, struct td_text directory, const char *file, const char *message)
{
    struct td_document *json = errors->json;
    struct td_buffer path;
    if (errors->count >= TD_HUB_MOST_ERRORS)
        return true;
    td_buffer_init(&path);
    td_buffer_append(&path, directory.p, directory.len);
    td_buffer_puts(&path, directory.len > 0 ? "/" : "");
    td_buffer_puts(&path, file);
    bool ok = (!path.failed || td_error_no_memory(errors->err)) &&
              td_reserved_json_room(&errors->hub->reserved, json, path.len + strlen(message), errors->err);
    if (ok) {
        if (errors->count++ == 0)
            td_document_begin_array(json, "errors");
        td_document_begin_object(json, NULL);
        td_document_add_text(json, "file", td_buffer_text(&path));
        td_hub_add_error(json, message);
        td_document_end(json);
    }
    td_buffer_fini(&path);
    return ok;
}

static bool add_files(struct errors *errors, const struct td_repo_view *view)
{
    for (size_t i = 0; i < view->entry_count && errors->count < TD_HUB_MOST_ERRORS; i++) {
        const struct td_entry *entry = &view->snapshot->entries[view->first_entry + i];
        if (entry->file->error != NULL && td_repo_view_keeps(view, entry) &&
            !add_one(errors, TD_TEXT(""), entry->path + view->prefix_len, entry->file->error))
            return false;
    }
    return true;
}

/* Adds the sets of files of a model that are not whole. */
static bool add_sets(struct errors *errors, const struct td_repo_view *view, const struct td_model *model)
{
    struct td_text directory = td_repo_view_directory(view, model);
    for (size_t i = 0; i < model->problems.count; i++) {
        const struct td_problem *problem = &model->problems.items[i];
        const struct td_entry *entry = td_model_find_file(view->snapshot, model, td_text_of(problem->path));
        if ((entry == NULL || entry->file->error == NULL) &&
            !add_one(errors, directory, problem->path, problem->message))
            return false;
    }
    return true;
}

bool td_hub_add_errors(struct td_hub_call *hub, struct td_document *json, const struct td_repo_view *view,
                       struct td_error *err)
{
    struct errors errors = {.hub = hub, .json = json, .err = err};
    const struct td_repo_models models = td_repo_view_models(view);
    const struct td_model *model;
    bool ok = add_files(&errors, view);
    for (size_t i = 0; ok && (model = td_repo_models_get(&models, i)) != NULL; i++)
        ok = add_sets(&errors, view, model);
    if (errors.count > 0)
        td_document_end(json);
    return ok;
}

/* ---- what lists and descriptions share ------------------------------------------------------------------- */

struct td_text td_hub_author_of(const char *id)
{
    const char *slash = strchr(id, '/');
    const char *author = slash == NULL ? TD_REPO_DEFAULT_NAMESPACE : id;
    return td_text_n(author, slash == NULL ? strlen(author) : (size_t)(slash - id));
}

bool td_hub_begin_repo(struct td_hub_call *hub, struct td_document *json, const struct td_repo *repo,
                       const char *commit, struct td_error *err)
{
    const char *id = repo->hub_id;
    struct td_text author = td_hub_author_of(id);
    if (!td_reserved_json_room(&hub->reserved, json, 4 * strlen(id), err))
        return false;
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "_id", id);
    td_document_add_string(json, "id", id);
    if (!td_repo_is_dataset(repo))
        td_document_add_string(json, "modelId", id);
    td_document_add_text(json, "author", author);
    td_document_add_string(json, "sha", commit);
    td_hub_add_date(json, "lastModified", repo->updated_ns);
    td_hub_add_date(json, "createdAt", repo->updated_ns);
    td_document_add_bool(json, "private", false);
    td_document_add_bool(json, "gated", false);
    td_document_add_bool(json, "disabled", false);
    td_document_add_u64(json, "downloads", 0);
    td_document_add_u64(json, "likes", 0);
    td_document_add_u64(json, "usedStorage", repo->file_bytes);
    return true;
}
