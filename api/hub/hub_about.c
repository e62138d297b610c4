#include "api/hub/hub_about.h"

#include "api/hub/hub_answer.h"
#include "catalog/pipeline_tag.h"
#include "core/checked.h"

#include <stdio.h>
#include <string.h>

/* ---- derived facts ------------------------------------------------------------------------------------- */

static const struct td_entry *find_file(const struct td_repo_view *view, const char *name)
{
    const struct td_entry *entry = td_snapshot_find_in_run(view->snapshot, view->first_entry, view->entry_count,
                                                           view->prefix_len, td_text_of(name));
    return entry != NULL && td_repo_view_keeps(view, entry) ? entry : NULL;
}

static const struct td_facts *facts_of(const struct td_repo_view *view, const char *name)
{
    const struct td_entry *entry = find_file(view, name);
    return entry == NULL ? NULL : entry->file->facts;
}

/* Returns the library that the files are for, where the card names none. */
static const char *derive_library(const struct td_hub_about *about)
{
    const struct td_facts *config = about->config;
    if (about->adapter != NULL)
        return "peft";
    if (find_file(about->view, "modules.json") != NULL ||
        find_file(about->view, "config_sentence_transformers.json") != NULL)
        return "sentence-transformers";
    if (about->diffusers != NULL)
        return "diffusers";
    return config != NULL && (config->architecture != NULL || config->model_type != NULL) ? "transformers" : NULL;
}

static void derive(struct td_hub_about *about, const char *tag)
{
    if (tag == NULL || about->derived_count == TD_HUB_DERIVED_TAGS)
        return;
    for (size_t i = 0; i < about->derived_count; i++)
        if (strcmp(about->derived[i], tag) == 0)
            return;
    about->derived[about->derived_count++] = tag;
}

/* Derives the formats of the checkpoints, also of folders below. The names are those of manifests; safetensors,
 * pytorch, gguf, keras and onnx are the Hub's words, too. */
static void derive_formats(struct td_hub_about *about)
{
    enum { MOST_MODELS = 32 };
    const struct td_model *model;
    for (size_t i = 0; i < MOST_MODELS && (model = td_repo_view_model(about->view, i)) != NULL; i++)
        for (size_t j = 0; j < model->checkpoint_count; j++)
            derive(about, model->checkpoints[j].format);
}

void td_hub_about_init(struct td_hub_about *about, const struct td_repo_view *view, bool of_dataset, size_t error_count)
{
    *about = (struct td_hub_about){.view = view, .of_dataset = of_dataset, .card = facts_of(view, "README.md")};
    derive(about, error_count > 0 ? TD_HUB_UNREADABLE_TAG : NULL);
    if (of_dataset)
        return;
    about->config = facts_of(view, "config.json");
    about->tokenizer = facts_of(view, "tokenizer_config.json");
    about->diffusers = facts_of(view, "model_index.json");
    about->adapter = facts_of(view, "adapter_config.json");
    const struct td_facts *card = about->card;
    const struct td_facts *config = about->config;
    const char *task = config != NULL && config->architecture != NULL ? td_pipeline_tag_of(config->architecture) : NULL;
    about->library = card != NULL && card->library_name != NULL ? card->library_name : derive_library(about);
    if (task == NULL && about->library != NULL && strcmp(about->library, "sentence-transformers") == 0)
        task = "sentence-similarity";
    about->pipeline_tag = card != NULL && card->pipeline_tag != NULL ? card->pipeline_tag : task;
    derive(about, about->library);
    derive_formats(about);
    derive(about, config == NULL ? NULL : config->model_type);
    derive(about, about->pipeline_tag);
    derive(about, about->tokenizer != NULL && about->tokenizer->has_chat_template ? "conversational" : NULL);
}

/* ---- tags ---------------------------------------------------------------------------------------------- */

/* Returns whether the i-th tag of the card is shown: it has the form of a tag and is not derived already. */
static bool is_card_tag(const struct td_hub_about *about, size_t i, const char **prefix)
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

bool td_hub_about_has_tag(const struct td_hub_about *about, struct td_text tag)
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

static bool add_tag(struct td_hub_call *hub, struct td_json_builder *json, const char *tag, struct td_error *err)
{
    if (!td_reserved_json_room(&hub->reserved, json, strlen(tag), err))
        return false;
    td_json_add_string(json, NULL, tag);
    return true;
}

static bool add_tags(struct td_hub_call *hub, const struct td_hub_about *about, struct td_json_builder *json,
                     struct td_error *err)
{
    td_json_begin_array(json, "tags");
    for (size_t i = 0; i < about->derived_count; i++)
        if (!add_tag(hub, json, about->derived[i], err))
            return false;
    for (size_t i = 0; about->card != NULL && i < about->card->tag_count; i++) {
        const char *prefix;
        char text[320]; /* a prefix and a word of the card */
        if (!is_card_tag(about, i, &prefix))
            continue;
        (void)snprintf(text, sizeof text, "%s%s", prefix, about->card->tags[i].value);
        if (!add_tag(hub, json, text, err))
            return false;
    }
    td_json_end(json);
    return true;
}

static bool add_word(struct td_hub_call *hub, const char *name, const char *word, struct td_json_builder *json,
                     struct td_error *err)
{
    if (word == NULL)
        return true;
    if (!td_reserved_json_room(&hub->reserved, json, strlen(word), err))
        return false;
    td_json_add_string(json, name, word);
    return true;
}

bool td_hub_about_add(struct td_hub_call *hub, const struct td_hub_about *about, struct td_json_builder *json,
                      struct td_error *err)
{
    return add_tags(hub, about, json, err) && add_word(hub, "pipeline_tag", about->pipeline_tag, json, err) &&
           add_word(hub, "library_name", about->library, json, err);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

/* Reserves room for text_bytes bytes that are JSON already; td_reserved_json_room counts six for each. */
static bool raw_room(struct td_hub_call *hub, struct td_json_builder *json, size_t text_bytes, struct td_error *err)
{
    return td_reserved_json_room(&hub->reserved, json, text_bytes / 6 + 1, err);
}

/* Adds a value that is JSON already. */
static bool add_json(struct td_hub_call *hub, const char *name, struct td_text value, struct td_json_builder *json,
                     struct td_error *err)
{
    if (!raw_room(hub, json, value.len, err))
        return false;
    td_json_add_raw(json, name, value);
    return true;
}

static bool add_facts(struct td_hub_call *hub, const char *name, const struct td_facts *facts,
                      struct td_json_builder *json, struct td_error *err)
{
    return facts == NULL || add_json(hub, name, td_text_n(facts->json, facts->json_len), json, err);
}

static bool add_config(struct td_hub_call *hub, const struct td_hub_about *about, struct td_json_builder *json,
                       struct td_error *err)
{
    const struct td_facts *config = about->config;
    if (config == NULL && about->tokenizer == NULL && about->diffusers == NULL && about->adapter == NULL)
        return true;
    if (!raw_room(hub, json, config == NULL ? 0 : config->json_len, err))
        return false;
    td_json_begin_object(json, "config");
    if (config != NULL && config->json_len > strlen("{}"))
        td_json_add_members(json, td_text_n(config->json + 1, config->json_len - 2));
    bool ok = add_facts(hub, "tokenizer_config", about->tokenizer, json, err) &&
              add_facts(hub, "diffusers", about->diffusers, json, err) &&
              add_facts(hub, "peft", about->adapter, json, err);
    td_json_end(json);
    return ok;
}

/* Returns the first checkpoint of this format in the view's own directory whose files the view shows as they are on
 * disk; NULL when there is none. */
static const struct td_checkpoint *find_checkpoint(const struct td_hub_about *about, const char *format)
{
    const struct td_model *model = td_repo_view_model(about->view, 0);
    if (model == NULL || about->view->kind != TD_REVISION_FILES || td_repo_view_directory(about->view, model).len > 0)
        return NULL;
    for (size_t i = 0; i < model->checkpoint_count; i++)
        if (strcmp(model->checkpoints[i].format, format) == 0)
            return &model->checkpoints[i];
    return NULL;
}

enum { MOST_DTYPES = 128 };

/* Sums the elements of all parts by type, at most MOST_DTYPES of them; returns how many types there are. */
static size_t sum_elements(const struct td_checkpoint *checkpoint, struct td_dtype_count counts[MOST_DTYPES],
                           uint64_t *total)
{
    size_t count = 0;
    *total = 0;
    for (size_t p = 0; p < checkpoint->part_count; p++) {
        const struct td_file *file = checkpoint->parts[p]->file;
        for (size_t i = 0; i < file->count_count; i++) {
            const struct td_dtype_count *one = &file->counts[i];
            size_t at = 0;
            while (at < count && counts[at].dtype != one->dtype)
                at++;
            if (at == count && count == MOST_DTYPES)
                continue;
            if (at == count)
                counts[count++] = (struct td_dtype_count){.dtype = one->dtype};
            if (!td_add_u64(counts[at].elems, one->elems, &counts[at].elems))
                counts[at].elems = UINT64_MAX;
            if (!td_add_u64(*total, one->elems, total))
                *total = UINT64_MAX;
        }
    }
    return count;
}

static bool add_safetensors(struct td_hub_call *hub, const struct td_hub_about *about, struct td_json_builder *json,
                            struct td_error *err)
{
    const struct td_checkpoint *checkpoint = find_checkpoint(about, "safetensors");
    struct td_dtype_count counts[MOST_DTYPES];
    uint64_t total;
    if (checkpoint == NULL)
        return true;
    size_t count = sum_elements(checkpoint, counts, &total);
    if (!raw_room(hub, json, count * 48, err))
        return false;
    td_json_begin_object(json, "safetensors");
    td_json_begin_object(json, "parameters");
    for (size_t i = 0; i < count; i++)
        td_json_add_u64(json, counts[i].dtype->name, counts[i].elems);
    td_json_end(json);
    td_json_add_u64(json, "total", total);
    td_json_end(json);
    return true;
}

/* Returns a value of the file's own metadata, as JSON; NULL when there is none. */
static const char *metadata_of(const struct td_checkpoint *checkpoint, const char *key)
{
    for (size_t i = 0; i < checkpoint->metadata_count; i++)
        if (strcmp(checkpoint->metadata[i].key, key) == 0)
            return checkpoint->metadata[i].value;
    return NULL;
}

static bool add_gguf_member(struct td_hub_call *hub, const struct td_checkpoint *checkpoint, const char *key,
                            const char *name, struct td_json_builder *json, struct td_error *err)
{
    enum { MOST_BYTES = 64 * 1024 };
    const char *value = metadata_of(checkpoint, key);
    return value == NULL || strlen(value) > MOST_BYTES || add_json(hub, name, td_text_of(value), json, err);
}

static bool add_gguf(struct td_hub_call *hub, const struct td_hub_about *about, struct td_json_builder *json,
                     struct td_error *err)
{
    const struct td_checkpoint *checkpoint = find_checkpoint(about, "gguf");
    struct td_dtype_count counts[MOST_DTYPES];
    char context_key[128];
    uint64_t total;
    if (checkpoint == NULL)
        return true;
    (void)sum_elements(checkpoint, counts, &total);
    const char *architecture = metadata_of(checkpoint, "general.architecture");
    size_t len = architecture == NULL ? 0 : strlen(architecture);
    context_key[0] = '\0';
    if (len > 2 && architecture[0] == '"') /* the word between the quotes is part of another key */
        (void)snprintf(context_key, sizeof context_key, "%.*s.context_length", (int)(len > 66 ? 64 : len - 2),
                       architecture + 1);
    td_json_begin_object(json, "gguf");
    td_json_add_u64(json, "total", total);
    bool ok = add_gguf_member(hub, checkpoint, "general.architecture", "architecture", json, err) &&
              add_gguf_member(hub, checkpoint, context_key, "context_length", json, err) &&
              add_gguf_member(hub, checkpoint, "tokenizer.chat_template", "chat_template", json, err);
    td_json_end(json);
    return ok;
}

bool td_hub_about_add_parts(struct td_hub_call *hub, const struct td_hub_about *about, const struct td_hub_parts *parts,
                            struct td_json_builder *json, struct td_error *err)
{
    return (!parts->config || add_config(hub, about, json, err)) &&
           (!parts->card || add_facts(hub, "cardData", about->card, json, err)) &&
           (!parts->safetensors || add_safetensors(hub, about, json, err)) &&
           (!parts->gguf || add_gguf(hub, about, json, err));
}

/* ---- what lists and descriptions share ------------------------------------------------------------------- */

struct td_text td_hub_author_of(const char *id)
{
    const char *slash = strchr(id, '/');
    const char *author = slash == NULL ? TD_REPO_DEFAULT_NAMESPACE : id;
    return td_text_n(author, slash == NULL ? strlen(author) : (size_t)(slash - id));
}

bool td_hub_begin_repo(struct td_hub_call *hub, struct td_json_builder *json, const struct td_repo *repo,
                       const char *commit, struct td_error *err)
{
    const char *id = repo->hub_id;
    struct td_text author = td_hub_author_of(id);
    if (!td_reserved_json_room(&hub->reserved, json, 4 * strlen(id), err))
        return false;
    td_json_begin_object(json, NULL);
    td_json_add_string(json, "_id", id);
    td_json_add_string(json, "id", id);
    if (!td_repo_is_dataset(repo))
        td_json_add_string(json, "modelId", id);
    td_json_add_text(json, "author", author);
    td_json_add_string(json, "sha", commit);
    td_hub_add_date(json, "lastModified", repo->updated_ns);
    td_hub_add_date(json, "createdAt", repo->updated_ns);
    td_json_add_bool(json, "private", false);
    td_json_add_bool(json, "gated", false);
    td_json_add_bool(json, "disabled", false);
    td_json_add_u64(json, "downloads", 0);
    td_json_add_u64(json, "likes", 0);
    td_json_add_u64(json, "usedStorage", repo->file_bytes);
    return true;
}
