#include "api/hub/hub_about.h"

#include "catalog/pipeline_tag.h"
#include "core/checked.h"
#include "core/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what is there ------------------------------------------------------------------------------------- */

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

/* The library that the files are for, where the card does not say. */
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

/* Derives the formats of the checkpoints, of folders below as well, by our names: safetensors, pytorch, gguf, keras and
 * onnx are the Hub's, too. */
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

/* Whether the i-th tag of the card is one here, and is not derived already. */
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
    return text.len >= len && memcmp(text.p, prefix, len) == 0 &&
           td_text_equals((struct td_text){.p = text.p + len, .len = text.len - len}, value);
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

static bool write_tags(struct td_hub_call *hub, const struct td_hub_about *about, struct td_buffer *out,
                       struct td_error *err)
{
    bool first = true;
    td_buffer_puts(out, ",\"tags\":[");
    for (size_t i = 0; i < about->derived_count; i++) {
        if (!td_reserved_json_room(&hub->reserved, out, strlen(about->derived[i]), err))
            return false;
        td_buffer_puts(out, first ? "" : ",");
        td_json_write_cstring(out, about->derived[i]);
        first = false;
    }
    for (size_t i = 0; about->card != NULL && i < about->card->tag_count; i++) {
        const char *prefix;
        char text[320]; /* a prefix, and a word of the card */
        if (!is_card_tag(about, i, &prefix))
            continue;
        (void)snprintf(text, sizeof text, "%s%s", prefix, about->card->tags[i].value);
        if (!td_reserved_json_room(&hub->reserved, out, strlen(text), err))
            return false;
        td_buffer_puts(out, first ? "" : ",");
        td_json_write_cstring(out, text);
        first = false;
    }
    td_buffer_putc(out, ']');
    return true;
}

static bool write_word(struct td_hub_call *hub, const char *name, const char *word, struct td_buffer *out,
                       struct td_error *err)
{
    if (word == NULL)
        return true;
    if (!td_reserved_json_room(&hub->reserved, out, strlen(word), err))
        return false;
    td_buffer_printf(out, ",\"%s\":", name);
    td_json_write_cstring(out, word);
    return true;
}

bool td_hub_about_write(struct td_hub_call *hub, const struct td_hub_about *about, struct td_buffer *out,
                        struct td_error *err)
{
    return write_tags(hub, about, out, err) && write_word(hub, "pipeline_tag", about->pipeline_tag, out, err) &&
           write_word(hub, "library_name", about->library, out, err);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

/* Room for a text that is JSON already. */
static bool json_room(struct td_hub_call *hub, struct td_buffer *out, size_t len, struct td_error *err)
{
    return td_reserved_json_room(&hub->reserved, out, len / 6 + 1, err); /* which counts on escapes */
}

/* Appends a member of `config` that is an object of its own. */
static bool write_config_part(struct td_hub_call *hub, const char *name, const struct td_facts *facts, bool *first,
                              struct td_buffer *out, struct td_error *err)
{
    if (facts == NULL)
        return true;
    if (!json_room(hub, out, facts->json_len, err))
        return false;
    td_buffer_printf(out, *first ? "\"%s\":" : ",\"%s\":", name);
    *first = false;
    td_buffer_append(out, facts->json, facts->json_len);
    return true;
}

static bool write_config(struct td_hub_call *hub, const struct td_hub_about *about, struct td_buffer *out,
                         struct td_error *err)
{
    const struct td_facts *config = about->config;
    bool first = config == NULL;
    if (config == NULL && about->tokenizer == NULL && about->diffusers == NULL && about->adapter == NULL)
        return true;
    if (!json_room(hub, out, config == NULL ? 0 : config->json_len, err))
        return false;
    td_buffer_puts(out, ",\"config\":{");
    if (config != NULL)
        td_buffer_append(out, config->json + 1, config->json_len - 2); /* its members */
    bool ok = write_config_part(hub, "tokenizer_config", about->tokenizer, &first, out, err) &&
              write_config_part(hub, "diffusers", about->diffusers, &first, out, err) &&
              write_config_part(hub, "peft", about->adapter, &first, out, err);
    td_buffer_putc(out, '}');
    return ok;
}

static bool write_card(struct td_hub_call *hub, const struct td_hub_about *about, struct td_buffer *out,
                       struct td_error *err)
{
    if (about->card == NULL)
        return true;
    if (!json_room(hub, out, about->card->json_len, err))
        return false;
    td_buffer_puts(out, ",\"cardData\":");
    td_buffer_append(out, about->card->json, about->card->json_len);
    return true;
}

/* The first checkpoint of this format in the view's own directory, where its files lie as they are; NULL: none. */
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

static bool write_safetensors(struct td_hub_call *hub, const struct td_hub_about *about, struct td_buffer *out,
                              struct td_error *err)
{
    const struct td_checkpoint *checkpoint = find_checkpoint(about, "safetensors");
    struct td_dtype_count counts[MOST_DTYPES];
    uint64_t total;
    if (checkpoint == NULL)
        return true;
    size_t count = sum_elements(checkpoint, counts, &total);
    if (!json_room(hub, out, count * 48, err))
        return false;
    td_buffer_puts(out, ",\"safetensors\":{\"parameters\":{");
    for (size_t i = 0; i < count; i++)
        td_buffer_printf(out, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", counts[i].dtype->name, counts[i].elems);
    td_buffer_printf(out, "},\"total\":%" PRIu64 "}", total);
    return true;
}

/* A value of the file's own metadata, which is JSON; NULL: there is none. */
static const char *metadata_of(const struct td_checkpoint *checkpoint, const char *key)
{
    for (size_t i = 0; i < checkpoint->metadata_count; i++)
        if (strcmp(checkpoint->metadata[i].key, key) == 0)
            return checkpoint->metadata[i].value;
    return NULL;
}

static bool write_gguf_member(struct td_hub_call *hub, const struct td_checkpoint *checkpoint, const char *key,
                              const char *name, struct td_buffer *out, struct td_error *err)
{
    enum { MOST_BYTES = 64 * 1024 };
    const char *value = metadata_of(checkpoint, key);
    if (value == NULL || strlen(value) > MOST_BYTES)
        return true;
    if (!json_room(hub, out, strlen(value), err))
        return false;
    td_buffer_printf(out, ",\"%s\":%s", name, value);
    return true;
}

static bool write_gguf(struct td_hub_call *hub, const struct td_hub_about *about, struct td_buffer *out,
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
    if (len > 2 && architecture[0] == '"') /* its key is made of the word between the quotes */
        (void)snprintf(context_key, sizeof context_key, "%.*s.context_length", (int)(len > 66 ? 64 : len - 2),
                       architecture + 1);
    td_buffer_printf(out, ",\"gguf\":{\"total\":%" PRIu64, total);
    bool ok = write_gguf_member(hub, checkpoint, "general.architecture", "architecture", out, err) &&
              write_gguf_member(hub, checkpoint, context_key, "context_length", out, err) &&
              write_gguf_member(hub, checkpoint, "tokenizer.chat_template", "chat_template", out, err);
    td_buffer_putc(out, '}');
    return ok;
}

bool td_hub_about_write_parts(struct td_hub_call *hub, const struct td_hub_about *about,
                              const struct td_hub_parts *parts, struct td_buffer *out, struct td_error *err)
{
    return (!parts->config || write_config(hub, about, out, err)) &&
           (!parts->card || write_card(hub, about, out, err)) &&
           (!parts->safetensors || write_safetensors(hub, about, out, err)) &&
           (!parts->gguf || write_gguf(hub, about, out, err));
}
